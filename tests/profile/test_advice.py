"""Each rule speaks where its number is bad, is silent where it is good, and the lines fit into a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.profile import advice
from kernelwright.profile.facts import KernelProfile, Occupancy, Profile, Resources, Roofline, TraceFacts


def _profile(*kernels: KernelProfile, **fields: Any) -> Profile:
    known: dict[str, Any] = {"task_id": "t", "task_hash": "h", "candidate_id": "c", "rung": "ncu"}
    return Profile(**{**known, "kernels": kernels, **fields})


def _kernel(name: str = "void ns::soft_max<float>(float*)", **fields: Any) -> KernelProfile:
    return KernelProfile(name=name, **fields)


def _resources(**fields: Any) -> Resources:
    return Resources(**{"kernel": "k", "arch": 90, "registers": 32, **fields})


def _fit(fraction: float, limiter: Any) -> Occupancy:
    return Occupancy(threads=256, blocks=1, warps=8, fraction=fraction, limiter=limiter)


def _line(bound: Any, time_ms: float, floor_ms: float, **fields: Any) -> Roofline:
    return Roofline(bound=bound, time_ms=time_ms, floor_ms=floor_ms, **fields)


def _trace(**fields: Any) -> TraceFacts:
    known: dict[str, Any] = {"calls": 10, "device_ms": 1.0, "span_ms": 1.0, "gap_ms": 0.0, "launches": 1}
    return TraceFacts(**{**known, **fields})


ABOUT_A_KERNEL = [
    ("use 4.2 of 32 bytes a sector", {"metrics": {"load_bytes_per_sector": 4.2}}, {"load_bytes_per_sector": 31.0}),
    ("stores use 8.0 of 32", {"metrics": {"store_bytes_per_sector": 8.0}}, {"store_bytes_per_sector": 30.0}),
    ("2.5 MB of local memory", {"metrics": {"local_bytes": 2.5e6}}, {"local_bytes": 0.0}),
    ("50 % of shared-memory passes", {"metrics": {"bank_conflicts": 50, "shared_wavefronts": 100}}, {}),
    ("9 of 32 threads are active", {"metrics": {"threads_per_instruction": 9.0}}, {"threads_per_instruction": 31.0}),
    ("the grid fills 25 %", {"metrics": {"waves": 0.25}}, {"waves": 4.0}),
    ("3.5 warps wait at __syncthreads", {"metrics": {"stall_barrier": 3.5}}, {"stall_barrier": 0.5}),
    ("12.0 warps wait for memory", {"metrics": {"stall_memory": 12.0}}, {"stall_memory": 12.0, "dram_share": 90.0}),
]


@pytest.mark.parametrize("said, bad, good", ABOUT_A_KERNEL)
def test_rules_on_counters(said: str, bad: dict[str, Any], good: dict[str, float]) -> None:
    (line,) = advice.advise(_profile(_kernel(**bad)))
    assert said in line and line.startswith("soft_max: ")
    assert advice.advise(_profile(_kernel(metrics=good))) == ()


ABOUT_CODE = [
    ("512 bytes of local memory a thread", {"resources": _resources(stack_bytes=512)}),
    ("3 double-precision instructions", {"resources": _resources(mix={"float64": 3})}),
    ("loads are 4 bytes wide", {"resources": _resources(load_bytes=4.0)}),
    (
        "25 % of warps fit: 168 registers",
        {"resources": _resources(registers=168), "occupancy": _fit(0.25, "registers")},
    ),
    ("shared memory is the limit", {"occupancy": _fit(0.125, "shared memory")}),
    ("use larger ones", {"occupancy": _fit(0.25, "blocks")}),
    ("more than the 1024", {"occupancy": _fit(0.0, "block size")}),
    ("blocks of 100 threads leave 28 lanes idle", {"block": (10, 10, 1)}),
    ("idle tensor cores", {"roofline": _line("compute", 1.0, 0.9, compute_share=0.9)}),
]


@pytest.mark.parametrize("said, bad", ABOUT_CODE)
def test_rules_on_code(said: str, bad: dict[str, Any]) -> None:
    (line,) = advice.advise(_profile(_kernel(**bad)))
    assert said in line


def test_good_code_needs_no_advice() -> None:
    good = _kernel(
        resources=_resources(load_bytes=16.0, mix={"float32": 9, "tensor": 4}),
        occupancy=_fit(0.75, "registers"),
        block=(256, 1, 1),
        roofline=_line("compute", 1.0, 0.8),
        metrics={"tensor_share": 80.0},
    )
    assert advice.advise(_profile(good)) == ()
    assert advice.advise(_profile()) == ()


ABOUT_THE_CALL = [
    ("only 2 % of device time is in your own kernels", {"trace": _trace(own_share=0.02)}),
    ("idles 60 % of a call between 17 launches", {"trace": _trace(gap_ms=0.6, launches=17, own_share=1.0)}),
    ("copies and fills take 40 %", {"trace": _trace(copy_ms=0.4, own_share=1.0)}),
    ("a call takes 5.0 µs", {"roofline": _line("launch", 0.005, 0.0001)}),
    ("at 93 % of what this card allows", {"roofline": _line("memory", 1.0, 0.93)}),
    ("no device code of your own", {"rung": "static"}),
]


@pytest.mark.parametrize("said, fields", ABOUT_THE_CALL)
def test_rules_on_the_call(said: str, fields: dict[str, Any]) -> None:
    (line,) = advice.advise(_profile(**fields))
    assert said in line


def test_counters_tell_whose_time_it_is() -> None:
    own, other = _kernel("token", share=0.1), _kernel("ampere_sgemm_128x64_tn", origin="cublas", share=0.9)
    (line,) = advice.advise(_profile(own, other))
    assert line.startswith("only 10 % of device time") and "ampere_sgemm_128x64_tn takes 90 %" in line


def test_more_bytes_than_needed() -> None:
    kernel = _kernel(metrics={"dram_read": 2e9, "dram_write": 1e9})
    lean, fat = (_profile(kernel, roofline=_line("memory", 2.0, 0.5, bytes=b)) for b in (2_900_000_000, 1_000_000_000))
    assert advice.advise(lean) == ()
    assert advice.advise(fat)[0].startswith("moves 3.0 times the bytes")


def test_the_largest_share_comes_first_and_lines_are_few_and_short() -> None:
    bad = {"load_bytes_per_sector": 4.0, "store_bytes_per_sector": 4.0, "waves": 0.1, "local_bytes": 1e6}
    small = _kernel("tiny", share=0.05, metrics=bad)
    large = _kernel("huge_" * 30, share=0.9, metrics=bad)
    other = _kernel("ampere_sgemm", origin="cublas", share=0.05, metrics=bad)
    lines = advice.advise(_profile(small, large, other))
    assert len(lines) == advice.LINES
    assert all(len(line) < advice.WIDTH for line in lines)
    assert all(line.startswith("huge_") for line in lines[:4]) and lines[4].startswith("tiny")


def test_a_prompt_says_what_the_numbers_rest_on() -> None:
    profile = _profile(rung="static", arch="sm_90a")
    assert advice.prompt_text(profile) == ""
    text = advice.prompt_text(profile.model_copy(update={"advice": advice.advise(profile)}))
    source = "machine code, and counts of the functional machine; nothing was timed"
    assert text.splitlines()[0] == f"Profile ({source}; sm_90a), most valuable first:"
    assert text.splitlines()[1].startswith("- there is no device code")
