"""The sample of a large set: its share, and no group without a case."""

from __future__ import annotations

from sampling import chosen, marked

NAMES = [f"case {number}" for number in range(600)]


def test_a_sample_is_about_the_share() -> None:
    assert 150 < len(chosen({"all": NAMES}, 3)) < 250


def test_every_group_has_a_case() -> None:
    groups = {name: [name] for name in NAMES[:20]}
    assert chosen(groups, 1000) == set(NAMES[:20])


def test_more_cases_change_no_choice() -> None:
    assert chosen({"all": NAMES[:300]}, 3) == chosen({"all": NAMES}, 3) & set(NAMES[:300])


def test_all_cases_stay_parameters() -> None:
    params = marked({"all": NAMES}, 3)
    assert [param.values[0] for param in params] == NAMES
    assert {param.values[0] for param in params if not param.marks} == chosen({"all": NAMES}, 3)
