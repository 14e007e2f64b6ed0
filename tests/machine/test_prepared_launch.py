"""What a launch from Python hands to the driver, against a driver in C that is compiled here."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright import cuda
from kernelwright.cuda import Parameter
from kernelwright.errors import DeviceError
from kernelwright.machine import driver

SOURCE = Path(__file__).with_name("launch_driver.c")
PARAMETERS = (Parameter(8, False), Parameter(4, False), Parameter(8, False), Parameter(4, True), Parameter(8, True))
STREAM = 77


class OnCard(torch.Tensor):
    """A tensor that says it is on a GPU."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("driver") / "libdriver.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE)], check=True, timeout=60)
    return ctypes.CDLL(str(made))


@pytest.fixture
def kernel(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> cuda.Kernel:
    monkeypatch.setattr(driver, "load", lambda: compiled)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM, raising=False)
    ctypes.c_int.in_dll(compiled, "wanted_parameters").value = len(PARAMETERS)
    return cuda.Kernel(cuda._entry_of(driver.DeviceProgram(b""), "scale", "scale", PARAMETERS))


def handed(compiled: ctypes.CDLL) -> tuple[list[int], list[bytes]]:
    sizes = (ctypes.c_uint * 7).in_dll(compiled, "last_sizes")
    places = (ctypes.c_ubyte * 64).in_dll(compiled, "last_parameters")
    return list(sizes), [bytes(places[8 * k : 8 * k + p.size]) for k, p in enumerate(PARAMETERS)]


def test_a_launch_hands_over_sizes_parameters_and_stream(kernel: cuda.Kernel, compiled: ctypes.CDLL) -> None:
    x = torch.zeros(4).as_subclass(OnCard)
    for rows in (3, 5):
        kernel[(rows, 2), 128, 64](x, -7, 2**40, 1.5, 2)
        sizes, parameters = handed(compiled)
        assert sizes == [rows, 2, 1, 128, 1, 1, 64]
        expected = [("<Q", x.data_ptr()), ("<i", -7), ("<q", 2**40), ("<f", 1.5), ("<d", 2.0)]
        assert parameters == [struct.pack(code, value) for code, value in expected]
        assert ctypes.c_void_p.in_dll(compiled, "last_stream").value == STREAM


def test_much_shared_memory_is_asked_for(kernel: cuda.Kernel, compiled: ctypes.CDLL) -> None:
    kernel[1, 32, 100_000](torch.zeros(1).as_subclass(OnCard), 1, 1, 1.0, 1.0)
    assert ctypes.c_uint.in_dll(compiled, "asked_shared").value == 100_000
    assert handed(compiled)[0][6] == 100_000


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, torch.zeros(1), ValueError),  # on the host
        (0, 1.5, TypeError),
        (0, "x", TypeError),
        (1, 2**40, OverflowError),
        (1, 1.0, TypeError),
        (1, torch.zeros(1).as_subclass(OnCard), TypeError),
        (3, torch.zeros(1).as_subclass(OnCard), TypeError),
    ],
)
def test_a_wrong_argument_is_told(
    kernel: cuda.Kernel, compiled: ctypes.CDLL, place: int, value: Any, error: type[Exception]
) -> None:
    arguments: list[Any] = [torch.zeros(1).as_subclass(OnCard), 1, 1, 1.0, 1.0]
    arguments[place] = value
    before = ctypes.c_uint.in_dll(compiled, "launches").value
    with pytest.raises(error, match=f"argument {place} of scale"):
        kernel[1, 32](*arguments)
    with pytest.raises(TypeError, match="takes 5 arguments"):
        kernel[1, 32](*arguments[:4])
    assert ctypes.c_uint.in_dll(compiled, "launches").value == before


@pytest.mark.parametrize(
    ("place", "value", "code", "packed"),
    [(0, None, "<Q", 0), (1, 2**32 - 1, "<I", 2**32 - 1), (1, True, "<i", 1), (3, 1e300, "<f", float("inf"))],
)
def test_values_convert_as_in_c(
    kernel: cuda.Kernel,
    compiled: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
    value: Any,
    code: str,
    packed: Any,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": STREAM}))
    arguments: list[Any] = [torch.zeros(1).as_subclass(OnCard), 1, 1, 1.0, 1.0]
    arguments[place] = value
    kernel[1, 32](*arguments)
    assert handed(compiled)[1][place] == struct.pack(code, packed)


def test_an_error_of_the_driver_is_raised(kernel: cuda.Kernel) -> None:
    with pytest.raises(DeviceError, match="refused"):
        kernel[1, 2048](torch.zeros(1).as_subclass(OnCard), 1, 1, 1.0, 1.0)
