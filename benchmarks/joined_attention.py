"""Times forward and backward over joined samples: maskless attention (`training/fine_tune/joined.py`) against
transformers' own.

    python benchmarks/joined_attention.py [--tokens 4096] [--sample 1024] [--rounds 3] [--out FILE.json]

The model has the starter's shape and random weights. One row of `--tokens` tokens is joined out of samples of
`--sample` tokens (the last is shorter), as `train sft` with packing does. Rounds alternate between
`kernelwright_joined` and `sdpa`, which makes a mask of tokens x tokens. Prints one JSON object: seconds (without the
first round), losses, the peak of the device's memory on a GPU, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from kernelwright.training.fine_tune.joined import register

SHAPE = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}


def joined_row(tokens: int, sample: int, device: str) -> dict[str, Any]:
    """Returns a row in the collator's form."""
    starts = list(range(0, tokens, sample))
    bounds = torch.tensor([*starts, tokens], dtype=torch.int32, device=device)
    places = torch.arange(tokens, device=device) % sample
    ids = torch.randint(0, SHAPE["vocab_size"], (1, tokens), device=device)
    row = {"input_ids": ids, "labels": ids, "position_ids": places[None], "use_cache": False}
    return row | {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": sample, "max_length_k": sample}


def step(model: Any, row: dict[str, Any], device: str) -> tuple[float, float]:
    """Runs one forward and backward pass; returns its seconds and the loss."""
    began = time.perf_counter()
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = model(**row).loss
    loss.backward()
    model.zero_grad(set_to_none=True)
    value = float(loss.detach())
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--sample", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    row = joined_row(asked.tokens, asked.sample, device)
    with_mask = {k: v for k, v in row.items() if not k.startswith(("cu_", "max_"))}
    found: dict[str, dict[str, Any]] = {}
    models: dict[str, Any] = {}
    for name in (register(), "sdpa"):
        torch.manual_seed(0)
        models[name] = LlamaForCausalLM._from_config(LlamaConfig(**SHAPE), attn_implementation=name).to(device)
        found[name] = {"seconds": [], "peak_bytes": 0}
    for number in range(asked.rounds + 1):
        for name, model in models.items():
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, loss = step(model, with_mask if name == "sdpa" else row, device)
            found[name]["seconds"] += [round(seconds, 5)] if number else []
            found[name]["loss"] = loss
            found[name]["peak_bytes"] = torch.cuda.max_memory_allocated() if device == "cuda" else None
    ours, theirs = (statistics.median(found[name]["seconds"]) for name in models)
    result = {
        "benchmark": "joined_attention",
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "tokens": asked.tokens,
        "sample": asked.sample,
        "sdpa_over_joined": round(theirs / ours, 3),
        "found": found,
    }
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
