"""Guards: rules on the facts that a call reveals."""

from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.rules import call_findings, library_work, rejecting, unfounded
from kernelwright.evaluation.judge.verdict import idle_kernels
from kernelwright.evaluation.processes.messages import Called


def facts(**fields: object) -> Called:
    base = {"facts": {"launches": [], "own_calls": 0, "written": {}}, "operators": [], "mutated": [], "problems": []}
    return Called.model_validate({"kind": "called", **base, **fields})


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
    assert [(f.rule, f.severity) for f in found] == [("decoy-kernel", "info")]
    attempt = Attempt(findings=list(found))
    failed = idle_kernels(attempt)
    assert failed is not None and failed.verdict == "rejected" and failed.reason.startswith("decoy-kernel")
    assert [f.severity for f in attempt.findings] == ["reject"]
    assert idle_kernels(Attempt(findings=list(found), wrote=True)) is None and idle_kernels(Attempt()) is None


def test_libraries_allowed_lifts_the_kernel_rules_but_not_mutation() -> None:
    found = call_findings(facts(operators=[["mm", 100_000]], mutated=[1]), "libraries", 100_000, "w")
    assert [f.rule for f in found] == ["input-mutated"]
    assert rejecting(found) is found[0]


def test_output_of_unknown_origin() -> None:
    found = call_findings(facts(facts=RAN, foreign=[[0, 100_000]]), "from_scratch", 100_000, "w")
    assert [f.rule for f in found] == ["foreign-output"]
    assert call_findings(facts(facts=RAN, foreign=[[0, 1]]), "from_scratch", 100_000, "w") == []
    assert call_findings(facts(facts=RAN, foreign=[[0, 100_000]]), "libraries", 100_000, "w") == []


def test_kernels_that_were_never_built() -> None:
    assert [f.rule for f in unfounded(facts(facts=RAN), False, "w")] == ["forged-answer"]
    assert unfounded(facts(facts=RAN), True, "w") == [] and unfounded(facts(), False, "w") == []


def test_small_operators_count_together() -> None:
    pieces = facts(facts=RAN, operators=[["gelu", 64]], pieces=[["gelu", 100_000], ["add", 10]])
    assert [f.rule for f in call_findings(pieces, "from_scratch", 100_000, "w")] == ["library-op"]
    assert call_findings(facts(facts=RAN, pieces=[["gelu", 40_000]]), "from_scratch", 100_000, "w") == []
    assert library_work(facts(pieces=[["add", 900]]), 300) == []


def test_small_operators_of_a_library_that_is_allowed_do_not_count_with_others() -> None:
    pieces = facts(facts=RAN, pieces=[["mm", 100_000], ["add", 10_000]])
    assert call_findings(pieces, "libraries:cublas", 100_000, "w") == []


def test_kernels_that_work_on_values_of_unknown_origin() -> None:
    found = call_findings(facts(facts=RAN, strangers=100_000), "from_scratch", 100_000, "w")
    assert [f.rule for f in found] == ["foreign-output"] and "given" in found[0].evidence
    assert call_findings(facts(facts=RAN, strangers=100), "from_scratch", 100_000, "w") == []


def test_functions_that_are_others_than_before() -> None:
    found = call_findings(facts(facts=RAN, patched=["time.time"]), "libraries", 100_000, "w")
    assert [(f.rule, f.evidence) for f in found] == [("patched-function", "replaces time.time")]
