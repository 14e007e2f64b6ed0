"""Cases of barriers in memory, bulk copies, matrix products of a warp group, clusters of one block and stack frames."""

from __future__ import annotations

from .case import Case, expanded

_ROOM = ".shared .align 128 .b8 room[2048];\n.shared .align 8 .b64 bar;\n.reg .u32 at, b, t, spins;\n.reg .b64 token;\n.reg .pred first, done;"
_START = (
    "mov.u32 t, %tid.x;\nmov.u32 b, bar;\nmov.u32 at, room;\nsetp.eq.u32 first, t, 0;\n"
    "@first mbarrier.init.shared.b64 [b], COUNT;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
)
_WAIT = (
    "mov.u32 spins, 0;\nWAIT:\nTEST;\nadd.u32 spins, spins, 1;\nsetp.gt.or.u32 done, spins, 1000000, done;\n"
    "@!done bra WAIT;\n"
)
"""Waits for a phase, but not for ever."""


def _shared_word(body: str) -> str:
    """Returns a case: each thread stores its operand in shared memory, `body` synchronises, it reads its mirror's."""
    return (
        "shl.b32 spins, t, 2;\nadd.u32 at, at, spins;\nst.shared.b32 [at], a0;\n" + body +
        "mov.u32 at, room;\nxor.b32 spins, t, 127;\nshl.b32 spins, spins, 2;\nadd.u32 at, at, spins;\nld.shared.b32 d0, [at];"
    )  # fmt: skip


def barriers() -> list[Case]:
    found = []
    arrivals = {
        "arrive": ("128", "mbarrier.arrive.shared.b64 token, [b];\n"),
        "arrive.release.cta": ("128", "mbarrier.arrive.release.cta.shared::cta.b64 token, [b];\n"),
        "arrive counted": ("256", "mbarrier.arrive.shared.b64 token, [b], 2;\n"),
        "arrive_drop": ("128", "mbarrier.arrive_drop.shared.b64 token, [b];\n"),
    }
    tests = {
        "test_wait": "mbarrier.test_wait.shared.b64 done, [b], token",
        "try_wait": "mbarrier.try_wait.shared.b64 done, [b], token",
        "test_wait.parity": "mbarrier.test_wait.parity.shared.b64 done, [b], 0",
        "try_wait.parity": "mbarrier.try_wait.parity.shared.b64 done, [b], 0",
        "try_wait.parity timed": "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [b], 0, 1000",
    }
    for first, (count, arrive) in arrivals.items():
        for second, test in tests.items():
            body = _START.replace("COUNT", count) + _shared_word(arrive + _WAIT.replace("TEST", test))
            found.append(Case(f"mbarrier.{first} {second}", ("b32",), ("b32",), body, family="async", registers=_ROOM))
    body = (
        _START.replace("COUNT", "1000")
        + "@first mbarrier.arrive.noComplete.shared.b64 token, [b], 77;\nmbarrier.pending_count.b64 d0, token;\n"
        + "selp.u32 d0, d0, 5, first;\nbar.sync 0;\n@first mbarrier.inval.shared.b64 [b];"
    )
    found.append(Case("mbarrier.pending_count", ("b32",), ("b32",), body, family="async", registers=_ROOM))
    return found


def copies() -> list[Case]:
    """Returns cases that bulk-copy a block's 128 words in and out, and add them to memory."""
    source = (
        "mov.u32 spins, %ctaid.x;\nmul.wide.u32 off, spins, 512;\nld.param.u64 adr, [PARAM];\nadd.u64 adr, adr, off;\n"
    )
    wait = _WAIT.replace("TEST", "mbarrier.try_wait.parity.shared::cta.b64 done, [b], 0")
    load = (
        _START.replace("COUNT", "1") + source.replace("PARAM", "p0")
        + "@first mbarrier.arrive.expect_tx.shared::cta.b64 token, [b], 512;\n"
        "@first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [adr], 512, [b];\n"
        + wait + "shl.b32 spins, t, 2;\nadd.u32 at, at, spins;\nld.shared.b32 d0, [at];"
    )  # fmt: skip
    found = [Case("cp.async.bulk.shared.global", ("b32",), ("b32",), load, family="async", registers=_ROOM)]
    store = (
        "mov.u32 t, %tid.x;\nmov.u32 at, room;\nsetp.eq.u32 first, t, 0;\nshl.b32 spins, t, 2;\nadd.u32 b, at, spins;\n"
        "st.shared.b32 [b], a1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
        + source.replace("PARAM", "p2")
        + "@first OPERATION [adr], [at], 512;\n@first cp.async.bulk.commit_group;\n@first cp.async.bulk.wait_group 0;"
    )
    names = ["cp.async.bulk.global.shared::cta.bulk_group"]
    names += expanded("cp.reduce.async.bulk.global.shared::cta.bulk_group.{add,min,max}.{u32,s32}")
    names += expanded("cp.reduce.async.bulk.global.shared::cta.bulk_group.{and,or,xor}.b32")
    for name in names:
        body = store.replace("OPERATION", name)
        found.append(Case(name, ("b32", "b32"), ("=b32",), body, family="async", registers=_ROOM))
    body = (
        _START.replace("COUNT", "128") + "shl.b32 spins, t, 2;\nadd.u32 at, at, spins;\nmul.wide.u32 off, idx, 4;\n"
        "ld.param.u64 adr, [p0];\nadd.u64 adr, adr, off;\ncp.async.ca.shared.global [at], [adr], 4;\n"
        "cp.async.mbarrier.arrive.noinc.shared.b64 [b];\n" + _WAIT.replace("TEST", "mbarrier.test_wait.parity.shared.b64 done, [b], 0")
        + "ld.shared.b32 d0, [at];"
    )  # fmt: skip
    found.append(Case("cp.async.mbarrier.arrive.noinc", ("b32",), ("b32",), body, family="async", registers=_ROOM))
    return found


def warp_groups() -> list[Case]:
    """Returns cases of wgmma on unswizzled shared tiles: consecutive 8 x 8 cores of 128 bytes."""
    found = []
    for n, form, kind in (
        (8, "f16", "f32"),
        (16, "f16", "f32"),
        (8, "bf16", "f32"),
        (8, "f16", "f16"),
        (24, "bf16", "f32"),
    ):
        sums = n // 2 if kind == "f32" else n // 4
        outs = "{" + ", ".join(f"d{k}" for k in range(sums)) + "}"
        # a: 64 x 16 as 8 x 2 cores, b: n x 16 likewise; neighbours along k are 128 bytes apart, along m and n 256.
        registers = ".shared .align 128 .b8 room[4096];\n.reg .u32 at, t;\n.reg .u64 da, db, low;\n.reg .pred small;"
        body = (
            "mov.u32 t, %tid.x;\nshl.b32 t, t, 4;\nmov.u32 at, room;\nadd.u32 at, at, t;\n"
            "st.shared.v2.b64 [at], {a0, a1};\nst.shared.v2.b64 [at+2048], {a2, a3};\n"
            + "".join(f"mov.b32 d{k}, 0;\n" for k in range(sums))
            + "fence.proxy.async.shared::cta;\nbar.sync 0;\nmov.u32 at, room;\nshr.u32 at, at, 4;\ncvt.u64.u32 da, at;\n"
            "mov.u64 low, 0x0000001000080000;\nor.b64 da, da, low;\nadd.u64 db, da, 128;\n"
            "wgmma.fence.sync.aligned;\n"
            f"wgmma.mma_async.sync.aligned.m64n{n}k16.{kind}.{form}.{form} {outs}, da, db, 1, 1, 1, 0, 0;\n"
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
        )
        name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.{kind}.{form}.{form}"
        inputs = (f"b64:whole-{form}",) * 4
        found.append(
            Case(name, inputs, ("b32",) * sums, body, family="async", count=128, registers=registers, target="sm_90a")
        )
    return found


def others() -> list[Case]:
    registers = ".shared .align 4 .b8 room[512];\n.reg .u32 at, near, t;\n.reg .u64 wide, top;"
    start = "mov.u32 t, %tid.x;\nshl.b32 t, t, 2;\nmov.u32 at, room;\nadd.u32 at, at, t;\n"
    mapped = (
        start + "st.shared.b32 [at], a0;\nmapa.shared::cluster.u32 near, at, 0;\nld.shared::cluster.b32 d0, [near];"
    )
    rank = start + "getctarank.shared::cluster.u32 d0, at;"
    stack = "stacksave.u64 top;\nalloca.u64 wide, 16;\nst.local.b32 [wide], a0;\nld.local.b32 d0, [wide];\nstackrestore.u64 top;"
    policy = (
        "createpolicy.fractional.L2::evict_last.b64 wide, 1.0;\nmul.wide.u32 top, idx, 4;\nld.param.u64 adr, [p0];\n"
        "add.u64 adr, adr, top;\nld.global.L2::cache_hint.b32 d0, [adr], wide;"
    )
    bodies = {
        "mapa.shared::cluster.u32": mapped,
        "getctarank.shared::cluster.u32": rank,
        "stacksave alloca stackrestore": stack,
        "createpolicy": policy,
        "barrier.cluster": "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\nmov.b32 d0, a0;",
        "ld.shared::cta": start + "st.shared::cta.b32 [at], a0;\nld.shared::cta.b32 d0, [at];",
        "cp.async.wait_all": "cp.async.wait_all;\nmov.b32 d0, a0;",
        "fence.proxy.alias": "fence.proxy.alias;\nmov.b32 d0, a0;",
        "ld.param::entry": "ld.param::entry.u64 wide, [p0];\nld.param.u64 top, [p0];\nsub.u64 wide, wide, top;\ncvt.u32.u64 d0, wide;",
    }
    found = [Case(name, ("b32",), ("b32",), body, family="async", registers=registers) for name, body in bodies.items()]
    found += [
        Case(f"mov.u32 %{name}", ("b32",), ("b32",), f"mov.u32 d0, %{name};", family="async")
        for name in ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "nclusterid.x")
    ]
    return found


def cases() -> list[Case]:
    return barriers() + copies() + others() + warp_groups()
