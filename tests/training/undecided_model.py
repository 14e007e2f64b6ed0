"""Two tasks and a small model that answers either with either's kernel: half of its answers are right."""

from __future__ import annotations

import json
from pathlib import Path

REFERENCE = """import torch
import torch.nn as nn
rows = 19


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(rows, 33)]


def get_init_inputs():
    return []
"""
ANSWER = '''import torch
from kernelwright.cuda import Module

k = Module(r"""extern "C" __global__ void f(const float* x, float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = {};
}}""")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k.f[((x.numel() + 255) // 256, 1, 1), (256, 1, 1)](x, y, x.numel())
        return y
'''
TASKS = {"relu": "torch.relu(x)", "square": "x * x"}
EXPRESSIONS = ("fmaxf(x[i], 0.0f)", "x[i] * x[i]")


def make_undecided(home: Path) -> Path:
    """Writes `rows.jsonl`, `tasks.jsonl`, the random model `base` and the trained one, `model`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from kernelwright.training.post_settings import SftSettings
    from kernelwright.training.sft import train_sft
    from kernelwright.training.tokenizer import save_tokenizer, train_tokenizer

    rows = [
        {"row_id": f"{name}-{i}", "reference": REFERENCE.format(body), "answer": ANSWER.format(expression)}
        for name, body in TASKS.items()
        for i, expression in enumerate(EXPRESSIONS)
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = [{"task_id": name, "reference": REFERENCE.format(body)} for name, body in TASKS.items()]
    (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    texts = [text for row in rows for text in (row["reference"], row["answer"])] * 3
    save_tokenizer(train_tokenizer(texts, 512), home / "base", 512)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
        kernelwright={"prompt": "task"},
    )
    Qwen2ForCausalLM(config).save_pretrained(home / "base")
    wanted = SftSettings.model_validate(
        {
            "model": {"path": str(home / "base")},
            "data": {"path": str(home / "rows.jsonl"), "length": 512},
            "train": {"steps": 120, "batch": 4, "micro_batch": 4, "lr": 6e-3, "log_every": 60, "save_every": 1000},
        }
    )
    train_sft(wanted, home / "model")
    return home
