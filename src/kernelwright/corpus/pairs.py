"""A stream of (task, answer) pairs by construction: generated tasks, and what the solution library writes for them.

Tasks come in chunks, each with a seed of its own, so that any number of processes may write them: the stream is the
same whatever their number. Nothing is executed here; `build` judges.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from kernelwright.corpus.answers import WrittenAnswer, answers_for
from kernelwright.corpus.guard import Watch, guard
from kernelwright.errors import ConfigError, UsageError
from kernelwright.generate import GeneratedTask, generate
from kernelwright.tasks.normal_form.normal import normal_form

CHUNK = 32
"""Tasks of one chunk: small enough that a stream begins at once, large enough that processes rarely wait."""


CHAINS = ("fused", "block", "elementwise", "gate")
"""Groups of families whose tasks have several operators."""
Schedules = Literal["canonical", "apart", "mixed", "all"]


@dataclass(frozen=True)
class Pair:
    """A task with one answer. `answer` is a candidate file's text."""

    task: GeneratedTask
    answer: str
    schedule: str
    """Name of the schedule that the answer was written with."""
    trace: str
    """Why the answer is as it is: short statements, each of them true of the answer's text."""
    right: bool
    """By construction, not by execution: false where a mistake was put in on purpose."""
    mistake: str = ""
    """Name of that mistake."""


@dataclass(frozen=True)
class Recipe:
    """What a stream is made of; equal recipes give equal streams."""

    seed: int
    split: str = "train"
    mistakes: float = 0.0
    """Share of pairs whose answer has a mistake on purpose."""
    schedules: Schedules = "canonical"
    """`apart`: the canonical one, but every operator has kernels of its own. `mixed`: one that is drawn, which the
    answer names in its first line (`answers.MIXED`)."""
    families: tuple[str, ...] | None = None
    against: tuple[str, ...] = ()
    """Suites that tasks must not be too near to (`decontaminate`)."""
    one_operator: Literal["remove", "keep"] = "remove"
    """Whether the AST rule holds for tasks of a single operator, which are bound to look alike."""
    traces: bool = True
    """Without them a pair takes a third less time to make."""
    per_task: int | None = None
    """With `all` schedules, answers a task at most: the canonical one, and others drawn by the seed."""
    plan: bool = True
    """Whether comments in an answer tell which operator of the task is computed where (`solutions.kernels.plan`)."""
    chains: float = 0.0
    """Share of the chunks whose tasks are all of `CHAINS`: a model reads and writes chains by seeing many."""
    programs: float = 0.0
    """Share of the chunks whose tasks are all programs, in which everything may follow everything."""
    networks: float = 0.0
    """Share of the chunks whose tasks are all networks, which the other chunks have none of."""
    rare: float = 0.0
    """The same of operators and options that few tasks have."""

    def checked(self) -> Self:
        """This recipe, or `ConfigError` for what is out of range."""
        chunks = {"chains": self.chains, "programs": self.programs, "networks": self.networks, "rare": self.rare}
        for name, share in {"mistakes": self.mistakes, **chunks}.items():
            if not 0.0 <= share <= 1.0:
                raise ConfigError(f"{name} {share} is not a share", hint="use a number from 0 to 1")
        if sum(chunks.values()) > 1.0:
            said = ", ".join(f"{name} {share}" for name, share in chunks.items())
            raise ConfigError(f"{said} are more than all chunks", hint="lower one of them")
        if self.schedules not in get_args(Schedules):
            raise ConfigError(
                f"schedules {self.schedules!r} is not a choice", hint="use canonical, apart, mixed or all"
            )
        if self.per_task is not None and self.per_task < 1:
            raise ConfigError(f"per_task {self.per_task} is out of range", hint="allow at least one answer a task")
        if self.one_operator not in ("remove", "keep"):
            raise ConfigError(f"one_operator {self.one_operator!r} is not a choice", hint="use remove or keep")
        return self


@dataclass(frozen=True)
class PairChunk:
    """The pairs of one chunk, and what became of tasks that gave none."""

    index: int
    pairs: tuple[Pair, ...]
    skipped: dict[str, int]
    """Tasks without a pair, by reason: `unreadable`, `contaminated`, `fault:` with an exception's name."""
    families: dict[str, dict[str, int]]
    """The same by family, with `tasks`."""
    removed: tuple[dict[str, Any], ...] = ()
    """What was too near to a suite, as `decontaminate.RemovalReport.rows`."""


def chunk_seed(recipe: Recipe, index: int) -> int:
    """The seed of a chunk's tasks: 63 bits that no other chunk of this or another stream shares but by accident."""
    text = f"{recipe.seed}/{recipe.split}/{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_chunk(recipe: Recipe, index: int, count: int = CHUNK) -> PairChunk:
    """The pairs of chunk `index`, from `count` tasks. A pure function of its arguments."""
    seed = chunk_seed(recipe, index)
    rng = random.Random(seed)
    made: list[Pair] = []
    families: dict[str, Counter[str]] = {}
    skipped: Counter[str] = Counter()
    report = _report(recipe)
    for task in _tasks(recipe, seed, count, skipped, _chunk_families(recipe, seed)):
        family = families.setdefault(task.family, Counter())
        family["tasks"] += 1
        if report is not None and report.check(task.name, task.source, task.family):
            family["contaminated"] += 1
            skipped["contaminated"] += 1
            continue
        text = normal_form(task.source)  # what a model of ours is asked with: an answer's names are those of its prompt
        found = answers_for(text, recipe.schedules, recipe.mistakes, rng, recipe.traces, recipe.per_task, recipe.plan)
        made += [_pair(task, answer) for answer in found.answers]
        if found.why:
            skipped[found.why] += 1
            family["unreadable"] += 1
    by_family = {name: {k: n for k, n in counts.items() if n} for name, counts in families.items()}
    return PairChunk(index, tuple(made), dict(skipped), by_family, tuple(report.rows) if report else ())


def _chunk_families(recipe: Recipe, seed: int) -> Sequence[str] | None:
    """What the tasks of a chunk are of: all families, or those that a share of the chunks is kept for."""
    drawn = random.Random(seed ^ 1).random()
    for share, families in (
        (recipe.chains, CHAINS),
        (recipe.programs, ("program",)),
        (recipe.networks, ("network",)),
        (recipe.rare, ("rare",)),
    ):
        if drawn < share:
            return families
        drawn -= share
    return recipe.families


def _tasks(
    recipe: Recipe, seed: int, count: int, skipped: Counter[str], families: Sequence[str] | None
) -> Iterator[GeneratedTask]:
    """The chunk's tasks. A fault of the generator costs what is left of them, not the corpus: it is counted."""
    left = count
    try:
        for task in generate(seed, count, families=families, split=recipe.split):
            yield task
            left -= 1
    except UsageError:
        raise
    except Exception as error:
        skipped[f"fault:{type(error).__name__}"] += left


def _report(recipe: Recipe) -> Watch | None:
    return Watch(guard(recipe.against, recipe.one_operator)) if recipe.against else None


def _pair(task: GeneratedTask, answer: WrittenAnswer) -> Pair:
    return Pair(task, answer.text, answer.schedule, answer.trace, not answer.mistake, answer.mistake)


def recipe(*, seed: int, **fields: Any) -> Recipe:
    """A `Recipe` from plain values, lists among them. Raises `UsageError` and `ConfigError` for what is wrong in it."""
    made = from_fields({"seed": seed, **fields})
    list(generate(seed, 0, families=made.families, split=made.split))  # says what is wrong with families or split
    return made.checked()


def as_fields(recipe: Recipe) -> dict[str, Any]:
    """A recipe as JSON can hold it; `Recipe(**fields)` with tuples again is `from_fields`."""
    return asdict(recipe)


def from_fields(fields: dict[str, Any]) -> Recipe:
    """The recipe of `as_fields`, read back from JSON."""
    named = dict(fields)
    named["families"] = None if named.get("families") is None else tuple(named["families"])
    named["against"] = tuple(named.get("against", ()))
    return Recipe(**named)
