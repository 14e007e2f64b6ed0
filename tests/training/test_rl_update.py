"""The log of an update: shares of tokens do not depend on the batches, and all values are finite."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

sys.path.insert(0, str(Path(__file__).parent))

from undecided_model import rl_table  # noqa: E402

from kernelwright.training.pretrain.progress import Log, read_log  # noqa: E402
from kernelwright.training.ranks import Ranks  # noqa: E402
from kernelwright.training.rl.curves import write_curves  # noqa: E402
from kernelwright.training.rl.rollouts import RolloutRow  # noqa: E402
from kernelwright.training.rl.settings import RlSettings  # noqa: E402
from kernelwright.training.rl.state import State  # noqa: E402

_SOUND = RolloutRow("t", 0, 0, 0, (5, 6, 7), (), (), 0.0, {}, {}, "wrong", "stop")
_IDS = [tuple(range(20, 24 + 9 * n)) for n in range(8)]
ROWS = [
    replace(_SOUND, group=n // 4, trajectory=n % 4, token_ids=ids, log_probs=(-1.0,) * len(ids), reward=float(n % 2))
    for n, ids in enumerate(_IDS)
]
"""Answers of very different lengths, half of them paid."""


def updated(undecided: Path, rows: list[RolloutRow], **tables: Any) -> dict[str, float]:
    """Returns the log entries of a step's updates on some rows."""
    settings = RlSettings.model_validate(rl_table(undecided, advantage={"name": "mean"}, **tables))
    return State.open(settings, undecided / "none", Ranks()).updater.step(rows, 0).facts


def test_the_share_of_clipped_tokens_is_the_same_in_batches_of_any_size(undecided: Path) -> None:
    train = {"lr": 3e-3, "updates": 2, "precision": "fp32"}
    found = [updated(undecided, ROWS, train={**train, "micro_tokens": n}) for n in (1, 120, 32_768)]
    assert 0.05 < found[0]["clipped"] < 1.0
    assert [facts["clipped"] for facts in found] == pytest.approx([found[0]["clipped"]] * 3, abs=0.01)


def test_a_step_of_which_filters_leave_no_row_logs_no_share_of_none(undecided: Path) -> None:
    facts = updated(undecided, [], filters={"profiling": True, "mismatch": True, "redraw": 1})
    assert facts == {"trained_rows": 0.0}


def test_ratios_that_are_no_numbers_have_no_mean(undecided: Path) -> None:
    lost = [replace(row, log_probs=(-math.inf,) * len(row.log_probs)) for row in ROWS]
    assert "sampler_ratio" not in updated(undecided, lost, filters={"mismatch": True})


def test_no_number_of_the_log_or_the_curves_is_none(tmp_path: Path) -> None:
    row = {"step": 1, "grad_norm": math.nan, "parts": {"a": math.inf, "b": 0.5}, "alarms": [], "reward": math.nan}
    path = tmp_path / "log.jsonl"
    Log(path, 0).add(row)

    def refused(text: str) -> None:
        raise AssertionError(text)

    (found,) = [json.loads(line, parse_constant=refused) for line in path.read_text().splitlines()]
    assert found == {**row, "grad_norm": None, "parts": {"a": None, "b": 0.5}, "reward": None}
    path.write_text(json.dumps(row) + "\n")  # as earlier versions wrote it
    write_curves("run", [*read_log(path), {**row, "step": 2, "reward": 0.25}], tmp_path / "curves.html")
    page = (tmp_path / "curves.html").read_text()
    assert "nan" not in page and "inf" not in page and "reward" in page
    Log(path, 1)
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
