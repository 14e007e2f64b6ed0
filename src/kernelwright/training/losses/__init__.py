"""Losses of supervised post-training: pure functions on the gold tokens' log-probabilities, looked up by name.

    out = LOSSES["cuset"](log_probs, target_mask, cuda_mask, tau=0.1, lam=1.0, window=256)
    out.loss.backward()

All take `log_probs` `(batch, length)`, teacher forced, and boolean masks of that shape; a row is a sample. Other inputs
of a loss (an entropy, a divergence from a reference model) are parameters of its own. Importing this loads no torch.
Each module names the paper of its formula.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.training.losses.asft import asft, vocabulary_kl
from kernelwright.training.losses.cuset import cuset
from kernelwright.training.losses.dft import dft
from kernelwright.training.losses.eaft import eaft, top_k_entropy
from kernelwright.training.losses.profit import profit
from kernelwright.training.losses.reduction import LossOutput
from kernelwright.training.losses.regions import Regions, regions
from kernelwright.training.losses.sft import sft

Loss = Callable[..., LossOutput]

LOSSES: dict[str, Loss] = {"sft": sft, "dft": dft, "profit": profit, "eaft": eaft, "asft": asft, "cuset": cuset}

_GIVEN = ("log_probs", "target_mask", "cuda_mask")


def load_loss(name: str, parameters: Mapping[str, Any] | None = None) -> Loss:
    """Returns the loss with that name. Raises `ConfigError` for an unknown name or parameter."""
    if name not in LOSSES:
        hint = did_you_mean(name, LOSSES, f"losses: {', '.join(LOSSES)}")
        raise ConfigError(f"there is no loss {name!r}", hint=hint)
    known = [p for p in inspect.signature(LOSSES[name]).parameters if p not in _GIVEN]
    for parameter in parameters or {}:
        if parameter not in known:
            raise ConfigError(f"the loss {name!r} has no parameter {parameter!r}", hint=f"it has {', '.join(known)}")
    return LOSSES[name]


__all__ = [
    "LOSSES",
    "Loss",
    "LossOutput",
    "Regions",
    "asft",
    "cuset",
    "dft",
    "eaft",
    "load_loss",
    "profit",
    "regions",
    "sft",
    "top_k_entropy",
    "vocabulary_kl",
]
