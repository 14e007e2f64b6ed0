"""The verbs of suites: `kernelwright bench`, `compare` and `export`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.cli.options import PRECISIONS, RULES, path_argument, path_option, seed_option
from kernelwright.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from kernelwright.bench.grid import GridShape
    from kernelwright.bench.job import BenchOptions, BenchSuite
    from kernelwright.bench.numbers import BenchResults as BenchResults
    from kernelwright.evaluation import EvalOptions
    from kernelwright.records import Trajectory

app = typer.Typer(rich_markup_mode=None, cls=WholeHelp)

MOST = 10_000
"""The most samples per task, and turns per sample."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Rule = Annotated[str | None, typer.Option("--rule", help=RULES)]
PrecisionOption = Annotated[str | None, typer.Option("--precision", help=PRECISIONS)]
Timeout = Annotated[
    float | None, typer.Option(help="Wall seconds for a candidate; default: 30, for a whole program 300.")
]
SampleLarge = Annotated[
    bool,
    typer.Option(
        "--sample-large/--no-sample-large", help="Without a GPU, sample the blocks of sizes too large to run."
    ),
]
Context = Annotated[str | None, typer.Option(help="Earlier turns shown to later ones: recent, top_w or summary.")]
Speed = Annotated[
    str | None,
    typer.Option("--speed", metavar="D/10", help="Speed decile to ask for (models trained on deciles)."),
]
TopW = Annotated[int | None, typer.Option("--top-w", min=1, help="Turns that --context top_w shows; default: 4.")]
SmallSizes = Annotated[bool, typer.Option("--small-sizes", help="Without a GPU, judge at small sizes only.")]


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="starter, a folder, a JSONL file, kernelbench:LEVEL or cudabench:FILE.")],
    run: Annotated[Path, path_option("Run folder; an existing run is resumed.")],
    policy: Annotated[
        str, typer.Option(help="Policy: starter, template, hf:MODEL, vllm:MODEL, openai:MODEL@URL or scripted:FILE.")
    ] = "template",
    samples: Annotated[int | None, typer.Option(min=0, max=MOST, help="Samples per task; default: 1.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Draw one greedy sample per task as well.")] = False,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, max=100.0, help="Sampling temperature; default: the policy's own.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", min=0.0, max=1.0, help="Probability mass of nucleus sampling."),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, max=MOST, help="Turns per sample; default: 1.")] = None,
    filtered: Annotated[bool, typer.Option("--filter", help="Judge on the functional machine before the GPU.")] = False,
    stop: Annotated[str, typer.Option(help="End a sample at its first correct turn: correct or never.")] = ("correct"),
    context: Context = None,
    top_w: TopW = None,
    speed: Speed = None,
    grid: Annotated[
        str | None, typer.Option(metavar="SHAPES", help="Samples x turns at equal budget: 16x1,4x4,1x16.")
    ] = None,
    form: Annotated[
        str, typer.Option(help="module: as answered; load_inline: self-contained KernelBench files.")
    ] = "module",
    seed: Annotated[int, seed_option("Seed of sampling and of intervals.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Candidates judged at once; 0: one per core.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first N tasks only.")] = None,
    reference_field: Annotated[str, typer.Option(help="Field with the reference.")] = "reference",
    id_field: Annotated[str | None, typer.Option(help="Field with the row's name; default: guessed.")] = None,
    executor: Annotated[str, typer.Option("--executor", help="local, apart or ray.")] = "local",
    backend: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    rule: Rule = None,
    precision: PrecisionOption = None,
    trials: Annotated[int, typer.Option(help="Number of checked calls.")] = 5,
    timeout: Timeout = None,
    memory_mb: Annotated[int, typer.Option("--memory-mb", help="Memory limit of a candidate in MB.")] = 4096,
    sandbox: Annotated[str, typer.Option(help="auto, strict (fail without landlock and seccomp) or none.")] = "auto",
    baselines: Annotated[str, typer.Option(help="Baselines to time: eager, compile, max-autotune; or none.")] = "eager",
    timing_seconds: Annotated[float, typer.Option(help="On a GPU, wall seconds for timing; 0: no timing.")] = 1.0,
    gpu_memory_gb: Annotated[
        float, typer.Option("--gpu-memory-gb", help="Device memory limit; 0: all free memory.")
    ] = 0.0,
    sample_large: SampleLarge = True,
    small_sizes: SmallSizes = False,
    verdicts: Annotated[Path | None, path_option("Folder of a verdict cache that runs share.", metavar="DIR")] = None,
    compare: Annotated[Path | None, path_option("Another run to compare this one with.")] = None,
    as_json: Json = False,
) -> None:
    """Draw samples of a policy on every task of a suite and judge them: pass@k, fast_p, speedups, cost.

    The same command continues an interrupted run. Harness errors and missing answers are counted separately.
    """
    from kernelwright.bench import program_suite
    from kernelwright.bench.job import BenchOptions, load_bench_suite
    from kernelwright.cli.options import cores, eval_options
    from kernelwright.errors import ConfigError

    seconds = timeout if timeout is not None else program_suite.SECONDS if program_suite.is_programs(suite) else 30.0
    timed = {"baselines": baselines, "timing_seconds": timing_seconds, "gpu_memory_gb": gpu_memory_gb}
    sizes = {"memory_mb": memory_mb, "sample_large": sample_large, "small_sizes": small_sizes}
    more = {**sizes, **timed, "precision": precision, "trials": trials}
    judging = eval_options(backend=backend, rule=rule, timeout=seconds, sandbox=sandbox, **more)
    _check_together(grid, {"samples": samples, "turns": turns, "greedy": greedy or None, "compare": compare})
    if top_w is not None and context != "top_w":
        raise ConfigError("--top-w needs --context top_w", hint="add it, or leave both out")
    drawn, deep = (1 if given is None else given for given in (samples, turns))
    asked = (policy, suite, drawn, greedy, temperature, top_p, deep, seed, form, context, top_w or 4, stop)
    options = BenchOptions(*asked, filter=filtered, speed=speed)
    shapes = _shapes(grid, options)
    _ = compare and _bench_of(compare)  # raises now where it is no bench run
    rows: dict[str, Any] = {"limit": limit, "reference_field": reference_field, "id_field": id_field}
    found = load_bench_suite(options, judging, jobs or cores(), executor, verdicts=verdicts, **rows)
    if shapes:
        _play_grid(found, shapes, options, judging, run, as_json)
    else:
        _play(found, options, judging, run, as_json)
        _show(run, compare, as_json)


def _play(suite: BenchSuite, options: BenchOptions, judging: EvalOptions, run: Path, quiet: bool) -> None:
    """Draws and judges the samples that the run folder does not hold, with progress on stderr."""
    from kernelwright.bench.job import exchange_of, play
    from kernelwright.bench.numbers import task_name
    from kernelwright.policies import load_policy
    from kernelwright.report import terminal
    from kernelwright.search.rollout import best_turn

    told = options.context is not None
    policy = load_policy(options.policy, cache=run / "answers", top_p=options.top_p, conversation=told)
    if told:
        suite = replace(suite, exchange=exchange_of(options, policy))
    total = len({task_name(task) for task in suite.tasks}) * len(options.numbers())
    with terminal.BatchView(total, run, not quiet, "samples") as view:

        def show(name: str, trajectory: Trajectory | None, note: str) -> None:
            best = best_turn(trajectory.turns) if trajectory else None
            failure = trajectory.turns[-1].parse_failure if trajectory and best is None else note
            view.show(name, best.evaluation if best else None, failure or note)

        def stopped(finished: int, in_flight: int) -> None:
            view.standing = lambda: (finished, in_flight)

        play(suite, policy, options, judging, run, show, stopped)


def _check_together(grid: str | None, others: dict[str, object]) -> None:
    """Raises `ConfigError` for flags that contradict `--grid`: its shapes set samples and turns."""
    from kernelwright.errors import ConfigError

    for name, value in others.items():
        if grid is not None and value is not None:
            hint = "a shape is SAMPLESxTURNS" if name != "compare" else "compare the runs of its shapes"
            raise ConfigError(f"--grid does not go with --{name}", hint=f"leave --{name} out: {hint}")


def _shapes(grid: str | None, options: BenchOptions) -> list[GridShape]:
    """Returns the shapes of a grid; none without a grid. Raises `ConfigError` for shapes that cannot be drawn."""
    from kernelwright.bench.grid import parse_grid
    from kernelwright.errors import ConfigError

    if not options.numbers():
        raise ConfigError("--samples 0 without --greedy draws nothing", hint="ask for samples, or add --greedy")
    if grid is None:
        return []
    if any(len(number) > len(str(MOST)) or int(number) > MOST for number in re.findall(r"\d+", grid)):
        raise ConfigError(f"--grid {grid[:60]!r} is too large", hint=f"{MOST} samples or turns at most")
    return parse_grid(grid)


def _play_grid(
    suite: BenchSuite, shapes: list[GridShape], options: BenchOptions, judging: EvalOptions, run: Path, as_json: bool
) -> None:
    """Plays a run for each shape in a folder of its own, then prints one table."""
    from kernelwright.bench import grid as benchgrid
    from kernelwright.bench import tables
    from kernelwright.report import terminal

    found = {}
    for shape in shapes:
        one = replace(options, samples=shape.samples, turns=shape.turns, greedy=False)
        _play(suite, one, judging, run / shape.name, as_json)
        found[shape.name] = benchgrid.measure(_bench_of(run / shape.name))
    if as_json:
        print(json.dumps({"suite": options.suite, "policy": options.policy, "grid": found}))
    else:
        tables.print_grid(found, terminal.out)
    if any(facts["missing"] and not facts["tasks"] for facts in found.values()):
        raise typer.Exit(1)  # as for a run without a counted sample


def _show(run: Path, other: Path | None, as_json: bool) -> None:
    """Prints the tables of a finished run, and its comparison with another one."""
    from kernelwright.bench import numbers, tables
    from kernelwright.report import terminal

    found = _bench_of(run)
    summary = numbers.summarise(found)
    if other is not None:
        summary["comparison"] = numbers.compare(_bench_of(other), found)
    if as_json:
        print(json.dumps(summary))
    else:
        tables.print_summary(summary, terminal.out)
        if other is not None:
            tables.print_comparison(summary["comparison"], (other.name, run.name), terminal.out)
        terminal.out.print(f"[dim]more: kernelwright report {terminal.escape(str(run))} --html report.html[/]")
    if summary["counts"]["no_answer"] and not summary["counts"]["samples"]:
        raise typer.Exit(1)


def _bench_of(run: Path) -> BenchResults:
    from kernelwright.bench import numbers
    from kernelwright.report import terminal

    with terminal.opened(run) as store:
        return numbers.read(store)


@app.command()
def compare(
    first: Annotated[Path, path_argument("Run folder of kernelwright bench: A.")],
    second: Annotated[Path, path_argument("Run folder of kernelwright bench: B.")],
    as_json: Json = False,
) -> None:
    """Compare two bench runs on the tasks that both judged: paired tests, intervals of the difference B - A."""
    from kernelwright.bench import numbers, tables
    from kernelwright.errors import UsageError
    from kernelwright.report import terminal

    found = numbers.compare(_bench_of(first), _bench_of(second))
    if not found["common_tasks"]:
        raise UsageError(
            f"{str(first)!r} and {str(second)!r} have no task in common that both judged: there is nothing to compare",
            hint="name two runs on one suite",
        )
    if as_json:
        print(json.dumps(found))
    else:
        tables.print_comparison(found, (str(first), str(second)), terminal.out)


@app.command("export")
def export_(
    candidate: Annotated[Path, path_argument("Candidate: a .py, .cu or .cpp file.")],
    out: Annotated[Path | None, path_option("File to write; default: stdout.")] = None,
) -> None:
    """Write a candidate as a self-contained KernelBench file with load_inline, which runs without Kernelwright."""
    from kernelwright.runs.folders import write_text
    from kernelwright.solutions.forms import export, whole_text
    from kernelwright.tasks import load_candidate

    given = load_candidate(candidate)
    text = export(given.text) if candidate.suffix == ".py" else whole_text(given.text)
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    print(f"written to {out}", file=sys.stderr)
