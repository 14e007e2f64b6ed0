"""Most verbs of the command line. A verb parses its flags and calls the package; it holds no logic.

Data goes to stdout, progress and messages to stderr. Exit status: 0 done (for `eval TASK CANDIDATE`: correct), 1 any
other verdict, 2 bad usage or unreadable input, 3 a fault of ours, 130 interrupted, 141 closed output. Verbs import
heavy libraries when they run.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright import __version__
from kernelwright.cli import ending
from kernelwright.cli.bench import app as bench_app
from kernelwright.cli.corpus import register as register_corpus
from kernelwright.cli.generate import tasks_generate
from kernelwright.cli.machine import machine_app
from kernelwright.cli.options import (
    PRECISIONS,
    RULES,
    cores,
    eval_options,
    library_rule,
    no_folder,
    path_argument,
    path_option,
    refused,
    seed_option,
)
from kernelwright.cli.post import train_app
from kernelwright.cli.serve import serve
from kernelwright.cli.solutions import solutions_app
from kernelwright.cli.warm import warm
from kernelwright.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from kernelwright.evaluation import EvalOptions
    from kernelwright.profile import ProfileOptions
    from kernelwright.records import Evaluation
    from kernelwright.runs.store import Store
    from kernelwright.tasks import Row

app = typer.Typer(
    name="kernelwright",
    help="Judge GPU kernels, search for better ones, and keep the evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=WholeHelp,
)
tasks_app = typer.Typer(help="Read and check tasks.", no_args_is_help=True, rich_markup_mode=None, cls=WholeHelp)
app.add_typer(tasks_app, name="tasks")
tasks_app.command("generate")(tasks_generate)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Backend = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
Rule = Annotated[str | None, typer.Option("--rule", help=RULES)]
PrecisionOption = Annotated[str | None, typer.Option("--precision", help=PRECISIONS)]
OldRule = Annotated[str | None, typer.Option("--policy", hidden=True, help="Deprecated: use --rule.")]
OldLibraries = Annotated[
    bool, typer.Option("--libraries-allowed", hidden=True, help="Deprecated: use --rule libraries_allowed.")
]
Trials = Annotated[int, typer.Option(help="Number of checked calls.")]
Timeout = Annotated[float, typer.Option(help="Wall seconds for a candidate, without its builds.")]
Memory = Annotated[int, typer.Option("--memory-mb", help="Memory limit of a candidate in MB.")]
SampleLarge = Annotated[
    bool,
    typer.Option(
        "--sample-large/--no-sample-large", help="Without a GPU, sample the blocks of sizes too large to run."
    ),
]
FullSize = Annotated[
    bool, typer.Option("--full-size", help="Without a GPU, run the task's own sizes whole, however long it takes.")
]
Seed = Annotated[int | None, seed_option("Seed of inputs and weights; default: random.")]
Baselines = Annotated[str, typer.Option(help="Baselines to time: eager, compile, max-autotune; or none.")]
TimingSeconds = Annotated[float, typer.Option(help="On a GPU, wall seconds for timing; 0: no timing.")]
GpuMemory = Annotated[float, typer.Option("--gpu-memory-gb", help="Device memory limit; 0: all free memory.")]
Live = Annotated[bool, typer.Option(help="On a GPU, run programs that depend on values without values on the host.")]
Strict = Annotated[
    bool,
    typer.Option("--strict-kernelbench", help="Reproduce the verdict of KernelBench's evaluator (unprotected)."),
]
StrictTolerance = Annotated[
    float | None,
    typer.Option("--kernelbench-tolerance", help="Tolerance of that verdict; default: by dtype."),
]
ExecutorKind = Annotated[
    str,
    typer.Option(
        "--executor", help="local: this machine, all its GPUs; apart: the same, out of process; ray: a Ray cluster."
    ),
]
Sandbox = Annotated[str, typer.Option(help="auto, strict (fail without landlock and seccomp) or none.")]


def _version(shown: bool) -> None:
    if shown:
        print(f"kernelwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command("eval")
def eval_(
    task: Annotated[
        str | None, typer.Argument(help="Task: a .py file, a task folder, FILE.jsonl#ID, or a name.")
    ] = None,
    candidate: Annotated[Path | None, path_argument("Candidate: a .py, .cu or .cpp file.")] = None,
    jsonl: Annotated[Path | None, path_option("Judge the rows of a JSONL file instead.")] = None,
    run: Annotated[Path | None, path_option("Run folder; an existing run is resumed.")] = None,
    reference_field: Annotated[str, typer.Option(help="Field with the reference.")] = "reference",
    candidate_field: Annotated[str, typer.Option(help="Field with the candidate.")] = "candidate",
    id_field: Annotated[str | None, typer.Option(help="Field with the row's name; default: guessed.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Candidates judged at once; 0: one per core.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge the first N rows only.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again even if the run folder holds a verdict.")] = False,
    executor: ExecutorKind = "local",
    queue_only: Annotated[bool, typer.Option("--queue-only", help="Queue the rows for kernelwright worker.")] = False,
    priority: Annotated[
        int | None,
        typer.Option(min=-(2**31), max=2**31 - 1, help="With --queue-only: the highest is judged first; default: 0."),
    ] = None,
    backend: Backend = "auto",
    rule: Rule = None,
    precision: PrecisionOption = None,
    policy: OldRule = None,
    libraries_allowed: OldLibraries = False,
    trials: Trials = 5,
    timeout: Timeout = 30.0,
    memory_mb: Memory = 4096,
    seed: Seed = None,
    sandbox: Sandbox = "auto",
    baselines: Baselines = "eager",
    timing_seconds: TimingSeconds = 1.0,
    gpu_memory_gb: GpuMemory = 0.0,
    live: Live = False,
    sample_large: SampleLarge = True,
    full_size: FullSize = False,
    strict_kernelbench: Strict = False,
    kernelbench_tolerance: StrictTolerance = None,
    as_json: Json = False,
) -> None:
    """Judge one candidate on one task, or the rows of a JSONL file."""
    from kernelwright.errors import UsageError
    from kernelwright.tasks import read_rows

    _check_strict(strict_kernelbench, kernelbench_tolerance, precision)
    if priority is not None and not queue_only:
        raise UsageError("--priority needs --queue-only", hint="add it, or leave both out")
    on_gpu = {"baselines": baselines, "timing_seconds": timing_seconds, "gpu_memory_gb": gpu_memory_gb, "live": live}
    claim = {"strict_kernelbench": strict_kernelbench, "kernelbench_tolerance": kernelbench_tolerance}
    large = {"sample_large": sample_large, "full_size": full_size, "precision": precision}
    more = {"memory_mb": memory_mb, **large, "seed": seed, **on_gpu, **claim}
    wanted = library_rule(rule, policy, libraries_allowed)
    options = eval_options(backend=backend, rule=wanted, trials=trials, timeout=timeout, sandbox=sandbox, **more)
    if jsonl is not None:
        if task is not None:
            raise UsageError("give either TASK and CANDIDATE, or --jsonl", hint="see kernelwright eval --help")
        if run is None:
            raise UsageError("--jsonl needs --run DIR, the folder that keeps the verdicts", hint="add --run runs/NAME")
        rows = read_rows(
            jsonl, reference_field=reference_field, candidate_field=candidate_field, id_field=id_field, limit=limit
        )
        if queue_only:
            _queue_rows(rows, jsonl.name, run, options, priority or 0, fresh, as_json)
        else:
            _eval_rows(rows, jsonl.name, run, options, executor, jobs or cores(), fresh, as_json)
        if strict_kernelbench:
            print(
                "warning: these are KernelBench's verdicts: nothing protects them (docs/evaluation.md)", file=sys.stderr
            )
        return
    many = {"--queue-only": queue_only, "--limit": limit, "--executor": executor != "local"}
    for flag in (flag for flag, given in many.items() if given):
        raise UsageError(f"{flag} needs --jsonl FILE --run DIR", hint="see kernelwright eval --help")
    if task is None or candidate is None:
        raise UsageError(
            "eval needs TASK and CANDIDATE, or --jsonl FILE --run DIR", hint="see kernelwright eval --help"
        )
    raise typer.Exit(_eval_one(task, candidate, run, options, fresh, as_json))


def _check_strict(strict: bool, tolerance: float | None, precision: str | None) -> None:
    """Raises `UsageError` for flags that mean nothing with KernelBench's verdict, or without it."""
    from kernelwright.errors import UsageError

    if tolerance is not None and not strict:
        raise UsageError("--kernelbench-tolerance needs --strict-kernelbench", hint="add it, or leave both out")
    if precision is not None and strict:
        what = "--precision does not go with --strict-kernelbench, which keeps torch's settings"
        raise UsageError(what, hint="leave one of them out")


def _eval_one(task: str, candidate: Path, run: Path | None, options: EvalOptions, fresh: bool, as_json: bool) -> int:
    from kernelwright.evaluation import evaluate
    from kernelwright.report import terminal
    from kernelwright.runs.store import Store
    from kernelwright.tasks import load_candidate, load_task

    wanted, given = load_task(task), load_candidate(candidate)
    store = Store.open_or_create(run, {"verb": "eval"}) if run is not None else None
    try:
        key = options.key(wanted, given)
        evaluation = store.find_evaluation(key) if store and not fresh else None
        if evaluation is None:
            with terminal.spinner(f"judging {candidate.name} on {wanted.task_id}"):
                evaluation = evaluate(wanted, given, options)
            if store:
                store.add_task(wanted)
                store.add_candidate(given)
                store.add_evaluation(evaluation, key)
    finally:
        if store:
            store.close()
    if as_json:
        print(json.dumps(public(evaluation)))
    else:
        terminal.print_evaluation(evaluation, given)
    return {"correct": 0, "harness_error": 3}.get(evaluation.verdict, 1)


def _eval_rows(
    rows: list[Row], origin: str, run: Path, options: EvalOptions, kind: str, jobs: int, fresh: bool, as_json: bool
) -> None:
    from kernelwright.executor import load_executor
    from kernelwright.report import terminal
    from kernelwright.runs import batch
    from kernelwright.runs.store import Store

    meta = {"verb": "eval", "input": origin, "options": options.model_dump(mode="json")}
    judging = load_executor(kind, jobs, options.backend)  # first: where it is unavailable, no run folder is created
    with (
        Store.open_or_create(run, meta) as store,
        terminal.BatchView(len(rows), run, not as_json) as view,
        judging as executor,
    ):

        def show(row: Row, evaluation: Evaluation | None, note: str) -> None:
            view.show(row.item_id, evaluation, note)
            if as_json and evaluation is not None:
                print(json.dumps({**public(evaluation), "item_id": row.item_id}), flush=True)

        if not fresh:  # rows that are judged out of order are kept before they are shown; none is cut off
            settled = executor.settle(options)
            view.standing = lambda: (batch.finished(rows, store, settled), 0)
        summary = batch.judge_rows(rows, store, options, on_row=show, fresh=fresh, executor=executor)
    terminal.print_batch(summary, run, quiet=as_json)


def _queue_rows(
    rows: list[Row], origin: str, run: Path, options: EvalOptions, priority: int, fresh: bool, as_json: bool
) -> None:
    from kernelwright.report import terminal
    from kernelwright.runs import batch
    from kernelwright.runs.store import Store

    meta = {"verb": "eval", "input": origin, "options": options.model_dump(mode="json")}
    with Store.open_or_create(run, meta, shared=True) as store:
        summary = batch.queue_rows(rows, store, options, priority, fresh)
    if as_json:
        names = ("rows", "queued", "resumed", "no_candidate", "bad_tasks")
        print(json.dumps({name: getattr(summary, name) for name in names}))
    else:
        terminal.print_queued(summary, run)


@app.command()
def worker(
    run: Annotated[Path, path_argument("Run folder written by eval --queue-only.")],
    jobs: Annotated[int, typer.Option(min=0, help="Candidates judged at once; 0: one per core.")] = 0,
    executor: ExecutorKind = "local",
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for new jobs when the queue is empty.")] = 0.0,
    lease_seconds: Annotated[
        float,
        typer.Option(min=1.0, max=86_400.0, help="Lease of a job; a silent worker loses it after this time."),
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Judge the queued candidates of a run folder. Several workers of one machine may serve one folder."""
    from kernelwright.executor import load_executor
    from kernelwright.report import terminal
    from kernelwright.runs.jobqueue import Leased
    from kernelwright.runs.store import Store
    from kernelwright.runs.worker import serve

    with Store.open(run, shared=True) as store:
        counts = store.queue_counts()
        total = counts.get("queued", 0) + counts.get("leased", 0)
        with terminal.BatchView(total, run, not as_json) as view, load_executor(executor, jobs or cores()) as running:

            def show(job: Leased, evaluation: Evaluation | None, note: str) -> None:
                name = ", ".join(job.items) or job.task.task_id
                view.show(name, evaluation, note)
                if as_json and evaluation is not None:
                    print(json.dumps({**public(evaluation), "item_ids": job.items}), flush=True)

            view.standing = lambda: _queue_standing(store, total)
            done = serve(store, running, wait_seconds=wait, lease_seconds=lease_seconds, on_job=show)
        terminal.print_worked(done, store.queue_counts(), run)


def _queue_standing(store: Store, total: int) -> tuple[int, int]:
    """Counts the jobs of a queue that had `total` open ones: those done since, and those that workers hold."""
    counts = store.queue_counts()
    held = counts.get("leased", 0)
    return max(0, total - held - counts.get("queued", 0)), held


def public(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the fields that scripts rely on (see docs/cli.md), in a stable order."""
    whole = evaluation.plain()
    names = ("task_id", "candidate_id", "verdict", "reason", "backend", "sandbox", "workloads", "timing", "findings")
    seconds = {k: whole["seconds"][k] for k in ("build", "check", "time")}
    rest = ("launches", "library_ops", "log", "environment", "options")
    found = evaluation.errors
    errors = {"workload": found[0].name, **found[1].plain()} if found is not None else None
    return {**{n: whole[n] for n in names}, "errors": errors, "seconds": seconds, **{n: whole[n] for n in rest}}


@app.command()
def optimize(
    task: Annotated[str, typer.Argument(help="Task: a .py file, a task folder, FILE.jsonl#ID, or a name.")],
    run: Annotated[Path, path_option("Run folder; an existing run is resumed.")],
    policy: Annotated[
        str,
        typer.Option(
            help="Policy: template, starter[:FOLDER], hf:FOLDER, vllm:FOLDER, openai:MODEL@BASE_URL or scripted:FILE."
        ),
    ] = "template",
    temperature: Annotated[
        float | None, typer.Option(min=0.0, max=100.0, help="Sampling temperature of the policy; 0: greedy.")
    ] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Probability mass of nucleus sampling.")] = None,
    strategy: Annotated[str, typer.Option(help="Strategy of the search: refine.")] = "refine",
    turns: Annotated[int, typer.Option(min=1, help="Limit of turns.")] = 6,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Limit of tokens, prompts included.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Limit of wall seconds.")] = None,
    out: Annotated[Path | None, path_option("File for the best candidate; default: RUN/best.py.")] = None,
    backend: Backend = "auto",
    rule: Rule = None,
    precision: PrecisionOption = None,
    trials: Trials = 5,
    timeout: Timeout = 30.0,
    memory_mb: Memory = 4096,
    sample_large: SampleLarge = True,
    seed: Annotated[int, seed_option("Seed of the policy and of inputs.")] = 0,
    sandbox: Sandbox = "auto",
    as_json: Json = False,
) -> None:
    """Search for a correct (on a GPU: a faster) candidate for one task."""
    from kernelwright.errors import ConfigError
    from kernelwright.evaluation import Evaluator
    from kernelwright.policies import load_policy
    from kernelwright.report import terminal
    from kernelwright.search import optimize as job
    from kernelwright.search.rollout import Budget
    from kernelwright.tasks import load_task

    more: dict[str, Any] = {"memory_mb": memory_mb, "sample_large": sample_large, "seed": seed, "precision": precision}
    options = eval_options(backend=backend, rule=rule, trials=trials, timeout=timeout, sandbox=sandbox, **more)
    if max_seconds is not None and not 0.0 < max_seconds < math.inf:
        raise ConfigError(f"--max-seconds {max_seconds!r} is out of range", hint="use more than 0 seconds")
    no_folder("--out", out)
    wanted = load_task(task).at(options.precision)  # prompts state it
    meta = {"verb": "optimize", "task": wanted.task_id, "policy": policy, "strategy": strategy, "seed": seed}
    how = job.Search(strategy, Budget(turns=turns, tokens=max_tokens, seconds=max_seconds), seed)
    proposer = load_policy(policy, cache=run / "answers", temperature=temperature, top_p=top_p)
    with job.open_run(run, meta) as store:  # last: without a policy, no run folder is created
        seen = terminal.TurnView(wanted.task_id, proposer.name, not as_json, turns, run)
        with seen as view, Evaluator(options) as evaluator:
            result = job.search(wanted, proposer, evaluator, store, how, out, view.show)
    if as_json:
        print(json.dumps(result.public()))
    else:
        terminal.print_optimize(result, run)
    if result.evaluation is None:
        raise typer.Exit(1)


@app.command("profile")
def profile_(
    task: Annotated[str, typer.Argument(help="Task: a .py file, a task folder, FILE.jsonl#ID, or a name.")],
    candidate: Annotated[Path, path_argument("Candidate: a .py, .cu or .cpp file.")],
    backend: Backend = "auto",
    rung: Annotated[str, typer.Option(help="auto, ncu (counters), trace (times) or static (no GPU needed).")] = "auto",
    arch: Annotated[
        str, typer.Option(help="Architecture of rung static, e.g. sm_90a; default: this GPU's, else sm_90a.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Wall seconds for one rung.")] = 180.0,
    seed: Annotated[int, seed_option("Seed of inputs and weights.")] = 0,
    sandbox: Sandbox = "auto",
    as_json: Json = False,
) -> None:
    """Profile a candidate's kernels by the best rung that this machine has, and suggest changes.

    On a GPU the candidate runs under the profiler, outside the judge's sandbox: judge it first.
    """
    from kernelwright.profile import profile
    from kernelwright.profile.show import print_profile
    from kernelwright.report import terminal
    from kernelwright.tasks import load_candidate, load_task

    options = _profile_options(backend=backend, rung=rung, arch=arch, seconds=timeout, seed=seed, sandbox=sandbox)
    wanted, given = load_task(task), load_candidate(candidate)
    with terminal.spinner(f"profiling {candidate.name} on {wanted.task_id}"):
        found = profile(wanted, given, options)
    if as_json:
        print(json.dumps(found.plain()))
    else:
        print_profile(found)


def _profile_options(**fields: Any) -> ProfileOptions:
    """Builds options from flags. Raises `ConfigError`, which names the flag, for a value out of range."""
    from pydantic import ValidationError

    from kernelwright.errors import ConfigError
    from kernelwright.profile import ProfileOptions

    if fields["sandbox"] not in ("auto", "strict", "none"):
        raise ConfigError(f"--sandbox {fields['sandbox']!r} is not a level", hint="use auto, strict or none")
    try:
        return ProfileOptions(**fields)
    except ValidationError as error:
        flag = str(error.errors()[0]["loc"][0]).replace("seconds", "timeout")
        raise refused(f"--{flag}", error, ProfileOptions) from error


@app.command("report")
def report_(
    run: Annotated[Path, path_argument("Run folder.")],
    html: Annotated[Path | None, path_option("Also write one self-contained HTML file.")] = None,
    as_json: Json = False,
) -> None:
    """Show a run as a table, and with --html as a page."""
    from kernelwright.report import terminal

    no_folder("--html", html)
    with terminal.opened(run) as store:
        if as_json:
            print(json.dumps(terminal.summary(store)))
        else:
            terminal.print_run(store)
        if html is not None:
            from kernelwright.report import page

            page.write(store, html)
            print(f"report: {html}", file=sys.stderr)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: compilers, GPU, sandbox, caches."""
    from kernelwright import doctor as checks

    found = checks.examine()
    if as_json:
        print(json.dumps([c.__dict__ for c in found]))
    else:
        checks.show(found)
    raise typer.Exit(0 if all(c.ok for c in found if c.needed) else 1)


@tasks_app.command("list")
def tasks_list(
    suite: Annotated[
        str, typer.Argument(help="starter, a folder, a JSONL file, hub:… or kernelbench:LEVEL.")
    ] = "starter",
    reference_field: Annotated[str, typer.Option(help="Field with the reference.")] = "reference",
    id_field: Annotated[str | None, typer.Option(help="Field with the row's name; default: guessed.")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks of a suite (default: starter, the bundled tasks)."""
    from kernelwright.report import terminal
    from kernelwright.tasks import load_suite

    found = load_suite(suite, reference_field=reference_field, id_field=id_field)
    if as_json:
        for task in found:
            print(json.dumps({"task_id": task.task_id, "policy": task.policy, "description": task.description}))
    else:
        terminal.print_tasks(found)


@tasks_app.command("show")
def tasks_show(
    task: Annotated[str, typer.Argument(help="Task: a .py file, a task folder, FILE.jsonl#ID, or a name.")],
    as_json: Json = False,
) -> None:
    """Show a task: its reference, workloads and distributions."""
    from kernelwright.evaluation import check_task
    from kernelwright.report import terminal
    from kernelwright.tasks import load_task

    wanted = load_task(task)
    with terminal.spinner(f"running the reference of {wanted.task_id}"):
        plan = check_task(wanted)
    if as_json:
        print(json.dumps(terminal.plan_facts(wanted, plan)))
    else:
        terminal.print_plan(wanted, plan)


@tasks_app.command("check")
def tasks_check(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Tasks, folders, JSONL files, or names of suites.")
    ],
    reference_field: Annotated[str, typer.Option(help="Field with the reference.")] = "reference",
    id_field: Annotated[str | None, typer.Option(help="Field with the row's name; default: guessed.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Check the first N tasks of each source only.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the gate's state into task.toml of task folders.")
    ] = False,
    out: Annotated[Path | None, path_option("Also write the table as a Markdown file.")] = None,
    backend: Annotated[str, typer.Option(help="auto or cpu: references run on the CPU.")] = "auto",
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Wall seconds for a whole program, with its scripts.")
    ] = 300.0,
    jobs: Annotated[int, typer.Option(min=0, help="Whole programs judged at once; 0: one per core.")] = 0,
    sandbox: Sandbox = "auto",
    as_json: Json = False,
) -> None:
    """Run each task's reference, and try the task against all null kernels.

    Prints each task's workloads and distributions, the null kernels that pass, and the findings of a lint. Rows in
    CUDABench's format are whole programs: each runs on the functional machine, then its own comparison runs. Exit
    status 1 when a task cannot be judged, or a program does not pass.
    """
    from kernelwright.checks import program_checks, task_checks
    from kernelwright.errors import UsageError
    from kernelwright.evaluation import Evaluator
    from kernelwright.report import terminal
    from kernelwright.runs.folders import write_text
    from kernelwright.tasks import bundled_tasks, load_suite, load_task, task_folders, write_gate

    options = eval_options(backend="cpu", timeout=30.0, sandbox=sandbox)
    fields: dict[str, Any] = {"reference_field": reference_field, "id_field": id_field}
    if backend not in ("auto", "cpu"):
        raise UsageError(f"tasks check has no --backend {backend}", hint="use cpu: references run on the CPU")
    no_folder("--out", out)
    programs = [s for s in sources if program_checks.is_programs(s)]
    sources = [s for s in sources if s not in programs]
    passed = program_checks.check_files(
        programs, id_field, limit, timeout, jobs or cores(), sandbox, None if sources else out, as_json
    )
    if not sources:
        raise typer.Exit(0 if passed else 1)
    found, folders = [], {}
    for source in sources:
        single = source in bundled_tasks() or "#" in source
        found += [load_task(source, **fields)] if single else load_suite(source, limit=limit, **fields)
        folders.update(task_folders(source) if write else {})
    with Evaluator(options) as evaluator, terminal.BatchView(len(found), None, False) as view:

        def show(facts: dict[str, Any]) -> None:
            view.step("" if as_json else task_checks.line(facts))
            if as_json:
                print(json.dumps(facts), flush=True)
            if facts["ok"] and facts["task_id"] in folders:
                write_gate(folders[facts["task_id"]], facts["gate"])

        checked = task_checks.check(found, evaluator, show)
    if not as_json:
        task_checks.print_table(checked)
    if out is not None:
        write_text(out, task_checks.markdown(checked, "Null-kernel gate and task lint"))
    raise typer.Exit(0 if all(facts["ok"] for facts in checked) and passed else 1)


# After the verbs of this file, so that --help begins with `eval`.
app.command()(serve)
app.command()(warm)
app.add_typer(machine_app, name="machine")
app.add_typer(solutions_app, name="solutions")
app.add_typer(bench_app)
register_corpus(app)
app.add_typer(train_app, name="train")


def main() -> None:
    """Runs the command line to its exit."""
    ending.end_with(app)
