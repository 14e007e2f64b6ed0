"""Small random checkpoints for tests, with a tokenizer of their own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from training.sample_pairs import pair

from kernelwright.training.checkpoint import save_model
from kernelwright.training.model import ModelShape, TrainingDecoder
from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer


def random_checkpoint(
    folder: Path,
    *,
    bias: bool = False,
    context: int = 512,
    seed: int = 0,
    schedules: Sequence[str] = (),
    heads: int = 4,
) -> Path:
    """Makes a Llama-shaped (with `bias` Qwen2-shaped) checkpoint of 0.1 M parameters whose logits differ a lot."""
    rng = random.Random(0)
    texts = [text for _ in range(60) for text in pair(rng)]
    tokenizer = train_tokenizer(texts, 600)
    save_tokenizer(tokenizer, folder / "tokenizer", context)
    torch.manual_seed(seed)
    shape = ModelShape(
        tokenizer.get_vocab_size(),
        hidden=64,
        layers=2,
        heads=heads,
        kv_heads=heads // 2,
        feed_forward=96,
        context=context,
        bias=bias,
    )
    model = TrainingDecoder(shape)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
        else:
            torch.nn.init.normal_(weight, std=0.2)
    save_model(model, folder / "tokenizer", folder, schedules)
    return folder
