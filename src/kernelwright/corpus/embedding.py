"""Embeds texts with any Hugging Face model: the mean of its last hidden states, scaled to unit length."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelwright.corpus.decontaminate import Embed
from kernelwright.errors import ConfigError
from kernelwright.tasks.formats.hub import offline_where_silent

MAX_TOKENS = 2048


def load_embedding(name: str) -> Embed:
    """Returns a function that embeds texts with a model from a folder or the Hub: (texts, width) in float32.

    Raises `ConfigError` where the model cannot be loaded. Texts are truncated to `MAX_TOKENS`.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"--embed needs {error.name}", hint='pip install "kernelwright[train]", or leave --embed out'
        ) from error
    transformers.logging.set_verbosity_error()
    if not os.path.isdir(name):
        offline_where_silent()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        model = transformers.AutoModel.from_pretrained(name).eval()
    except (OSError, ValueError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"no embedding model in {name!r}: {first}", hint="name a folder or a Hub id") from error
    device = "cuda" if torch.cuda.is_available() and os.environ.get("KERNELWRIGHT_BACKEND") != "cpu" else "cpu"
    model.to(device)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = []
        with torch.no_grad():
            for text in texts:
                tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=MAX_TOKENS)
                given = {k: v.to(device) for k, v in tokens.items() if k in ("input_ids", "attention_mask")}
                states = model(**given).last_hidden_state[0].float().mean(dim=0)
                rows.append((states / states.norm().clamp_min(1e-12)).cpu().numpy())
        return np.stack(rows)

    return embed
