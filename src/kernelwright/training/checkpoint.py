"""A model on disk: in Hugging Face's format, and as the state from which a stopped run resumes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import StoreError
from kernelwright.runs.folders import full
from kernelwright.training.pretrain.progress import cannot_write, writing

if TYPE_CHECKING:
    from kernelwright.training.model import TrainingDecoder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def save_model(model: TrainingDecoder, tokenizer: Path, folder: Path, schedules: Sequence[str] = ()) -> None:
    """Writes a checkpoint that `AutoModelForCausalLM` and `AutoTokenizer` load: bfloat16 weights, config, tokenizer.

    `tokenizer`: the folder with the tokenizer's files. `config.json` records that prompts are bare tasks, so that
    `--policy hf:FOLDER` uses the model's prompt format, and the `schedules` that answers may begin with.
    Raises `StoreError`.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = model.shape.hf_config()
    special = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    ids = {token["content"]: token["id"] for token in special}
    written = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    ends = {"eos_token_id": ids[written["eos_token"]], "pad_token_id": ids[written["pad_token"]]}
    own: dict[str, Any] = {"prompt": "task"} | ({"schedules": list(schedules)} if schedules else {})
    config |= {**ends, "dtype": "bfloat16", "kernelwright": own}
    weights = {name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in model.named_parameters()}
    try:
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", {**ends, "do_sample": True, "temperature": 0.8})
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer / name, folder / name)
        temporary = folder / f".model.{os.getpid()}.safetensors"
        save_file(weights, temporary, metadata={"format": "pt"})
        os.replace(temporary, folder / "model.safetensors")
    except OSError as error:
        raise cannot_write(folder, error) from error


def write_json(path: Path, value: Any) -> None:
    """Writes a file atomically. Raises `StoreError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Writes the state to resume from, atomically. Raises `StoreError`."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        torch.save(state, temporary)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        # Torch raises RuntimeError for a full disk; check free space before removing the partial file.
        lack = not isinstance(error, OSError) and full(path.parent, error)
        temporary.unlink(missing_ok=True)
        why = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if lack else error
        raise cannot_write(path.parent, why) from error


def load_state(path: Path) -> dict[str, Any] | None:
    """Reads the state that `save_state` wrote; None if there is none. Raises `StoreError` for a damaged file."""
    import torch

    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be read: {error.strerror}", hint="check who may read it") from error
    except Exception as error:  # torch raises many exception types for a damaged file
        raise _unreadable(path) from error
    if not isinstance(state, dict):
        raise _unreadable(path)
    return state


def _unreadable(path: Path) -> StoreError:
    """The error of a damaged state; torch's own message is about unpickling untrusted files, or empty."""
    return StoreError(f"{str(path)!r} is damaged", hint="remove it to begin the run again with the same data")
