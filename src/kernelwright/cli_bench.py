"""The verbs around whole suites: `kernelwright export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command("export")
def export_(
    candidate: Annotated[Path, typer.Argument(help="Candidate that launches kernels from Python.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default: stdout.")] = None,
) -> None:
    """Render a candidate as a self-contained KernelBench file with load_inline, which runs without Kernelwright."""
    from kernelwright.optimize import write_candidate
    from kernelwright.solutions.forms import export
    from kernelwright.tasks import candidate_from_text, load_candidate

    given = load_candidate(candidate)
    text = export(given.text) if candidate.suffix == ".py" else given.text
    if out is None:
        sys.stdout.write(text)
        return
    write_candidate(candidate_from_text(text, candidate.name, candidate.suffix), out)
    print(f"written to {out}", file=sys.stderr)
