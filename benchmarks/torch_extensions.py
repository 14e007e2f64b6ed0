"""Judges the torch extensions of `tests/sets/extensions` and the bug planted in each, without a GPU.

    python benchmarks/torch_extensions.py [--out benchmarks/results/torch_extensions.json] [--only NAME ...]

At least 18 extensions must be `correct`, and the bug planted in each of them found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.extensions import EXTENSIONS, Planted
from sets.extensions.judging import candidate, task

from kernelwright.evaluation import EvalOptions, Evaluator


def row(evaluator: Evaluator, extension: Planted, planted: bool) -> dict[str, Any]:
    result = evaluator.evaluate(task(extension), candidate(extension, planted))
    finding = result.findings[0] if result.findings else None
    return {
        "extension": extension.name,
        "planted": planted,
        "verdict": result.verdict,
        "reason": result.reason[:400],
        "rule": finding.rule if finding else "",
        "seconds": round(result.seconds.total, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--part", choices=["whole", "planted", "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = [e for e in EXTENSIONS if not options.only or e.name in options.only]
    parts = {"whole": (False,), "planted": (True,), "both": (False, True)}[options.part]
    rows, started = [], time.monotonic()
    with Evaluator(EvalOptions(backend="cpu", seed=options.seed)) as evaluator:
        for extension in chosen:
            for planted in parts:
                rows.append(row(evaluator, extension, planted))
                print(*rows[-1].values(), sep=" | ", flush=True)
    whole, planted_rows = ([r for r in rows if r["planted"] is kind] for kind in (False, True))
    right = sum(r["verdict"] == "correct" for r in whole)
    found = sum(r["verdict"] in ("wrong", "runtime_error") for r in planted_rows)
    made = {
        "seed": options.seed,
        "extensions": len(whole),
        "correct": right,
        "planted": len(planted_rows),
        "found": found,
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    print({key: value for key, value in made.items() if key != "rows"})
    judged = {r["extension"] for r in whole if r["verdict"] == "correct"}
    missed = [r["extension"] for r in planted_rows if r["verdict"] not in ("wrong", "runtime_error")]
    return 0 if right >= min(18, len(whole)) and not judged & set(missed) else 1


if __name__ == "__main__":
    sys.exit(main())
