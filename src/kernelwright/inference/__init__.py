"""Runs a small decoder without a serving framework: prompt, tokenizer, forward pass with a cache, batching.

`chat` writes a model's prompt, `tokenizer` encodes it, `decoder` computes logits of Llama- and Qwen2-shaped checkpoints
in plain torch, `engine` batches requests and replaces finished ones. Needs no transformers.
"""

from __future__ import annotations

import importlib.util
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from kernelwright.inference.engine import Engine


STARTER = "KERNELWRIGHT_STARTER"
"""The environment variable for the folder of the `starter` checkpoint; default is the package's own."""


def starter_folder() -> Path:
    """Returns the folder of the `starter` checkpoint: `$KERNELWRIGHT_STARTER`, or the package's own.

    Raises `ConfigError` where the folder holds no checkpoint.
    """
    named = os.environ.get(STARTER)
    folder = Path(named) if named else Path(str(resources.files("kernelwright") / "data" / "starter"))
    if not (folder / "model.safetensors").is_file():
        where = f"{STARTER}={named} names no checkpoint" if named else "this copy of kernelwright has no starter model"
        raise ConfigError(
            where, hint="train one: kernelwright train pretrain starter --out DIR, then name it as starter:DIR"
        )
    return folder


def load_engine(model: str, **options: Any) -> Engine:
    """Loads an engine for `starter`, `starter:FOLDER` or a folder; `options` go to `Engine`. Raises `ConfigError`."""
    kind, _, rest = model.partition(":")
    named = rest if kind == "starter" else model
    if not model.strip():  # an unset shell variable
        raise ConfigError("the name of the model is empty", hint="name the folder of a checkpoint, or starter")
    folder = Path(named) if named else starter_folder()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r}", hint="name the folder of a checkpoint, or starter")
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("the starter model needs torch", hint="pip install 'kernelwright[torch]'")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads sleep instead of spinning on the cores
    from kernelwright.inference.engine import Engine

    return Engine(folder, **options)
