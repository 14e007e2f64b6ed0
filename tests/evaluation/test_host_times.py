"""The time for which the device is kept busy before timed calls, so that the host runs ahead of it."""

from __future__ import annotations

import pytest

from kernelwright.evaluation.device.devices import MOST_SPIN_MS, SPIN_MS, HostTimes


def test_nothing_is_known_at_first() -> None:
    assert HostTimes().spin_ms("", 12) == HostTimes().spin_ms("late", 12) == SPIN_MS


def test_a_first_call_that_sets_things_up_does_not_count_long() -> None:
    times = HostTimes()
    for took in (400.0, 0.2, 0.2):
        times.note("", took)
    assert times.spin_ms("", 12) == pytest.approx(1.5 * 0.2 * 12)
    times.note("slow", 400.0)
    assert times.spin_ms("slow", 1) == MOST_SPIN_MS


def test_kinds_do_not_count_for_each_other() -> None:
    """Copies take the host almost no time; when a row with copies is repeated, the wait is as long as the row takes."""
    times = HostTimes()
    times.note("", 0.2)
    assert times.spin_ms("late", 10) == pytest.approx(1.5 * 0.2 * 10)  # as long as usual calls, before there was one
    for _ in range(8):
        times.note("late", 0.45)
        times.note("copies", 0.01)
        assert times.spin_ms("late", 10) == pytest.approx(1.5 * 0.45 * 10)
    assert times.spin_ms("", 10) == pytest.approx(1.5 * 0.2 * 10)
