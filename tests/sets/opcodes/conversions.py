"""Cases of cvt: every pair of types, with every rounding, .ftz, .sat, .relu and .satfinite."""

from __future__ import annotations

from .case import Case, table

TABLE = """
cvt{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64} : T -> S
cvt.{rn,rz,rm,rp}.{f16,f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64} : T -> S
cvt.{rn,rz,rm,rp}.bf16.{u16,s16,u32,s32,u64,s64} : T -> S
cvt.rn.sat.{f16,f32,f64}.{s32,u64} : T -> S
cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u8,s8,u16,s16,u32,s32,u64,s64}.f32 : T -> S
cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f16,f64} : T -> S
cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.bf16 : T -> S
cvt.rni.sat.{u8,s8,u32,s64}.{f16,f64} : T -> S
cvt.rzi{,.ftz}.sat.{u8,s8,u16,s32}.f32 : T -> S
cvt{,.ftz}{,.sat}.f32.f16 : T -> S
cvt.f32.bf16 : T -> S
cvt{,.sat}.f64.{f16,f32} : T -> S
cvt.ftz{,.sat}.f64.f32 : T -> S
cvt.f64.bf16 : T -> S
cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.{f16,f32}.{f32,f64} : T -> S [cvt]
cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32 : T -> S
cvt.{rni,rzi,rmi,rpi}{,.sat}.f64.f64 : T -> S
cvt.{rni,rzi,rmi,rpi}{,.sat}.f16.f16 : T -> S
cvt.{rni,rzi,rmi,rpi}.bf16.bf16 : T -> S
cvt{,.ftz}{,.sat}.f32.f32 : T -> S
cvt{,.sat}.f64.f64 : T -> S
cvt{,.sat}.f16.f16 : T -> S
cvt.{rn,rz}.relu.f16.f32 : T -> S
cvt.{rn,rz}{,.relu}{,.satfinite}.bf16.f32 : T -> S
cvt.{rm,rp}.bf16.{f32,f64} : T -> S
cvt.{rn,rz}.bf16.{f16,f64} : T -> S
cvt.{rn,rz}.f16.bf16 : T -> S
cvt.{rn,rz}{,.relu}{,.satfinite}.{f16x2,bf16x2}.f32 : T T -> S
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 : T T -> b16
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2 : T -> b16
cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2} : b16 -> S
cvt.rna{,.satfinite}.tf32.f32 : T -> b32
cvt.{rn,rz}{,.relu}.tf32.f32 : T -> b32
cvt.pack.sat.{u16,s16}.s32 : T T -> b32
cvt.pack.sat.{u8,s8}.s32.b32 : s32 s32 b32 -> b32
"""


def cases() -> list[Case]:
    return [case for case in table(TABLE, "convert") if _legal(case.name)]


def _range(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def _legal(name: str) -> bool:
    """Tells whether PTX allows .sat (if it can change a value) and a rounding (between types of other precision)."""
    parts = name.split()[0].split(".")
    to, source = parts[-2:]
    if {to[0], source[0]} <= {"u", "s"} and "sat" in parts:
        low, high = _range(to)
        return _range(source)[0] < low or _range(source)[1] > high
    if {"rn", "rz", "rm", "rp"} & set(parts) and source in ("f32", "f64") and to in ("f16", "f32"):
        narrows = to == "f16" or source == "f64"
        return narrows and not ("ftz" in parts and source == "f64" and to == "f16")
    return True
