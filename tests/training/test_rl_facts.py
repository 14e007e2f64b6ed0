"""A step's row of the log: measures, alarms with a planted case each, opinions, and seconds."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from kernelwright.errors import StoreError
from kernelwright.training.pretrain.progress import finite, read_log
from kernelwright.training.rl.curves import write_curves
from kernelwright.training.rl.facts import (
    LoggedRow,
    alarms,
    chance_drift,
    describe,
    drift,
    judged,
    repetition,
    standing,
)
from kernelwright.training.rl.rollouts import Clock, RolloutRow, mend, read_rollouts, without_opinions
from kernelwright.training.rl.settings import AlarmSettings
from kernelwright.training.rl.view import StepView, table


def row(n: int, **more: Any) -> RolloutRow:
    """Returns a sound row: sixteen different tokens of equal probability."""
    sound = RolloutRow(
        task_id="t",
        group=n // 4,
        trajectory=n % 4,
        turn=0,
        prompt_ids=(1,),
        token_ids=(7, *range(100 + n, 115 + n)),
        log_probs=(-0.5,) * 16,
        reward=float(n % 2),
        parts={"correct": float(n % 2)},
        facts={"speedup": 1.5} if n % 2 else {},
        verdict="correct" if n % 2 else "wrong",
        finish_reason="stop",
    )
    return replace(sound, **more)


SOUND = [row(n) for n in range(16)]


def raised(rows: list[RolloutRow], **limits: Any) -> list[str]:
    return alarms(describe(rows), describe(SOUND), AlarmSettings(**limits))


def planted(**more: Any) -> list[RolloutRow]:
    """Returns the rows with half of them broken in one way."""
    return [r if n % 2 else replace(r, **more) for n, r in enumerate(SOUND)]


def test_a_sound_step_raises_no_alarm() -> None:
    assert raised(SOUND) == []
    facts = describe(SOUND)
    assert (facts["reward"], facts["correct"], facts["fast_1"], facts["speedup"]) == (0.5, 0.5, 0.5, 1.5)
    assert (facts["fast_1.5"], facts["fast_2"]) == (0.0, 0.0)
    faster = [replace(r, facts={"speedup": 1.6 + n}) if n < 2 else r for n, r in enumerate(SOUND)]
    assert (describe(faster)["fast_1.5"], describe(faster)["fast_2"]) == (1 / 16, 1 / 16)
    assert (facts["entropy"], facts["alike"], facts["first_tokens"]) == (0.5, 0.0, {"7": 1.0})


def test_where_answers_are_timed_and_none_is_right_none_is_fast() -> None:
    wrong = [replace(r, verdict="wrong", facts={}) for r in SOUND]
    assert [describe(wrong, timed)["fast_1"] for timed in (True, False)] == [0.0, None]
    assert (describe(wrong, True)["fast_2"], describe(wrong, True)["speedup"]) == (0.0, None)


@pytest.mark.parametrize(
    ("alarm", "rows"),
    [
        ("first_token", planted(token_ids=(8, *range(200, 215)))),
        ("repetition", [replace(r, token_ids=(7, *[9] * 40), log_probs=(-0.5,) * 41) for r in SOUND]),
        ("entropy", [replace(r, log_probs=(-0.01,) * 16) for r in SOUND]),
        ("entropy", [replace(r, log_probs=(-4.0,) * 16) for r in SOUND]),
        ("hacked", planted(verdict="rejected", reward=0.0)),
        ("hacked", planted(facts={"rules_broken": 2.0})),
        ("unpaid", planted(verdict="harness_error", reward=None)),
        ("cut", [replace(r, finish_reason="length") for r in SOUND]),
        ("unreadable", [replace(r, verdict="unreadable") for r in SOUND]),
    ],
)
def test_a_planted_sign_raises_its_alarm_and_no_other(alarm: str, rows: list[RolloutRow]) -> None:
    assert raised(rows) == [alarm]
    loose = {"entropy": {"entropy_low": 0.0, "entropy_high": 99.0}}.get(alarm, {alarm: 1.0})
    assert raised(rows, **loose) == []


@pytest.mark.parametrize("first", [0.0, 1e-6])
def test_a_policy_that_began_sure_of_itself_may_be_a_little_less_so(first: float) -> None:
    sure = describe([replace(r, log_probs=(-first,) * 16) for r in SOUND])
    seen = [[replace(r, log_probs=(-p,) * 16) for r in SOUND] for p in (first, 0.02, 0.2)]
    assert [alarms(describe(rows), sure, AlarmSettings()) for rows in seen] == [[], [], ["entropy"]]
    assert alarms(describe(seen[1]), sure, AlarmSettings(entropy_floor=0.01)) == ["entropy"]


def test_an_alarm_that_stands_ends_a_run() -> None:
    log = [{"alarms": a} for a in (["cut"], ["cut", "hacked"], ["hacked"], ["hacked", "entropy"])]
    assert standing(log, 3) == ["hacked"] and standing(log, 4) == [] and standing(log, 5) == [] == standing(log, 0)


def test_drift_is_a_distance_of_distributions() -> None:
    assert drift({"1": 1.0}, {"1": 1.0}) == 0.0 and drift({"1": 1.0}, {"2": 1.0}) == 1.0
    assert drift({"1": 0.5, "2": 0.5}, {"1": 1.0}) == 0.5
    assert drift({"1": 0.9}, {"1": 1.0}) == pytest.approx(0.1)  # the rest is not named
    alike = [{str(n): 1 / 32 for n in places} for places in (range(16), range(16, 32))]
    assert drift(*alike) == 0.0  # two tables of one distribution, which names neither's tokens more than the other's
    assert drift({"1": 0.6, "2": 0.2}, {"3": 0.5, "4": 0.2}) == pytest.approx(0.5)
    assert repetition([1] * 20) > 0.9 and repetition(range(20)) == 0.0 and repetition([1]) == 0.0


def first_of(probabilities: np.ndarray, count: int, random: np.random.Generator) -> list[RolloutRow]:
    return [
        row(n, token_ids=(int(t), *range(600, 615))) for n, t in enumerate(random.choice(512, count, p=probabilities))
    ]


@pytest.mark.parametrize("count", [16, 128, 1024])
def test_chance_is_no_drift_however_few_answers_there_are(count: int) -> None:
    """Sixteen answers of one policy often differ from sixteen others of it in more than 30 % of their first tokens."""
    random = np.random.default_rng(1)
    wide = np.where(np.arange(512) < 40, 1.0 / np.arange(1.0, 513.0), 0.0)
    wide /= wide.sum()
    moved = 0.2 * wide + 0.8 * (np.arange(512) == 100)
    alike, real, naive = 0, 0, 0
    for _ in range(40):
        first, same, other = (describe(first_of(p, count, random)) for p in (wide, wide, moved))
        naive += drift(same["first_tokens"], first["first_tokens"]) > 0.3
        alike += "first_token" in alarms(same, first, AlarmSettings())
        real += "first_token" in alarms(other, first, AlarmSettings())
    assert alike <= 1 and real >= 38 and (naive > 5 or count > 16)


def test_what_chance_gives_is_counted_with_what_is_not_named() -> None:
    tables = [{str(n): 1 / 32 for n in places} for places in (range(16), range(16, 32))]
    mean, most = chance_drift(*tables, (32, 32))
    assert 0.0 <= mean <= most < 0.6 and chance_drift({}, {}, (16, 16))[0] >= 0.0
    assert chance_drift({"1": 1.0}, {"1": 1.0}, (8, 9)) == (0.0, 0.0)
    assert chance_drift({"1": 0.5, "2": 0.5}, {"1": 0.5, "2": 0.5}, (10_000, 10_000))[1] < 0.03


def asked(failed: int) -> list[RolloutRow]:
    """Returns the sound rows: a judge was asked about the first ten, and `failed` of these got no opinion."""
    return [
        replace(r, facts={**r.facts, "judge_asked": 1.0, "judge_failed": float(n < failed)} if n < 10 else r.facts)
        for n, r in enumerate(SOUND)
    ]


def test_a_judge_that_fails_is_an_alarm_and_is_said_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = []
    for step, failed in enumerate((0, 5, 6, 10), 1):
        facts = {"step": step, **describe(asked(failed)), **judged(asked(failed)), "trained_rows": 16.0}
        reason = {"judge_reason": "no answer: down \x1b[2J"} if failed else {}
        found = alarms(facts, facts, AlarmSettings())
        steps.append({**facts, **reason, "play_s": 3.0, "update_s": 1.0, "step_s": 4.0, "alarms": found})
    assert [one["alarms"] for one in steps] == [[], [], ["judge_failed"], ["judge_failed"]]
    assert [one["judge_failed_share"] for one in steps] == [0.0, 0.5, 0.6, 1.0]
    assert judged(SOUND) == {"judge_asked": 0, "judge_failed": 0, "judge_failed_share": None}
    with StepView(4, True, Console(file=io.StringIO())) as view:
        for one in steps:
            view.add(one, last=one is steps[-1])
    said = capsys.readouterr().err
    assert said.count("no answer: down") == 1 and "\x1b" not in said
    assert "the judge gave no opinion on 5 of 10 candidates of step 2" in said and "no opinion 100%" in said
    screen = io.StringIO()
    with StepView(4, True, Console(file=screen, force_terminal=True, width=99, _environ={"TERM": "xterm"})) as view:
        for one in steps:
            view.add(one)
    assert screen.getvalue().count("no answer: down") == 1
    assert "no\njudge" in [column.header for column in table(steps, 4).columns]
    write_curves("run", steps, tmp_path / "curves.html")
    assert "judge_failed_share 1" in (tmp_path / "curves.html").read_text()


def test_a_step_with_a_new_alarm_is_shown_however_soon_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {**describe(SOUND), "trained_rows": 16.0, "play_s": 3.0, "update_s": 1.0, "step_s": 4.0}
    raised_in = {3: ["cut"], 4: ["cut"], 5: ["cut", "hacked"], 8: ["hacked"]}
    with StepView(9, True, Console(file=io.StringIO())) as view:
        for n in range(1, 10):
            view.add({"step": n, **facts, "alarms": raised_in.get(n, [])})
    shown = [text.split("/")[0] for text in capsys.readouterr().err.splitlines()]
    assert shown == ["step 1", "step 3", "step 5", "step 8"]


def test_opinions_count_only_where_execution_tells_nothing_apart() -> None:
    told = [row(0, reward=0.4, parts={"judge": 0.4}), row(1, reward=1.2, parts={"correct": 1.0, "judge": 0.2})]
    alike = [row(n, reward=x, parts={"judge": x}) for n, x in ((4, 0.1), (5, 0.3))]
    unpaid = row(6, reward=None, parts={})
    found = without_opinions([*told, *alike, unpaid])
    assert [r.reward for r in found] == [0.0, pytest.approx(1.0), 0.1, 0.3, None]
    assert found[1].parts == {"correct": 1.0} and found[2:] == [*alike, unpaid]


def test_rounding_tells_no_group_apart() -> None:
    """0.5 + x - x is often not 0.5: opinions would be lost, and groups of equal rewards would be trained on."""
    opinions = [n / 30 for n in range(1, 12)]
    rows = [row(n, group=0, reward=0.5 + x, parts={"compiled": 0.5, "judge": x}) for n, x in enumerate(opinions)]
    plain = row(11, group=0, reward=0.5, parts={"compiled": 0.5})
    assert without_opinions([*rows, plain]) == [*rows, plain]
    other = row(12, group=0, reward=0.0, parts={})
    found = without_opinions([*rows, plain, other])
    assert {r.reward for r in found} == {0.5, 0.0} and not any("judge" in r.parts for r in found)


@pytest.mark.parametrize("line", [b"[]", b"7", b'{"a": 1}', b'[{"a": 1}]', b"\xff\xfe", b'[{"task_id"'])
def test_a_damaged_line_of_rollouts_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "step.jsonl"
    whole = json.dumps([asdict(SOUND[1])]).encode()
    path.write_bytes(whole + b"\n" + line + b"\n")
    with pytest.raises(StoreError, match=r"line 2 of .*step.jsonl"):
        read_rollouts(path)
    path.write_bytes(whole + b"\n" + line[:-1])
    if line != b"7":
        assert read_rollouts(path) == {(0, 1): [SOUND[1]]}


def test_a_line_that_was_not_finished_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    mend(path)
    path.write_text('[{"task_id": "t"')
    mend(path)
    assert path.read_text() == "" and read_rollouts(path) == {}
    path.write_text("whole\nnot wh")
    mend(path)
    assert path.read_text() == "whole\n"


def test_the_clock_tells_judging_that_holds_up_from_judging_beside_it() -> None:
    ends = iter([4.0, 5.0, 6.0, 9.0])
    clock = Clock(lambda: next(ends))
    clock.answered(0.0)
    clock.answered(2.0)
    clock.judged(3.0, 2.5)
    clock.judged(8.0, 2.5)
    found = clock.read()
    assert (found["ask_s"], found["judge_s"], found["only_judge_s"], found["judge_work_s"]) == (5.0, 4.0, 2.0, 5.0)
    assert set(clock.read().values()) == {0.0}


def test_the_last_steps_are_a_table_on_a_terminal_and_a_line_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {**describe(SOUND), "mismatch_rejected": 0.25, "trained_rows": 16.0, "play_s": 3.0, "update_s": 1.0}
    rows = [{"step": n, **facts, "step_s": 4.0, "alarms": ["cut"] if n == 12 else []} for n in range(1, 13)]
    screen = io.StringIO()
    with StepView(12, True, Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})) as view:
        for one in rows:
            view.add(one, last=one is rows[-1])
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    head, *last, caption = plain[plain.rindex("step reward") :].strip().splitlines()
    assert head.split() == "step reward parts correct fast_1 hacked tokens cut code MRS s".split()
    assert [text.split()[0] for text in last] == [str(n) for n in range(3, 13)]
    assert last[-1].split() == "12 0.500 0.50 50% 50% 0% 16 0% 0% 25% 4".split()
    assert caption.strip() == "step 12 of 12; parts: correct; alarms of step 12: cut"
    table_of_two = table([{**rows[0], "parts": {"a": 0.1, "b": 0.2}}, {**rows[1], "parts": {"b": 0.3}}], 12)
    assert list(table_of_two.columns[2].cells) == ["0.10 0.20", "0.00 0.30"]  # unpaid parts are absent
    with StepView(12, True, Console(file=io.StringIO())) as view:
        view.add(rows[-1], last=True)
    assert capsys.readouterr().err.startswith(
        "step 12/12 · reward 0.500 · correct 50% · hacked 0% · fast_1 50% · 16 rows"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"parts": {"correct": 0.5, "own_share": 0.5, "speedup": 1.5}, "profiling_rejected": 1.0},
        {"parts": {"compiled": 0.5, "correct": 0.5, "judge": 0.5, "speedup": 0.5}, "judge_failed_share": 1.0},
    ],
)
def test_no_number_of_the_table_is_cut(more: dict[str, Any]) -> None:
    """A terminal has eighty columns; in them, seconds were once cut to "12…" and shares to "10…"."""
    shares = dict.fromkeys(("correct", "fast_1", "hacked", "cut", "unreadable", "mismatch_rejected"), 1.0)
    facts = {"step": 1000, "reward": 1.234, "length": 8192.0, "step_s": 1234.0, "alarms": [], **shares, **more}
    screen = io.StringIO()
    Console(file=screen, width=80).print(table([facts], 1000))
    shown = screen.getvalue()
    assert "…" not in shown and "1234" in shown
    for name in ("step", "reward", "correct", "fast_1", "hacked", "tokens", "cut", "MRS"):
        assert name in shown
    wanted = sorted(f"{value:.2f}" for value in facts["parts"].values())
    assert sorted(re.findall(r"\d\.\d\d\b", shown)) == wanted


def test_a_part_that_is_no_number_is_shown_as_none() -> None:
    facts = {"step": 1, **describe(SOUND), "step_s": 4.0, "alarms": []}
    lost = finite({**facts, "parts": {"correct": 0.5, "speedup": float("inf")}})
    assert list(table([lost], 2).columns[2].cells) == ["0.50 none"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("step", value) for value in ("2", 1.5, None, True)),
        *((name, None) for name in ("correct", "parts", "alarms", "step_s", "first_tokens", "verdicts")),
        ("parts", {"correct": "x"}),
        ("alarms", [1]),
        ("verdicts", {"correct": "many"}),
        ("judge_weight", "none"),
    ],
)
def test_a_log_that_no_run_has_written_is_named(tmp_path: Path, name: str, value: Any) -> None:
    """A resumed run reads these fields; it once reported their absence as an internal error."""
    path = tmp_path / "log.jsonl"
    good = {"step": 1, **describe(SOUND), "step_s": 4.0, "alarms": [], "entropy": None, "judge_weight": 0.5}
    path.write_text(json.dumps(good) + "\n")
    assert read_log(path, LoggedRow) == [good]
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "step": 2, name: value}) + "\n")
    with pytest.raises(StoreError, match="line 2 of .*log.jsonl' is damaged"):
        read_log(path, LoggedRow)


def test_curves_leave_out_what_is_no_number(tmp_path: Path) -> None:
    rows = [{"step": 1, **describe(SOUND), "alarms": [], "reward": "x", "length": None}]
    write_curves("run", rows, tmp_path / "curves.html")
    assert "tokens an answer" not in (tmp_path / "curves.html").read_text()


def test_curves_show_every_series_that_there_is(tmp_path: Path) -> None:
    rows = [{"step": n, **describe(SOUND), "alarms": ["cut"] if n else []} for n in range(3)]
    write_curves("a <run>", rows, tmp_path / "curves.html")
    page = (tmp_path / "curves.html").read_text()
    assert "a &lt;run&gt;" in page and "step 2: cut" in page and "mismatch_rejected" not in page
    assert page.count("<polyline") == 16
