"""Every published table with figures says which records it rests on, or that none were kept (docs/records.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CARD = "src/kernelwright/data/starter/README.md"
NOT_PUBLISHED = ("docs/modules.md", "docs/records.md", "docs/kernel_speed.md")
"""A list of modules, the page that lists the tables, and a page that a script writes from records which it names."""
_NOT_TEXT = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)")
_RULE = re.compile(r"^\|[-| :]+\|$")


@dataclass(frozen=True)
class Found:
    """One table: where it is, and its rows of cells."""

    page: str
    section: str
    number: int
    rows: tuple[tuple[str, ...], ...]

    @property
    def place(self) -> tuple[str, str, int]:
        return self.page, self.section, self.number

    @property
    def has_figures(self) -> bool:
        """Tells whether at least half of the rows have a figure: a number outside of code and links in a later column,
        or a first column that is a number. `TF32` is a name."""
        return 2 * sum(map(_has_figure, self.rows)) >= len(self.rows)


def _has_figure(row: tuple[str, ...]) -> bool:
    first, *others = (_NOT_TEXT.sub("", cell) for cell in row)
    return bool(re.fullmatch(r"\d[\d.,]* ?%?", first)) or any(re.search(r"(?<![A-Za-z_\d])\d", cell) for cell in others)


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def tables(page: str) -> Iterator[Found]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    section, number, at, in_code = "", 0, 0, False
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and re.match(r"#+ ", line):
            section, number = line.lstrip("# "), 0
        elif not in_code and line.startswith("|") and at + 1 < len(lines) and _RULE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            number += 1
            yield Found(page, section, number, tuple(map(cells, lines[at + 2 : end])))
            at = end
            continue
        at += 1


def listed(section: str) -> list[tuple[str, ...]]:
    """Returns the rows of the first table in a section of docs/records.md, without the marks of code."""
    found = next(t for t in tables("docs/records.md") if t.section == section)
    return [tuple(c.replace("`", "") for c in row) for row in found.rows]


def published() -> dict[tuple[str, str, int], Found]:
    pages = ["README.md", CARD, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    return {t.place: t for page in pages if page not in NOT_PUBLISHED for t in tables(page)}


def test_every_table_with_figures_is_listed() -> None:
    measured = {(page, section, int(n)) for page, section, n, *_ in listed("Measured tables")}
    defined = {(page, section, int(n)) for page, section, n in listed("Tables of numbers that are not measured")}
    assert not measured & defined
    found = published()
    missing = sorted({place for place, table in found.items() if table.has_figures} - measured - defined)
    assert not missing, f"tables with figures need a row in docs/records.md, with their script and records: {missing}"
    gone = sorted((measured | defined) - found.keys())
    assert not gone, f"docs/records.md names tables that are not there any more: {gone}"


def exists(name: str) -> bool:
    return (RESULTS / name).exists() or (ROOT / name).exists()


def test_named_records_exist_or_are_said_to_be_missing() -> None:
    rows = [(r[3], r[4], r[5]) for r in listed("Measured tables")] + [
        (r[0], r[1], r[2]) for r in listed("Scripts of single rows")
    ]
    for script, records, kept in rows:
        assert kept in ("samples", "counts", "none", "by row"), (script, kept)
        if kept == "none":
            assert records.startswith("none"), (script, records)
        elif kept != "by row":
            assert all(exists(name.strip()) for name in records.split(",")), (script, records)
        for name in script.split(","):
            if name.strip().endswith(".py"):  # else a verb, with or without a remark
                assert exists(f"benchmarks/{name.strip()}") or exists(name.strip()), name


def test_each_row_of_the_main_tables_names_a_listed_script() -> None:
    known = {script.partition(",")[0] for script, *_ in listed("Scripts of single rows")}
    for page, section, n, *_ in (row for row in listed("Measured tables") if row[5] == "by row"):
        before: set[str] = set()
        for row in published()[page, section, int(n)].rows:
            named = set(re.findall(r"`([^`]+)`", row[-1]))
            named = named or (before if "the same" in row[-1] else set())
            assert named and named <= known, row
            before = named
