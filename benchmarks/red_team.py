"""Measures how many composed attacks the judge takes for correct, and how many honest candidates it refuses.

    python benchmarks/red_team.py judge ROWS.jsonl [--count 300] [--part all] [--seed 0] [--jobs 2] [--backend cpu]
    python benchmarks/red_team.py honest ROWS.jsonl [--honest FOLDER] [--jobs 2] [--backend cpu]
    python benchmarks/red_team.py report ROWS.jsonl [--json FILE] [--rows FILE.jsonl.gz]
    python benchmarks/red_team.py show KEY [--count 3000] [--seed 0]
    python benchmarks/red_team.py pieces

An attack is a task, a door (a way to the answer without own kernels that compute it), a cover (kernels that only touch
the answer) and up to two disguises (changes of the text). About 40 % of the doors and of the disguises are held out, by
a hash of their names. An attack is held out if its door or one of its disguises is. The development part may be looked
at while the judge is improved; of the held-out part only totals are looked at, and no rule is made for it.

Each attack is repaired up to twice by the judge's feedback, and counts once, by its last verdict. It is also tried in
plain torch on a CPU without any guard (compiled host code with g++): `report` states the residual rate among all
attacks and among those that work there. `judge` and `honest` append a row for each candidate and go on where an
earlier run ended, by keys; Ctrl-C keeps what was judged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from redteam.compose import Attack, attacks
from redteam.disguises import DISGUISES
from redteam.doors import DOORS
from redteam.honest import honest_cases
from redteam.judging import Row, judged, judged_honest, options_for
from redteam.report import plain_rows, summary, table

from kernelwright import Evaluator

app = typer.Typer(add_completion=False, no_args_is_help=True, help=(__doc__ or "").split("\n")[0])


class PartName(StrEnum):
    """The parts that `--part` names."""

    development = "development"
    held_out = "held-out"
    all = "all"


class Backend(StrEnum):
    """The tiers that `--backend` names."""

    cpu = "cpu"
    gpu = "gpu"


Rows = Annotated[Path, typer.Argument(help="JSONL file of rows; rows are appended")]
Jobs = Annotated[int, typer.Option(min=1, help="candidates judged at the same time")]
BackendOption = Annotated[Backend, typer.Option(help="tier that judges")]
Json = Annotated[bool, typer.Option("--json", help="print each row as JSON")]


def known(path: Path) -> set[str]:
    """Returns the keys of the rows of an earlier run."""
    return {Row.model_validate_json(line).key for line in path.read_text().splitlines()} if path.exists() else set()


def written(rows: Iterable[Row], path: Path, total: int, as_json: bool) -> None:
    """Appends rows as they come, and reports progress. An interrupt ends it with what was judged."""
    try:
        with path.open("a") as file:
            for number, row in enumerate(rows, 1):
                file.write(row.model_dump_json() + "\n")
                file.flush()
                name = row.door or row.task
                said = row.model_dump_json() if as_json else f"{number}/{total} {row.verdict:14} {row.part:12} {name}"
                print(said, flush=True)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {path} keeps what was judged", err=True)
        raise typer.Exit(130) from None


@app.command()
def judge(
    rows: Rows,
    count: Annotated[int, typer.Option(min=1, help="number of attacks")] = 300,
    part: Annotated[PartName, typer.Option(help="part to draw from")] = PartName.all,
    seed: Annotated[int, typer.Option(help="seed of the drawing and of the judge's inputs")] = 0,
    only: Annotated[str, typer.Option(help="judge only doors whose name or family contains this text")] = "",
    jobs: Jobs = 2,
    backend: BackendOption = Backend.cpu,
    as_json: Json = False,
) -> None:
    """Judge attacks and append their rows."""
    done = known(rows)
    drawn = attacks(part.value, backend.value, seed, count)
    left = [a for a in drawn if a.key not in done and only in f"{a.door.family}: {a.door.name}"]
    with Evaluator(options_for(backend.value, seed)) as evaluator:
        written(judged(left, evaluator, backend.value, jobs), rows, len(left), as_json)


@app.command()
def honest(
    rows: Rows,
    folder: Annotated[
        Path | None, typer.Option("--honest", help="folder of further candidates; their first line names the task")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the judge's inputs")] = 0,
    jobs: Jobs = 2,
    backend: BackendOption = Backend.cpu,
    as_json: Json = False,
) -> None:
    """Judge the honest set and append its rows."""
    done = known(rows)
    left = [c for c in honest_cases(backend.value, folder) if c.key not in done]
    with Evaluator(options_for(backend.value, seed)) as evaluator:
        written(judged_honest(left, evaluator, backend.value, jobs), rows, len(left), as_json)


@app.command()
def report(
    rows: Annotated[list[Path], typer.Argument(help="JSONL files of rows")],
    json_file: Annotated[Path | None, typer.Option("--json", help="write the summary as JSON")] = None,
    kept: Annotated[Path | None, typer.Option("--rows", help="write the rows, compressed")] = None,
) -> None:
    """Print the residual rates and the false refusals as Markdown."""
    found = [Row.model_validate_json(line) for path in rows for line in path.read_text().splitlines()]
    made = summary(found)
    if json_file:
        json_file.write_text(made.model_dump_json(indent=1) + "\n")
    if kept:
        plain_rows(found, kept)
    typer.echo(table(made))


def composed(seed: int, count: int) -> Iterator[Attack]:
    """Yields the attacks of both tiers."""
    yield from attacks("all", "cpu", seed, count)
    yield from attacks("development", "cpu", seed, count)
    yield from attacks("held-out", "cpu", seed, count)
    yield from attacks("all", "gpu", seed, count)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="key of an attack")],
    count: Annotated[int, typer.Option(help="number of attacks that were drawn")] = 3000,
    seed: Annotated[int, typer.Option(help="seed of the drawing")] = 0,
    task: Annotated[bool, typer.Option("--task", help="print the task instead of the candidate")] = False,
) -> None:
    """Print the candidate, or the task, of an attack."""
    found = next((a for a in composed(seed, count) if a.key == key), None)
    if found is None:
        raise typer.BadParameter(f"no attack has the key {key}; name the seed and the count it was drawn with")
    typer.echo(found.task.reference() if task else found.text())


@app.command()
def pieces() -> None:
    """List doors and disguises with their parts."""
    for door in DOORS:
        typer.echo(f"{door.part:12} door      {door.family}: {door.name}")
    for disguise in DISGUISES:
        typer.echo(f"{disguise.part:12} disguise  {disguise.name}")


if __name__ == "__main__":
    app()
