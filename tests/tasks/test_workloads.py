"""Sizes derived from a reference: each runs, fits the budget, and shrinks only the permitted extents."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_modules import FAILS, HEAD, RUNS

from kernelwright.errors import TaskError
from kernelwright.records import Workload
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import probe, reference_runs
from kernelwright.tasks.workloads import SizePlan, check_workloads, constants, derive, instantiate

ELEMENTS, FLOPS = 262_144, 60_000_000


@cache
def derived(source: str) -> SizePlan:
    """Returns a plan that several tests look at."""
    return derive(source)


def run(source: str, overrides: dict[str, Any]) -> probe.Cost:
    """Runs the reference on the CPU at one size and recounts its elements."""
    namespace = instantiate(source, overrides)
    model = task_inputs.construct(namespace, 3)
    values = task_inputs.make_inputs(namespace, "own", 3)
    outputs = reference_runs.reference_outputs(model, values)
    shapes = tuple(tuple(t.shape) for t in task_inputs.tensors_in(values))
    elements = sum(t.numel() for t in task_inputs.tensors_in(values)) + sum(t.numel() for t in outputs)
    return probe.Cost(shapes, tuple(tuple(t.shape) for t in outputs), elements, 0, 0)


@pytest.mark.parametrize("name", RUNS)
def test_every_style_of_reference_gets_sizes_that_run_and_fit(name: str) -> None:
    plan = derived(RUNS[name])
    assert len(plan.workloads) >= (1 if name == "tiny" else 2)
    assert len({json.dumps(w.constants, sort_keys=True) for w in plan.workloads}) == len(plan.workloads)
    order = [("declared", "batch_reduced", "reduced").index(w.scope) for w in plan.workloads]
    assert order == sorted(order)
    for workload in plan.workloads:
        assert Workload.model_validate_json(workload.model_dump_json()) == workload
        cost = run(RUNS[name], workload.constants)
        assert cost.elements == workload.elements <= ELEMENTS
        assert workload.flops <= FLOPS


def sizes(plan: SizePlan, scope: str) -> list[dict[str, Any]]:
    return [w.constants for w in plan.workloads if w.scope == scope]


def test_batch_shrinks_first_and_alone() -> None:
    plan = derived(RUNS["free_axis"])
    assert sizes(plan, "batch_reduced") == [{"batch_size": 2}]
    assert all("input_shape" in c for c in sizes(plan, "reduced"))


def test_a_small_task_is_run_at_its_own_size_first() -> None:
    source = RUNS["free_axis"].replace("(40, 1000)", "(40, 10)")
    plan = derive(source)
    assert plan.workloads[0] == plan.declared
    assert plan.workloads[0].scope == "declared" and plan.workloads[0].constants == {}
    assert derive(source, own_size=False).workloads[0].scope == "batch_reduced"


def test_reduced_sizes_are_odd_and_not_multiples_of_four() -> None:
    plan = derive(RUNS["argmax"], count=4)
    reduced = sizes(plan, "reduced")
    assert len(reduced) >= 2
    assert all(c[k] % 2 == 1 for c in reduced for k in ("d1", "d2"))
    assert any(c["d1"] - 1 == 2 ** (c["d1"].bit_length() - 1) for c in reduced)


def test_rows_of_a_matmul_do_not_stay_at_a_tile() -> None:
    for constant in sizes(derived(RUNS["half"]), "reduced")[:2]:
        assert constant["M"] > 32 and constant["M"] != constant["N"]


def test_constructor_arguments_stay_while_inputs_can_shrink() -> None:
    for workload in derived(RUNS["conv_chain"]).workloads:
        assert set(workload.constants) <= {"batch_size", "height", "width"}
    shapes = [run(RUNS["conv_chain"], w.constants).inputs[0] for w in derived(RUNS["conv_chain"]).workloads]
    assert all(s[1] == 8 for s in shapes)


def test_constructor_arguments_shrink_when_inputs_cannot() -> None:
    plan = derived(RUNS["linear_chain"])
    assert all("in_features" in c for c in sizes(plan, "reduced"))
    assert all("divisor" not in c for c in sizes(plan, "reduced"))


def test_inputs_of_one_length_stay_so_where_one_of_them_may_be_longer() -> None:
    """The gate alone cannot be shorter, `x` alone can; a kernel that assumes equal lengths is correct."""
    source = HEAD + (
        "class Model(nn.Module):\n"
        "    def forward(self, x, gate):\n"
        "        return torch.stack([x[:, t] * gate[:, t] for t in range(x.shape[1])], dim=1), gate.sum(dim=1)\n"
        "def get_inputs():\n"
        "    return [torch.randn(4, 33, 150), torch.rand(4, 33, 150)]\n"
    )
    workloads = derive(source).workloads
    assert len(workloads) > 1
    for workload in workloads:
        x, gate = run(source, workload.constants).inputs
        assert x == gate


def test_literals_that_must_agree_shrink_together() -> None:
    for workload in derived(RUNS["literals"]).workloads:
        a, b = run(RUNS["literals"], workload.constants).inputs
        assert a == b and a[1] < 1048576
    for workload in derived(RUNS["two_names"]).workloads:
        assert workload.constants["rows_a"] == workload.constants["rows_b"]


@pytest.mark.parametrize(
    ("constant", "bounds"),
    [("", "0, 30000"), ("entries = 30000", "0, entries"), ("entries = 30000", "high=entries"), ("", "0, 30000 - 1")],
)
def test_indices_stay_within_what_they_index(constant: str, bounds: str) -> None:
    source = f"""import torch
import torch.nn as nn
{constant}
class Model(nn.Module):
    def forward(self, x, index):
        return x[index]

def get_inputs():
    return [torch.randn(30000, 700), torch.randint({bounds}, size=(5000,))]

def get_init_inputs():
    return []
"""
    plan = derive(source)
    assert len(plan.workloads) >= 2
    for workload in plan.workloads:
        x, index = instantiate(source, workload.constants)["get_inputs"]()
        assert x.shape[0] < 30000 and int(index.max()) < x.shape[0]


def test_divisibility_is_kept_by_trying() -> None:
    for workload in derived(RUNS["patches"]).workloads:
        assert workload.constants["image_size"] % 16 == 0
    for workload in derived(RUNS["pixel_shuffle"]).workloads:
        assert workload.constants.get("channels", 16) % 16 == 0


def test_kernel_sizes_axes_and_strides_are_never_changed() -> None:
    fixed = {"kernel_size", "groups", "dim", "k", "r", "stride", "num_layers", "heads", "depth", "patch_size"}
    for name in RUNS:
        for workload in derived(RUNS[name]).workloads:
            if name not in ("decorated", "local_names"):
                assert not fixed & set(workload.constants), name


def test_a_larger_budget_gives_larger_sizes() -> None:
    small, large = derived(RUNS["argmax"]), derive(RUNS["argmax"], element_budget=16 * ELEMENTS)
    assert large.workloads[0].elements > 4 * small.workloads[0].elements
    assert large.workloads[0].elements <= 16 * ELEMENTS


def test_the_declared_size_is_reported_with_its_cost_and_not_run() -> None:
    declared = derived(RUNS["symmetric"]).declared
    assert declared is not None and declared.constants == {}
    assert declared.elements == 3 * 4096**2
    assert declared.flops >= 2 * 4096**3


def test_derivation_is_deterministic() -> None:
    assert derive(RUNS["residual_net"]) == derived(RUNS["residual_net"])


def test_a_network_that_cannot_shrink_is_run_at_its_least_batch() -> None:
    source = (
        RUNS["lenet"]
        .replace("self.conv1(x)", "self.conv1(F.interpolate(x, (320, 320)))")
        .replace("x.flatten(1)", "F.adaptive_avg_pool2d(x, 5).flatten(1)")
    )
    plan = derive(source, element_budget=3000, flop_budget=1_000_000)
    assert len(plan.workloads) == 1 and plan.workloads[0].scope == "batch_reduced"
    assert any("beyond the budget" in note for note in plan.notes)


def test_a_size_that_is_a_little_too_large_is_better_than_the_least_batch() -> None:
    """The smallest volume that this window fits into takes 4.1 million FLOPs, a batch of two 1.8 billion."""
    source = (
        HEAD
        + """
batch, depth, height, width = 16, 16, 16, 16
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv3d(16, 128, kernel_size=5, padding=2, dilation=2)
    def forward(self, x):
        return F.max_pool3d(self.layer(x), 2)
def get_inputs():
    return [torch.randn(batch, 16, depth, height, width)]
def get_init_inputs():
    return []
"""
    )
    plan = derive(source, element_budget=65_536, flop_budget=4_000_000)
    assert len(plan.workloads) == 3 and all(4_000_000 < w.flops <= 16_000_000 for w in plan.workloads)
    assert not any("beyond the budget" in note for note in plan.notes)
    assert derive(source).workloads[0].flops <= FLOPS  # as ever, where the budget is enough


@pytest.mark.parametrize("name", FAILS)
def test_references_that_cannot_be_judged_say_why(name: str) -> None:
    source, words = FAILS[name]
    started = time.monotonic()
    with pytest.raises(TaskError) as caught:
        derive(source)
    assert words in str(caught.value) and "\n" not in str(caught.value) and caught.value.hint
    assert time.monotonic() - started < 5


def test_an_endless_reference_is_stopped() -> None:
    source = HEAD + (
        "class Model(nn.Module):\n    def forward(self, x):\n        while True:\n            x = x + 1\n"
        "def get_inputs():\n    return [torch.randn(8, 8)]\n"
    )
    with pytest.raises(probe.ReferenceFails, match="runs for more than 1 s"):
        probe.prove(source, {}, seconds=1.0)


def test_an_import_is_not_broken_off_and_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's imports at its first call take seconds on a busy machine; a half-imported module breaks a process."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.8)\nthere = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = HEAD + (
        "class Model(nn.Module):\n    def forward(self, x):\n        import slow_to_import\n"
        "        {after}\n        return x * slow_to_import.there\n"
        "def get_inputs():\n    return [torch.randn(8, 8)]\n"
    )
    assert probe.prove(source.format(after="pass"), {}, seconds=0.4).outputs == ((8, 8),)
    del sys.modules["slow_to_import"]
    with pytest.raises(probe.ReferenceFails, match="runs for more than"):
        probe.prove(source.format(after="import time; time.sleep(0.3); time.sleep(0.3)"), {}, seconds=0.4)
    assert sys.modules.pop("slow_to_import").there == 1


CONVOLUTIONS = {
    "nn.ConvTranspose2d(4, 6, 3)": "of 4 channels gets an input of 5",
    "nn.ConvTranspose1d(5, 6, 3, stride=2, output_padding=2)": "output padding",
    "nn.ConvTranspose3d(10, 6, 3, groups=2)": "of 10 channels gets an input of 5",
    "nn.Conv2d(4, 6, 3, padding='same')": "Given groups=1|of 4 channels",
}


@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_convolutions_that_only_meta_takes_are_refused(layer: str) -> None:
    """On `meta` torch accepts a transposed convolution with any number of channels."""
    extents = ", ".join(["9"] * int(layer[layer.index("d(") - 1]))
    source = HEAD + (
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.layer = {layer}\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
        f"def get_inputs():\n    return [torch.randn(2, 5, {extents})]\n"
    )
    with pytest.raises(probe.ReferenceFails, match=CONVOLUTIONS[layer]):
        probe.measure(source, {}, "meta")


def test_a_transposed_convolution_keeps_its_channels() -> None:
    source = HEAD + (
        "channels = 24\nother_channels = 24\nbatch_size = 64\nside = 96\n"
        "class Model(nn.Module):\n    def __init__(self, channels):\n        super().__init__()\n"
        "        self.up = nn.ConvTranspose2d(channels, 8, 3, stride=2)\n"
        "    def forward(self, x):\n        return self.up(x)\n"
        "def get_inputs():\n    return [torch.randn(batch_size, channels, side, side)]\n"
        "def get_init_inputs():\n    return [other_channels]\n"
    )
    plan = derive(source)
    assert len(plan.workloads) >= 3 and not any("was dropped" in note for note in plan.notes)
    for workload in plan.workloads:
        assert workload.constants.get("channels", 24) == workload.constants.get("other_channels", 24)
        run(source, workload.constants)


def test_declared_workloads_are_proven() -> None:
    check_workloads(RUNS["conv_chain"], [{"name": "ok", "constants": {"batch_size": 1, "height": 9, "width": 9}}])
    with pytest.raises(TaskError, match="'bad'.*no constant 'nope'"):
        check_workloads(RUNS["conv_chain"], [Workload(name="bad", constants={"nope": 3})])
    with pytest.raises(TaskError, match="'tight' cannot be used"):
        check_workloads(RUNS["conv_chain"], [Workload(name="tight", constants={"in_channels": 7, "groups": 5})])


def test_constants_are_read_without_executing() -> None:
    source = (
        "raise SystemExit\nA = 4\nB: int = -A\nC = (A * 2, [3, 5.0])\nD, E = 6, 'text'\nF = G = True\n"
        "H = 2**10 // 3\nI = unknown + 1\nJ = 1 / 0\nK = None\nL = 2**10**10\n"
    )
    found = {"A": 4, "B": -4, "C": (8, [3, 5.0]), "D": 6, "E": "text", "F": True, "H": 341, "K": None}
    assert constants(source) == found


def test_constants_computed_from_others_follow() -> None:
    names = instantiate(RUNS["derived"], {"W": 6})
    assert (names["W"], names["H"], names["shape"]) == (6, 12, (64, 8, 12))
    assert instantiate(RUNS["derived"], {"shape": [1, 2, 4]})["shape"] == (1, 2, 4)
    assert instantiate(RUNS["derived"])["H"] == 8192


def test_literals_are_named_by_place() -> None:
    source = RUNS["local_names"]
    namespace = instantiate(source, {"get_inputs:10:13": 3, "get_inputs:9:21": 2})
    assert tuple(namespace["get_inputs"]()[0].shape) == (2, 16, 3, 64)


def test_an_unknown_constant_is_refused() -> None:
    with pytest.raises(TaskError, match="no constant 'nothing'") as caught:
        instantiate(RUNS["tiny"], {"nothing": 3})
    assert caught.value.hint


def test_the_module_can_look_at_its_own_source() -> None:
    namespace = instantiate(RUNS["decorated"], {"batch_size": 3})
    assert "class Model" in inspect.getsource(namespace["Model"])
    assert namespace["__name__"] == "kernelwright_reference"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abN=()[]{}:,'\"#\\ \n\t0123456789+-*/.%xdefreturnlambda\x00é", max_size=120))
def test_any_text_is_read_or_refused(source: str) -> None:
    try:
        constants(source)
    except TaskError as error:
        assert "\n" not in str(error)


DEVELOPMENT = os.environ.get("KERNELWRIGHT_LEVEL1")


@pytest.mark.skipif(not DEVELOPMENT, reason="KERNELWRIGHT_LEVEL1 names no JSONL file of references")
def test_every_development_reference_gets_two_sizes() -> None:
    rows = [json.loads(line) for line in Path(str(DEVELOPMENT)).read_text().splitlines()]
    few = [row["problem_id"] for row in rows if len(derive(row["reference"]).workloads) < 2]
    assert rows and not few


def test_size_like_the_declared_one_keeps_what_divides_it() -> None:
    source = RUNS["patches"].split("class Model")[0] + (
        "class Model(nn.Module):\n    def forward(self, a, b):\n        return a @ b\n\n"
        "M = 4096\nK = 2048\nN = 1024\n\n"
        "def get_inputs():\n    return [torch.randn(M, K), torch.randn(K, N)]\n"
    )
    alike = [w for w in derive(source).workloads if w.scope == "batch_reduced"]
    assert alike and all(size % 64 == 0 for size in alike[0].constants.values())
