"""Judges right kernels at large declared sizes, and bugs that show only there, without a GPU.

    python benchmarks/declared_sizes.py [--only NAME] [--out benchmarks/results/declared_sizes.json]

A bug is caught when its verdict is not `correct`. The originals must be correct. Each sample's record says which size
was compared, what caught the bug and what it cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.declared import ORIGINALS, Mutant, Original

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Evaluation


def row(original: Original, mutant: Mutant | None, result: Evaluation) -> dict[str, Any]:
    return {
        "kernel": original.name,
        "kind": original.kind,
        "form": original.form,
        "mutant": mutant.name if mutant else None,
        "verdict": result.verdict,
        "reason": result.reason[:240],
        "coverage": result.coverage.plain() if result.coverage else None,
        "seconds": result.seconds.total,
    }


def judge_all(seed: int, only: str) -> list[dict[str, Any]]:
    """Returns a record for each original and mutant."""
    rows = []
    with Evaluator(EvalOptions(backend="cpu", seed=seed)) as evaluator:
        for original in (o for o in ORIGINALS if only in o.name):
            for mutant in (None, *original.mutants):
                result = evaluator.evaluate(original.task(), original.candidate(mutant))
                rows.append(row(original, mutant, result))
                last = rows[-1]
                name = f"{original.name}/{mutant.name if mutant else 'original'}"
                print(f"{name:55} {last['verdict']:13} {last['seconds']:6.1f} s  {last['reason'][:110]}", flush=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    originals = [r for r in rows if r["mutant"] is None]
    mutants = [r for r in rows if r["mutant"] is not None]
    return {
        "originals": len(originals),
        "originals_correct": sum(r["verdict"] == "correct" for r in originals),
        "originals_compared_at_declared_size": sum(
            all(s["values"] == "all" for s in r["coverage"]["sizes"]) for r in originals
        ),
        "mutants": len(mutants),
        "caught": sum(r["verdict"] != "correct" for r in mutants),
        "missed": [f"{r['kernel']}/{r['mutant']}" for r in mutants if r["verdict"] == "correct"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    started = time.monotonic()
    rows = judge_all(given.seed, given.only)
    found = {"seed": given.seed, "seconds": round(time.monotonic() - started, 1), **summary(rows)}
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps({**found, "samples": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
