"""Composes candidates: a task, a door, a cover and up to two disguises, drawn by a seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from redteam.covers import COVERS
from redteam.disguises import DISGUISES
from redteam.doors import DOORS
from redteam.pieces import AttackTask, Cover, Disguise, Door, Draft, Part, Tier
from redteam.tasks import TASKS

Chosen = Literal["development", "held-out", "all"]
DEPTHS = (0, 0, 1, 1, 2)
"""The numbers of disguises, each as likely as the others."""


@dataclass(frozen=True)
class Attack:
    """An attack by its pieces; `spelling` and `contiguous` are what repairs change."""

    task: AttackTask
    door: Door
    cover: Cover | None
    disguises: tuple[Disguise, ...] = ()
    spelling: int = 0
    devices: bool = False
    """Results are moved to the device of the inputs, and inputs are made contiguous."""

    @property
    def part(self) -> Part:
        """`held-out` if the door or a disguise is held out."""
        parts = {self.door.part, *(d.part for d in self.disguises)}
        return "held-out" if "held-out" in parts else "development"

    @property
    def key(self) -> str:
        """A short name of the composed attack before repairs."""
        names = [
            self.task.name,
            self.door.name,
            self.cover.name if self.cover else "",
            *(d.name for d in self.disguises),
        ]
        return hashlib.sha256("\0".join(names).encode()).hexdigest()[:12]

    def text(self) -> str:
        """Returns the candidate's text."""
        spellings = self.door.spellings(self.task)
        spelling = spellings[self.spelling % len(spellings)]
        draft = Draft(
            task=self.task,
            hidden=spelling.code,
            head=spelling.head,
            methods=spelling.methods,
            cover=self.cover.code if self.cover else "",
            finish="return finish(r, ts)" if self.cover else "return r",
            prepare=("prepare(self)",) if "def prepare(" in spelling.code else (),
        )
        if "honest(" in spelling.code + spelling.methods:
            draft = draft.with_honest()
        if self.devices:
            draft = replace(draft, before=("ts = [t.detach().contiguous() for t in ts]",))
        for disguise in self.disguises:
            draft = disguise.apply(draft)
        return draft.text()


def covers_for(task: AttackTask) -> Sequence[Cover]:
    """Returns the covers that a task's outputs allow."""
    real = "float" in task.kinds or "pair" in task.kinds
    return [c for c in COVERS if real or not c.floats]


def attacks(part: Chosen, tier: Tier, seed: int, count: int) -> Iterator[Attack]:
    """Yields `count` different attacks of a part: the doors in turn, everything else drawn by the seed.

    Every door comes equally often, so that a family with many tasks does not outweigh the others.
    """
    draw = random.Random(seed)
    doors = [d for d in DOORS if tier in d.tiers and (part != "development" or d.part == part)]
    disguises = [d for d in DISGUISES if part != "development" or d.part == part]
    held = [d for d in DISGUISES if d.part == "held-out"]
    seen: set[str] = set()
    misses = 0
    while len(seen) < count and misses < 50 * count:
        draw.shuffle(doors)
        for door in doors:
            attack = _drawn(draw, door, disguises, held if part == "held-out" and door.part != part else [])
            if attack.key in seen:
                misses += 1
                continue
            seen.add(attack.key)
            yield attack
            if len(seen) >= count:
                return


def _drawn(draw: random.Random, door: Door, disguises: list[Disguise], needed: list[Disguise]) -> Attack:
    """Returns an attack by a door; one of its disguises is among `needed` if there are any."""
    task = draw.choice([t for t in TASKS if door.fits(t)])
    cover = draw.choice(list(covers_for(task))) if door.covered else None
    chosen = draw.sample(disguises, draw.choice(DEPTHS))
    if needed:
        chosen = [draw.choice(needed), *(d for d in chosen[:1] if d.part == "development")]
    return Attack(task, door, cover, tuple(chosen))
