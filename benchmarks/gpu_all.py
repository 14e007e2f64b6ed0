"""Runs all GPU measurements in one call: each part has a time limit, and its results are JSON in one folder.

    python benchmarks/gpu_all.py OUT [--jsonl FILE] [--parts tests,eval,...]

Copy the results to benchmarks/results/ to publish them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
LIMITS = {"tests": 300, "eval": 150, "precision": 200, "faults": 300, "honest": 400, "sanitizer": 240, "exploits": 400}


def command(part: str, out: Path, jsonl: Path | None) -> list[str]:
    if part == "tests":
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            str(HERE.parent / "tests"),
        ]
    line = [sys.executable, str(HERE / f"gpu_{part}.py"), "--json", str(out / f"gpu_{part}.json")]
    return [*line, "--jsonl", str(jsonl)] if part == "eval" and jsonl else line


def hardware() -> dict[str, object]:
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": properties.name,
        "memory_gb": round(properties.total_memory / 2**30, 1),
        "cores": os.cpu_count(),
        "driver": driver.stdout.strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jsonl", type=Path)
    parser.add_argument("--parts", default=",".join(LIMITS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    facts, status = hardware(), 0
    for part in args.parts.split(","):
        log = args.out / f"{part}.log"
        with open(log, "w") as file:
            try:
                done = subprocess.run(
                    command(part, args.out, args.jsonl), stdout=file, stderr=subprocess.STDOUT, timeout=LIMITS[part]
                ).returncode
            except subprocess.TimeoutExpired:
                done = 124
        status |= done
        written = args.out / f"gpu_{part}.json"
        if written.exists():
            written.write_text(json.dumps({"hardware": facts, **json.loads(written.read_text())}) + "\n")
        print(f"{part}: exit {done}", flush=True)
        print("\n".join(log.read_text(errors="replace").splitlines()[-6:]), flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
