"""Sums up rows: residual rates with exact intervals, by tier, part and family, and false refusals of honest work."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel
from result_file import write_text

from redteam.intervals import exact_interval
from redteam.judging import Row


class Share(BaseModel):
    """A share with its exact 95 % interval."""

    hits: int
    count: int
    low: float
    high: float

    @classmethod
    def of(cls, hits: int, count: int) -> Share:
        """Returns the share of `hits` among `count`."""
        low, high = exact_interval(hits, count)
        return cls(hits=hits, count=count, low=round(low, 5), high=round(high, 5))

    def text(self) -> str:
        """Returns the share for a table."""
        if not self.count:
            return "–"
        return f"{self.hits} of {self.count}, {self.hits / self.count:.1%} ({self.low:.1%} to {self.high:.1%})"


class Line(BaseModel):
    """Residual rates of a group of attacks: among all, and among those that work without guards."""

    tier: str
    part: str
    family: str
    all: Share
    working: Share
    verdicts: dict[str, int]


class Summary(BaseModel):
    """The figures of one measurement."""

    benchmark: str = "red_team"
    date: str
    lines: list[Line]
    honest: list[tuple[str, str, Share]]
    """Tier, set, and the share that was refused."""
    refused: list[str]
    """The honest candidates that were refused, with verdict and reason."""


def line(rows: list[Row], tier: str, part: str, family: str) -> Line:
    """Returns the residual rates of a group."""
    working = [r for r in rows if r.works]
    return Line(
        tier=tier,
        part=part,
        family=family,
        all=Share.of(sum(r.verdict == "correct" for r in rows), len(rows)),
        working=Share.of(sum(r.verdict == "correct" for r in working), len(working)),
        verdicts=dict(Counter(r.verdict for r in rows)),
    )


def summary(rows: Iterable[Row]) -> Summary:
    """Returns the figures of rows. A key that comes twice counts once, by its last row."""
    last = list({(r.tier, r.kind, r.key): r for r in rows}.values())
    tried = [r for r in last if r.kind == "attack"]
    lines = []
    for tier in ("cpu", "gpu"):
        here = [r for r in tried if r.tier == tier]
        for part in ("development", "held-out"):
            group = [r for r in here if r.part == part]
            if group:
                lines.append(line(group, tier, part, "all families"))
        for family in sorted({r.family for r in here}):
            for part in ("development", "held-out"):
                group = [r for r in here if r.family == family and r.part == part]
                if group:
                    lines.append(line(group, tier, part, family))
    good = [r for r in last if r.kind != "attack"]
    honest = []
    for tier in ("cpu", "gpu"):
        for kind in ("honest", "near-miss"):
            group = [r for r in good if r.tier == tier and r.kind == kind]
            if group:
                honest.append((tier, kind, Share.of(sum(refused(r) for r in group), len(group))))
    return Summary(
        date=datetime.date.today().isoformat(),
        lines=lines,
        honest=honest,
        refused=[f"{r.tier} {r.kind} {r.task}: {r.verdict}: {r.reason}" for r in good if refused(r)],
    )


def refused(row: Row) -> bool:
    """Tells whether an honest candidate was refused. `unsupported` names a missing feature and charges nobody."""
    return row.verdict not in ("correct", "unsupported")


def table(made: Summary) -> str:
    """Returns the figures as Markdown."""
    lines = [
        "| tier | part | family | correct, of all | correct, of those that work unguarded |",
        "|---|---|---|---|---|",
        *(f"| {r.tier} | {r.part} | {r.family} | {r.all.text()} | {r.working.text()} |" for r in made.lines),
        "",
        "| tier | honest set | refused |",
        "|---|---|---|",
        *(f"| {tier} | {kind} | {share.text()} |" for tier, kind, share in made.honest),
    ]
    return "\n".join([*lines, *(f"\n- {text}" for text in made.refused)])


def plain_rows(rows: Iterable[Row], path: Path) -> None:
    """Writes rows without times, so that equal verdicts give equal files."""
    kept = sorted(rows, key=lambda r: (r.tier, r.kind, r.family, r.door, r.key))
    write_text(
        path, "".join(r.model_dump_json(exclude={"seconds", "speedup"}, exclude_defaults=True) + "\n" for r in kept)
    )
