"""The scripts that measure the speed of our kernels: their sets, parts, resuming and numbers, and a run of each without
a GPU, at tiny sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(ROOT / "docs")]

import cost_model  # noqa: E402
import kernel_speed  # noqa: E402
import make_cost_picture  # noqa: E402
import make_kernel_speed  # noqa: E402
from sets.chains import BYTES, HEADS, MOST_FLOPS, Chain, chains  # noqa: E402
from speed_common import Part, Results  # noqa: E402
from speed_families import family_of  # noqa: E402

from kernelwright.evaluation import EvalOptions, Evaluator  # noqa: E402
from kernelwright.records import Task  # noqa: E402
from kernelwright.solutions import write  # noqa: E402


@pytest.fixture(scope="module")
def every() -> list[Chain]:
    return list(chains())


def test_chains_are_distinct_and_of_the_stated_sizes(every: list[Chain]) -> None:
    assert len(every) == len({c.source for c in every}) == 200
    assert all(BYTES[0] <= c.bytes <= BYTES[1] and 0 < c.flops <= MOST_FLOPS for c in every)
    assert {c.family.split(",")[0] for c in every} == {family for family, _, _ in HEADS.values()}
    assert {c.source.count("\n        x = ") > 2 for c in every if "def forward(self, x" in c.source} == {True}


def test_a_longer_run_begins_with_a_shorter_one(every: list[Chain]) -> None:
    assert list(chains(20)) == every[:20]
    assert not {c.source for c in chains(20, seed=1)} & {c.source for c in every}


def test_the_library_answers_every_chain(every: list[Chain]) -> None:
    assert all("ModelNew" in write(c.source) for c in every)


@pytest.mark.slow
def test_chains_pass_the_null_kernel_gate() -> None:
    with Evaluator(EvalOptions(backend="cpu")) as evaluator:
        for chain in list(chains(6, seed=7)):
            checked = evaluator.check_gate(Task(task_id=chain.name, source=chain.source))
            assert checked.gate.state != "quarantined", (chain.name, checked.gate.reason)


def test_each_name_is_in_one_part() -> None:
    parts = [Part.read(f"{i}/5") for i in range(1, 6)]
    held = [[part.holds(f"task {n}") for part in parts] for n in range(200)]
    assert all(sum(row) == 1 for row in held)
    assert all(20 < sum(column) < 60 for column in zip(*held, strict=True))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", ""])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    asked = [sys.executable, str(BENCHMARKS / "products.py"), "--part", text]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 2 and "I/N" in done.stderr


def test_rows_of_earlier_calls_are_kept(tmp_path: Path) -> None:
    first = Results(tmp_path / "first.json", "x", ("case",), hardware={})
    first.add({"case": "a", "ms": 1})
    first.add({"case": "b", "ms": 2})
    second = Results(tmp_path / "second.json.gz", "x", ("case",), hardware={})
    second.resume([tmp_path / "none.json", tmp_path / "first.json"])
    second.add({"case": "b", "ms": 3})
    third = Results(tmp_path / "third.json", "x", ("case",), hardware={})
    third.resume([tmp_path / "first.json", tmp_path / "second.json.gz"])
    assert third.rows == [{"case": "a", "ms": 1}, {"case": "b", "ms": 3}]


def timed(task: str, candidate: float, eager: float, compiled: float | None = None) -> kernel_speed.Row:
    timing = {"candidate_ms": candidate, "eager_ms": eager, "compile_ms": compiled}
    return {"task": task, "family": "f", "verdict": "correct", "answer": "x", "timing": timing, "floor_ms": 0.5}


def test_a_wrong_answer_is_not_a_fast_one() -> None:
    wrong = {"task": "c", "family": "g", "verdict": "wrong", "answer": "x", "timing": None, "floor_ms": None}
    found = kernel_speed.summary([timed("a", 1.0, 4.0, 2.0), timed("b", 2.0, 2.0, 1.0), wrong])
    assert found["fast_1_eager"]["value"] == pytest.approx(1 / 3)
    assert found["over_eager"]["value"] == pytest.approx(2.0)
    assert found["over_compile"]["value"] == pytest.approx(1.0)
    assert found["correct"]["value"] == pytest.approx(2 / 3)
    assert found["families"]["g"]["over_eager"] is None


def test_fast_1_counts_tasks_whose_baseline_was_timed() -> None:
    found = kernel_speed.figures([timed("a", 1.0, 4.0, 2.0), timed("b", 2.0, 1.0)])
    assert found["fast_1_compile"]["value"] == 1.0 and found["fast_1_compile"]["tasks"] == 1
    assert found["compile_ms"] is None and found["eager_ms"] == pytest.approx(2.0)


def test_a_changed_answer_is_judged_again() -> None:
    row = timed("a", 1.0, 2.0) | {"answer": kernel_speed.digest("text")}
    assert kernel_speed.is_done(row, "text", compiled=False)
    assert not kernel_speed.is_done(row, "text", compiled=True)
    assert not kernel_speed.is_done(row, "another", compiled=False)
    assert not kernel_speed.is_done(row | {"verdict": "harness_error"}, "text", compiled=False)
    assert not kernel_speed.is_done(None, "text", compiled=False)


@pytest.mark.parametrize(
    ("body", "family"),
    [
        ("return x @ x.T", "product"),
        ("return torch.relu(x)", "elementwise"),
        ("return F.conv_transpose2d(x, x)", "transposed convolution"),
        ("return torch.cumsum(x, dim=1).sum()", "scan"),
        ("return F.scaled_dot_product_attention(x, x, x)", "attention"),
        ("return torch.logsumexp(x, dim=1)", "softmax"),
    ],
)
def test_families_are_read_from_calls(body: str, family: str) -> None:
    assert family_of(f"class Model:\n    def forward(self, x):\n        {body}\n") == family


def test_the_page_holds_the_results() -> None:
    assert make_kernel_speed.page() == make_kernel_speed.PAGE.read_text(encoding="utf-8")


def test_the_picture_shows_the_results() -> None:
    assert make_cost_picture.drawn() == make_cost_picture.PICTURE.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", cost_model.cases()[::3], ids=lambda case: case.name)
def test_the_way_that_auto_takes_is_timed(case: cost_model.Swept) -> None:
    estimates = case.estimates()
    assert case.taken() == min(estimates, key=estimates.__getitem__)


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": paths, "KERNELWRIGHT_BACKEND": "cpu"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [["kernel_speed.py", "chains"], ["products.py"], ["convolutions.py"], ["attention_speed.py"]]
)
def test_scripts_run_without_a_gpu(line: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    asked = [sys.executable, str(BENCHMARKS / line[0]), *line[1:], "--check", "--out", str(out)]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) >= 3 and all(row["verdict"] == "correct" for row in rows)
