"""Any causal language model that transformers loads, from a folder or the Hub, with its own chat template.

For checkpoints of other shapes than the starter's engine computes. A batch is one `generate`, padded at the left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.inference.chat import source_of, task_prompt
from kernelwright.policies import Answer, Request
from kernelwright.policies.openai_http import Settings
from kernelwright.records import Message, Task, Usage


class HFPolicy:
    """A model in this process. Settings as of endpoints: KERNELWRIGHT_TEMPERATURE, KERNELWRIGHT_MAX_TOKENS."""

    def __init__(
        self, model: Any, tokenizer: Any, name: str, *, temperature: float, top_p: float, max_tokens: int
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.temperature, self.top_p, self.max_tokens = temperature, top_p, max_tokens
        self._turn = threading.Lock()

    @classmethod
    def from_spec(cls, spec: str, *, temperature: float | None = None, top_p: float | None = None) -> HFPolicy:
        """Loads a folder or a Hub id; what is on the Hub is fetched. Raises `ConfigError`."""
        if not spec:
            raise ConfigError("hf: names no model", hint="write hf:FOLDER or hf:OWNER/NAME")
        if spec.startswith((".", "/", "~")) and not Path(spec).expanduser().is_dir():
            raise ConfigError(f"there is no folder {spec!r}", hint="name the folder of a checkpoint, or a Hub id")
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ConfigError("hf: needs torch and transformers", hint="pip install 'kernelwright[train]'") from error
        gpu = torch.cuda.is_available()
        where = str(Path(spec).expanduser()) if Path(spec).expanduser().is_dir() else spec
        try:
            tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left")
            model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.bfloat16 if gpu else torch.float32)
        except (OSError, ValueError, KeyError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(
                f"the model {spec!r} cannot be loaded: {first}", hint="check the folder or Hub id"
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token_id = tokenizer.eos_token_id
        own = Settings.from_environment()
        share = top_p if top_p is not None else own.top_p
        model = model.eval()
        return cls(
            model.cuda() if gpu else model,
            tokenizer,
            f"hf:{spec}",
            temperature=own.temperature if temperature is None else temperature,
            top_p=1.0 if share is None else share,
            max_tokens=own.max_tokens,
        )

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, temperature: float | None = None
    ) -> Answer:
        """One answer. Raises `PolicyError`."""
        (answer,) = self.generate_many([Request(tuple(messages), seed, task, temperature)])
        return answer

    def generate_many(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer a request, in batches of one temperature. The batch is seeded by its first request."""
        answers: dict[int, Answer] = {}
        temperatures = [self.temperature if r.temperature is None else r.temperature for r in requests]
        with self._turn:
            for temperature in sorted(set(temperatures)):
                numbers = [i for i, t in enumerate(temperatures) if t == temperature]
                made = self._batch([requests[i] for i in numbers], temperature)
                answers |= dict(zip(numbers, made, strict=True))
        return [answers[i] for i in range(len(requests))]

    def _batch(self, requests: list[Request], temperature: float) -> list[Answer]:
        import torch

        began = time.monotonic()
        texts = [self._prompt(r) for r in requests]
        inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(
            self.model.device
        )
        longest = inputs["input_ids"].shape[1]
        room = int(getattr(self.model.config, "max_position_embeddings", longest + self.max_tokens)) - longest
        if room < 1:
            raise PolicyError(
                f"the prompt has {longest} tokens, more than the model's context", hint="shorten the task"
            )
        how: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if temperature:
            how = {"do_sample": True, "temperature": temperature, "top_p": self.top_p, "top_k": 0}
        torch.manual_seed(requests[0].seed)
        with torch.inference_mode():
            out = self.model.generate(
                **inputs,
                max_new_tokens=min(self.max_tokens, room),
                pad_token_id=self.tokenizer.pad_token_id,
                **how,
            )
        seconds = (time.monotonic() - began) / len(requests)
        lengths = inputs["attention_mask"].sum(1).tolist()
        return [self._answer(row[longest:].tolist(), n, seconds) for row, n in zip(out, lengths, strict=True)]

    def _prompt(self, request: Request) -> str:
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        if getattr(self.model.config, "kernelwright", {}).get("prompt") == "task":
            task = request.task
            source = task_prompt(task.source) if task is not None else source_of(request.messages)
            messages = [{"role": "user", "content": source}]
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except ValueError as error:
            raise PolicyError(
                f"{self.name} has no chat template", hint="name a model that was tuned for chat"
            ) from error

    def _answer(self, ids: list[int], prompt_tokens: int, seconds: float) -> Answer:
        ends = self.model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends]) | {self.tokenizer.eos_token_id}
        end = next((i for i, token in enumerate(ids) if token in ends), None)
        kept = ids if end is None else ids[: end + 1]
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=len(kept), seconds=round(seconds, 3))
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        return Answer(text, usage, "length" if end is None else "stop", self.name)
