"""Guards: what the text gives away, and what a call gives away."""

import pytest

from kernelwright.evaluation.guards import call_findings, library_work, rejecting, static_findings, unfounded
from kernelwright.records import Candidate, SourceFile


def rules(text: str) -> set[tuple[str, str]]:
    candidate = Candidate(sources=(SourceFile(path="c.py", content=text),), language="torch")
    return {(f.rule, f.severity) for f in static_findings(candidate)}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import gc\ngc.get_objects()", "frame-walk"),
        ("from inspect import stack\nstack()", "frame-walk"),
        ("import sys\nf = sys._getframe", "frame-walk"),
        ("import torch\ntorch.allclose = lambda *a: True", "patched-function"),
        ("import time\nsetattr(time, 'perf_counter', lambda: 0)", "patched-function"),
        ("import sys\nsys.modules['torch'] = None", "patched-function"),
        ("from kernelwright.evaluation import judge", "harness-access"),
    ],
)
def test_rule_rejects(text: str, rule: str) -> None:
    assert (rule, "reject") in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "from kernelwright.cuda import Module",
        "import torch.nn as nn\nclass A(nn.Module):\n    def __init__(self):\n        self.x = 1",
        "import os\nname = f'ext_{os.getpid()}'",
        "this is not python (",
        "",
    ],
)
def test_honest_text_raises_nothing_that_rejects(text: str) -> None:
    assert not {severity for _rule, severity in rules(text)} & {"reject"}


def test_advice_does_not_reject() -> None:
    assert ("background-thread", "warning") in rules("import threading\nthreading.Thread(target=print).start()")
    assert ("dynamic-code", "warning") in rules("exec(some_text)")


def facts(**fields: object) -> dict[str, object]:
    base = {"facts": {"launches": [], "own_calls": 0, "written": {}}, "operators": [], "mutated": [], "problems": []}
    return {**base, **fields}


RAN = {"launches": [{"kernel": "k", "count": 1}], "own_calls": 1, "written": {"4096": 400}}


def test_nothing_of_its_own_ran() -> None:
    found = call_findings(facts(operators=[["mm", 100_000]]), "from_scratch", 100_000, "w")
    assert [f.rule for f in found] == ["no-own-kernel"] and "mm" in found[0].evidence


def test_library_work_beside_an_own_kernel() -> None:
    found = call_findings(facts(facts=RAN, operators=[["mm", 100_000]]), "from_scratch", 100_000, "w")
    assert [f.rule for f in found] == ["library-op"]


def test_glue_on_few_elements_is_allowed() -> None:
    assert call_findings(facts(facts=RAN, operators=[["div", 1]]), "from_scratch", 100_000, "w") == []


def test_small_task_is_not_a_loophole() -> None:
    assert library_work(facts(operators=[["softmax", 3000]]), 3000) == ["softmax"]


def test_kernel_that_writes_nothing() -> None:
    found = call_findings(facts(facts={**RAN, "written": {}}), "from_scratch", 100, "w")
    assert [f.rule for f in found] == ["decoy-kernel"]


def test_libraries_allowed_lifts_the_kernel_rules_but_not_mutation() -> None:
    found = call_findings(facts(operators=[["mm", 100_000]], mutated=[1]), "libraries", 100_000, "w")
    assert [f.rule for f in found] == ["input-mutated"]
    assert rejecting(found) is found[0]


@pytest.mark.parametrize(
    "text",
    [
        "def f(e):\n    return e.__traceback__.tb_frame.f_back",
        "def f(g):\n    return g.gi_frame.f_locals",
        "all_classes = object.__subclasses__()",
        "def f(g):\n    return g.__closure__[0].cell_contents",
    ],
)
def test_ways_to_the_inside_of_others_reject(text: str) -> None:
    assert ("frame-walk", "reject") in rules(text)


def test_naming_a_module_of_ours_rejects() -> None:
    assert ("harness-access", "reject") in rules(
        "import importlib\nimportlib.import_module('kernelwright.machine.runtime')"
    )
    assert not rules("import importlib\nimportlib.import_module('kernelwright.cuda')")


def test_output_of_unknown_origin() -> None:
    found = call_findings(facts(facts=RAN, foreign=[[0, 100_000]]), "from_scratch", 100_000, "w")
    assert [f.rule for f in found] == ["foreign-output"]
    assert call_findings(facts(facts=RAN, foreign=[[0, 1]]), "from_scratch", 100_000, "w") == []
    assert call_findings(facts(facts=RAN, foreign=[[0, 100_000]]), "libraries", 100_000, "w") == []


def test_kernels_that_were_never_built() -> None:
    assert [f.rule for f in unfounded(facts(facts=RAN), False, "w")] == ["forged-answer"]
    assert unfounded(facts(facts=RAN), True, "w") == [] and unfounded(facts(), False, "w") == []
