"""Two tasks and a tiny model that answers either task with either kernel: half of its answers are correct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return []
"""
ANSWER = '''import torch
from kernelwright.cuda import Module

k = Module(r"""extern "C" __global__ void f(const float* x, float* y) {{ int i = blockIdx.x; y[i] = {}; }}""")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k.f[(x.numel(), 1, 1), (1, 1, 1)](x, y)
        return y
'''
TASKS = {"relu": "torch.relu(x)", "square": "x * x"}
EXPRESSIONS = ("fmaxf(x[i], 0.0f)", "x[i] * x[i]")
CONTEXT = 512


def make_undecided(home: Path) -> Path:
    """Writes `rows.jsonl`, `tasks.jsonl`, the random model `base` and the trained one, `model`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from kernelwright.inference.chat import task_prompt
    from kernelwright.inference.tokenizer import ChatTokenizer
    from kernelwright.records import Message
    from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer

    tasks = [{"task_id": name, "reference": REFERENCE.format(body)} for name, body in TASKS.items()]
    (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    answers = [ANSWER.format(expression) for expression in EXPRESSIONS]
    pairs = [
        {"row_id": f"{task['task_id']}-{i}", "reference": task["reference"], "answer": answer}
        for task in tasks
        for i, answer in enumerate(answers)
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    texts = [text for task in tasks for text in (task["reference"], *answers)] * 3
    bpe = train_tokenizer(texts, 512)
    for folder in ("base", "model"):
        save_tokenizer(bpe, home / folder, CONTEXT)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
        kernelwright={"prompt": "task"},
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(home / "base")
    tokenizer = ChatTokenizer.load(home / "model")
    rows = []
    for task in tasks:
        prompt = tokenizer.prompt([Message(role="user", content=task_prompt(task["reference"]))])
        rows += [(prompt, tokenizer.encode(answer) + [tokenizer.turn_end]) for answer in answers]
    _imitate(model, rows)
    model.save_pretrained(home / "model")
    return home


def _imitate(model: Any, rows: list[tuple[list[int], list[int]]]) -> None:
    """Trains until the model knows the answers by heart, but not which task each belongs to."""
    import torch

    width = max(len(p) + len(a) for p, a in rows)
    ids, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -100)
    for n, (prompt, answer) in enumerate(rows):
        ids[n, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[n, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    steps, rate = 90, 2e-2
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 10) * (1 - step / steps)
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def rl_table(home: Path, **more: Any) -> dict[str, Any]:
    """Returns the settings of a short run, as a table; tables in `more` are merged into it."""
    table: dict[str, Any] = {
        "name": "test",
        "model": {"path": str(home / "model")},
        "tasks": {"suite": str(home / "tasks.jsonl")},
        "rollout": {"tasks": 2, "rollouts": 8, "turns": 1, "max_tokens": 160},
        "reward": {"name": "kevin"},
        "advantage": {"name": "trloo"},
        "train": {"steps": 2, "lr": 1e-4},
        "judging": {"backend": "cpu", "trials": 1, "jobs": 2},
    }
    for name, value in more.items():
        table[name] = {**table[name], **value} if isinstance(table.get(name), dict) else value
    return table
