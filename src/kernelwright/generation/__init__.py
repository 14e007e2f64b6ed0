"""Generation back-ends: they answer prompts of token ids with sampled tokens and their log-probabilities.

engine         our own decoder (`inference`): Llama- and Qwen2-shaped checkpoints with ChatML, in a folder
transformers   any causal language model that transformers loads: continuous batching on a GPU, `generate` elsewhere
vllm           the same with vLLM, where it is installed

One protocol, one table; each back-end is one module. Training rollouts and policies share them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.records import Message

if TYPE_CHECKING:
    from kernelwright.inference.engine import Running
    from kernelwright.inference.sampling import Sampling

Kind = Literal["auto", "engine", "transformers", "vllm"]
BACKENDS = ("engine", "transformers", "vllm")


class Chat(Protocol):
    """A tokenizer with its model's chat format.

    `prompt` returns the ids of a conversation with the head of the assistant's turn. `encode` returns the ids of plain
    text. `decode` returns the text of ids, without special tokens.
    """

    def encode(self, text: str) -> list[int]: ...

    def prompt(self, messages: Sequence[Message]) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class GenerationBackend(Protocol):
    """A model that answers batched requests; each answer is available as soon as it ends. `Engine` is one.

    - `rows`: the batch size. `context`: the bound on tokens of a prompt with its answer.
    - `bare_task`: the prompt is a task's source alone, as for our models.
    - `schedules`: the schedules for an answer's first line, in the order of tries (`inference.chat.begun`); empty for a
      model that writes no such line.
    - `busy`: true while a step would do anything.
    - `add` queues a request; its `finish_reason` is set when it has ended. Raises `ConfigError` for a prompt too long.
    - `step` advances all added requests for a moment and drops those marked as cancelled.
    - `generate` answers all prompts, in their order.
    - `load_weights` replaces the weights, by Hugging Face's names, while nothing runs.
    - `rest` frees what only generation needs (threads, caches on the GPU) until the next request.

    One thread calls `step` and `rest`; any thread may call `add`. A back-end loaded with `tempered` reports
    log-probabilities after the temperature. They are not renormalized for `top_p` and `top_k`.
    """

    name: str
    rows: int

    @property
    def tokenizer(self) -> Chat: ...

    @property
    def context(self) -> int: ...

    @property
    def bare_task(self) -> bool: ...

    @property
    def schedules(self) -> tuple[str, ...]: ...

    @property
    def busy(self) -> bool: ...

    def add(self, prompt: Sequence[int], sampling: Sampling) -> Running: ...

    def step(self) -> None: ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        on_done: Callable[[int], None] | None = None,
        watch: Callable[[Sequence[Running]], None] | None = None,
    ) -> list[Running]: ...

    def load_weights(self, weights: Mapping[str, Any]) -> None: ...

    def rest(self) -> None: ...


def load_backend(
    kind: str,
    model: str,
    *,
    threads: int | None = None,
    tempered: bool = False,
    attention: str = "auto",
    trust_remote_code: bool = False,
) -> GenerationBackend:
    """Loads the back-end that `kind` names with a model's folder or Hub id. Raises `ConfigError`.

    `auto` takes the engine where it can read the model, else transformers. `threads` holds for the CPU. `attention`
    and `trust_remote_code` go to transformers.
    """
    known = ("auto", *BACKENDS)
    if kind not in known:
        raise ConfigError(
            f"there is no generation back-end {kind!r}", hint=did_you_mean(kind, known, f"there are {', '.join(known)}")
        )
    if kind in ("auto", "engine"):
        from kernelwright.inference import load_engine

        try:
            return load_engine(model, threads=threads, tempered=tempered)
        except ConfigError as error:
            if kind == "engine":
                raise
            print(f"transformers generates: our engine does not take this model: {error}", file=sys.stderr)
    if kind == "vllm":
        from kernelwright.generation.vllm_backend import VllmBackend

        return VllmBackend.load(model, tempered=tempered, trust_remote_code=trust_remote_code)
    from kernelwright.generation.transformers_backend import TransformersBackend

    return TransformersBackend.load(
        model, threads=threads, tempered=tempered, attention=attention, trust_remote_code=trust_remote_code
    )
