"""Cases of integer, bitwise, comparison and floating-point arithmetic."""

from __future__ import annotations

from .case import Case, table

INTEGER = """
{add,sub}.{u16,s16,u32,s32,u64,s64} : T T -> T
{add,sub}.sat.s32 : T T -> T
add.{u16x2,s16x2} : T T -> T
mul.{lo,hi}.{u16,s16,u32,s32,u64,s64} : T T -> T
mul.wide.{u16,s16,u32,s32} : T T -> W
mad.{lo,hi}.{u16,s16,u32,s32,u64,s64} : T T T -> T
mad.hi.sat.s32 : T T T -> T
mad.wide.{u16,s16,u32,s32} : T T W -> W
mul24.{lo,hi}.{u32,s32} : T T -> T
mad24.{lo,hi}.{u32,s32} : T T T -> T
mad24.hi.sat.s32 : T T T -> T
sad.{u16,s16,u32,s32,u64,s64} : T T T -> T
{div,rem}.{u16,s16,u32,s32,u64,s64} : T T -> T [nonzero]
{abs,neg}.{s16,s32,s64} : T -> T
{min,max}.{u16,s16,u32,s32,u64,s64,u16x2,s16x2} : T T -> T
{min,max}.relu.{s16x2,s32} : T T -> T
{popc,clz}.{b32,b64} : T -> u32
brev.{b32,b64} : T -> T
bfind{,.shiftamt}.{u32,s32,u64,s64} : T -> u32
fns.b32 : b32 b32:below32 s32 -> b32 [reach]
bfe.{u32,s32,u64,s64} : T u32:shift u32:shift -> T
bfi.{b32,b64} : T T u32:shift u32:shift -> T
szext.{clamp,wrap}.{u32,s32} : T u32:shift -> T
bmsk.{clamp,wrap}.b32 : u32:shift u32:shift -> b32
dp4a.{u32,s32}.{u32,s32} : b32 b32 b32 -> b32
dp2a.{lo,hi}.{u32,s32}.{u32,s32} : b32 b32 b32 -> b32
"""

LOGIC = """
{and,or,xor}.{pred,b16,b32,b64} : T T -> T
not.{pred,b16,b32,b64} : T -> T
cnot.{b16,b32,b64} : T -> T
shl.{b16,b32,b64} : T u32:shift -> T
shr.{b16,b32,b64,u16,s16,u32,s32,u64,s64} : T u32:shift -> T
shf.{l,r}.{clamp,wrap}.b32 : T T u32:shift -> T
lop3.b32 : T T T #0x80 -> T
lop3.b32 : T T T #0x1b -> T
lop3.b32 : T T T #0x96 -> T
lop3.b32 : T T T #0xe8 -> T
lop3.b32 : T T T #0xca -> T
lop3.b32 : T T T #0xfe -> T
prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} : b32 b32 b32 -> b32
selp.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64} : T T pred -> T [bits]
slct.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}.s32 : S S T -> S [bits]
slct{,.ftz}.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}.f32 : S S T -> S [bits]
mov.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64,pred} : T -> T [bits]
"""

COMPARE = """
setp.{eq,ne}.{b16,b32,b64} : T T -> pred
setp.{eq,ne,lt,le,gt,ge}.{u16,s16,u32,s32,u64,s64} : T T -> pred
setp.{lo,ls,hi,hs}.{u16,u32,u64} : T T -> pred
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 : T T -> pred
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 : T T -> pred
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f16 : T T -> pred
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.bf16 : T T -> pred
setp.{eq,lt,ltu,nan}{,.ftz}.f16x2 : T T -> pred pred
setp.{eq,lt,ltu,nan}.bf16x2 : T T -> pred pred
setp.{lt,ge}.{and,or,xor}.{u32,s64,f32,f64} : T T pred -> pred pred
setp.gt.{and,or,xor}.ftz.f32 : T T pred -> pred pred
setp.{lt,ge}.{and,or,xor}.{f16,bf16} : T T pred -> pred
set.{eq,ne,lt,le,gt,ge}.{u32,s32,f32}.{u16,s16,u32,s32,u64,s64} : T T -> S
set.{eq,lt,geu,num,nan}{,.ftz}.{u32,s32,f32}.f32 : T T -> S
set.{eq,lt,geu,num,nan}.{u32,s32,f32}.f64 : T T -> S
set.{lt,ge}.{and,or,xor}.{u32,f32}.s32 : T T pred -> S
set.{eq,lt,geu,num,nan}{,.ftz}.{f16,u16,u32}.f16 : T T -> S
set.{eq,lt,geu,nan}.{bf16,u16,u32}.bf16 : T T -> S
set.{lt,geu}{,.ftz}.{f16x2,u32}.f16x2 : T T -> S
set.{lt,geu}.{bf16x2,u32}.bf16x2 : T T -> S
testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64} : T -> pred
"""

FLOAT = """
{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 : T T -> T
{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64 : T T -> T
{fma,mad}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32 : T T T -> T
{fma,mad}.{rn,rz,rm,rp}.f64 : T T T -> T
div.{rn,rz,rm,rp}{,.ftz}.f32 : T T -> T
div.{rn,rz,rm,rp}.f64 : T T -> T
div.approx{,.ftz}.f32 : T T -> T [divisor ulp 3]
div.full{,.ftz}.f32 : T T -> T [divisor ulp 3]
{abs,neg}{,.ftz}.f32 : T -> T
{abs,neg}.f64 : T -> T
copysign.{f32,f64} : T T -> T [bits]
{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32 : T T -> T
{min,max}.f64 : T T -> T
rcp.{rn,rz,rm,rp}{,.ftz}.f32 : T -> T
{rcp,sqrt}.{rn,rz,rm,rp}.f64 : T -> T
sqrt.{rn,rz,rm,rp}{,.ftz}.f32 : T -> T
rcp.approx{,.ftz}.f32 : T -> T [ulp 2]
sqrt.approx{,.ftz}.f32 : T -> T [ulp 3]
rsqrt.approx{,.ftz}.f32 : T -> T [ulp 3]
rcp.approx.ftz.f64 : T -> T [high word]
rsqrt.approx.ftz.f64 : T -> T [high word]
rsqrt.approx.f64 : T -> T [ulp 4]
{sin,cos}.approx{,.ftz}.f32 : f32:angle -> f32 [abs -20]
lg2.approx{,.ftz}.f32 : T -> T [log]
ex2.approx{,.ftz}.f32 : T -> T [ulp 4]
tanh.approx.f32 : T -> T [rel -10.9]
"""

HALF = """
{add,sub,mul}{,.rn}{,.ftz}{,.sat}.{f16,f16x2} : T T -> T
{add,sub,mul}{,.rn}.{bf16,bf16x2} : T T -> T
fma.rn{,.ftz}{,.sat}.{f16,f16x2} : T T T -> T
fma.rn{,.ftz}.relu.{f16,f16x2} : T T T -> T
fma.rn{,.relu}.{bf16,bf16x2} : T T T -> T
fma.rn.oob{,.relu}.{f16,f16x2,bf16,bf16x2} : T T T -> T
{abs,neg}{,.ftz}.{f16,f16x2} : T -> T
{abs,neg}.{bf16,bf16x2} : T -> T
{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f16,f16x2} : T T -> T
{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2} : T T -> T
tanh.approx.{f16,f16x2} : T -> T [abs -10.9]
tanh.approx.{bf16,bf16x2} : T -> T [abs -7.9]
ex2.approx.{f16,f16x2} : T -> T [ulp 2]
ex2.approx.ftz.{bf16,bf16x2} : T -> T [ulp 2]
"""

VIDEO = """
v{add,sub,absdiff,min,max}.{u32,s32}.{u32,s32}.{u32,s32}{,.sat} : b32 b32 -> b32
vset.{u32,s32}.{u32,s32}.{eq,ne,lt,le,gt,ge} : b32 b32 -> b32
{vshl,vshr}.{u32,s32}.u32.u32{,.sat}.{clamp,wrap} : b32 u32:shift -> b32
v{add,sub,avrg,absdiff,min,max}{2,4}.{u32,s32}.{u32,s32}.{u32,s32} : b32 b32 b32 -> b32
v{add,sub,absdiff}{2,4}.{u32,s32}.{u32,s32}.{u32,s32}.{sat,add} : b32 b32 b32 -> b32
vset{2,4}.{u32,s32}.{u32,s32}.{eq,ne,lt,le,gt,ge} : b32 b32 b32 -> b32
"""


def _chain(name: str, steps: str, inputs: int, outputs: int, kind: str) -> Case:
    return Case(f"{name}.{kind}", (kind,) * inputs, (kind,) * outputs, steps.replace("T", kind), family="integer")


def chains() -> list[Case]:
    """Returns cases of carries that run through three words, with and without writing the carry again."""
    cases = []
    for kind in ("u32", "s32", "u64", "s64"):
        for op, more in (("add", "addc"), ("sub", "subc")):
            steps = f"{op}.cc.T d0, a0, a3;\n{more}.cc.T d1, a1, a4;\n{more}.T d2, a2, a5;"
            cases.append(_chain(f"{more}.cc", steps, 6, 3, kind))
        for half in ("lo", "hi"):
            steps = f"mad.{half}.cc.T d0, a0, a1, a2;\nmadc.{half}.cc.T d1, a3, a4, a5;\nmadc.{half}.T d2, a1, a2, a3;"
            cases.append(_chain(f"madc.{half}.cc", steps, 6, 3, kind))
    return cases


def packs() -> list[Case]:
    """Returns cases of vectors that mov packs and unpacks."""
    cases = []
    for part, whole, n in (("b16", "b32", 2), ("b32", "b64", 2), ("b16", "b64", 4)):
        names = [f"x{k}" for k in range(n)]
        vector = "{" + ", ".join(f"a{k}" for k in range(n)) + "}"
        cases.append(Case(f"mov.{whole} pack{n}", (part,) * n, (whole,), f"mov.{whole} d0, {vector};", family="logic"))
        outputs = "{" + ", ".join(f"d{k}" for k in range(n)) + "}"
        cases.append(
            Case(f"mov.{whole} unpack{n}", (whole,), (part,) * n, f"mov.{whole} {outputs}, a0;", family="logic")
        )
        del names
    return cases


def selectors() -> list[Case]:
    """Returns cases of video instructions on bytes and halves of their operands, and with a third operand."""
    cases = []
    for kind in ("u32", "s32"):
        for first, second in (("b0", "b3"), ("h1", "b2"), ("b1", "h0")):
            for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
                name = f"{op}.s32.{kind}.{kind}"
                body = f"{name}.sat d0, a0.{first}, a1.{second};"
                cases.append(Case(f"{name}.sat {first} {second}", ("b32",) * 2, ("b32",), body, family="video"))
        for second_op in ("add", "min", "max"):
            for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
                name = f"{op}.{kind}.{kind}.{kind}.{second_op}"
                body = f"{name} d0, a0, a1, a2;"
                cases.append(Case(name, ("b32",) * 3, ("b32",), body, family="video"))
        for shift in ("", ".shr7", ".shr15"):
            for negate in ("", "a", "b", "c"):
                signs = [("-" if letter == negate else "") for letter in "abc"]
                body = f"vmad.{kind}.{kind}.{kind}{shift} d0, {signs[0]}a0.h0, {signs[1]}a1.b1, {signs[2]}a2;"
                name = f"vmad.{kind}.{kind}.{kind}{shift} {negate}".strip()
                cases.append(Case(name, ("b32",) * 3, ("b32",), body, family="video"))
    return cases


def combinations() -> list[Case]:
    """Returns cases of predicates with negated operands and of a lop3 that also gives a predicate."""
    cases = [
        Case(f"{op}.pred !", ("pred", "pred"), ("pred",), f"not.pred d0, a0;\n{op}.pred d0, d0, a1;", family="logic")
        for op in ("and", "or", "xor")
    ]
    for op in ("or", "and"):
        body = f"lop3.{op}.b32 d0|d1, a0, a1, a2, 0x6a, a3;"
        cases.append(Case(f"lop3.{op}.b32", ("b32", "b32", "b32", "pred"), ("b32", "pred"), body, family="logic"))
    cases.append(
        Case(
            "setp.lt.and.s32 !",
            ("s32", "s32", "pred"),
            ("pred", "pred"),
            "setp.lt.and.s32 d0|d1, a0, a1, !a2;",
            family="compare",
        )
    )
    return cases


def cases() -> list[Case]:
    texts = (
        ("integer", INTEGER),
        ("logic", LOGIC),
        ("compare", COMPARE),
        ("float", FLOAT),
        ("half", HALF),
        ("video", VIDEO),
    )
    found = [case for family, text in texts for case in table(text, family)]
    return found + chains() + packs() + selectors() + combinations()
