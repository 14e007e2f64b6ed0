"""Cases of loads and stores in every space, of atomics, and of control flow."""

from __future__ import annotations

from .case import Case, expanded

INTS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "b8", "b16", "b32", "b64")


def _bits(kind: str) -> int:
    return int(kind.strip("usbf"))


def loads() -> list[Case]:
    """Returns cases of each type into each register that holds it, from each space."""
    found = []
    for kind in (*INTS, "f32", "f64"):
        for register in (16, 32, 64):
            exact = kind[0] == "f"
            if register < _bits(kind) or (exact and register != _bits(kind)):
                continue
            found.append(
                Case(
                    f"ld.global.{kind} in b{register}",
                    ("b64",),
                    (f"b{register}",),
                    f"mul.wide.u32 off, idx, 8;\nld.param.u64 adr, [p0];\nadd.u64 adr, adr, off;\nld.global.{kind} d0, [adr];",
                    family="memory",
                )
            )
    spaces = {
        "shared": (".shared .align 16 .b8 room[2048];\n.reg .u32 at;",
                   "mov.u32 at, %tid.x;\nshl.b32 at, at, 4;\nmov.u32 idx2, room;\nadd.u32 at, at, idx2;"),
        "local": (".local .align 16 .b8 room[16];\n.reg .u64 at;", "mov.u64 at, room;"),
    }  # fmt: skip
    for space, (registers, start) in spaces.items():
        for kind in (*INTS, "f32", "f64"):
            register = max(16, _bits(kind))
            body = f"{start}\nst.{space}.b64 [at], a0;\nst.{space}.b64 [at+8], a0;\nld.{space}.{kind} d0, [at+4];"
            if _bits(kind) == 64:
                body = body.replace("[at+4]", "[at+8]")
            found.append(
                Case(
                    f"ld.{space}.{kind}",
                    ("b64",),
                    (f"b{register}",),
                    body,
                    family="memory",
                    registers=registers + "\n.reg .u32 idx2;",
                )
            )
        for kind in ("b8", "u16", "s32", "b64", "f32"):
            body = f"{start}\nst.{space}.b64 [at], a1;\nst.{space}.{kind} [at], a0;\nld.{space}.b64 d0, [at];"
            found.append(
                Case(
                    f"st.{space}.{kind}",
                    ("b64" if _bits(kind) == 64 else "b32", "b64"),
                    ("b64",),
                    body,
                    family="memory",
                    registers=registers + "\n.reg .u32 idx2;",
                )
            )
    return found


def vectors() -> list[Case]:
    found = []
    for count in (2, 4):
        for kind in ("u8", "s8", "u16", "s16", "b16", "u32", "f32", "b64"):
            if count * _bits(kind) > 128:
                continue
            width = max(16, _bits(kind))
            outs = "{" + ", ".join(f"d{k}" for k in range(count)) + "}"
            ins = "{" + ", ".join(f"a{k + 2}" for k in range(count)) + "}"
            registers = ".shared .align 16 .b8 room[2048];\n.reg .u32 at, base;"
            start = "mov.u32 at, %tid.x;\nshl.b32 at, at, 4;\nmov.u32 base, room;\nadd.u32 at, at, base;\n"
            body = start + f"st.shared.v2.b64 [at], {{a0, a1}};\nld.shared.v{count}.{kind} {outs}, [at];"
            outputs = (f"b{width}",) * count
            name = f"ld.shared.v{count}.{kind}"
            found.append(Case(name, ("b64", "b64"), outputs, body, family="memory", registers=registers))
            body = start + (f"st.shared.v2.b64 [at], {{a0, a1}};\nst.shared.v{count}.{kind} [at], {ins};\n"
                            "ld.shared.v2.b64 {d0, d1}, [at];")  # fmt: skip
            kinds = ("b64", "b64") + (f"b{width}",) * count
            name = f"st.shared.v{count}.{kind}"
            found.append(Case(name, kinds, ("b64", "b64"), body, family="memory", registers=registers))
    return found


def hints() -> list[Case]:
    """Returns cases of value-preserving cache and ordering hints, generic addresses, cp.async, constants."""
    found = []
    start = "mul.wide.u32 off, idx, 4;\nld.param.u64 adr, [p0];\nadd.u64 adr, adr, off;\n"
    loads = expanded("ld{,.ca,.cg,.cs,.lu,.cv,.volatile}.global.b32")
    more = ("ld.global.nc.b32", "ld.b32", "ld.relaxed.gpu.global.b32", "ld.acquire.sys.global.b32", "ld.weak.global.b32",
            "ldu.global.b32", "ld.global.L1::no_allocate.b32", "ld.global.L2::128B.b32")  # fmt: skip
    for name in (
        *(n.replace("ld.", "ld.global.").replace(".global.b32", ".b32", 1) if False else n for n in loads),
        *more,
    ):
        parts = name.split(".")
        if len(parts) == 4 and parts[1] in ("ca", "cg", "cs", "lu", "cv"):
            name = f"ld.global.{parts[1]}.b32"
        found.append(Case(name, ("b32",), ("b32",), f"{start}{name} d0, [adr];", family="memory"))
    stores = ("st.global.wb.b32", "st.global.cg.b32", "st.global.cs.b32", "st.global.wt.b32", "st.volatile.global.b32",
              "st.relaxed.gpu.global.b32", "st.release.sys.global.b32", "st.weak.global.b32", "st.b32")  # fmt: skip
    for name in stores:
        found.append(Case(name, ("b32",), ("=b32",), f"add.u32 a0, a0, 1;\n{name} [m0], a0;", family="memory"))
    for where in ("ca", "cg"):
        for size in (4, 8, 16) if where == "ca" else (16,):
            registers = ".shared .align 16 .b8 room[2048];\n.reg .u32 at, base;"
            body = (
                "mov.u32 at, %tid.x;\nshl.b32 at, at, 4;\nmov.u32 base, room;\nadd.u32 at, at, base;\n"
                "st.shared.v2.b64 [at], {-1, -1};\nand.b32 idx, idx, 0xfffffffe;\nmul.wide.u32 off, idx, 8;\n"
                "ld.param.u64 adr, [p0];\nadd.u64 adr, adr, off;\n"
                f"cp.async.{where}.shared.global [at], [adr], {size}SOURCE;\ncp.async.commit_group;\n"
                "cp.async.wait_group 0;\nld.shared.v2.b64 {d0, d1}, [at];\nmov.u32 idx, %ctaid.x;\n"
                "mov.u32 base, %tid.x;\nmad.lo.u32 idx, idx, nt, base;"
            )
            for label, part in (("", ""), (" partly", ", a1")):
                kinds = ("b64", f"b32:below{size + 1}")
                found.append(
                    Case(
                        f"cp.async.{where}.shared.global {size}{label}",
                        kinds,
                        ("b64", "b64"),
                        body.replace("SOURCE", part),
                        family="memory",
                        registers=registers,
                    )
                )
    tables = ".const .align 4 .b32 table[8] = {1, 2, 4, 8, 16, 0xffffffff, 7, 0x80000000};"
    body = "mul.wide.u32 off, a0, 4;\nmov.u64 adr, table;\nadd.u64 adr, adr, off;\nld.const.b32 d0, [adr];"
    found.append(Case("ld.const.b32", ("b32:below8",), ("b32",), body, family="memory", module=tables))
    return found


def spaces() -> list[Case]:
    """Returns cases of conversions between generic addresses and each space."""
    registers = ".shared .align 4 .b8 room[512];\n.local .align 4 .b8 own[4];\n.reg .u64 at;\n.reg .u32 near, t;"
    start = {
        "shared": "mov.u32 t, %tid.x;\nmul.wide.u32 off, t, 4;\nmov.u64 at, room;\nadd.u64 at, at, off;\n",
        "local": "mov.u64 at, own;\n",
        "global": "ld.param.u64 at, [p1];\nmul.wide.u32 off, idx, 4;\nadd.u64 at, at, off;\n",
    }
    found = []
    for space, body in start.items():
        to_generic = f"{body}cvta.{space}.u64 at, at;\n" if space != "global" else body
        round_trip = f"{to_generic}st.b32 [at], a0;\ncvta.to.{space}.u64 at, at;\nld.{space}.b32 d0, [at];"
        found.append(Case(f"cvta.to.{space}.u64", ("b32",), ("b32",), round_trip, family="memory", registers=registers))
        for asked in ("shared", "local", "global"):
            body_asked = f"{to_generic}isspacep.{asked} d0, at;"
            name = f"isspacep.{asked} of {space}"
            outputs = ("pred",)
            found.append(Case(name, ("b32",), outputs, body_asked, family="memory", registers=registers, count=128))
    return found


_ATOMS = (
    "{and,or,xor}.{b32,b64}", "exch.{b32,b64}", "cas.{b16,b32,b64}", "add.{u32,s32,u64,f32,f64,f16,f16x2,bf16,bf16x2}",
    "{min,max}.{u32,s32,u64,s64}", "{inc,dec}.u32",
)  # fmt: skip


def atomics() -> list[Case]:
    """Returns cases of each operation on a separate cell, whose old values are compared, then of many on one cell."""
    found = []
    for pattern in _ATOMS:
        for suffix in expanded(pattern):
            op, kind = suffix.split(".")
            full = f"{op}.noftz.{kind}" if op == "add" and "f16" in kind else suffix
            kinds = (kind,) * (3 if op == "cas" else 2)
            last = ", a2" if op == "cas" else ""
            start = "xor.b32 few, idx, 1;\nand.b32 few, few, 1;\n"
            del start
            # For cas, half of the comparisons succeed.
            same = f"and.b32 few, idx, 1;\nsetp.eq.u32 hit, few, 0;\n@hit mov.b{_size(kind)} a1, a0;\n" if last else ""
            registers = ".reg .u32 few;\n.reg .pred hit;"
            name = f"atom.global.{full}"
            outputs = (f"={kind}", kind)
            policy = "exact"
            body = f"{same}{name} d1, [m0], a1{last};"
            found.append(Case(name, kinds, outputs, body, policy, family="atomic", registers=registers))
            body = f"{same}atom.{full} d1, [m0], a1{last};"
            found.append(Case(f"atom.{full}", kinds, outputs, body, policy, family="atomic", registers=registers))
            if op not in ("exch", "cas"):
                body = f"red.global.{full} [m0], a1;"
                found.append(Case(f"red.global.{full}", kinds, (f"={kind}",), body, policy, family="atomic"))
            found.append(_in_shared(full, kind, kinds, last, same, registers))
    return found + contended()


def _size(kind: str) -> int:
    return {"f16x2": 32, "bf16x2": 32, "bf16": 16}.get(kind) or int(kind.strip("usbf"))


def _in_shared(full: str, kind: str, kinds: tuple[str, ...], last: str, same: str, registers: str) -> Case:
    size = _size(kind)
    registers += "\n.shared .align 8 .b8 room[1024];\n.reg .u32 at, base;"
    body = (
        f"{same}mov.u32 at, %tid.x;\nshl.b32 at, at, 3;\nmov.u32 base, room;\nadd.u32 at, at, base;\n"
        f"st.shared.b{size} [at], a0;\natom.shared.{full} d1, [at], a1{last};\nld.shared.b{size} d0, [at];"
    )
    return Case(f"atom.shared.{full}", kinds, (kind, kind), body, family="atomic", registers=registers)


def contended() -> list[Case]:
    """Returns cases in which all threads of a block use one cell; only the final memory is compared."""
    found = []
    for suffix in expanded("{add,min,max}.{u32,s32,u64}"):
        found.append(_one_cell(suffix))
    for suffix in (*expanded("{and,or,xor}.{b32,b64}"), *expanded("{inc,dec}.u32"), *expanded("{min,max}.s64")):
        found.append(_one_cell(suffix))
    return found


def _one_cell(suffix: str) -> Case:
    kind = suffix.split(".")[1]
    size = _size(kind)
    value = "mov.u32 few, 1000;\n" if suffix in ("inc.u32", "dec.u32") else ""
    operand = "few" if value else "a1"
    body = (
        f"{value}mov.u32 few2, %ctaid.x;\nmul.lo.u32 few2, few2, {128 * size // 8};\ncvt.u64.u32 off, few2;\n"
        f"ld.param.u64 adr, [p2];\nadd.u64 adr, adr, off;\nred.global.{suffix} [adr], {operand};"
    )
    registers = ".reg .u32 few, few2;"
    return Case(
        f"red.global.{suffix} contended", (kind, kind), (f"={kind}",), body, family="atomic", registers=registers
    )


def control() -> list[Case]:
    """Returns cases of branches, calls, returns, exits and branch tables."""
    registers = ".reg .pred odd;\n.reg .u32 k;"
    loop = "mov.b32 d0, 0;\nmov.b32 k, a0;\nMORE:\nsetp.eq.u32 odd, k, 0;\n@odd bra DONE;\nadd.u32 d0, d0, k;\nsub.u32 k, k, 1;\nbra MORE;\nDONE:"
    callee = (
        ".func (.param .b32 r) twice(.param .b32 x)\n{\n.reg .b32 v;\nld.param.b32 v, [x];\nadd.u32 v, v, v;\n"
        "st.param.b32 [r], v;\nret;\n}\n"
    )
    call = (
        "{\n.param .b32 x;\n.param .b32 r;\nst.param.b32 [x], a0;\ncall.uni (r), twice, (x);\nld.param.b32 d0, [r];\n}"
    )
    table = "ts: .branchtargets L0, L1, L2;\nmov.b32 d0, 99;\nbrx.idx a0, ts;\nL0:\nmov.b32 d0, 10;\nbra DONE;\nL1:\nmov.b32 d0, 11;\nbra DONE;\nL2:\nmov.b32 d0, 12;\nDONE:"
    leave = "and.b32 k, a0, 1;\nsetp.eq.u32 odd, k, 1;\n@odd OP;\nadd.u32 a0, a0, 5;\nst.global.b32 [m0], a0;"
    recursion = (
        ".func (.param .b32 r) total(.param .b32 x)\n{\n.reg .b32 v, w;\n.reg .pred p;\nld.param.b32 v, [x];\n"
        "setp.eq.u32 p, v, 0;\n@p bra END;\nsub.u32 w, v, 1;\n{\n.param .b32 x2;\n.param .b32 r2;\nst.param.b32 [x2], w;\n"
        "call (r2), total, (x2);\nld.param.b32 w, [r2];\n}\nadd.u32 v, v, w;\nEND:\nst.param.b32 [r], v;\nret;\n}\n"
    )
    found = [
        Case("bra loop", ("b32:below40",), ("b32",), loop, family="control", registers=registers),
        Case("bra.uni", ("b32",), ("b32",), "bra.uni ON;\nadd.u32 a0, a0, 1;\nON:\nmov.b32 d0, a0;", family="control"),
        Case("brx.idx", ("b32:below3",), ("b32",), table, family="control"),
        Case("call.uni", ("b32",), ("b32",), call, family="control", module=callee),
        Case(
            "call recursion",
            ("b32:below9",),
            ("b32",),
            call.replace("twice", "total"),
            family="control",
            module=recursion,
        ),
        Case("ret", ("b32",), ("=b32",), leave.replace("OP", "ret"), family="control", registers=registers),
        Case("exit", ("b32",), ("=b32",), leave.replace("OP", "exit"), family="control", registers=registers),
    ]
    for name in ("nanosleep.u32 20", "membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.cta", "fence.acq_rel.gpu",
                 "fence.sc.sys", "fence.sc.cluster", "pmevent 3", "griddepcontrol.wait",
                 "griddepcontrol.launch_dependents", "fence.proxy.async"):  # fmt: skip
        found.append(Case(name, ("b32",), ("b32",), f"{name};\nadd.u32 d0, a0, 1;", family="control"))
    start = "ld.param.u64 adr, [p0];\n"
    for name in ("prefetch.global.L1", "prefetch.global.L2", "prefetch.L1", "prefetchu.L1", "prefetch.global.L2::evict_last",
                 "prefetch.global.L2::evict_normal", "discard.global.L2", "applypriority.global.L2::evict_normal"):  # fmt: skip
        if name[0] == "p":
            found.append(Case(name, ("b32",), ("b32",), f"{start}{name} [adr];\nadd.u32 d0, a0, 1;", family="control"))
    return found


def cases() -> list[Case]:
    return loads() + vectors() + hints() + spaces() + atomics() + control()
