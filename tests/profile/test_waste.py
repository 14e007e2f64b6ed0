"""The ranked wastes of `profile` without a GPU, on kernels whose waste was written down first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sets.waste import CASES, EFFICIENT, Waste

from kernelwright.evaluation.judge.worker import Worker
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.profile import KernelProfile, Profile
from kernelwright.profile.advice import advise
from kernelwright.profile.device_code import compile_with
from kernelwright.profile.facts import KernelWork, LineCounts, SiteCounts
from kernelwright.profile.ladder import DEFAULT_ARCH, kernels_of
from kernelwright.profile.waste import launch_lines, wastes
from kernelwright.records import Candidate, SourceFile, Task


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Pool("auto") as pool:
        pool.warm()
        made = Worker(pool)
        yield made
        made.close()


def _profiled(worker: Worker, case: Waste) -> Profile:
    task = Task(task_id=case.name, source=case.task)
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=case.candidate),), language="cuda")
    code = compile_with(worker, task, candidate, DEFAULT_ARCH, EvalOptions(backend="cpu", seed=0), None)
    kernels = kernels_of(code)
    return Profile(
        task_id=case.name,
        task_hash="",
        candidate_id="",
        rung="static",
        kernels=tuple(kernels),
        wastes=wastes(kernels, code.call.operators, candidate.text),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_true_cause_comes_first_with_its_line(worker: Worker, case: Waste) -> None:
    found = _profiled(worker, case).wastes
    assert found and found[0].kind.startswith(case.cause), found
    assert found[0].line in case.lines, found[0]


@pytest.mark.parametrize("case", EFFICIENT, ids=lambda c: c.name)
def test_an_efficient_kernel_gets_no_advice(worker: Worker, case: Waste) -> None:
    assert advise(_profiled(worker, case)) == ()


def _kernel(**counts: object) -> KernelProfile:
    work = KernelWork(launches=1, blocks=10_000, warps=80_000, issued=2_000_000, **counts)
    return KernelProfile(name="k", launches=1, work=work)


def test_lines_are_not_lost_where_two_sites_share_one() -> None:
    sites = [SiteCounts(kind="global_load", line=7, accesses=80_000, actual=2_560_000, ideal=320_000)] * 2
    found = wastes([_kernel(sites=tuple(sites))], (), "")
    assert found[0].kind == "global_load" and found[0].line == 7
    assert "32.0 sectors" in found[0].text


def test_a_full_warp_is_no_divergence() -> None:
    lines = (LineCounts(line=3, issued=2_000_000, threads=64_000_000),)
    assert wastes([_kernel(lines=lines)], (), "") == ()


@pytest.mark.parametrize(
    "text",
    [
        "m.scale[grid, block](x)",
        "scale<<<grid, block>>>(x);",
        "scale<float><<<1, 2>>>(x);",
        'm.get("scale<float>")[1, 2](x)',
    ],
)
def test_launches_are_found_in_each_spelling(text: str) -> None:
    assert launch_lines(f"\n{text}\nrescale<<<1, 2>>>(x);", "scale") == [2]


def test_counts_that_a_candidate_made_up_are_no_error() -> None:
    site = SiteCounts(kind="global_load", line=1, accesses=0, actual=10**7, ideal=1)
    work = KernelWork(launches=1, blocks=1, warps=0, issued=1, sites=(site,))
    assert wastes([KernelProfile(name="k", launches=1, work=work)], [], "")
