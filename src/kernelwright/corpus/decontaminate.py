"""Measures how near tasks are to a held-out suite: three rules on text, and an optional one on embeddings.

- `exact`: equal text without docstrings, comments, annotations and layout.
- `ast`: similarity of the sequences of operations above 0.9 (threshold of CUDA Agent, arXiv 2602.24286). With n and m
  operations and a longest common subsequence of l, similarity is 2 l / (n + m), in [0, 1]. `fingerprint` defines the
  operations. The tool that those authors name compares node types only, so that ReLU and Sigmoid are equal;
  `structure_only` does the same.
- `jaccard`: |A and B| / |A or B| of the sets of tokens above 0.8 (Makora, arXiv 2602.11000).
- `embedding`: L2 distance of normalised embeddings below 0.45 (Makora), with a model that the caller names.

Tasks of one operator always look alike: ReLU is ReLU, whatever its sizes. The rules remove them as in the papers. The
report counts the removed tasks of one operator, and `one_operator="keep"` exempts them from the AST rule only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelwright.corpus.fingerprint import Fingerprint, fingerprint
from kernelwright.errors import ConfigError

AST_THRESHOLD = 0.9
JACCARD_THRESHOLD = 0.8
EMBEDDING_DISTANCE = 0.45

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Embeds texts: returns one row of unit length per text, (texts, width)."""


@dataclass(frozen=True)
class Rules:
    """Thresholds: tasks above them (for embeddings: below) are removed. Raises `ConfigError` for one out of range."""

    ast: float = AST_THRESHOLD
    jaccard: float = JACCARD_THRESHOLD
    embedding: float = EMBEDDING_DISTANCE
    one_operator: Literal["remove", "keep"] = "remove"
    structure_only: bool = False

    def __post_init__(self) -> None:
        for name in ("ast", "jaccard"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"threshold {name} {getattr(self, name)} is out of range", hint="from 0 to 1")
        if not 0.0 <= self.embedding <= 2.0:
            raise ConfigError(f"threshold embedding {self.embedding} is out of range", hint="a distance from 0 to 2")
        if self.one_operator not in ("remove", "keep"):
            raise ConfigError(f"one_operator {self.one_operator!r} is not a choice", hint="use remove or keep")


@dataclass(frozen=True)
class Near:
    """A task's nearness to a suite. Indices are into the suite's tasks; -1 where there is none."""

    reasons: tuple[str, ...]
    """The rules that remove the task: some of exact, ast, jaccard, embedding, name. Empty where it stays."""
    exact: int
    ast: float
    ast_index: int
    jaccard: float
    jaccard_index: int
    one_operator: bool
    distance: float | None = None
    distance_index: int = -1
    name_index: int = -1

    @property
    def nearest(self) -> int:
        """The index of the nearest task by the first reason, else by the highest AST similarity."""
        by_rule = {
            "exact": self.exact,
            "ast": self.ast_index,
            "jaccard": self.jaccard_index,
            "embedding": self.distance_index,
            "name": self.name_index,
        }
        return by_rule[self.reasons[0]] if self.reasons else self.ast_index


class Index:
    """An index of a suite for comparison with many tasks: about a microsecond per pair.

    A repeated sequence of operations comes from a cache.
    """

    def __init__(self, sources: Sequence[str], rules: Rules | None = None, embed: Embed | None = None) -> None:
        self.rules = rules or Rules()
        self.embed = embed
        views = [fingerprint(s, not self.rules.structure_only) for s in sources]
        self.size = len(views)
        self._exact = {v.exact: i for i, v in reversed(list(enumerate(views)))}
        self._words = {word: i for i, word in enumerate(sorted({w for v in views for w in v.tokens}))}
        self._has = np.zeros((len(self._words), self.size), dtype=np.float32)
        for i, view in enumerate(views):
            self._has[[self._words[w] for w in view.tokens], i] = 1.0
        self._word_counts = self._has.sum(axis=0)
        # Several tasks of a suite may have one sequence of operations: only the first is compared.
        sequences: dict[tuple[str, ...], int] = {}
        for i, view in enumerate(views):
            if view.nodes:
                sequences.setdefault(view.nodes, i)
        self._sequences = list(sequences.items())
        self._labels = {label: i for i, label in enumerate(sorted({n for s in sequences for n in s}))}
        self._counts = np.zeros((len(self._sequences), len(self._labels)), dtype=np.int32)
        for row, (nodes, _) in enumerate(self._sequences):
            for label in nodes:
                self._counts[row, self._labels[label]] += 1
        self._lengths = self._counts.sum(axis=1)
        self._known: dict[tuple[str, ...], tuple[float, int]] = {}
        self._vectors = embed(sources) if embed is not None and sources else None

    def near(self, source: str) -> Near:
        """Measures how near one task is to the suite by every rule, and which rules remove it."""
        view = fingerprint(source, not self.rules.structure_only)
        ast_score, ast_index = self._nearest_ast(view.nodes)
        jaccard, jaccard_index = self._nearest_tokens(view)
        # equal texts have equal tokens; hashing a text takes as long as all the rest, so it is done last
        same_tokens = jaccard == 1.0 or not view.tokens
        exact = self._exact.get(view.exact, -1) if same_tokens else -1
        distance, distance_index = self._nearest_embedding(source)
        spared = view.one_operator and self.rules.one_operator == "keep"
        hits = {
            "exact": exact >= 0,
            "ast": ast_score > self.rules.ast and not spared,
            "jaccard": jaccard > self.rules.jaccard,
            "embedding": distance is not None and distance < self.rules.embedding,
        }
        reasons = tuple(name for name, hit in hits.items() if hit)
        return Near(
            reasons,
            exact,
            ast_score,
            ast_index,
            jaccard,
            jaccard_index,
            view.one_operator,
            distance,
            distance_index,
        )

    def _nearest_ast(self, nodes: tuple[str, ...]) -> tuple[float, int]:
        """Returns the highest similarity and its task's index; searches in order of an upper bound, so it is exact."""
        if not nodes or not self._sequences:
            return 0.0, -1
        if nodes in self._known:
            return self._known[nodes]
        mine = np.zeros(len(self._labels), dtype=np.int32)
        for label in nodes:
            if label in self._labels:
                mine[self._labels[label]] += 1
        bounds = 2.0 * np.minimum(self._counts, mine).sum(axis=1) / (self._lengths + len(nodes))
        best, index = 0.0, -1
        for row in np.argsort(-bounds, kind="stable"):
            if bounds[row] <= best:
                break
            other, at = self._sequences[row]
            score = 2.0 * common_subsequence(nodes, other) / (len(nodes) + len(other))
            if score > best:
                best, index = score, at
        self._known[nodes] = (best, index)
        return best, index

    def _nearest_tokens(self, view: Fingerprint) -> tuple[float, int]:
        if not self.size or not view.tokens:
            return 0.0, -1
        known = [self._words[w] for w in view.tokens if w in self._words]
        shared = self._has[known].sum(axis=0)
        scores = shared / (self._word_counts + len(view.tokens) - shared)
        best = int(np.argmax(scores))
        return float(scores[best]), best

    def _nearest_embedding(self, source: str) -> tuple[float | None, int]:
        if self.embed is None or self._vectors is None:
            return None, -1
        distances = np.linalg.norm(self._vectors - self.embed([source])[0], axis=1)
        best = int(np.argmin(distances))
        return float(distances[best]), best


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence, bit-parallel (Hyyrö 2004): one step per element of `b`."""
    positions: dict[str, int] = {}
    for i, label in enumerate(a):
        positions[label] = positions.get(label, 0) | 1 << i
    everything = (1 << len(a)) - 1
    row = everything
    for label in b:
        hits = row & positions.get(label, 0)
        row = ((row + hits) | (row - hits)) & everything
    return len(a) - row.bit_count()


def removal(task_id: str, family: str, near: Near, names: Sequence[str]) -> dict[str, Any]:
    """Returns a removed task's row in reports."""
    return {
        "task_id": task_id,
        "family": family,
        "reasons": list(near.reasons),
        "nearest": names[near.nearest],
        "ast": round(near.ast, 4),
        "jaccard": round(near.jaccard, 4),
        "distance": None if near.distance is None else round(near.distance, 4),
        "one_operator": near.one_operator,
    }


@dataclass
class RemovalReport:
    """The removed tasks, with their reasons and nearest tasks."""

    against: dict[str, int]
    """Suite -> its number of tasks."""
    rules: Rules
    tasks: int = 0
    removed: int = 0
    by_rule: Counter[str] = field(default_factory=Counter)
    by_family: dict[str, Counter[str]] = field(default_factory=dict)
    one_operator: Counter[str] = field(default_factory=Counter)
    """Counts of tasks of one operator: `tasks`, `removed`, and `removed_by_ast_only`."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """One row per removed task: `task_id`, `family`, `reasons`, `nearest`, `ast`, `jaccard`, `distance`."""

    def note(self, task_id: str, family: str, near: Near, names: Sequence[str]) -> None:
        """Counts one task."""
        counts = self.by_family.setdefault(family, Counter())
        self.tasks += 1
        counts["tasks"] += 1
        self.one_operator["tasks"] += near.one_operator
        if not near.reasons:
            return
        self.removed += 1
        counts["removed"] += 1
        self.by_rule.update(near.reasons)
        self.one_operator["removed"] += near.one_operator
        self.one_operator["removed_by_ast_only"] += near.one_operator and near.reasons == ("ast",)
        self.rows.append(removal(task_id, family, near, names))

    def plain(self) -> dict[str, Any]:
        """Returns the report as plain values for JSON."""
        families = sorted(self.by_family.items())
        return {
            "against": self.against,
            "rules": self.rules.__dict__,
            "tasks": self.tasks,
            "removed": self.removed,
            "kept": self.tasks - self.removed,
            "by_rule": dict(self.by_rule),
            "by_family": {n: {"tasks": c["tasks"], "removed": c["removed"]} for n, c in families},
            "one_operator": {n: self.one_operator[n] for n in ("tasks", "removed", "removed_by_ast_only")},
            "rows": self.rows,
        }


@dataclass(frozen=True)
class Text:
    """One task to compare."""

    task_id: str
    source: str
    family: str = ""
    code: tuple[str, ...] = ()
    """The answers to the task, for suites of programs."""
