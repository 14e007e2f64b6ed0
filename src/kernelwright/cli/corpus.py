"""The verbs of training data: `kernelwright corpus build|show`, `kernelwright decontaminate`, `kernelwright curate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.cli.options import PRECISIONS, path_argument, path_option, seed_option
from kernelwright.cli.whole_help import WholeHelp

corpus_app = typer.Typer(
    help="Build training data from generated tasks.", no_args_is_help=True, rich_markup_mode=None, cls=WholeHelp
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@corpus_app.callback()
def _root() -> None:
    pass


@corpus_app.command("build")
def corpus_build(
    out: Annotated[Path, path_option("Folder of the corpus; an existing one is continued.")],
    tasks: Annotated[int, typer.Option(min=1, max=10_000_000, help="Tasks to generate.")] = 1000,
    seed: Annotated[int, seed_option("Seed of tasks, answers and judging.")] = 0,
    split: Annotated[str, typer.Option(help="Split of the task generator.")] = "train",
    families: Annotated[str | None, typer.Option(help="Families of tasks, separated by commas; default: all.")] = None,
    schedules: Annotated[
        str, typer.Option(help="canonical, apart or mixed (one answer per task), or all.")
    ] = "canonical",
    per_task: Annotated[int | None, typer.Option(min=1, help="With --schedules all: answers per task.")] = None,
    mistakes: Annotated[float, typer.Option(help="Share of answers with a planted mistake.")] = 0.0,
    judge: Annotated[str, typer.Option(help="cpu, gpu or none.")] = "cpu",
    share_judged: Annotated[float, typer.Option(help="Share of rows that are judged.")] = 1.0,
    trials: Annotated[int, typer.Option(min=1, max=100, help="Number of checked calls.")] = 3,
    against: Annotated[list[str] | None, typer.Option(help="Suite that must stay unseen; repeatable.")] = None,
    one_operator: Annotated[
        str, typer.Option(help="remove or keep: tasks of one operator that only the AST rule hits.")
    ] = "remove",
    file_format: Annotated[str, typer.Option("--format", help="jsonl or parquet.")] = "jsonl",
    timing_seconds: Annotated[float, typer.Option(help="With --judge gpu: how long a right row is timed.")] = 1.0,
    precision: Annotated[str | None, typer.Option(help=PRECISIONS)] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core, or six a GPU that judges.")] = 0,
    as_json: Json = False,
) -> None:
    """Build a corpus: generated tasks, written answers, verdicts and timings, as shards with a manifest.

    Each judged row is on disk at once. After a kill or an interrupt, the same command continues.
    """
    from kernelwright.corpus import show
    from kernelwright.corpus.build import CorpusPlan, build
    from kernelwright.corpus.pairs import recipe

    made = recipe(
        seed=seed,
        split=split,
        mistakes=mistakes,
        schedules=schedules,
        families=_names(families),
        against=against or [],
        one_operator=one_operator,
        per_task=per_task,
    )
    plan = CorpusPlan(made, tasks, judge, share_judged, trials, file_format, timing_seconds, precision)  # type: ignore[arg-type]
    with show.BuildView(plan.chunks, out, not as_json) as view:
        manifest = build(out, plan, jobs, view.show)
    if as_json:
        print(json.dumps({k: v for k, v in manifest.items() if k != "families"}))
    else:
        show.print_manifest(manifest, out)


@corpus_app.command("show")
def corpus_show(
    folder: Annotated[Path, path_argument("Folder of a corpus.")],
    row: Annotated[str | None, typer.Option(help="Show one row: its row_id or its number from 0.")] = None,
    as_json: Json = False,
) -> None:
    """Show a corpus's contents, or one of its rows."""
    from kernelwright.corpus import show
    from kernelwright.corpus.shards import read_manifest

    manifest = read_manifest(folder)
    if row is not None:
        found = show.find_row(folder, manifest, row)
        print(json.dumps(found)) if as_json else show.print_row(found)
    elif as_json:
        print(json.dumps(manifest))
    else:
        show.print_manifest(manifest, folder)


def decontaminate(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Corpus folder, JSONL file, or SUITE.")],
    against: Annotated[list[str], typer.Option(metavar="SUITE", help="Suite that must stay unseen; repeatable.")],
    out: Annotated[Path | None, path_option("JSONL file for the remaining rows.")] = None,
    report: Annotated[Path | None, path_option("JSON file for the report.")] = None,
    ast: Annotated[float, typer.Option(help="Remove above this AST similarity.")] = 0.9,
    jaccard: Annotated[float, typer.Option(help="Remove above this Jaccard index of tokens.")] = 0.8,
    one_operator: Annotated[
        str, typer.Option(help="remove or keep: tasks of one operator that only the AST rule hits.")
    ] = "remove",
    structure_only: Annotated[
        bool,
        typer.Option("--structure-only", help="AST similarity without operator names, as CUDA Agent's tool."),
    ] = False,
    embed: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Also compare embeddings of a model: a folder or Hub id.")
    ] = None,
    distance: Annotated[float, typer.Option(help="With --embed: remove below this L2 distance.")] = 0.45,
    reference_field: Annotated[str, typer.Option(help="Field with the reference.")] = "reference",
    id_field: Annotated[str | None, typer.Option(help="Field with the row's name; default: guessed.")] = None,
    as_json: Json = False,
) -> None:
    """Remove tasks that are too similar to a suite that must stay unseen, and report the reasons."""
    from kernelwright.corpus import cleaning, show
    from kernelwright.corpus.decontaminate import Rules

    rules = Rules(ast, jaccard, distance, one_operator, structure_only)  # type: ignore[arg-type]
    with show.spinner(f"comparing {corpus} with {', '.join(against)}"):
        found = cleaning.clean(
            corpus, against, rules, out=out, report=report, embed=embed, fields=(reference_field, id_field)
        )
    if as_json:
        print(json.dumps(found))
    else:
        show.print_report(found)


def curate(
    runs: Annotated[list[Path], path_argument("Run folders, or corpora with verdicts.", metavar="RUN...")],
    out: Annotated[Path, path_option("New folder for the data set.")],
    method: Annotated[str, typer.Option(help="Method of curation: see docs/curation.md.")] = "verified",
    form: Annotated[str, typer.Option(help="plain (reference, file) or chat (the judged messages).")] = "plain",
    size: Annotated[int | None, typer.Option(min=1, help="Limit of rows.")] = None,
    seed: Annotated[int, seed_option("Seed of --method random.")] = 0,
    against: Annotated[list[str] | None, typer.Option(help="Suite that must stay unseen; repeatable.")] = None,
    one_operator: Annotated[
        str, typer.Option(help="remove or keep: tasks of one operator that only the AST rule hits.")
    ] = "remove",
    few_shot: Annotated[int, typer.Option(min=0, help="verified, best-of, speed-deciles: demonstrations.")] = 0,
    k_samples: Annotated[int, typer.Option(min=1, help="concur: answers per task that count.")] = 5,
    fast_threshold: Annotated[float, typer.Option(help="concur: speedup above which any answer is kept.")] = 5.0,
    balance: Annotated[float, typer.Option(min=0, help="concur: one-operator tasks, as a share of the others.")] = (
        544 / 4348
    ),
    margin: Annotated[float, typer.Option(help="mdpo: least difference of two rollouts' scores.")] = 0.3,
    per_task: Annotated[int, typer.Option(min=1, help="preferences: limit of pairs per task.")] = 4,
    faster_by: Annotated[float | None, typer.Option(help="preferences: least speedup of correct pairs.")] = None,
    reward: Annotated[str | None, typer.Option(help="rft (cuda_agent), mdpo (kevin): the reward that decides.")] = None,
    same_rollout: Annotated[bool, typer.Option("--same-rollout", help="repair: only fixes within one rollout.")] = (
        False
    ),
    licence: Annotated[str | None, typer.Option(help="SPDX name to state in the datasheet.")] = None,
    push: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="Also push to the Hub, privately.")] = None,
    as_json: Json = False,
) -> None:
    """Make training data from judged runs by a method of the literature, deduplicated and decontaminated."""
    from kernelwright.corpus import show
    from kernelwright.curation import CurationSettings, gather
    from kernelwright.curation.methods import load_method
    from kernelwright.curation.writing import check_choices, push_to_hub, write

    check_choices(form, one_operator)
    make = load_method(method, few_shot)
    settings = CurationSettings(
        form=form,  # type: ignore[arg-type]
        size=size,
        seed=seed,
        k_samples=k_samples,
        fast_threshold=fast_threshold,
        balance=balance,
        few_shot=few_shot,
        margin=margin,
        per_task=per_task,
        faster_by=faster_by,
        reward=reward,
        other_rollouts=not same_rollout,
        against=tuple(against or ()),
        one_operator=one_operator,  # type: ignore[arg-type]
    )
    with show.spinner(f"curating {len(runs)} runs"):
        manifest = write(
            out,
            make(gather(runs), settings),
            method=method,
            runs=[str(run) for run in runs],
            settings=settings,
            licence=licence,
        )
        if push is not None:
            push_to_hub(out, push)
    print(json.dumps(manifest)) if as_json else show.print_curated(manifest, out)


def _names(text: str | None) -> list[str] | None:
    return [t.strip() for t in text.split(",") if t.strip()] if text else None


def register(app: typer.Typer) -> None:
    """Adds these verbs to the command line."""
    app.add_typer(corpus_app, name="corpus")
    app.command("decontaminate")(decontaminate)
    app.command("curate")(curate)
