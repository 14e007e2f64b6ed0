"""Writes a model in training as a folder that policies load: full weights by the base model's names, adapters merged.

The weights in training are not changed: merging a bfloat16 adapter in place and unmerging it would round the base
weights each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_PREFIX = "base_model.model."
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def transposed(model: Any) -> frozenset[str]:
    """Returns the base names of a PEFT model's weights stored as (in, out), as by GPT-2's Conv1D."""
    modules = model.named_modules()
    return frozenset(
        f"{name.removeprefix(_PREFIX)}.weight" for name, module in modules if getattr(module, "fan_in_fan_out", False)
    )


def merged(state: dict[str, Tensor], scaling: float, turned: Collection[str] = frozenset()) -> dict[str, Tensor]:
    """Converts a PEFT model's state to its base model's: `W + scaling * B A` in W's dtype, by W's base name.

    `turned`: the names of transposed weights (`transposed`).
    """
    plain: dict[str, Tensor] = {}
    for name, weight in state.items():
        if ".lora_" in name:
            continue
        target = name.removeprefix(_PREFIX).replace(".base_layer.", ".")
        stem = name.removesuffix(".base_layer.weight")
        down = state.get(f"{stem}.lora_A.default.weight") if stem != name else None
        if down is not None:
            up = state[f"{stem}.lora_B.default.weight"]
            added = scaling * (up.float() @ down.float())
            weight = (weight.float() + (added.T if target in turned else added)).to(weight.dtype)
        plain[target] = weight
    return plain


def whole_weights(trainer: Any) -> dict[str, Tensor]:
    """Returns the weights of the model in training by the base model's names. All processes must call it together."""
    state: dict[str, Tensor] = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "peft_config"):
        config = model.peft_config["default"]
        state = merged(state, config.lora_alpha / config.r, transposed(model))
    return state


def tied_names(model: Any) -> frozenset[str]:
    """Returns the names of tied weights (a head tied to its embedding), which a file leaves out.

    By name, since gathered shards are copies and no longer share memory.
    """
    return frozenset(model.all_tied_weights_keys) if model.config.tie_word_embeddings else frozenset()


def write_model(trainer: Any, folder: Path) -> None:
    """Writes weights and configuration in Hugging Face's format. All processes must call it together."""
    from safetensors.torch import save_file

    weights = whole_weights(trainer)
    if not trainer.is_world_process_zero():
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    folder.mkdir(parents=True, exist_ok=True)
    tied = tied_names(base)
    kept = {name: weight.detach().contiguous() for name, weight in weights.items() if name not in tied}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    base.config.save_pretrained(str(folder))
    if base.generation_config is not None:
        base.generation_config.save_pretrained(str(folder))


def save_tokenizer_files(source: str, out: Path) -> None:
    """Copies a folder's tokenizer files unchanged, so that the same tokenizer is used as in training."""
    for name in _TOKENIZER_FILES:
        if (Path(source) / name).is_file():
            shutil.copyfile(Path(source) / name, out / name)
