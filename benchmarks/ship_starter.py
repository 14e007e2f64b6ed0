"""Puts a trained checkpoint where `--policy starter` looks for it, with a model card of what was measured.

    python benchmarks/ship_starter.py WORK TARGET [--config starter]

WORK is the folder of `device_starter.py` (`pieces.py` puts it together from what came back). TARGET gets the files
that inference needs, `training.json`, and `README.md`: its table holds what the runs in WORK found, partial ones
marked so, and nothing that was not measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from kernelwright.training.card import card

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def measured(work: Path, config: str) -> dict[str, Any]:
    """The rows of the card's table."""
    facts = json.loads((work / "device_starter.json").read_text())
    rows: dict[str, Any] = {}
    for name, bench in sorted(facts["benches"].items()):
        if name.startswith(f"{config}-") and bench.get("counts", {}).get("samples"):
            rows |= _bench(name.removeprefix(f"{config}-"), bench)
    cpu = _json(work / "starter_cpu.json")
    if cpu:
        seconds = cpu["median_seconds"]
        where = f"{cpu['samples']} samples of {cpu['tokens_a_sample']} tokens on a processor ({cpu['hardware']})"
        rows[where] = f"{seconds:.1f} s"
    hardware = facts.get("hardware", {})
    rows["measured on"] = (
        f"{hardware.get('gpu') or 'a processor'}, torch {hardware.get('torch')}, {hardware.get('date')}"
    )
    return rows


def _bench(name: str, bench: dict[str, Any]) -> dict[str, str]:
    """Rows of one suite: what is correct, and what is faster than eager."""
    counts, settings = bench["counts"], bench["settings"]
    suite, _, kind = name.rpartition(".")
    judged, tasks = counts["judged_tasks"], counts["tasks"]
    partial = "" if judged == tasks and not counts["pending"] else f" (only {judged} of {tasks} tasks were judged)"
    one = bench["correct"]["1"]
    share = f"{one['value']:.1%} [{one['low']:.1%}, {one['high']:.1%}]"
    label = "greedy" if kind == "greedy" else "one sample at T = 0.8"
    rows = {f"{suite}: correct, {label}": f"{share}{partial}"}
    if settings["samples"] > 1:
        rows[f"{suite}: any of {settings['samples']} samples correct"] = f"{bench['solved']} of {judged} tasks{partial}"
    else:
        rows[f"{suite}: tasks correct, {label}"] = f"{bench['solved']} of {judged}{partial}"
    fast = (bench["fast"]["eager"] or {}).get("1")
    if fast:
        rows[f"{suite}: correct and faster than eager, {label}"] = f"{fast['1']['value']:.1%}"
    return rows


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--config", default="starter")
    asked = parser.parse_args()
    folder = asked.work / "models" / asked.config
    facts = _json(folder / "training.json")
    if not facts:
        raise SystemExit(f"error: {folder} holds no finished training: a checkpoint without its facts is not shipped")
    asked.target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(folder / name, asked.target / name)
    (asked.target / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    usual = "--policy starter:FOLDER --run runs/try     # FOLDER: this folder"
    text = card(facts, measured(asked.work, asked.config)).replace(usual, "--policy starter --run runs/try")
    (asked.target / "README.md").write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in asked.target.iterdir())
    print(f"{asked.target}: {size / 1e6:.1f} MB")
    print(text)


if __name__ == "__main__":
    main()
