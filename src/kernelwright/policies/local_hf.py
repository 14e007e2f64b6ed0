"""Any causal language model that transformers (or vLLM) loads, from a folder or the Hub, with its own chat template.

For checkpoints that our engine does not support. A back-end of `kernelwright.generation` generates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError
from kernelwright.generation import load_backend
from kernelwright.policies.openai_http import EndpointSettings
from kernelwright.policies.starter import ConversationPolicy, SampledAnswer, StarterPolicy, room_of

if TYPE_CHECKING:
    from kernelwright.inference.engine import Running
    from kernelwright.inference.repeating import Asking

KINDS = {"hf": "transformers", "vllm": "vllm"}


class HFPolicy(StarterPolicy):
    """A model in this process. Reads the same environment variables as endpoints do (`EndpointSettings`)."""

    @classmethod
    def from_spec(cls, spec: str, *, temperature: float | None = None, top_p: float | None = None) -> HFPolicy:
        """Loads `hf:MODEL` or `vllm:MODEL`, a folder or a Hub id; Hub models are downloaded. Raises `ConfigError`."""
        kind, _, model = spec.partition(":")
        if not model:
            raise ConfigError(f"{kind}: names no model", hint=f"write {kind}:FOLDER or {kind}:OWNER/NAME")
        own = EndpointSettings.from_environment()
        share = top_p if top_p is not None else own.top_p
        backend = load_backend(KINDS[kind], model, tempered=True)
        return cls(
            backend,
            spec,
            temperature=own.temperature if temperature is None else temperature,
            top_p=1.0 if share is None else share,
            max_tokens=own.max_tokens,
            room=room_of(own.max_tokens, backend.context),
        )

    def answered(self, running: Running, seconds: float, asked: Asking) -> SampledAnswer:
        """Makes the answer of a finished request. It has no log-probabilities: the back-end's are after temperature."""
        return replace(super().answered(running, seconds, asked), log_probs=())


class HFConversationPolicy(ConversationPolicy, HFPolicy):
    """An `HFPolicy` that is always prompted with whole conversations (`ConversationPolicy`)."""
