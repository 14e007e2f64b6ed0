"""Makes (task, answer) pairs by construction: generated tasks, and the solution library's answers.

Tasks come in chunks with a seed each, so that several processes can write them, and the pairs do not depend on the
number of processes. Nothing is executed here; `build` judges.
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
"""Tasks per chunk: few enough that a stream begins at once, many enough that processes rarely wait."""


CHAINS = ("fused", "block", "elementwise", "gate")
"""Groups of families for tasks with several operators."""
Schedules = Literal["canonical", "apart", "mixed", "all"]


@dataclass(frozen=True)
class Pair:
    """A task with one answer. `answer` is a candidate file's text."""

    task: GeneratedTask
    answer: str
    schedule: str
    """The name of the answer's schedule."""
    trace: str
    """Short reasoning for the answer; each statement is true of the answer's text."""
    right: bool
    """True by construction, not by execution; false where a mistake was planted."""
    mistake: str = ""
    """The name of the planted mistake."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a stream; equal recipes give equal streams."""

    seed: int
    split: str = "train"
    mistakes: float = 0.0
    """Share of pairs whose answer has a planted mistake."""
    schedules: Schedules = "canonical"
    """`apart` is canonical, but with separate kernels for every operator. `mixed` draws a schedule, which the answer
    names in its first line (`answers.MIXED`)."""
    families: tuple[str, ...] | None = None
    against: tuple[str, ...] = ()
    """Suites that tasks must not be too near to (`decontaminate`)."""
    one_operator: Literal["remove", "keep"] = "remove"
    """`keep` exempts tasks of a single operator, which are bound to look alike, from the AST rule."""
    traces: bool = True
    """Write traces; a pair without one takes a third less time."""
    per_task: int | None = None
    """With `all` schedules, the bound on answers per task: the canonical one, and others drawn by the seed."""
    plan: bool = True
    """Write comments that say which operator of the task is computed where (`solutions.kernels.plan`)."""
    chains: float = 0.0
    """Share of chunks with tasks of `CHAINS` only: a model needs many examples of operator chains."""
    programs: float = 0.0
    """Share of chunks with programs only, in which any operator may follow any other."""
    networks: float = 0.0
    """Share of chunks with networks only; other chunks have none."""
    rare: float = 0.0
    """Share of chunks with rare operators and options only."""

    def checked(self) -> Self:
        """Returns this recipe. Raises `ConfigError` for a field out of range."""
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
    """The pairs of one chunk, and counts of the tasks without a pair."""

    index: int
    pairs: tuple[Pair, ...]
    skipped: dict[str, int]
    """Tasks without a pair, by reason: `unreadable`, `contaminated`, `fault:` with an exception's name."""
    families: dict[str, dict[str, int]]
    """Counts by family: `tasks`, and tasks without a pair by reason."""
    removed: tuple[dict[str, Any], ...] = ()
    """Tasks too near to a suite, in the form of `decontaminate.RemovalReport.rows`."""


def chunk_seed(recipe: Recipe, index: int) -> int:
    """Returns the seed of a chunk's tasks: 63 bits of a hash, distinct for every chunk of every stream."""
    text = f"{recipe.seed}/{recipe.split}/{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_chunk(recipe: Recipe, index: int, count: int = CHUNK) -> PairChunk:
    """Makes the pairs of chunk `index` from `count` tasks. A pure function of its arguments."""
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
        text = normal_form(task.source)  # our models' prompt: an answer's names must match it
        found = answers_for(text, recipe.schedules, recipe.mistakes, rng, recipe.traces, recipe.per_task, recipe.plan)
        made += [_pair(task, answer) for answer in found.answers]
        if found.why:
            skipped[found.why] += 1
            family["unreadable"] += 1
    by_family = {name: {k: n for k, n in counts.items() if n} for name, counts in families.items()}
    return PairChunk(index, tuple(made), dict(skipped), by_family, tuple(report.rows) if report else ())


def _chunk_families(recipe: Recipe, seed: int) -> Sequence[str] | None:
    """Returns the families of a chunk's tasks: the recipe's, or one of the groups that get a share of the chunks."""
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
    """Yields the chunk's tasks. An exception of the generator ends the chunk, and its missing tasks are counted."""
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
    """Makes a `Recipe` from plain values, lists included. Raises `UsageError` and `ConfigError` for invalid ones."""
    made = from_fields({"seed": seed, **fields})
    list(generate(seed, 0, families=made.families, split=made.split))  # raises for invalid families or split
    return made.checked()


def as_fields(recipe: Recipe) -> dict[str, Any]:
    """Returns a recipe's fields for JSON; `from_fields` reads them back."""
    return asdict(recipe)


def from_fields(fields: dict[str, Any]) -> Recipe:
    """Makes the recipe of fields read from JSON, with lists as tuples."""
    named = dict(fields)
    named["families"] = None if named.get("families") is None else tuple(named["families"])
    named["against"] = tuple(named.get("against", ()))
    return Recipe(**named)
