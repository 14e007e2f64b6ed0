"""Policies propose candidates. `base` has their protocol, `load_policy` their table; each policy is one module.

template                    parametric CUDA templates, offline
starter[:FOLDER]            the small model that ships with the package, or another checkpoint of its shape; offline
hf:FOLDER_OR_HUB_ID         any causal language model, through transformers
vllm:FOLDER_OR_HUB_ID       the same, through vLLM
scripted:FILE               replays recorded answers
openai:MODEL@BASE_URL       any OpenAI-compatible endpoint
"""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.policies.base import Answer, Policy, Request, ask, turn_of

__all__ = ["POLICIES", "Answer", "Policy", "Request", "ask", "load_policy", "turn_of"]

POLICIES = (
    "template",
    "starter[:FOLDER]",
    "hf:FOLDER_OR_HUB_ID",
    "vllm:FOLDER_OR_HUB_ID",
    "scripted:FILE",
    "openai:MODEL@BASE_URL",
)


def load_policy(
    spec: str,
    *,
    cache: Path | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    conversation: bool = False,
) -> Policy:
    """Loads the policy that a spec names. Raises `ConfigError`.

    `cache` is the folder for answers of paid endpoints. `temperature` and `top_p` hold for policies that sample; the
    others ignore them. With `conversation`, a model that is otherwise prompted with the task alone, as ours are, is
    prompted with whole conversations.
    """
    kind, _, rest = spec.partition(":")
    if kind == "template":
        from kernelwright.policies.template import TemplatePolicy

        return TemplatePolicy()
    if kind == "scripted":
        from kernelwright.policies.scripted import ScriptedPolicy

        return ScriptedPolicy(Path(rest))
    if kind == "openai":
        from kernelwright.policies.openai_http import OpenAIPolicy

        return OpenAIPolicy.from_spec(rest, cache, temperature=temperature, top_p=top_p)
    if kind == "starter":
        from kernelwright.policies.starter import ConversationPolicy, StarterPolicy

        starter = ConversationPolicy if conversation else StarterPolicy
        return starter.from_spec(spec, temperature=temperature, top_p=top_p)
    if kind in ("hf", "vllm"):
        from kernelwright.policies.local_hf import HFConversationPolicy, HFPolicy

        local = HFConversationPolicy if conversation else HFPolicy
        return local.from_spec(spec, temperature=temperature, top_p=top_p)
    kinds = ("template", "scripted", "openai", "starter", "hf", "vllm")
    hint = did_you_mean(kind, kinds, f"policies: {', '.join(POLICIES)}")
    raise ConfigError(f"there is no policy {spec!r}", hint=hint)
