"""A random Qwen2 of fifty thousand weights with rows to fine-tune it on, and settings of runs with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernelwright.training.fine_tune.settings import SftSettings

REFERENCE = "import torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return {}\n"
ANSWER = '''import torch
from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void {name}_kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;  // größer
    if (i < n) y[i] = {expression};
}}
""")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.{name}_kernel[((x.numel() + 255) // 256, 1, 1), (256, 1, 1)](x, y, x.numel())
        return y
'''
KERNELS = {
    "relu": ("torch.relu(x)", "fmaxf(x[i], 0.0f)"),
    "abs": ("torch.abs(x)", "fabsf(x[i])"),
    "square": ("x * x", "x[i] * x[i]"),
    "tanh": ("torch.tanh(x)", "tanhf(x[i])"),
    "exp": ("torch.exp(x) + 1 - 1", "expf(x[i])"),
    "negate": ("-x", "-x[i]"),
}
ROWS = [
    {"row_id": name, "reference": REFERENCE.format(torch_side), "answer": ANSWER.format(name=name, expression=cuda)}
    for name, (torch_side, cuda) in KERNELS.items()
]


def make_home(folder: Path) -> Path:
    """Writes the model to `base` and the rows to `rows.jsonl`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer

    save_tokenizer(train_tokenizer([text for row in ROWS for text in row.values()], 400), folder / "base", 1024)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=400,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "base")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def settings_table(
    home: Path, loss: Any = "cuset", data: Any = None, model: Any = None, bench: Any = None, **train: Any
) -> dict[str, Any]:
    """Returns the settings of a short run, as a file would hold them."""
    return {
        "name": "test",
        "model": {"path": str(home / "base"), **(model or {})},
        "data": {"path": str(home / "rows.jsonl"), "length": 1024, **(data or {})},
        "loss": {"name": loss} if isinstance(loss, str) else loss,
        "train": {"steps": 2, "batch": 4, "micro_batch": 2, "lr": 1e-3, "log_every": 1, **train},
        "bench": bench,
    }


def settings(home: Path, *args: Any, **more: Any) -> SftSettings:
    """Returns the same settings, validated."""
    return SftSettings.model_validate(settings_table(home, *args, **more))


def log(out: Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's log that have a loss."""
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def weights(out: Path) -> dict[str, Any]:
    """Returns the tensors of a saved model."""
    from safetensors.torch import load_file

    return dict(load_file(out / "model.safetensors"))
