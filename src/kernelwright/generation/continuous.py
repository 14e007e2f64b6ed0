"""Runs transformers' continuous batching, with a paged cache, for GPUs: waiting requests replace finished rows.

In transformers 5.17 and 5.23, `return_logprobs` gives the logarithm of the softmax after all logits processors. With a
temperature and no filter this is exactly the sampled distribution. With `top_p` or `top_k` it would be the filtered
distribution, so requests with filters go through plain `generate`. Samples come from the device's generator: a seed
holds for a session, not for a request, and samples depend on the rest of the batch.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from typing import Any

from kernelwright.errors import HarnessError
from kernelwright.generation.queued import Queued
from kernelwright.inference.engine import Running

PAGE = 256
"""Tokens in a block of the cache; transformers' own value."""
BATCH_TOKENS = 2048
"""The bound on tokens of a forward pass; longer prompts are prefilled in parts."""
CACHED_TOKENS = 4096
"""Cached tokens per row, on average: with longer rows, fewer run at once."""
STOP_SECONDS = 60.0


class ContinuousFailed(HarnessError):
    """Continuous batching gave no answer; plain `generate` may."""


class ContinuousSession:
    """Answers requests of one temperature. Holds a thread and a cache on the device until it is closed."""

    def __init__(self, model: Any, owner: Queued, first: Running) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        if not getattr(model, "_supports_attention_backend", False):  # it would run, but attend to other rows
            raise ContinuousFailed(f"{type(model).__name__} cannot be batched continuously")
        self._model, self._owner = model, owner
        self._temperature = first.sampling.temperature
        drawn = {"temperature": self._temperature, "top_k": 0, "top_p": 1.0} if self._temperature else {}
        how = GenerationConfig(
            do_sample=bool(drawn),
            **drawn,
            max_new_tokens=owner.limit(first),
            eos_token_id=sorted(owner.ends) or -1,
            pad_token_id=0,
        )
        wanted: dict[str, Any] = {
            "return_logprobs": True,
            "max_requests_per_batch": owner.rows,
            "max_batch_tokens": BATCH_TOKENS,
            "num_blocks": blocks_of(model.config, owner.rows, owner.context, model.dtype.itemsize, _free(model)),
            "seed": first.sampling.seed % 2**31,
            "auto_switch_to_flash": False,  # keeps the model's attention; downloads no kernels
        }
        known = {field.name for field in dataclasses.fields(ContinuousBatchingConfig)}
        settings = ContinuousBatchingConfig(**{name: value for name, value in wanted.items() if name in known})
        self._attention = model.config._attn_implementation
        if "auto_switch_to_flash" not in known and "|" not in self._attention:  # before 5.23
            model.set_attn_implementation(f"paged|{self._attention}")
        try:
            self._manager = model.init_continuous_batching(how, continuous_batching_config=settings)
            self._manager.start()
        except Exception as error:  # a model with another kind of cache, too little memory, …
            self._restore()
            raise ContinuousFailed(f"continuous batching cannot begin: {error}") from error
        self._asked: dict[str, Running] = {}
        self._count = 0

    @property
    def busy(self) -> bool:
        """Tells whether requests are running."""
        return bool(self._asked)

    def takes(self, running: Running) -> bool:
        """Tells whether the session can answer a request: same temperature, no filters."""
        return suits(running) and running.sampling.temperature == self._temperature

    def admit(self, waiting: deque[Running]) -> None:
        """Admits requests from the front of the queue while it can answer them. Raises `ContinuousFailed`."""
        while waiting and self.takes(waiting[0]):
            running = waiting.popleft()
            name = f"request-{self._count}"
            self._count += 1
            self._asked[name] = running
            took = self._manager.add_request(
                list(running.prompt), request_id=name, max_new_tokens=self._owner.limit(running)
            )
            if took is None:
                raise ContinuousFailed("continuous batching takes no more requests")

    def left(self) -> list[Running]:
        """Returns the unanswered requests, in order."""
        return [running for running in self._asked.values() if not running.finish_reason]

    def wait(self, seconds: float) -> None:
        """Waits until an answer has ended, at most `seconds`. Raises `ContinuousFailed`."""
        for name, running in list(self._asked.items()):
            if running.cancelled:
                self._manager.cancel_request(name)
                del self._asked[name]
                running.finish_reason = "cancelled"
        if not self._asked:
            return
        output = self._manager.get_result(timeout=seconds)
        while output is not None:
            self._take(output)
            output = self._manager.get_result(timeout=0.001) if self._asked else None
        if self._asked and not self._manager.is_running():
            raise ContinuousFailed("continuous batching ended before its answers did")

    def _take(self, output: Any) -> None:
        if output.error is not None and output.request_id in self._asked:
            raise ContinuousFailed(f"continuous batching failed: {output.error}")
        if not output.is_finished():
            return
        running = self._asked.pop(output.request_id, None)
        if running is None:  # was cancelled
            return
        if len(output.logprobs) != len(output.generated_tokens):
            self._asked[output.request_id] = running
            raise ContinuousFailed("continuous batching gave tokens without log-probabilities")
        self._owner.finish(running, output.generated_tokens, output.logprobs)

    def close(self) -> None:
        """Cancels running requests and frees the thread and the cache."""
        for name, running in self._asked.items():
            self._manager.cancel_request(name)
            running.finish_reason = running.finish_reason or ("cancelled" if running.cancelled else "")
        self._asked = {}
        self._manager.stop(block=True, timeout=STOP_SECONDS)
        self._manager.destroy()
        self._restore()

    def _restore(self) -> None:
        if self._model.config._attn_implementation != self._attention:
            self._model.set_attn_implementation(self._attention)


def blocks_of(config: Any, rows: int, context: int, width: int, free: float) -> int:
    """Returns the number of cache blocks: enough for all rows in at most half of the `free` bytes, and always for one.

    `width` is the bytes of an element.
    """
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    block = 2 * text.num_hidden_layers * heads * size * width * PAGE
    wanted = rows * math.ceil(min(context, CACHED_TOKENS) / PAGE)
    return int(max(min(wanted, free / 2 // block), math.ceil(context / PAGE)))


def _free(model: Any) -> float:
    """Returns the free bytes of the model's GPU; infinity on a CPU."""
    import torch

    return torch.cuda.mem_get_info(model.device)[0] if model.device.type == "cuda" else math.inf


def suits(running: Running) -> bool:
    """Tells whether continuous batching samples a request with the right log-probabilities: without filters."""
    return running.sampling.top_p >= 1 and running.sampling.top_k == 0
