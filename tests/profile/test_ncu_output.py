"""Parsing of ncu's output in the formats of its versions, and of each kind of failure."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.profile import ncu

OUTPUT = Path(__file__).with_name("ncu_output")


def _text(name: str) -> str:
    return (OUTPUT / f"{name}.txt").read_text()


def test_a_table_in_base_units() -> None:
    first, second, third = ncu.parse(_text("base_units"))
    assert first.name == "copy_kernel(const float *, float *, long)"
    assert (first.block, first.grid) == ((256, 1, 1), (131072, 1, 1))
    assert first.time_us == pytest.approx(67.232)
    assert first.metrics["dram_read"] == 134_253_568 and first.metrics["registers"] == 16
    assert second.metrics["load_bytes_per_sector"] == 4.25 and second.metrics["bank_conflicts"] == 12288
    assert "tensor_share" in second.metrics and "tensor_share" not in third.metrics  # n/a is no number


def test_scaled_units_and_lines_of_the_program() -> None:
    relu, scale = ncu.parse(_text("scaled_units"))
    assert relu.time_us == pytest.approx(1205.5) and relu.metrics["instructions"] == 1_048_576
    assert relu.metrics["dram_read"] == 2.5e6 and relu.metrics["dram_write"] == 512e3
    assert (scale.block, scale.grid) == ((32, 4, 1), (64, 2, 3))


def test_launches_of_one_kernel_become_one_record() -> None:
    longest, rows = ncu.merged(ncu.parse(_text("base_units")))
    assert longest.name.startswith("copy_kernel") and rows.launches == 2
    assert rows.time_us == pytest.approx(40.0) and rows.share == pytest.approx(40 / 107.232)
    assert rows.metrics["dram_read"] == 2 * 67_108_864  # sums are added
    assert rows.metrics["l2_hit"] == pytest.approx((12.5 * 30 + 16.5 * 10) / 40)  # shares are weighted by time
    assert rows.metrics["registers"] == 40


@pytest.mark.parametrize(
    "name, text",
    [
        (
            "no-permission",
            "==PROF== Connected to process 5 (/usr/bin/python3)\n==ERROR== ERR_NVGPUCTRPERM - The user does not have "
            "permission to access NVIDIA GPU Performance Counters on the target device 0. For instructions see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n==WARNING== No kernels were profiled.\n",
        ),
        ("no-kernels", "==PROF== Disconnected from process 7\n==WARNING== No kernels were profiled.\n"),
        ("no-driver", "==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n"),
        (
            "busy",
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
            "DCGM) is concurrently collecting profiling data.\n==WARNING== No kernels were profiled.\n",
        ),
        (
            "target-failed",
            "target-failed: RuntimeError: CUDA error: out of memory\n==PROF== Disconnected from process 9\n"
            "==ERROR== The application returned an error code (4).\n==WARNING== No kernels were profiled.\n",
        ),
        ("no-counters", "Segmentation fault\n"),
        ("no-counters", ""),
        ("no-kernels", _text("base_units").rsplit('"","",', 1)[0] + "==WARNING== No kernels were profiled.\n"),
    ],
)
def test_failures_have_names(name: str, text: str) -> None:
    with pytest.raises(ncu.NcuFailed) as raised:
        ncu.parse(text)
    assert raised.value.name == name
    assert str(raised.value).startswith(f"{name}: ")


def test_a_failed_target_is_quoted() -> None:
    error = ncu.failure(
        "target-failed: TaskError: no get_inputs\n==ERROR== The application returned an error code (4)."
    )
    assert str(error) == "target-failed: TaskError: no get_inputs"


@given(st.text(), st.integers(0, 3000))
def test_any_text_gives_records_or_a_name(text: str, cut: int) -> None:
    whole = _text("base_units")
    for damaged in (text, whole[:cut] + text + whole[cut:], whole[:cut], whole[cut:] + text):
        try:
            assert ncu.parse(damaged)
        except ncu.NcuFailed as error:
            assert error.name


def test_the_command_line() -> None:
    words = ncu.command("ncu", ["python", "x.py"], kernel="^relu", skip=2, count=3)
    assert words[-2:] == ["python", "x.py"]
    line = " ".join(words)
    for part in (
        *("--csv --page raw", "--print-units base", "--clock-control none", "--profile-from-start off"),
        *("--target-processes all", "--kernel-name regex:^relu", "--launch-skip 2", "--launch-count 3"),
    ):
        assert part in line
    assert 20 <= len(ncu.METRICS) <= 30
    assert all(m.counter in line and m.purpose for m in ncu.METRICS.values())


def _install(folder: Path, script: str) -> None:
    path = folder / "ncu"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def test_unknown_counters_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in ncu's place rejects one counter, as an older ncu does, until it is no longer requested."""
    _install(
        tmp_path,
        f"""echo run >> {tmp_path}/runs
case "$*" in
  *lts__throughput*) echo '==ERROR== Failed to find metric lts__throughput.avg.pct_of_peak_sustained_elapsed'; exit 1;;
esac
cat {OUTPUT}/base_units.txt
""",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert len(ncu.run(["true"], seconds=20)) == 3
    assert (tmp_path / "runs").read_text().split() == ["run", "run"]


def test_time_out_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, f"(sleep 3; touch {tmp_path}/survived) & sleep 30\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    started = time.monotonic()
    with pytest.raises(ncu.NcuFailed, match="time-out: "):
        ncu.run(["true"], seconds=0.5)
    assert time.monotonic() - started < 3
    time.sleep(max(0.0, started + 4 - time.monotonic()))
    assert not (tmp_path / "survived").exists()


def test_without_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(Path("/opt/nvidia/nsight-compute").glob("*/ncu")):
        pytest.skip("ncu is installed in its own folder")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(ncu.NcuFailed, match="no-ncu: "):
        ncu.run(["true"], seconds=1)
