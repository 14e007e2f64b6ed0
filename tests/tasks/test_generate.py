"""The task generator: its tasks run, are distinct and deterministic, and its splits are disjoint."""

from __future__ import annotations

import ast
import hashlib
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from kernelwright import generate
from kernelwright.errors import UsageError
from kernelwright.generate import catalogue, sizes, splits
from kernelwright.generate.draft import Draft, is_atom, size_of
from kernelwright.generate.registry import Family
from kernelwright.generate.style import draw
from kernelwright.generate.text import render
from kernelwright.tasks import check_reference

DOCS = Path(__file__).resolve().parents[2] / "docs" / "generated_tasks.md"


def drafted(family: Family, number: int) -> Draft:
    random = Random(f"test {family.name} {number}")
    draft = Draft(random, draw(random))
    family.make(draft)
    return draft


def digest(seed: int, count: int) -> str:
    sources = "".join(t.source for t in generate.generate(seed, count))
    return hashlib.sha256(sources.encode()).hexdigest()


@pytest.fixture(scope="module")
def warm_torch() -> None:
    """Torch's imports at its first call on `meta` take seconds, which a measurement's time limit would count."""
    import torch

    with torch.no_grad():
        x = torch.nn.Linear(2, 2, device="meta")(torch.empty(2, 2, device="meta"))
        torch.nn.functional.gelu(x).logsumexp(dim=1)


def test_a_name_lent_to_one_step_stays_as_kept_as_it_was() -> None:
    """A formula with two reads of its operand once released a name that a residual connection still needed."""
    for seed in range(20):
        random = Random(seed)
        draft = Draft(random, draw(random))
        draft.phrases.append("sum")
        draft.input("other", (2, 3))
        residual = draft.named(draft.step("a + b", (2, 3)))
        assert draft.named_once(residual) == residual and residual.text in draft.kept
        free = draft.named_once(draft.step("c + d", (2, 3)))
        assert free.text not in draft.kept and free.text != residual.text


@pytest.mark.parametrize("group", catalogue.groups())
@pytest.mark.usefixtures("warm_torch")
def test_every_family_runs_at_the_shapes_that_it_says(group: str) -> None:
    from kernelwright.tasks import probe

    for family in catalogue.named([group]):
        for number in range(3):
            draft = drafted(family, number)
            source = render(draft)
            assert draft.result is not None
            cost = probe.measure(source, {}, "meta")
            assert cost.outputs == (draft.result.shape,), f"{family.name} {number}\n{source}"
            assert cost.inputs == tuple(tuple(map(size_of, i.shape)) for i in draft.inputs if i.draw != "scalar")


def test_tasks_are_distinct_and_well_formed() -> None:
    tasks = list(generate.generate(5, 900))
    assert len({t.source for t in tasks}) == len({t.name for t in tasks}) == 900
    for task in tasks:
        check_reference(task.source, task.name)
        assert task.operators and task.signature.startswith(task.operators[0])
        assert task.split == "train"
        assert 0 < task.difficulty < 10
    families = {t.family for t in tasks}
    assert len(families) > 120
    assert all(f.name not in families for f in catalogue.table() if f.held_out)


def test_forwards_are_straight_lines() -> None:
    for task in generate.generate(6, 250):
        model = next(n for n in ast.parse(task.source).body if isinstance(n, ast.ClassDef))
        forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
        body = forward.body[1:] if ast.get_docstring(forward) else forward.body
        assert all(isinstance(s, ast.Assign) for s in body[:-1]), task.source
        assert isinstance(body[-1], ast.Return)


def test_tensors_are_bounded() -> None:
    for family in catalogue.table():
        for number in range(8):
            draft = drafted(family, number)
            assert draft.result is not None
            tensors = [math.prod(map(size_of, i.shape)) for i in draft.inputs] + [draft.result.elements]
            assert max(tensors) <= 1.5 * sizes.LARGEST_TENSOR, family.name
            assert draft.flops <= 3 * sizes.LARGEST_FLOPS, family.name


def test_the_same_seed_makes_the_same_tasks_in_another_process() -> None:
    code = (
        "import hashlib; from kernelwright.generate import generate;"
        "print(hashlib.sha256(''.join(t.source for t in generate(3, 60)).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "123"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == digest(3, 60)
    assert digest(4, 60) != digest(3, 60)


def test_a_longer_run_begins_with_a_shorter_one() -> None:
    short, long = (list(generate.generate(8, n, families=["scan"])) for n in (10, 30))
    assert long[:10] == short


def test_splits_share_no_sequence_of_operators() -> None:
    train = {t.operators for t in generate.generate(1, 800, families=list(splits.CHAINS))}
    combos = list(generate.generate(1, 12, split="combos"))
    fused = list(generate.generate(1, 12, split="fused"))
    assert not train & {t.operators for t in combos + fused}
    for task in fused:
        assert task.operators[0].startswith(splits.ANCHORS) and 3 <= len(task.operators) <= 6
    held = {f.name for f in catalogue.table() if f.held_out}
    alone = list(generate.generate(1, 40, split="families"))
    assert {t.family for t in alone} <= held
    inside = {o for operators in train for o in operators}
    assert len(held & inside) >= 6  # training sees them, but only in chains


def test_kinds_are_crossed_with_dimensions() -> None:
    names = {f.name for f in catalogue.table()}
    kinds = ["conv", "conv_transpose", "conv_depthwise", "conv_grouped", "conv_dilated", "conv_pointwise"]
    kinds += ["conv_separable", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "global_pool"]
    kinds += ["batch_norm", "instance_norm", "group_norm", "upsample", "fused_conv", "fused_conv_transpose"]
    assert not [f"{kind}{d}d" for kind in kinds for d in (1, 2, 3) if f"{kind}{d}d" not in names]
    assert len(names) >= 60
    assert len(names) == len(catalogue.table())


@pytest.mark.parametrize("family", ["conv2d", "relu", "fused_linear", "residual_block", "cross_entropy", "max_pool3d"])
def test_sizes_can_be_reduced_and_run(family: str) -> None:
    from kernelwright.tasks import workloads

    for task in generate.generate(12, 2, families=[family]):
        plan = workloads.derive(task.source)
        assert plan.workloads, task.source
        assert max(w.elements for w in plan.workloads) < 2_000_000


def test_an_unknown_family_is_named_with_near_matches() -> None:
    with pytest.raises(UsageError, match="cov2d") as caught:
        list(generate.generate(0, 1, families=["cov2d"]))
    assert "conv2d" in str(caught.value.hint)
    with pytest.raises(UsageError, match="split"):
        list(generate.generate(0, 1, split="test"))
    with pytest.raises(UsageError, match="none of these families"):
        list(generate.generate(0, 1, families=["relu"], split="fused"))


def test_an_impossible_number_of_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "MAX_FUTILE", 50)
    with pytest.raises(UsageError, match="only 0 distinct tasks of 1"):  # too short for a held-out sequence
        list(generate.generate(0, 1, families=["two_products"], split="combos"))


def test_parentheses_are_put_where_they_are_needed() -> None:
    assert is_atom("self.conv(x + 1)") and is_atom("x[:, None]")
    assert not is_atom("a + b") and not is_atom("-a")


def test_the_page_names_every_family() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert not [f.name for f in catalogue.table() if f"`{f.name}`" not in page]
    assert not [g for g in catalogue.groups() if f"`{g}`" not in page]


def test_a_draft_that_never_ended() -> None:
    """One upsampling in about 100,000 tasks halved an extent of 4 without end; found in a run of 300,000 pairs."""

    def hangs(*_: object) -> None:
        raise TimeoutError("the generator hangs")

    previous = signal.signal(signal.SIGVTALRM, hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    try:
        made = list(generate.generate(6379245731815707285, 32))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    assert len(made) == 32
