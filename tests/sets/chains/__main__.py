"""Writes the chains as JSON lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sets.chains import COUNT, SEED, chains


def main() -> None:
    """Writes one row a chain: `task_id`, `family`, `bytes`, `flops`, `reference`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    rows = [
        {"task_id": c.name, "family": c.family, "bytes": c.bytes, "flops": c.flops, "reference": c.source}
        for c in chains(asked.count, asked.seed)
    ]
    asked.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
