"""Says before a training run begins that a model is too small to write answers that can be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kernelwright.errors import ConfigError

LEAST = 1_000_000
"""Parameters below which a model serves to test the pipeline: the smallest here that writes kernels has 26 million."""


def parameters(vocabulary: int, hidden: int, layers: int, key_width: int, feed_forward: int) -> int:
    """Returns the weights of the matrices of a decoder of Llama's shape with tied embeddings.

    `key_width` is the width of all key heads together.
    """
    return hidden * (layers * (2 * hidden + 2 * key_width + 3 * feed_forward) + vocabulary)


def parameters_of(folder: Path) -> int | None:
    """Estimates the parameters of a checkpoint from its `config.json`; None where it is no such folder or file."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        key_heads = int(config.get("num_key_value_heads") or heads)
        width = int(config.get("head_dim") or hidden // heads)
        vocabulary, layers = int(config["vocab_size"]), int(config["num_hidden_layers"])
        return parameters(vocabulary, hidden, layers, key_heads * width, int(config["intermediate_size"]))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, AttributeError):
        return None


def remark(count: int | None, instead: str) -> str | None:
    """Returns what to say of a model of `count` parameters; None for one that is large enough, or not known.

    `instead` says what to use.
    """
    if count is None or count >= LEAST:
        return None
    return (
        f"note: a model of this shape ({count / 1e6:.2f} M parameters) writes no answers that can be read: "
        f"the run tests the pipeline, and nothing that it trains will write kernels\nhint: {instead}"
    )


def tell_of_shape(vocabulary: int, hidden: int, layers: int, key_width: int, feed_forward: int) -> None:
    """Prints the remark on a model that is about to be trained from scratch, where there is one."""
    _say(
        remark(
            parameters(vocabulary, hidden, layers, key_width, feed_forward),
            "train pretrain starter makes a model that writes kernels",
        )
    )


def tell_of_model(path: str) -> None:
    """Prints the remark on a model that is about to be trained further, where there is one."""
    from kernelwright.inference import starter_folder

    count = parameters_of(Path(path))
    if count is None or count >= LEAST:
        return
    try:
        instead = f"--set model.path={starter_folder()} is a model that writes kernels"
    except ConfigError:  # this copy of the package has none
        instead = "train pretrain starter makes a model that writes kernels"
    _say(remark(count, instead))


def _say(text: str | None) -> None:
    if text is not None:
        print(text, file=sys.stderr, flush=True)
