"""Cases of tensor-core instructions on small whole numbers, whose sums of products are exact in any order."""

from __future__ import annotations

from .case import Case

# shape, registers of a, b, c and d, operand formats of a and b, of c and d
_MMA = """
m8n8k4.row.col.f64.f64.f64.f64 1 1 2 b64:whole-f64 b64:whole-f64 b64:whole-f64
m16n8k4.row.col.f64.f64.f64.f64 2 1 4 b64:whole-f64 b64:whole-f64 b64:whole-f64
m16n8k8.row.col.f64.f64.f64.f64 4 2 4 b64:whole-f64 b64:whole-f64 b64:whole-f64
m16n8k16.row.col.f64.f64.f64.f64 8 4 4 b64:whole-f64 b64:whole-f64 b64:whole-f64
m16n8k4.row.col.f32.tf32.tf32.f32 2 1 4 b32:whole-tf32 b32:whole-tf32 b32:whole-f32
m16n8k8.row.col.f32.tf32.tf32.f32 4 2 4 b32:whole-tf32 b32:whole-tf32 b32:whole-f32
m16n8k8.row.col.f32.bf16.bf16.f32 2 1 4 b32:whole-bf16 b32:whole-bf16 b32:whole-f32
m16n8k16.row.col.f32.bf16.bf16.f32 4 2 4 b32:whole-bf16 b32:whole-bf16 b32:whole-f32
m16n8k8.row.col.f32.f16.f16.f32 2 1 4 b32:whole-f16 b32:whole-f16 b32:whole-f32
m16n8k16.row.col.f32.f16.f16.f32 4 2 4 b32:whole-f16 b32:whole-f16 b32:whole-f32
m16n8k8.row.col.f16.f16.f16.f16 2 1 2 b32:whole-f16 b32:whole-f16 b32:whole-f16
m16n8k16.row.col.f16.f16.f16.f16 4 2 2 b32:whole-f16 b32:whole-f16 b32:whole-f16
m16n8k32.row.col.f32.e4m3.e4m3.f32 4 2 4 b32:whole-e4m3 b32:whole-e4m3 b32:whole-f32
m16n8k32.row.col.f32.e5m2.e4m3.f32 4 2 4 b32:whole-e5m2 b32:whole-e4m3 b32:whole-f32
m16n8k32.row.col.f32.e5m2.e5m2.f32 4 2 4 b32:whole-e5m2 b32:whole-e5m2 b32:whole-f32
m8n8k16.row.col.s32.s8.s8.s32 1 1 2 b32 b32 b32
m8n8k16.row.col.satfinite.s32.u8.s8.s32 1 1 2 b32 b32 b32
m16n8k16.row.col.s32.s8.u8.s32 2 1 4 b32 b32 b32
m16n8k32.row.col.s32.s8.s8.s32 4 2 4 b32 b32 b32
m16n8k32.row.col.s32.u8.u8.s32 4 2 4 b32 b32 b32
m16n8k32.row.col.satfinite.s32.s8.u8.s32 4 2 4 b32 b32 b32
m8n8k32.row.col.s32.s4.s4.s32 1 1 2 b32 b32 b32
m8n8k32.row.col.satfinite.s32.u4.s4.s32 1 1 2 b32 b32 b32
m16n8k32.row.col.s32.u4.u4.s32 2 1 4 b32 b32 b32
m16n8k64.row.col.s32.s4.u4.s32 4 2 4 b32 b32 b32
m8n8k128.row.col.s32.b1.b1.s32.xor.popc 1 1 2 b32 b32 b32
m16n8k128.row.col.s32.b1.b1.s32.and.popc 2 1 4 b32 b32 b32
m16n8k256.row.col.s32.b1.b1.s32.xor.popc 4 2 4 b32 b32 b32
"""

_VOLTA = ("row.col", "row.row", "col.col", "col.row")


def _braced(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{first + k}" for k in range(count)) + "}"


def products() -> list[Case]:
    found = []
    lines = [line.split() for line in _MMA.strip().splitlines()]
    for sides in _VOLTA:
        lines.append([f"m8n8k4.{sides}.f32.f16.f16.f32", "2", "2", "8", *["b32:whole-f16"] * 2, "b32:whole-f32"])
        lines.append([f"m8n8k4.{sides}.f16.f16.f16.f16", "2", "2", "4", *["b32:whole-f16"] * 3])
    for shape, na, nb, nc, ka, kb, kc in lines:
        a, b, c = int(na), int(nb), int(nc)
        name = f"mma.sync.aligned.{shape}"
        body = f"{name} {_braced('d', 0, c)}, {_braced('a', 0, a)}, {_braced('a', a, b)}, {_braced('a', a + b, c)};"
        out = "b64" if kc.startswith("b64") else "b32"
        inputs = (ka,) * a + (kb,) * b + (kc,) * c
        found.append(Case(name, inputs, (out,) * c, body, family="tensor", count=128))
    return found


def rounding() -> list[Case]:
    """Returns cases of arbitrary numbers of moderate size: sums are rounded, in an undocumented order."""
    found = []
    for shape, a, b, kind in (("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, "f16"),
                              ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, "bf16"),
                              ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, "f32")):  # fmt: skip
        name = f"mma.sync.aligned.{shape}"
        start = ""
        packed = kind != "f32"
        for k in range(a + b):
            if packed:
                start += f"cvt.rn.{kind}x2.f32 r{k}, a{2 * k}, a{2 * k + 1};\n"
            else:
                start += f"cvt.rna.tf32.f32 r{k}, a{k};\n"
        n = (a + b) * (2 if packed else 1)
        body = f"{start}{name} {_braced('d', 0, 4)}, {_braced('r', 0, a)}, {_braced('r', a, b)}, {_braced('a', n, 4)};"
        registers = ".reg .b32 " + ", ".join(f"r{k}" for k in range(a + b)) + ";"
        inputs = ("f32:angle",) * (n + 4)
        found.append(
            Case(
                f"{name} rounded", inputs, ("f32",) * 4, body, "abs -8", family="tensor", count=128, registers=registers
            )
        )
    return found


def sparse() -> list[Case]:
    """Returns cases with two of four elements of each row of a present; the same two everywhere."""
    found = []
    for shape, a, b, c, ka, kc, selector in (
        ("m16n8k16.row.col.f32.f16.f16.f32", 2, 2, 4, "b32:whole-f16", "b32:whole-f32", 4),
        ("m16n8k32.row.col.f32.f16.f16.f32", 4, 4, 4, "b32:whole-f16", "b32:whole-f32", 2),
        ("m16n8k32.row.col.f32.bf16.bf16.f32", 4, 4, 4, "b32:whole-bf16", "b32:whole-f32", 2),
        ("m16n8k32.row.col.f16.f16.f16.f16", 4, 4, 2, "b32:whole-f16", "b32:whole-f16", 2),
        ("m16n8k64.row.col.s32.s8.s8.s32", 4, 4, 4, "b32", "b32", 1),
        ("m16n8k32.row.col.s32.u8.u8.s32", 2, 2, 4, "b32", "b32", 2),
    ):
        name = f"mma.sp::ordered_metadata.sync.aligned.{shape}"
        for meta in ("0x44444444", "0xee94c84e"):
            for which in range(selector):
                body = (
                    f"{name} {_braced('d', 0, c)}, {_braced('a', 0, a)}, {_braced('a', a, b)}, {_braced('a', a + b, c)}, "
                    f"meta, {which};"
                )
                inputs = (ka,) * (a + b) + (kc,) * c
                found.append(
                    Case(f"{name} {meta} {which}", inputs, ("b32",) * c, f"mov.b32 meta, {meta};\n{body}", family="tensor",
                         count=128, registers=".reg .b32 meta;")
                )  # fmt: skip
    return found


def matrices() -> list[Case]:
    """Returns cases of ldmatrix, stmatrix and movmatrix through shared memory."""
    found = []
    registers = ".shared .align 16 .b8 room[8192];\n.reg .u32 at, base, row;"
    start = (
        "mov.u32 base, room;\nmov.u32 at, %tid.x;\nshl.b32 at, at, 6;\nadd.u32 at, at, base;\n"
        "st.shared.b64 [at], a0;\nst.shared.b64 [at+8], a1;\nst.shared.b64 [at+16], a2;\nst.shared.b64 [at+24], a3;\n"
        "st.shared.b64 [at+32], a1;\nst.shared.b64 [at+40], a2;\nst.shared.b64 [at+48], a3;\nst.shared.b64 [at+56], a0;\n"
        "bar.sync 0;\nand.b32 row, a4, 3;\nshl.b32 row, row, 4;\nadd.u32 at, at, row;\n"
    )
    inputs = ("b64",) * 4 + ("b32",)
    for n in (1, 2, 4):
        for trans in ("", ".trans"):
            name = f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16"
            body = f"{start}{name} {_braced('d', 0, n)}, [at];"
            found.append(Case(name, inputs, ("b32",) * n, body, family="tensor", count=128, registers=registers))
            name = f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16"
            body = (
                f"mov.u32 base, room;\nmov.u32 row, %tid.x;\nshl.b32 at, row, 6;\nadd.u32 at, at, base;\n"
                f"st.shared.v2.b64 [at], {{-1, -1}};\nbar.sync 0;\n{name} [at], {_braced('a', 0, n)};\nbar.sync 0;\n"
                "ld.shared.v2.b64 {d0, d1}, [at];"
            )
            found.append(Case(name, ("b32",) * n, ("b64",) * 2, body, family="tensor", count=128, registers=registers))
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    found.append(Case(name, ("b32",), ("b32",), f"{name} d0, a0;", family="tensor", count=128))
    return found


_WMMA = (
    ("m16n16k16", "f16", "f32", 8, 8, 8, 512), ("m32n8k16", "f16", "f32", 8, 8, 8, 512),
    ("m8n32k16", "f16", "f32", 8, 8, 8, 512), ("m16n16k16", "f16", "f16", 8, 8, 4, 512),
    ("m16n16k16", "bf16", "f32", 4, 4, 8, 512), ("m16n16k8", "tf32", "f32", 4, 4, 8, 512),
    ("m16n16k16", "s8", "s32", 2, 2, 8, 512), ("m8n8k4", "f64", "f64", 1, 1, 2, 512),
)  # fmt: skip


def wmma() -> list[Case]:
    """Returns a product of two matrices from global memory; the accumulator returns to the inputs' third array."""
    found = []
    size = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "f64": 8, "f32": 4, "s32": 4}
    for shape, element, sum_type, na, nb, nc, _ in _WMMA:
        m, n, k = (int(v) for v in shape[1:].replace("n", " ").replace("k", " ").split())
        for sides in ("row.row", "row.col", "col.row", "col.col"):
            left, right = sides.split(".")
            if element == "f64" and sides != "row.col":
                continue
            lda, ldb = (k if left == "row" else m), (n if right == "row" else k)
            bits = {"f16": "b32", "bf16": "b32", "tf32": "b32", "s8": "b32", "f64": "b64"}[element]
            acc = "b64" if sum_type == "f64" else "b32"
            registers = (
                "\n".join(
                    f".reg .{kind} {letter}<{count}>;"
                    for letter, kind, count in (("fa", bits, na), ("fb", bits, nb), ("fc", acc, nc))
                )
                + "\n.reg .u64 ra, rb, rc;\n.reg .pred first;\n.reg .u32 t;"
            )
            groups = [_braced(x, 0, c) for x, c in (("fa", na), ("fb", nb), ("fc", nc))]
            kinds = f"{sum_type}.{sum_type}" if element == "f16" else f"{sum_type}.{element}.{element}.{sum_type}"
            mma = f"wmma.mma.sync.aligned.{sides}.{shape}.{kinds}"
            if element == "f64":
                mma = f"wmma.mma.sync.aligned.{sides}.{shape}.rn.f64.f64.f64.f64"
            body = (
                "mov.u32 t, idx;\nsetp.lt.u32 first, t, 32;\n@!first bra DONE;\n"
                "ld.param.u64 ra, [p0];\nld.param.u64 rb, [p1];\nld.param.u64 rc, [p3];\n"
                f"wmma.load.a.sync.aligned.{left}.{shape}.global.{element} {groups[0]}, [ra], {lda};\n"
                f"wmma.load.b.sync.aligned.{right}.{shape}.global.{element} {groups[1]}, [rb], {ldb};\n"
                f"wmma.load.c.sync.aligned.row.{shape}.global.{sum_type} {groups[2]}, [rc], {n};\n"
                f"{mma} {groups[2]}, {groups[0]}, {groups[1]}, {groups[2]};\n"
                f"wmma.store.d.sync.aligned.col.{shape}.global.{sum_type} [rc], {groups[2]}, {m};\nDONE:"
            )
            operand = "b32" if element == "s8" else f"b{64 if element == 'f64' else 32}:whole-{element}"
            total = "b32:whole-f16" if sum_type == "f16" else "b32" if sum_type == "s32" else f"{acc}:whole-{sum_type}"
            # The third array is the first output, which starts as a copy of the first input of its number.
            inputs = (total, operand, operand)
            text = body.replace("[p0]", "[p1]", 1).replace("rb, [p1]", "rb, [p2]")
            found.append(
                Case(
                    f"{mma} loads and stores",
                    inputs,
                    (f"={acc}",),
                    text,
                    family="tensor",
                    count=512,
                    registers=registers,
                )
            )
    del size
    return found


def cases() -> list[Case]:
    return products() + rounding() + sparse() + matrices() + wmma()
