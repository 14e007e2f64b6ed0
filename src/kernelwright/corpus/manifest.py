"""Writes the manifest of a corpus: its contents, its provenance, and the conditions of its verdicts."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright import __version__
from kernelwright.corpus.guard import removals_summary
from kernelwright.corpus.judging import LARGEST_FLOPS
from kernelwright.corpus.shards import LICENCE, Shard, shard_fields, write_manifest, write_whole
from kernelwright.evaluation.options import SMALL_BUDGET

VERSION = 1


def finish_manifest(
    folder: Path,
    asked: dict[str, Any],
    shards: Sequence[Shard],
    totals: dict[str, Any],
    of_shards: int,
) -> None:
    """Writes the manifest of the complete shards. `totals` are the builder's counts over them."""
    rows, judged = totals.get("rows", 0), totals.get("judged", 0)
    removed = totals.get("removed", [])
    manifest = {
        "format_version": VERSION,
        "complete": len(shards) == of_shards,
        "kernelwright": __version__,
        "versions": _versions(),
        "licence": LICENCE,
        "provenance": "tasks: kernelwright.generate; answers and mistakes: kernelwright.solutions; traces: "
        "kernelwright.corpus.traces. No third party's code or model output.",
        **{k: asked[k] for k in ("recipe", "format", "share_judged")},
        "tasks_asked": asked["tasks"],
        "tasks": totals.get("tasks", 0),
        "rows": rows,
        "judged": judged,
        "judged_share": judged / rows if rows else 0.0,
        "verdicts": totals.get("verdicts", {}),
        "backends": totals.get("backends", {}),
        "mistakes": totals.get("mistakes", 0),
        "right_but_not_correct": totals.get("right_but_not_correct", 0),
        "skipped": totals.get("skipped", {}),
        "duplicates": totals.get("duplicates", 0),
        "bad_tasks": totals.get("bad_tasks", []),
        "schedules": totals.get("schedules", {}),
        "families": totals.get("families", {}),
        "judging": {"options": asked["options"], "note": _note(asked), "seconds": round(totals.get("seconds", 0.0), 1)},
        "decontamination": {"against": asked["recipe"]["against"], **removals_summary(removed)},
        "shards": [shard_fields(s) for s in shards],
    }
    write_whole(folder / "decontamination.json", (json.dumps({"removed": removed}, indent=1) + "\n").encode())
    write_manifest(folder, manifest)


def _note(asked: dict[str, Any]) -> str:
    """Describes in words how rows of this corpus were judged."""
    options = asked["options"]
    if options is None:
        return "Nothing was judged."
    if options["backend"] == "gpu":
        return "Judged on a GPU at the tasks' own sizes, and timed against eager PyTorch."
    return (
        f"Judged on the functional CUDA machine, without a GPU, by {options['trials']} calls with different contents, "
        f"the first size twice, at reduced sizes of at most {SMALL_BUDGET['element_budget']} elements and "
        f"{SMALL_BUDGET['flop_budget']} FLOPs where a task can be made that small. `kernelwright eval` makes 5 calls, "
        "at sizes eight times as large, and at the declared size where that is small. Tasks that cannot be made "
        f"smaller than {LARGEST_FLOPS} FLOPs were left unjudged. Nothing was timed."
    )


def _versions() -> dict[str, str]:
    import importlib.metadata

    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "nvidia-cuda-nvrtc"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
