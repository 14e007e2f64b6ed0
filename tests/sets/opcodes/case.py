"""The conformance case and its PTX."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .values import operands, storage, width

THREADS = 128
VERSION = "8.6"
_HEAD = ".version {version}\n.target {target}\n.address_size 64\n"


@dataclass(frozen=True)
class Case:
    """One kernel: each thread loads its inputs `a0`, `a1`, ..., runs `body`, and stores `d0`, `d1`, ...

    `inputs` and `outputs` are kinds of operands (see `values.py`). An output kind with a leading `=` is stored by the
    body itself through the address `m0`, ..., that of this thread's element, and starts out as a copy of the input
    with the same number. `policy` says how far a result may be off (see `compare.py`); `module` stands before the
    kernel, `registers` inside it.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    policy: str = "exact"
    count: int = 512
    module: str = ""
    registers: str = ""
    target: str = "sm_90"
    family: str = ""

    @property
    def opcode(self) -> str:
        return self.name.split()[0]

    def operands(self) -> list[np.ndarray]:
        return operands(self.inputs, self.count)

    def memory(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs before the launch."""
        made = []
        for k, kind in enumerate(self.outputs):
            if kind.startswith("="):
                made.append(inputs[k].copy())
            else:
                made.append(np.full(self.count, (1 << width(kind)) - 1, storage(kind)))
        return made

    def digest(self, inputs: list[np.ndarray]) -> str:
        """Returns a hash of the kernel and its operands: a recording of other ones does not count."""
        made = hashlib.sha256(re.sub(r"^\.version.*", "", self.ptx()).encode())
        for column in inputs:
            made.update(column.tobytes())
        return made.hexdigest()[:12]

    def ptx(self, version: str = VERSION) -> str:
        """Returns the whole module; its kernel is `k`."""
        columns = len(self.inputs) + len(self.outputs)
        params = ", ".join(f".param .u64 p{k}" for k in range(columns))
        lines = [_HEAD.format(version=version, target=self.target), self.module, f".visible .entry k({params})", "{"]
        lines += [".reg .u32 idx, lane, nt;", ".reg .u64 off, adr;", ".reg .b16 flag;", self.registers]
        lines += ["mov.u32 idx, %ctaid.x;", "mov.u32 nt, %ntid.x;", "mov.u32 lane, %tid.x;"]
        lines += ["mad.lo.u32 idx, idx, nt, lane;", "and.b32 lane, lane, 31;"]
        for k, kind in enumerate(self.inputs):
            lines += _declare(f"a{k}", kind) + _address(f"p{k}", kind) + _load(f"a{k}", kind)
        for k, kind in enumerate(self.outputs):
            if kind.startswith("="):
                lines += [f".reg .u64 m{k};", *_address(f"p{len(self.inputs) + k}", kind[1:]), f"mov.u64 m{k}, adr;"]
            else:
                lines += _declare(f"d{k}", kind)
        lines.append(self.body)
        for k, kind in enumerate(self.outputs):
            if not kind.startswith("="):
                lines += _address(f"p{len(self.inputs) + k}", kind) + _store(f"d{k}", kind)
        return "\n".join([*[line for line in lines if line], "ret;", "}"]) + "\n"


def _declare(name: str, kind: str) -> list[str]:
    return [f".reg .{'pred' if kind == 'pred' else f'b{width(kind)}'} {name};"]


def _address(param: str, kind: str) -> list[str]:
    return [f"ld.param.u64 adr, [{param}];", f"mul.wide.u32 off, idx, {width(kind) // 8};", "add.u64 adr, adr, off;"]


def _load(name: str, kind: str) -> list[str]:
    if kind == "pred":
        return ["ld.global.u8 flag, [adr];", f"setp.ne.u16 {name}, flag, 0;"]
    return [f"ld.global.b{width(kind)} {name}, [adr];"]


def _store(name: str, kind: str) -> list[str]:
    if kind == "pred":
        return [f"selp.u16 flag, 1, 0, {name};", "st.global.u8 [adr], flag;"]
    return [f"st.global.b{width(kind)} [adr], {name};"]


_BRACES = re.compile(r"\{([^{}]*)\}")
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def expanded(pattern: str) -> Iterator[str]:
    """Expands `{add,sub}{,.ftz}.f32` to its four opcodes."""
    parts = _BRACES.split(pattern)
    choices = [part.split(",") if k % 2 else [part] for k, part in enumerate(parts)]
    for made in itertools.product(*choices):
        yield "".join(made)


def table(text: str, family: str) -> list[Case]:
    """Returns the cases of lines `pattern : inputs -> outputs [policy]`.

    In a signature `T` is the last type of the opcode, `S` the one before it, `W` the type twice as wide as T; a token
    with `#` is an immediate operand.
    """
    cases = []
    for line in text.strip().splitlines():
        if not line.strip() or line.lstrip().startswith("//"):
            continue
        pattern, signature = line.split(" : ")
        signature, _, policy = signature.partition("[")
        sources, results = signature.split("->")
        for opcode in expanded(pattern.strip()):
            kinds = opcode.split(".")
            names = {"T": kinds[-1], "S": kinds[-2], "W": _WIDE.get(kinds[-1], "")}
            tokens = [_kind(token, names) for token in sources.split()]
            inputs = tuple(t for t in tokens if not t.startswith("#"))
            outputs = tuple(_kind(token, names) for token in results.split())
            numbers = itertools.count()
            shown = [t[1:] if t.startswith("#") else f"a{next(numbers)}" for t in tokens]
            left = "|".join(f"d{k}" for k in range(len(outputs)))
            body = f"{opcode} {', '.join([left, *shown])};"
            label = opcode + "".join(f" {t[1:]}" for t in tokens if t.startswith("#"))
            cases.append(Case(label, inputs, outputs, body, policy.strip(" ]") or "exact", family=family))
    return cases


def _kind(token: str, names: dict[str, str]) -> str:
    base, colon, rest = token.partition(":")
    return names.get(base, base) + colon + rest
