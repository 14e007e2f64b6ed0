"""Generation back-ends: what answers prompts of token ids with sampled tokens and their log-probabilities.

engine         our own decoder (`inference`): Llama- and Qwen2-shaped checkpoints with ChatML, in a folder
transformers   any causal language model that transformers loads: continuous batching on a GPU, `generate` elsewhere
vllm           the same with vLLM, where that is installed

One protocol, one table; each back-end is one module. Rollouts in training and policies use them alike.
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
    """A tokenizer that knows its model's chat format.

    `prompt`: ids of a conversation up to where the assistant speaks. `encode`: ids of plain text. `decode`: the text of
    ids, without special tokens.
    """

    def encode(self, text: str) -> list[int]: ...

    def prompt(self, messages: Sequence[Message]) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class GenerationBackend(Protocol):
    """A model that answers requests, each there as soon as it ends. `inference.engine.Engine` is one.

    `rows`: answers that it computes at once. `context`: tokens of a prompt with its answer at most. `bare_task`:
    whether the model is asked with a task's source alone, as ours are. `schedules`: those that its answers are begun
    with, in the order of tries (`inference.chat.begun`), none where it writes no such line. `busy`: whether a step
    would do anything. `add` queues a request, whose `finish_reason` tells when it has ended, and raises `ConfigError`
    for one too long. `step` goes on for a moment with whatever was added, and lets go of requests that were marked as
    cancelled.
    `generate` answers all prompts, in their order. `load_weights` takes a model's weights, under Hugging Face's names,
    in place of its own, while nothing runs. `rest` gives back what only generation needs (threads, caches on the GPU),
    until the next request. One thread calls `step` and `rest`; any may `add`.

    Log-probabilities of sampled tokens are those after the temperature where a back-end was loaded with `tempered`;
    what `top_p` and `top_k` cut off is not corrected for.
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
    """The back-end that `kind` names, with a model's folder or Hub id. Raises `ConfigError`.

    `auto` takes the engine where it can read the model, else transformers. `threads`: on the processor. `attention`
    and `trust_remote_code` are transformers' own words.
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
