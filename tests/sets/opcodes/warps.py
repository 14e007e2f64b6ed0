"""Cases of lane cooperation: shuffles, votes, matches, reductions, barriers."""

from __future__ import annotations

from .case import Case, expanded

HALVES = ".reg .b32 members;\n.reg .pred upper;\n"
"""The lower and the upper half of each warp run the instruction as two groups."""
SPLIT = "setp.ge.u32 upper, lane, 16;\nselp.b32 members, 0xffff0000, 0x0000ffff, upper;\n"


def shuffles() -> list[Case]:
    found = []
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        for clamp in ("0", "0x1f", "0x1c03", "0x181f"):
            body = f"{name} d0|d1, a0, a1, {clamp}, 0xffffffff;"
            found.append(Case(f"{name} {clamp}", ("b32", "b32:below64"), ("b32", "pred"), body, family="warp"))
        body = f"{name} d0|d1, a0, a1, a2, 0xffffffff;"
        kinds = ("b32", "b32:below40", "b32:clamp")
        found.append(Case(f"{name} any clamp", kinds, ("b32", "pred"), body, family="warp"))
        body = f"{name} d0, a0, 3, 0x1f, 0xffffffff;"
        found.append(Case(f"{name} by 3", ("b32",), ("b32",), body, family="warp"))
    return found


def votes() -> list[Case]:
    found = []
    for mode in ("all", "any", "uni"):
        for negated in ("", "!"):
            name = f"vote.sync.{mode}.pred"
            for members, registers in (("0xffffffff", ""), ("members", HALVES)):
                body = (SPLIT if registers else "") + f"{name} d0, {negated}flags, {members};"
                # Few lanes are false, so that each outcome comes up.
                start = "setp.ne.u32 flags, a0, 0;\n"
                registers_all = registers + ".reg .pred flags;"
                found.append(
                    Case(
                        f"{name} {negated}{members}",
                        ("b32:below40",),
                        ("pred",),
                        start + body,
                        family="warp",
                        registers=registers_all,
                    )
                )
    for members, registers in (("0xffffffff", ""), ("members", HALVES)):
        body = (SPLIT if registers else "") + f"vote.sync.ballot.b32 d0, a0, {members};"
        name = f"vote.sync.ballot.b32 {members}"
        found.append(Case(name, ("pred",), ("b32",), body, family="warp", registers=registers))
    return found


def matches() -> list[Case]:
    found = []
    for bits in ("b32", "b64"):
        for members, registers in (("0xffffffff", ""), ("members", HALVES)):
            start = SPLIT if registers else ""
            few, same = (f"{bits}:below5",), (f"{bits}:below1",)
            body = f"{start}match.any.sync.{bits} d0, a0, {members};"
            found.append(
                Case(f"match.any.sync.{bits} {members}", few, ("b32",), body, family="warp", registers=registers)
            )
            for label, kinds in (("equal", same), ("mixed", few)):
                body = f"{start}match.all.sync.{bits} d0|d1, a0, {members};"
                name = f"match.all.sync.{bits} {members} {label}"
                found.append(Case(name, kinds, ("b32", "pred"), body, family="warp", registers=registers))
    return found


def reductions() -> list[Case]:
    found = []
    for name in [*expanded("redux.sync.{add,min,max}.{u32,s32}"), *expanded("redux.sync.{and,or,xor}.b32")]:
        for members, registers in (("0xffffffff", ""), ("members", HALVES)):
            body = (SPLIT if registers else "") + f"{name} d0, a0, {members};"
            found.append(Case(f"{name} {members}", ("b32",), ("b32",), body, family="warp", registers=registers))
    for members, registers in (("0xffffffff", ""), ("members", HALVES)):
        body = (SPLIT if registers else "") + f"elect.sync d0|d1, {members};"
        found.append(Case(f"elect.sync {members}", ("b32",), ("b32", "pred"), body, family="warp", registers=registers))
    return found


def barriers() -> list[Case]:
    found = [
        Case("bar.red.popc.u32", ("pred",), ("u32",), "bar.red.popc.u32 d0, 0, a0;", family="warp"),
        Case("bar.red.popc.u32 !", ("pred",), ("u32",), "bar.red.popc.u32 d0, 1, !a0;", family="warp"),
    ]
    for mode in ("and", "or"):
        for body_kind in ("below2", "below1"):
            start = "setp.ne.u32 flags, a0, 0;\n"
            body = start + f"bar.red.{mode}.pred d0, 0, flags;"
            found.append(
                Case(
                    f"bar.red.{mode}.pred {body_kind}",
                    (f"b32:{body_kind}",),
                    ("pred",),
                    body,
                    family="warp",
                    registers=".reg .pred flags;",
                )
            )
    exchange = (
        "mov.u32 place, %tid.x;\nshl.b32 place, place, 2;\nmov.u32 base, buffer;\nadd.u32 at, base, place;\n"
        "st.shared.b32 [at], a0;\nSYNC\nxor.b32 place, place, 396;\nadd.u32 at, base, place;\nld.shared.b32 d0, [at];"
    )
    for sync in ("bar.sync 0;", "bar.sync 3, 128;", "barrier.sync 1;", "barrier.cta.sync.aligned 2;", "bar.cta.sync 0;",
                 "barrier.sync.aligned 5, 128;"):  # fmt: skip
        found.append(
            Case(
                sync.rstrip(";"),
                ("b32",),
                ("b32",),
                exchange.replace("SYNC", sync),
                family="warp",
                registers=".reg .u32 place, base, at;\n.shared .align 4 .b8 buffer[512];",
            )
        )
    body = exchange.replace("SYNC", "bar.warp.sync 0xffffffff;").replace("396", "124")
    found.append(
        Case(
            "bar.warp.sync",
            ("b32",),
            ("b32",),
            body,
            family="warp",
            registers=".reg .u32 place, base, at;\n.shared .align 4 .b8 buffer[512];",
        )
    )
    return found


def masks() -> list[Case]:
    """Returns cases of activemask in a branch that some lanes take, and of special registers."""
    body = (
        "setp.lt.u32 few, a0, 3;\nmov.b32 d0, 0;\n@!few bra DONE;\nactivemask.b32 d0;\nDONE:\nbar.warp.sync 0xffffffff;"
    )
    found = [Case("activemask.b32", ("b32:below4",), ("b32",), body, family="warp", registers=".reg .pred few;")]
    for name in ("tid.x", "ntid.x", "ctaid.x", "nctaid.x", "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt",
                 "lanemask_ge", "lanemask_gt", "tid.y", "ntid.z", "ctaid.z", "nctaid.y"):  # fmt: skip
        found.append(Case(f"mov.u32 %{name}", ("b32",), ("b32",), f"mov.u32 d0, %{name};", family="warp"))
    return found


def cases() -> list[Case]:
    return shuffles() + votes() + matches() + reductions() + barriers() + masks()
