"""Reads and writes checkpoints whose matrices are int8 with one float32 scale a row, half the size of bfloat16.

A matrix `NAME` (rows, columns) is stored as `NAME` (1, rows, columns) in int8 and `NAME.scale` (rows,) in float32; its
value is their product. Vectors (norms, biases) keep their dtype. The metadata names the format. Transformers does not
read the metadata: it refuses the file for the third dimension, and would take the integers for weights otherwise.
`read_weights` reads both kinds of checkpoint; `full_checkpoint` returns a folder that transformers loads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.config import cache_dir
from kernelwright.errors import ConfigError

WEIGHTS = "model.safetensors"
FORMAT = "kernelwright-int8-rows-1"
"""The value of `format` in the metadata of a quantised file; other checkpoints have `pt` there."""

LEVELS = 127
"""The largest absolute value of a quantised weight: the range is symmetric, so -128 is not used."""

_SCALE = ".scale"
_RESTORE = "the file is damaged: install kernelwright again, or write the checkpoint again"


def quantise(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns matrices as int8 (1, rows, columns) with a scale a row (rows,), and other tensors as they are.

    A row's scale is its largest absolute value divided by 127, so an element's error is at most half a scale. Raises
    `ConfigError` for a matrix with values that are not finite.
    """
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() != 2 or not weight.is_floating_point():
            tensors[name] = weight.contiguous()
            continue
        rows = weight.float()
        if not rows.isfinite().all():
            raise ConfigError(f"the weight {name!r} has values that are not finite", hint="train the model again")
        # a row of zeros gets a scale above zero, too
        scale = (rows.abs().amax(dim=1) / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
        tensors[name] = (rows / scale[:, None]).round().clamp(-LEVELS, LEVELS).to(torch.int8)[None]
        tensors[name + _SCALE] = scale
    return tensors


def dequantise(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns the weights that `quantise` was given, matrices rounded to `dtype`.

    Raises `ConfigError` for a matrix without its scales, a scale without its matrix, or scales that are not finite.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(_SCALE):
            if name.removesuffix(_SCALE) not in tensors:
                raise ConfigError(f"the scales {name!r} have no matrix", hint=_RESTORE)
            continue
        if tensor.dtype != torch.int8:
            weights[name] = tensor
            continue
        scale = tensors.get(name + _SCALE)
        if tensor.shape[:-2] != (1,) or scale is None or scale.shape != tensor.shape[1:2] or not scale.isfinite().all():
            raise ConfigError(f"the matrix {name!r} lacks a finite scale for each of its rows", hint=_RESTORE)
        weights[name] = (tensor[0].float() * scale.float()[:, None]).to(dtype)
    return weights


def write_quantised(weights: Mapping[str, Tensor], path: Path) -> None:
    """Writes weights as a quantised file, wholly or not at all. The dtype of the matrices is kept in the metadata."""
    from safetensors.torch import save_file

    kinds = {str(w.dtype).removeprefix("torch.") for w in weights.values() if w.dim() == 2}
    if len(kinds) != 1:
        raise ConfigError(f"the matrices have the dtypes {sorted(kinds)}", hint="give all matrices one dtype")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(quantise(weights), temporary, metadata={"format": FORMAT, "dtype": kinds.pop()})
    os.replace(temporary, path)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Reads a checkpoint in safetensors, one file or several, quantised or not. Raises `ConfigError`."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ConfigError("this needs the library safetensors", hint="pip install safetensors") from error
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ConfigError(f"there is no {WEIGHTS} in {str(folder)!r}", hint="convert the checkpoint first")
    weights: dict[str, Tensor] = {}
    try:
        for path in files:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            weights |= dequantise(tensors, _dtype(metadata)) if _quantised(metadata) else tensors
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{str(folder)!r} cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error}", hint=error.hint) from error
    return weights


def is_quantised(folder: Path) -> bool:
    """Tells whether a folder's `model.safetensors` is a quantised file; False for one that cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            return _quantised(file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def expand(folder: str | Path, out: str | Path) -> None:
    """Writes a quantised checkpoint as one that `AutoModelForCausalLM` loads, in the dtype it was trained in.

    The other files of the folder are copied. Raises `ConfigError`.
    """
    from safetensors.torch import save_file

    source, target = Path(folder), Path(out)
    weights = read_weights(source)
    target.mkdir(parents=True, exist_ok=True)
    for path in _beside(source):
        shutil.copyfile(path, target / path.name)
    save_file(weights, target / WEIGHTS, metadata={"format": "pt"})


def full_checkpoint(place: str) -> str:
    """Returns a folder that transformers loads: `place` itself, or a quantised folder expanded into the cache.

    Anything that is no quantised folder, a Hub id for one, is returned as it is. The folder in the cache is named by
    a digest of all files, and appears wholly or not at all. Raises `ConfigError`.
    """
    folder = Path(place)
    if not is_quantised(folder):
        return place
    digest = hashlib.sha256()
    for path in (folder / WEIGHTS, *_beside(folder)):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    kept = cache_dir() / "checkpoints" / digest.hexdigest()[:32]
    if kept.is_dir():
        return str(kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".expanding-", dir=kept.parent))
    try:
        expand(folder, made)
        made.rename(kept)
    except OSError as error:
        if not kept.is_dir():  # else another process was first
            raise ConfigError(
                f"{str(folder)!r} cannot be expanded into {str(kept)!r}: {error}",
                hint="set KERNELWRIGHT_CACHE to a folder with room that you may write to",
            ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return str(kept)


def _beside(folder: Path) -> list[Path]:
    """Files of a checkpoint beside its weights: configuration, tokenizer, card."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".safetensors")


def _quantised(metadata: Mapping[str, str]) -> bool:
    return metadata.get("format") == FORMAT


def _dtype(metadata: Mapping[str, str]) -> torch.dtype:
    """The dtype that a quantised file's matrices had. Raises `ConfigError` where the metadata names none."""
    found = getattr(torch, metadata.get("dtype", ""), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ConfigError("its metadata names no dtype", hint=_RESTORE)
    return found
