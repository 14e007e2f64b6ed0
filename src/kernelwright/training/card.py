"""A checkpoint's model card: its use, limits, training data and measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FRONT = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [cuda, gpu-kernels]
---
"""

_USE = """\
```sh
kernelwright optimize TASK --policy starter:FOLDER --run runs/try     # FOLDER: this folder
kernelwright serve --model FOLDER                                     # an OpenAI-compatible endpoint
```

It is asked with the task alone: the user's turn is the source of a KernelBench-format file (`Model`, `get_inputs`,
`get_init_inputs`) in normal form (`kernelwright.tasks.normal_form.normal`: no docstrings, no comments, constants in
place), the assistant's turn is a whole candidate file with `ModelNew`. The policy and the endpoint bring a task into
that form, with names that it knows in place of others and weights by their shapes, and give the answer the task's own
names and constructor (`kernelwright.inference.repeating`).
`AutoModelForCausalLM` and `AutoTokenizer` load it; the chat template adds the turns.
"""

_LIMITS = """\
- It covers the operator families of kernelwright's task generator, in that generator's forms. Other tasks get an answer
  that looks like one and is wrong.
- It does not hold a conversation, follow instructions, explain, or learn from feedback in its prompt: another try is
  another sample. It has never seen natural language other than names.
- Its answers are the solution library's style. Whether one is right is for `kernelwright eval` to say, and whether it
  is fast was not what it was trained for.
- Run what it writes in the sandbox, as any code from a model.
"""


def write_card(folder: Path, facts: dict[str, Any], results: Path | None = None) -> Path:
    """Writes `README.md` of a checkpoint from the facts of its training and an optional JSON file of results.

    `results` holds an object, or a list of objects, of plain values (nested objects become `name.name`).
    """
    text = card(facts, json.loads(results.read_text(encoding="utf-8")) if results is not None else None)
    path = folder / "README.md"
    path.write_text(text, encoding="utf-8")
    return path


def card(facts: dict[str, Any], results: Any = None) -> str:
    """Returns the card's text."""
    name = str(facts.get("name", "model"))
    parts = [
        _FRONT,
        f"# {name}",
        f"{facts.get('note', '')}\n\nA decoder of {facts['parameters'] / 1e6:.1f} M parameters, trained from scratch "
        f"by `kernelwright train pretrain`. No other model's weights or answers went into it.".strip(),
        f"## Use\n\n{_USE}",
        f"## What it is not\n\n{_LIMITS}",
        f"## Training\n\n{_table(_training(facts))}",
    ]
    if results is not None:
        parts.append(f"## Measured\n\n{_results(results)}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _training(facts: dict[str, Any]) -> list[tuple[str, str]]:
    shape, pairs = facts["shape"], facts["pairs"]
    speed = facts.get("tokens_per_s")
    rows = [
        ("data", f"{pairs['source']}; {pairs['training']:,} used, {pairs['held_out']:,} held out"),
        ("kept away from", _apart(pairs)),
        ("tokens seen", f"{facts['tokens']:,} in {facts['updates']:,} updates, loss on the answers only"),
        (
            "shape",
            f"{shape['layers']} layers, hidden {shape['hidden']}, {shape['heads']} heads ({shape['kv_heads']} of keys "
            f"and values), feed-forward {shape['feed_forward']}, vocabulary {shape['vocabulary']}, context "
            f"{shape['context']}",
        ),
        ("held-out loss", f"{facts['held_out_loss']:.2g} nats a token"),
        ("device", f"{facts['device']} x {facts['processes']}, {facts['precision']}, torch {facts['torch']}"),
        ("time", f"{facts['seconds']['training']:.0f} s of updates, {facts['seconds']['preparing']:.0f} s before"),
    ]
    if "mean_prompt_tokens" in pairs:
        lengths = f"{pairs['mean_prompt_tokens']:.0f}, {pairs['mean_answer_tokens']:.0f} tokens"
        rows.append(("mean prompt, answer", lengths))
    if "stopped" in facts:
        rows.append(("not to its end", str(facts["stopped"])))
    if speed:
        mfu = facts.get("mfu")
        rows.append(("speed", f"{speed:,} tokens/s" + (f", MFU {mfu:.1%}" if mfu else "")))
    return rows


def _apart(pairs: dict[str, Any]) -> str:
    """Describes decontamination: the suites, the rules and the share of tasks removed."""
    if not pairs.get("against"):
        return "no suite: nothing was left out for being near to a benchmark"
    kept = ", single operators exempt from the AST rule" if pairs["one_operator"] == "keep" else ""
    suites = ", ".join(f"`{name}`" for name in pairs["against"])
    share = f": {pairs['share_too_near']:.1%} of the tasks were left out" if "share_too_near" in pairs else ""
    return f"{suites} (exact, AST, token Jaccard{kept}){share}"


def _results(results: Any) -> str:
    if isinstance(results, list):
        return "\n\n".join(_results(one) for one in results)
    return _table(list(_flat(results, ""))) if isinstance(results, dict) else str(results)


def _flat(table: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            rows.append((f"{prefix}{key}", shown))
    return rows


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
