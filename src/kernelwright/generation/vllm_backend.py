"""Generates with vLLM in this process, on one GPU or, with vLLM's CPU build, without one.

Requests go to vLLM's engine one by one (`add_request`, `step`, `abort_request`), so that answers come as they end.
After an update, the worker's `reload_weights` loads the weights into the running model: it takes Hugging Face's names
and converts the tensors to the layout of its kernels, which the model's `load_weights` alone does not. Then
`reset_prefix_cache` follows. This needs vLLM's worker in this process (`VLLM_ENABLE_V1_MULTIPROCESSING=0`).
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernelwright.errors import ConfigError, HarnessError
from kernelwright.generation.hub import HubTokenizer, asked_how, context_of, ends_of, load_tokenizer, place_of
from kernelwright.generation.queued import Queued
from kernelwright.inference.engine import Running

ROWS = 128
MEMORY_SHARE = 0.3
"""Share of the GPU's memory for vLLM: training and judging use the same GPU."""


class VllmBackend(Queued):
    """A model in vLLM. With `tempered` and `top_p` below 1, log-probabilities are of the filtered distribution."""

    name = "vllm"

    def __init__(self, llm: Any, config: Any, generation_config: Any, tokenizer: HubTokenizer) -> None:
        super().__init__(
            tokenizer,
            ends_of(generation_config, tokenizer.inner),
            context_of(config, tokenizer),
            ROWS,
            asked_how(config),
        )
        self._llm, self._engine = llm, llm.llm_engine
        self._asked: dict[str, Running] = {}
        self._count = 0

    @classmethod
    def load(cls, model: str, *, tempered: bool = False, trust_remote_code: bool = False) -> VllmBackend:
        """Loads a model from a folder or the Hub. Raises `ConfigError` without vLLM, or where it cannot load it."""
        if importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "the generation back-end vllm needs vLLM, which is not installed",
                hint="pip install vllm, or use the back-end transformers",
            )
        place, tokenizer = place_of(model), load_tokenizer(model, trust_remote_code)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # scripts may parse stdout
        from transformers import AutoConfig, GenerationConfig

        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
        try:
            generation_config = GenerationConfig.from_pretrained(place)
        except OSError:
            generation_config = GenerationConfig.from_model_config(config)
        try:
            with _draws_kept():
                from vllm import LLM

                llm = LLM(
                    model=place,
                    gpu_memory_utilization=MEMORY_SHARE,
                    max_num_seqs=ROWS,
                    logprobs_mode="processed_logprobs" if tempered else "raw_logprobs",
                    trust_remote_code=trust_remote_code,
                )
        except Exception as error:  # many types: no GPU, too little memory, an unknown architecture
            raise ConfigError(
                f"vLLM cannot load {model!r}: {str(error).strip()[:300]}", hint="use the back-end transformers"
            ) from error
        return cls(llm, config, generation_config, tokenizer)

    @property
    def busy(self) -> bool:
        """Tells whether a step would do anything."""
        return bool(self._waiting or self._asked)

    def step(self) -> None:
        """Admits waiting requests, drops cancelled ones, and draws a token for every row.

        Raises `HarnessError` where vLLM fails.
        """
        self.sweep()
        self._admit()
        for name, running in list(self._asked.items()):
            if running.cancelled:
                self._engine.abort_request([name])
                del self._asked[name]
                running.finish_reason = "cancelled"
        if not self._asked:
            return
        try:
            outputs = self._engine.step()
        except Exception as error:  # from the device, or from vLLM's own checks
            self._lost()
            raise HarnessError(f"vLLM's engine failed: {str(error).strip()[:300]}") from error
        for output in outputs:
            if output.finished and output.request_id in self._asked:
                self._take(self._asked.pop(output.request_id), output.outputs[0])

    def _admit(self) -> None:
        from vllm import SamplingParams, TokensPrompt

        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for running in waiting:
            asked = running.sampling
            how = SamplingParams(
                temperature=asked.temperature,
                top_p=asked.top_p,
                top_k=asked.top_k,
                max_tokens=self.limit(running),
                seed=asked.seed % 2**31,
                stop_token_ids=sorted(self.ends),
                logprobs=0,  # only the sampled token's
                detokenize=False,
            )
            name = f"request-{self._count}"
            self._count += 1
            self._asked[name] = running
            self._engine.add_request(name, TokensPrompt(prompt_token_ids=list(running.prompt)), how)

    def _take(self, running: Running, output: Any) -> None:
        ids = list(output.token_ids)
        if output.logprobs is None or len(output.logprobs) != len(ids):
            raise HarnessError("vLLM gave tokens without log-probabilities")
        logs = [float(said[token].logprob) for token, said in zip(ids, output.logprobs, strict=True)]
        self.finish(running, ids, logs)

    def rest(self) -> None:
        """Cancels running requests."""
        if self._asked:
            self._engine.abort_request(list(self._asked))
        self._lost()

    def _lost(self) -> None:
        for running in self._asked.values():
            running.finish_reason = "cancelled"
        self._asked = {}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Replaces the weights and empties the prefix cache, which the old weights computed.

        Raises `ConfigError` where the weights are not this model's, or vLLM is too old.
        """
        self.rest()
        try:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})
        except Exception as error:  # its loaders raise AssertionError, KeyError, ValueError and others
            raise ConfigError(
                f"vLLM does not take these weights: {type(error).__name__}: {str(error).strip()[:300]}",
                hint="vLLM must know reload_weights with an iterator, as 0.24 does; or use the back-end transformers",
            ) from error
        self._llm.reset_prefix_cache()


@contextmanager
def _draws_kept() -> Iterator[None]:
    """Restores the process's random states: an in-process vLLM worker seeds all of them with 0."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if devices:
            torch.cuda.set_rng_state_all(devices)
