"""Prints the exact p-value of every paired comparison that a results file keeps, and Holm's beside it.

    python benchmarks/exact_tests.py benchmarks/results/sft_methods_gpu.json.gz

A comparison is an object with the counts of tasks on which either side was better (`first_only`, `second_only`): the
sign test needs no more, so it can be computed again where the samples themselves were not kept. A family is a
comparison of one name within one group of runs, such as all training methods against SFT on one suite. Prints one JSON
line a comparison: its place, its difference, both counts, `p_exact`, `p_holm`, and the size of its family.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from result_file import read_json

from kernelwright.bench import metrics

Place = tuple[str, ...]


def comparisons(found: Any, place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yields every comparison with its place: the keys that lead to it."""
    if isinstance(found, dict):
        if {"first_only", "second_only"} <= found.keys():
            yield place, found
            return
        for name, inner in found.items():
            yield from comparisons(inner, (*place, str(name)))


def rows(found: Any) -> Iterator[dict[str, Any]]:
    """Yields a row for each comparison, family by family."""
    families: dict[Place, list[tuple[Place, dict[str, Any]]]] = defaultdict(list)
    for place, row in comparisons(found):
        families[(*place[:-2], *place[-1:])].append((place, row))
    for members in families.values():
        exact = [metrics.sign_test(row["first_only"], row["second_only"]) for _, row in members]
        for (place, row), p_exact, p_holm in zip(members, exact, metrics.holm(exact), strict=True):
            yield {
                "place": " / ".join(place),
                "difference": row.get("difference"),
                "better": [row["first_only"], row["second_only"]],
                "p_exact": round(p_exact, 4),
                "p_holm": round(p_holm, 4),
                "family": len(members),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    for row in rows(read_json(parser.parse_args().results)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
