"""The state of a reinforcement-learning run: model, optimizer, a generation back-end with the same weights, counts.

The model is tuned fully or through a LoRA adapter; the back-end always has the merged weights. A saved state lets a
stopped run resume exactly where it was.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch

from kernelwright.errors import ConfigError
from kernelwright.generation import GenerationBackend, load_backend
from kernelwright.generation.hub import tokenizer_kind
from kernelwright.policies.starter import ConversationPolicy
from kernelwright.training.checkpoint import load_state, save_state
from kernelwright.training.fine_tune.merging import merged, save_tokenizer_files, transposed
from kernelwright.training.fine_tune.run import adapter, check_targets, load_model, refusals
from kernelwright.training.fine_tune.settings import LoraSettings
from kernelwright.training.pretrain.progress import cannot_write, writing
from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.settings import RlSettings
from kernelwright.training.rl.update import Bounds, Updater

STATE = "state.pt"


class State:
    """The state of one process; made by `open`."""

    def __init__(self, settings: RlSettings, model: Any, engine: GenerationBackend, ranks: Ranks) -> None:
        train, r = settings.train, settings.rollout
        self.model, self.lora = model.eval(), settings.model.lora
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=train.lr, betas=(0.9, 0.95), eps=train.adam_epsilon, weight_decay=train.weight_decay
        )
        self.updater = Updater(settings, model, self.optimizer, _autocast(settings, model), ranks)
        self.policy = ConversationPolicy(
            engine, "training", temperature=r.temperature, top_p=r.top_p, max_tokens=r.max_tokens
        )
        self.step = 0
        self.rollouts = 0

    @classmethod
    def open(cls, settings: RlSettings, out: Path, ranks: Ranks) -> State:
        """Builds the state of a new run, or restores the last saved one. Raises `ConfigError` and `StoreError`."""
        from trl.trainer.utils import add_fused_lm_head

        kept = load_state(out / STATE)
        torch.manual_seed(settings.seed)
        model = load_model(settings.model)
        add_fused_lm_head(model, temperature=settings.rollout.temperature)
        if settings.model.tune == "lora":
            from peft import get_peft_model

            with refusals("the adapter"):
                model = get_peft_model(model, adapter(settings.model))
            check_targets(model, settings.model)
        if torch.cuda.is_available():
            model = model.cuda()
        state = cls(settings, model, _backend(settings, ranks), ranks)
        if kept is not None:
            state._restore(kept)
        state.refresh()
        return state

    def _restore(self, kept: dict[str, Any]) -> None:
        self.model.load_state_dict(kept["model"], strict=False)
        self.optimizer.load_state_dict(kept["optimizer"])
        self.step, self.rollouts = int(kept["step"]), int(kept["rollouts"])
        self.updater.done = int(kept["updates"])
        self.updater.bounds = Bounds(*kept["bounds"])

    def save(self, out: Path) -> None:
        """Saves the state to resume from. Raises `StoreError` if the disk is full; the last saved state remains."""
        trained = {name for name, p in self.model.named_parameters() if p.requires_grad}
        whole = self.model.state_dict()
        save_state(
            out / STATE,
            {
                "model": {name: value for name, value in whole.items() if name in trained},
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "rollouts": self.rollouts,
                "updates": self.updater.done,
                "bounds": (self.updater.bounds.low, self.updater.bounds.high),
            },
        )

    def refresh(self) -> None:
        """Loads the model's weights into the back-end."""
        self.policy.engine.load_weights(weights_of(self.model, self.lora))

    def export(self, settings: RlSettings, out: Path) -> None:
        """Writes the model in Hugging Face's format: with LoRA the adapter, and the merged model if `model.merge`.

        Call it last: merging changes the model. Raises `StoreError` if the disk is full.
        """
        from safetensors import SafetensorError

        model = self.model
        try:
            with writing(out):
                if settings.model.tune == "lora":
                    model.save_pretrained(str(out / "adapter"))
                    if not settings.model.merge:
                        return
                    model = model.merge_and_unload()
                model.save_pretrained(str(out))
                save_tokenizer_files(settings.model.path, out)
        except SafetensorError as error:  # raised by safetensors for a full disk
            raise cannot_write(out, error) from error
        if not (out / "tokenizer.json").is_file():  # the model is a Hub id, or its tokenizer has other files
            path, trust = settings.model.path, settings.model.trust_remote_code
            tokenizer_kind(path).from_pretrained(path, trust_remote_code=trust).save_pretrained(str(out))


def _backend(settings: RlSettings, ranks: Ranks) -> GenerationBackend:
    """Loads the generation back-end. Its log-probabilities are after the temperature, as in the update.

    Raises `ConfigError`.
    """
    kind, model = settings.rollout.backend, settings.model
    if kind == "vllm" and ranks.count > 1:
        raise ConfigError(
            "rollout.backend = vllm is for one process", hint="leave --processes out, or use transformers"
        )
    return load_backend(
        kind,
        model.path,
        threads=max(1, len(os.sched_getaffinity(0)) // ranks.count),
        tempered=True,
        attention=model.attention,
        trust_remote_code=model.trust_remote_code,
    )


def weights_of(model: Any, lora: LoraSettings) -> dict[str, Any]:
    """Returns the weights by the base model's names, with a LoRA adapter merged in; does not change the model."""
    state = dict(model.state_dict())
    return merged(state, lora.alpha / lora.r, transposed(model)) if hasattr(model, "peft_config") else state


def _autocast(settings: RlSettings, model: Any) -> Any:
    device = next(model.parameters()).device.type
    wanted = settings.train.precision
    if wanted == "fp32" or (wanted == "auto" and device == "cpu"):
        return contextlib.nullcontext
    return lambda: torch.autocast(device, dtype=torch.bfloat16)
