"""Labels of device memory: exactly the bytes that a kernel stored are a kernel's, and moves carry labels along."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kernelwright.backends.device_addresses import LOW
from kernelwright.builds import BuildResult
from kernelwright.evaluation.program import memory, origins
from kernelwright.evaluation.program.executor import ProgramDevice
from kernelwright.evaluation.program.forms import Place
from kernelwright.evaluation.program.memory import BadAddress
from kernelwright.evaluation.program.stream import RecordStream
from kernelwright.machine.nvrtc import compile_ptx
from kernelwright.machine.runtime import BUDGET

COUNT = 256
SOURCE = r"""
__device__ float held[256];
extern "C" __global__ void every(float* y, int step, int n) { int i = threadIdx.x * step; if (i < n) y[i] = i; }
extern "C" __global__ void low_byte(char* y, int n) { int i = threadIdx.x; if (i < n) y[4 * i] = i; }
extern "C" __global__ void add(float* y, int n) { int i = threadIdx.x; if (i < n) atomicAdd(y + i, 1.f); }
extern "C" __global__ void vectors(float4* y, int n) {
    int i = threadIdx.x; if (i < n) y[2 * i] = make_float4(1, 2, 3, 4); }
"""
X, Y, Z = LOW, LOW + (1 << 16), LOW + (1 << 17)


def place(address: int, sizes: list[int] | None = None, strides: list[int] | None = None, offset: int = 0) -> Place:
    return [address, "float32", sizes or [COUNT], strides or [1], offset, 0]


class Candidate:
    """A device, and the records that a candidate writes to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.device = ProgramDevice()
        self.device.open({"memory_mb": 64, "rule": "from_scratch", "budget": BUDGET})
        self.device.stream, self.stream = RecordStream(ours), RecordStream(theirs)
        ptx = compile_ptx(SOURCE).ptx
        self.device.modules["m"] = self.program = self.device.runtime.program(BuildResult("ok", ptx=ptx))
        self.device.blocks.add_variables(self.program)

    def write(self, kind: str, *fields: object) -> None:
        self.stream.write(kind, *fields)
        self.stream.flush()
        self.device.drained()

    def operator(self, name: str, arguments: list[object], results: list[Place | None]) -> None:
        self.write("op", name, "", [arguments, {}], results)

    def launch(self, kernel: str, address: int, *numbers: int) -> None:
        packed = [address.to_bytes(8, "little").hex(), *(n.to_bytes(4, "little").hex() for n in numbers)]
        self.write("launch", "m", kernel, [1, 1, 1], [COUNT, 1, 1], 0, packed, True, False, None)

    def labels(self, where: Place) -> dict[str, int]:
        assert not self.device.error, self.device.error
        return origins.of(self.device.blocks, where)


@pytest.fixture
def candidate() -> Iterator[Candidate]:
    made = Candidate()
    for address in (X, Y, Z):
        made.write("alloc", address, 4 * COUNT)
    yield made
    made.device.forget()


@pytest.mark.parametrize(
    ("kernel", "numbers", "stored"),
    [("every", (1, 1), 1), ("every", (7, COUNT), 37), ("every", (1, COUNT), COUNT), ("vectors", (20,), 80)],
    ids=["one", "some", "all", "vectors"],
)
@pytest.mark.parametrize("before", ["constant", "moved"])
def test_a_launch_labels_the_bytes_that_it_stores(
    candidate: Candidate, kernel: str, numbers: tuple[int, ...], stored: int, before: str
) -> None:
    candidate.device.blocks.mark(place(Y), {"constant": memory.CONSTANT, "moved": memory.MOVED}[before])
    candidate.launch(kernel, Y, *numbers)
    assert candidate.labels(place(Y)) == {name: n for name, n in (("kernel", stored), (before, COUNT - stored)) if n}


def test_an_element_is_a_kernels_only_with_all_of_its_bytes(candidate: Candidate) -> None:
    candidate.device.blocks.mark(place(Y), memory.MOVED)
    candidate.launch("low_byte", Y, COUNT)
    assert candidate.labels(place(Y)) == {"moved": COUNT}


def test_an_atomic_labels_what_it_changes(candidate: Candidate) -> None:
    candidate.operator("zero_.default", [{"t": place(Y)}], [None])
    candidate.launch("add", Y, 10)
    assert candidate.labels(place(Y)) == {"kernel": 10, "constant": COUNT - 10}


def test_stores_of_two_launches_add_up(candidate: Candidate) -> None:
    candidate.launch("every", Y, 2, COUNT)
    assert candidate.labels(place(Y)) == {"kernel": COUNT // 2, "unwritten": COUNT // 2}
    candidate.launch("every", Y, 1, COUNT)
    assert candidate.labels(place(Y)) == {"kernel": COUNT}


def test_what_an_operator_writes_over_a_kernels_bytes_is_the_operators(candidate: Candidate) -> None:
    candidate.launch("every", Y, 1, COUNT)
    candidate.operator("zero_.default", [{"t": place(Y, [16], [2], 3)}], [None])
    assert candidate.labels(place(Y)) == {"kernel": COUNT - 16, "constant": 16}


@pytest.mark.parametrize("name", ["clone.default", "view_copy.default", "constant_pad_nd.default", "cat.default"])
def test_a_move_leaves_unwritten_elements_unwritten(candidate: Candidate, name: str) -> None:
    candidate.launch("every", X, 1, 100)
    given: object = {"t": place(X)}
    more: list[object] = {"view_copy.default": [[COUNT]], "constant_pad_nd.default": [[0, 0], 0.0]}.get(name, [])
    candidate.operator(name, [[given] if name == "cat.default" else given, *more], [place(Y)])
    assert candidate.labels(place(Y)) == {"carried": 100, "unwritten": COUNT - 100}


def test_padding_is_written(candidate: Candidate) -> None:
    candidate.launch("every", X, 1, COUNT)
    arguments: list[object] = [{"t": place(X, [COUNT - 6])}, [2, 4], 0.0]
    candidate.operator("constant_pad_nd.default", arguments, [place(Y)])
    assert candidate.labels(place(Y)) == {"carried": COUNT - 6, "constant": 6}


@pytest.mark.parametrize(
    ("name", "more"), [("copy_.default", []), ("index_put_.default", [[]])], ids=["copy_", "index_put_"]
)
def test_a_move_in_place_carries_labels(candidate: Candidate, name: str, more: list[object]) -> None:
    candidate.launch("every", X, 2, COUNT)
    candidate.operator("zero_.default", [{"t": place(Y)}], [None])
    if name == "index_put_.default":
        candidate.operator("arange.default", [16], [[Z, "int64", [16], [1], 0, 0]])
        more = [[{"t": [Z, "int64", [16], [1], 0, 0]}], {"t": place(X, [16])}]
        candidate.operator(name, [{"t": place(Y)}, *more], [None])
        assert candidate.labels(place(Y)) == {"carried": 8, "unwritten": 8, "constant": COUNT - 16}
    else:
        candidate.operator(name, [{"t": place(Y)}, {"t": place(X)}], [None])
        assert candidate.labels(place(Y)) == {"carried": COUNT // 2, "unwritten": COUNT // 2}


@pytest.mark.parametrize("index", ["device", "host"])
def test_a_value_of_the_host_is_put_beside_what_kernels_stored(candidate: Candidate, index: str) -> None:
    candidate.launch("every", X, 1, COUNT)
    numbers, count = [Z, "int64", [5], [1], 0, 0], (5).to_bytes(8, "little")
    candidate.operator("arange.default", [5], [numbers])
    given = {"t": numbers} if index == "device" else {"h": [1, "int64", [1]]}
    arguments = [{"t": place(X, [16, COUNT // 16], [16, 1])}, [given], {"h": [0, "float32", []]}]
    candidate.stream.write("op", "index_put_.default", "", [arguments, {}], [None], parts=[bytes(4), count])
    candidate.stream.flush()
    candidate.device.drained()
    put = 80 if index == "device" else 16
    assert candidate.labels(place(X)) == {"kernel": COUNT - put, "constant": put}


def test_an_expanded_view_takes_no_memory_for_its_labels(candidate: Candidate) -> None:
    candidate.launch("every", X, 1, COUNT - 1)
    numbers = [Z, "int64", [1], [1], 0, 0]
    candidate.operator("zeros.default", [[1]], [numbers])
    repeated = place(X, [1 << 40, COUNT - 1], [0, 1])
    candidate.operator(
        "index_select.default", [{"t": repeated}, 0, {"t": numbers}], [place(Y, [1, COUNT - 1], [COUNT, 1])]
    )
    assert candidate.labels(place(Y, [COUNT - 1])) == {"finished": COUNT - 1}


@pytest.mark.parametrize("joined", [False, True], ids=["zeroed", "joined"])
def test_a_constant_hides_no_kernels_work(candidate: Candidate, joined: bool) -> None:
    candidate.launch("every", X, 1, COUNT)
    if joined:
        candidate.operator("zeros.default", [[1]], [place(Z, [1])])
        candidate.operator("cat.default", [[{"t": place(X, [COUNT - 1])}, {"t": place(Z, [1])}]], [place(Y)])
    else:
        candidate.operator("clone.default", [{"t": place(X)}], [place(Y)])
        candidate.operator("zero_.default", [{"t": place(Y, [1])}], [None])
    candidate.operator("relu.default", [{"t": place(Y)}], [place(Z)])
    assert candidate.device.glue.refused == ["relu"]


def test_a_copy_of_bytes_carries_labels(candidate: Candidate) -> None:
    candidate.launch("every", X, 1, 100)
    candidate.write("copy", Y, X, 4 * COUNT)
    assert candidate.labels(place(Y)) == {"carried": 100, "unwritten": COUNT - 100}


def test_a_kernel_that_reads_a_moved_unwritten_byte_is_told(candidate: Candidate) -> None:
    candidate.operator("clone.default", [{"t": place(X)}], [place(Y)])
    candidate.launch("add", Y, 10)
    assert [f["rule"] for f in candidate.device.runtime.findings] == ["uninitialised-read"]


@pytest.mark.parametrize("first", [0, 100], ids=["constants", "stored"])
@pytest.mark.parametrize("kind", ["fetch", "item", "download"])
def test_the_host_has_read_what_lies_at_the_place(candidate: Candidate, kind: str, first: int) -> None:
    candidate.operator("zero_.default", [{"t": place(Y)}], [None])
    candidate.launch("every", Y + 400, 1, 20)
    fields: dict[str, tuple[object, ...]] = {
        "fetch": ("fetch", place(Y, [20], [1], first)),
        "item": ("value", "item", "", [[{"t": place(Y, [1], [1], first)}], {}]),
        "download": ("download", Y + 4 * first, 80),
    }
    candidate.write(*fields[kind])
    assert candidate.device.glue.work.reads and candidate.device.glue.work.served == (first == 100)


def test_a_variable_keeps_the_label_of_what_was_copied_into_it(candidate: Candidate) -> None:
    candidate.device.blocks.mark(place(X), memory.GIVEN)
    held = candidate.program.variables()["held"][0]
    candidate.write("copy", held, X, 4 * COUNT)
    candidate.write("copy", Y, held, 4 * COUNT)
    assert candidate.labels(place(Y)) == {"moved": COUNT}


def test_zeros_like_an_input_are_no_moved_input(candidate: Candidate) -> None:
    candidate.device.blocks.mark(place(X), memory.GIVEN)
    candidate.operator("zeros_like.default", [{"t": place(X)}], [place(Y)])
    assert candidate.labels(place(Y)) == {"constant": COUNT}


@pytest.mark.parametrize("where", [place(X, [COUNT + 1]), place(X, [4], [-1], 8), place(X, [4], [1], -1)])
def test_labels_outside_of_a_block_cannot_be_named(candidate: Candidate, where: Place) -> None:
    candidate.launch("every", X, 2, COUNT)
    with pytest.raises(BadAddress):
        candidate.device.blocks.labels(where)
    with pytest.raises(BadAddress):
        candidate.device.blocks.mark(where, memory.KERNEL)
