"""Matrix products: every layout, rank and structure, by operator, function and method."""

from __future__ import annotations

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, DraftTensor, Extent
from kernelwright.generate.registry import Family, rows


def product(
    t: Draft, a: DraftTensor, b: DraftTensor, *, a_t: bool = False, b_t: bool = False, batched: bool = False
) -> DraftTensor:
    """Drafts a @ b in one of its spellings; either factor may be transposed in its last two dimensions."""
    left, right = transposed(t, a, a_t), transposed(t, b, b_t)
    shape = (*_outer(left, right), left.shape[-2], right.shape[-1])
    forms = [f"torch.matmul({left}, {right})", f"{left.atom} @ {right.atom}", f"{left.atom}.matmul({right})"]
    if left.rank == right.rank == 2:
        forms += [f"torch.mm({left}, {right})", f"{left.atom}.mm({right})"]
    if left.rank == right.rank == 3 and left.shape[0] == right.shape[0]:
        forms += [f"torch.bmm({left}, {right})"] * 2 + [f"{left.atom}.bmm({right})"]
    t.mark("bmm" if batched else "matmul", a_t=int(a_t) or None, b_t=int(b_t) or None, ranks=f"{left.rank}{right.rank}")
    flops = 2.0 * left.shape[-1]
    for extent in shape:
        flops *= extent
    return t.step(t.pick(forms[0], *forms), shape, "linear", flops=flops)


def _outer(a: DraftTensor, b: DraftTensor) -> tuple[int, ...]:
    long, short = (a.shape, b.shape) if a.rank >= b.rank else (b.shape, a.shape)
    lead = list(long[:-2])
    for i, extent in enumerate(reversed(short[:-2])):
        lead[-1 - i] = max(lead[-1 - i], extent)
    return tuple(lead)


def transposed(t: Draft, a: DraftTensor, wanted: bool) -> DraftTensor:
    """Drafts a tensor with its last two dimensions exchanged, as text; nothing is computed."""
    if not wanted:
        return a
    forms = [f"{a.atom}.transpose(-2, -1)", f"{a.atom}.transpose(-1, -2)", f"{a.atom}.mT"]
    if a.rank == 2:
        forms = [
            f"{a.atom}.T",
            f"{a.atom}.T",
            f"{a.atom}.t()",
            f"{a.atom}.transpose(0, 1)",
            f"torch.transpose({a}, 0, 1)",
        ]
    if a.rank == 3:
        forms += [f"{a.atom}.transpose(1, 2)", f"{a.atom}.permute(0, 2, 1)"]
    return DraftTensor(t.pick(*forms), (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)


def uniform(t: Draft, low: float, high: float) -> tuple[float, float, float]:
    """Returns three wishes for extents."""
    m, n, k = (sizes.log_uniform(t.random, low, high) for _ in range(3))
    return m, n, k


def extents(t: Draft, m: float, n: float, k: float, batch: float = 1.0) -> list[int]:
    """Returns three extents near the wishes, halved until tensors and FLOPs are affordable."""
    found = [sizes.around(t.random, e, 1) for e in (m, n, k)]
    while 2.0 * batch * found[0] * found[1] * found[2] > sizes.LARGEST_FLOPS:
        found[found.index(max(found))] //= 2
    while batch * max(found[0] * found[1], found[0] * found[2], found[1] * found[2]) > sizes.LARGEST_TENSOR:
        found[found.index(max(found))] //= 2
    return [max(1, e) for e in found]


_SHAPES = {
    "matmul_square": (512, 512, 512, 4096),
    "matmul_rectangular": (256, 256, 256, 8192),
    "matmul_large_k": (64, 64, 16384, 524288),
    "matmul_small_k": (4096, 4096, 8, 64),
    "matmul_tall_skinny": (8192, 16, 16, 64),
    "matmul_irregular": (1000, 1000, 1000, 5000),
}


def _plain(name: str) -> Family:
    def make(t: Draft) -> None:
        m, n, k = _wishes(t, name)
        square = name == "matmul_square"
        t.dtype = t.pick(*["float32"] * 12, "float16", "bfloat16")
        if square:
            side = t.dim("square", m)
            rows_, cols, inner = side, side, side
        else:
            rows_, cols, inner = (t.dim(role, e) for role, e in (("M", m), ("N", n), ("K", k)))
        a_t, b_t = (t.chance(0.15), t.chance(0.15)) if name != "matmul_rectangular" else (False, False)
        t.finish(_two(t, rows_, cols, inner, a_t, b_t))
        t.say(t.pick("a matrix product", "a matrix multiplication", "the product of two matrices", "C = A @ B", "GEMM"))

    return Family(name, "matmul", 1.0, make)


def _wishes(t: Draft, name: str) -> list[int]:
    random = t.random
    if name == "matmul_square":
        return [sizes.around(random, sizes.log_uniform(random, 256, 6000), 8)] * 3
    if name == "matmul_large_k":
        m, n = (sizes.log_uniform(random, 16, 512) for _ in range(2))
        return extents(t, m, n, sizes.log_uniform(random, 16384, 600000))
    if name == "matmul_small_k":
        m, n = (sizes.log_uniform(random, 1024, 16384) for _ in range(2))
        return extents(t, m, n, sizes.log_uniform(random, 4, 64))
    if name == "matmul_tall_skinny":
        long, short, inner = uniform(t, 8192, 200000)[0], uniform(t, 8, 64)[0], float(random.choice((16, 32, 64)))
        return extents(t, *random.choice(((long, short, inner), (short, long, inner), (long, long / 8, short))))
    found = extents(t, *uniform(t, 128, 8192))
    return (
        [e + random.choice((-3, 1, 5, 11)) for e in found] if name == "matmul_irregular" and min(found) > 8 else found
    )


def _two(t: Draft, m: Extent, n: Extent, k: Extent, a_t: bool = False, b_t: bool = False) -> DraftTensor:
    a = t.input("A", (k, m) if a_t else (m, k))
    b = t.input("B", (n, k) if b_t else (k, n))
    return product(t, a, b, a_t=a_t, b_t=b_t)


def _with_transposes(name: str, a_t: bool, b_t: bool) -> Family:
    def make(t: Draft) -> None:
        m, n, k = extents(t, *uniform(t, 128, 6000))
        if t.chance(0.2):
            batch = t.dim("batch", t.random.choice((4, 8, 16, 32, 64)))
            m, n, k = extents(t, *uniform(t, 64, 1024), batch=batch.value)
            rows_, cols, inner = t.dim("M", m), t.dim("N", n), t.dim("K", k)
            a = t.input("A", (batch, inner, rows_) if a_t else (batch, rows_, inner))
            b = t.input("B", (batch, cols, inner) if b_t else (batch, inner, cols))
            t.finish(product(t, a, b, a_t=a_t, b_t=b_t, batched=True))
        else:
            t.finish(_two(t, t.dim("M", m), t.dim("N", n), t.dim("K", k), a_t, b_t))
        which = "both operands" if a_t and b_t else "the first operand" if a_t else "the second operand"
        t.say(t.pick(f"a matrix product with {which} transposed", f"matmul, {which} transposed"))

    return Family(name, "matmul", 1.0, make)


def matvec(t: Draft) -> None:
    m, k = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 1e6, 2e8))
    rows_, inner = t.dim("M", m), t.dim("K", k)
    a = t.input("A", (rows_, inner))
    t.say(t.pick("a matrix-vector product", "matrix times vector", "GEMV"))
    if t.chance(0.5):
        v = t.input("vector", (inner,))
        text = t.pick(f"torch.mv({a}, {v})", f"{a} @ {v}", f"torch.matmul({a}, {v})", f"{a}.mv({v})")
        t.mark("matvec")
        t.finish(t.step(text, (m,), "linear", flops=2.0 * m * k))
    else:
        t.finish(product(t, a, t.input("vector", (inner, 1))))


def bmm(t: Draft) -> None:
    batch = t.random.choice((4, 8, 16, 32, 64, 128, 12, 100))
    m, n, k = extents(t, *uniform(t, 32, 1024), batch=batch)
    lead = t.dim("batch", batch)
    t.dtype = t.pick(*["float32"] * 12, "float16", "bfloat16")
    rows_, cols, inner = t.dim("M", m), t.dim("N", n), t.dim("K", k)
    t.say(t.pick("a batched matrix product", "batched matmul", "one matrix product a batch entry"))
    t.finish(product(t, t.input("A", (lead, rows_, inner)), t.input("B", (lead, inner, cols)), batched=True))


def tensor_matrix(t: Draft) -> None:
    """Drafts a 3-D or 4-D tensor times a matrix."""
    lead = t.random.choice((2, 2, 3))
    outer = [sizes.around(t.random, sizes.log_uniform(t.random, 4, 256), 2) for _ in range(lead)]
    k, n = (sizes.around(t.random, sizes.log_uniform(t.random, 64, 1024), 8) for _ in range(2))
    names = ("batch", "extent", "extent")[:lead]
    dims = [t.dim(r, e) for r, e in zip(names, outer, strict=True)]
    inner, cols = t.dim("K", k), t.dim("N", n)
    a, b = t.input("A", (*dims, inner)), t.input("B", (inner, cols))
    t.say(
        t.pick(
            f"a {lead + 1}D tensor times a matrix",
            "a product over the last dimension",
            f"{lead + 1}D tensor-matrix product",
        )
    )
    t.finish(_einsum(t, a, b, lead) if t.chance(0.4) else product(t, a, b))


def _einsum(t: Draft, a: DraftTensor, b: DraftTensor, lead: int) -> DraftTensor:
    letters = t.pick("bijlk", "abcde", "nhwck", "xyzuv", "bstde", "".join(t.random.sample(_LETTERS, 5)))
    outer, inner, col = letters[:lead], letters[3], letters[4]
    equation = t.number(
        t.pick(f"{outer}{inner},{inner}{col}->{outer}{col}", f"{outer}{inner}, {inner}{col} -> {outer}{col}")
    )
    t.mark("einsum", ranks=f"{lead + 1}2")
    flops = 2.0 * a.elements * b.shape[-1]
    return t.step(f"torch.einsum({equation}, {a}, {b})", (*a.shape[:-1], b.shape[-1]), "linear", flops=flops)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_EQUATIONS = (
    ("ik,kj->ij", "a matrix product"), ("ki,kj->ij", "A transposed times B"), ("ik,jk->ij", "A times B transposed"),
    ("bik,bkj->bij", "a batched matrix product"), ("bik,bjk->bij", "batched A times B transposed"), ("i,j->ij",
    "an outer product"),
    ("bi,bj->bij", "a batched outer product"), ("bi,bi->b", "row-wise dot products"), ("ij,j->i",
    "a matrix-vector product"),
    ("bik,kj->bij", "a shared product"), ("bhik,bhjk->bhij", "scores of all heads"), ("ij,ij->ij",
    "an elementwise product"),
    ("bhij,bhjd->bhid", "a weighted sum of values"), ("ij,ij->i", "row-wise dot products"), ("ij,ij->j",
    "column-wise dot products"),
)  # fmt: skip


def einsum(t: Draft) -> None:
    """Drafts a contraction of two tensors, written as an equation."""
    equation, phrase = t.random.choice(_EQUATIONS)
    operands, result = equation.split("->")
    count = len(set(operands) - {","})
    wish = {1: 1 << 20, 2: 3000, 3: 800, 4: 160, 5: 64}[count]
    dims = {}
    for letter in sorted(set(operands) - {","}):
        role = "batch" if letter == "b" else "heads" if letter == "h" else "extent"
        value = sizes.around(t.random, 16 if letter in "bh" else wish * t.random.choice((0.5, 1, 2)), 2)
        dims[letter] = t.dim(role, value)
    a, b = (t.input(r, [dims[c] for c in s]) for r, s in zip(("A", "B"), operands.split(","), strict=True))
    names = t.pick("", "mnpqrs", "uvwxyz", "".join(t.random.sample(_LETTERS, 6)), "".join(t.random.sample(_LETTERS, 6)))
    shown = equation.translate(dict(zip(map(ord, sorted(dims)), names, strict=False))) if names else equation
    flops = 2.0
    for d in dims.values():
        flops *= d.value
    t.mark("einsum", equation=equation)
    t.say(phrase)
    text = f"torch.einsum({t.number(shown)}, {a}, {b})"
    t.finish(t.step(text, [dims[c].value for c in result], "linear", flops=flops))


def triangular(t: Draft) -> None:
    """Drafts the product of two triangular matrices, kept triangular, or of one and a full matrix."""
    side = t.dim("square", sizes.around(t.random, sizes.log_uniform(t.random, 256, 5000), 8))
    part = t.pick("tril", "triu")
    a = t.input("A", (side, side), part)
    both = t.chance(0.7)
    b = t.input("B", (side, side), part if both else "own")
    t.say(
        t.pick("a product of triangular matrices", "triangular matmul")
        if both
        else "a triangular matrix times a full one"
    )
    found = product(t, a, b)
    if both:
        t.mark(part)
        found = t.step(t.pick(f"torch.{part}({found})", f"{found.atom}.{part}()"), found.shape)
    t.finish(found)


def diagonal(t: Draft) -> None:
    """Drafts diag(d) @ B, or B @ diag(d)."""
    n, m = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 1e6, 3e7))
    left = t.chance(0.65)
    rows_, cols = t.dim("N", min(n, 8192)), t.dim("M", m)
    a = t.input("diagonal", (rows_ if left else cols,) if left or m <= 8192 else (rows_,))
    left = left or m > 8192
    b = t.input("B", (rows_, cols))
    shape = b.shape
    if left:
        forms = [f"torch.diag({a}) @ {b}", f"torch.matmul(torch.diag({a}), {b})", f"{a}.unsqueeze(1) * {b}",
                 f"{a}[:, None] * {b}", f"torch.diag({a}).matmul({b})"]  # fmt: skip
    else:
        forms = [
            f"{b} @ torch.diag({a})",
            f"torch.matmul({b}, torch.diag({a}))",
            f"{b} * {a}",
            f"{b} * {a}.unsqueeze(0)",
        ]
    t.mark("diag_matmul", side="left" if left else "right")
    t.say(t.pick("a product with a diagonal matrix", "diagonal scaling", "diag times matrix"))
    t.finish(t.step(t.pick(*forms), shape, "linear"))


def symmetric(t: Draft) -> None:
    side = t.dim("square", sizes.around(t.random, sizes.log_uniform(t.random, 256, 5000), 8))
    t.say(t.pick("a product of symmetric matrices", "symmetric matmul"))
    t.finish(
        product(
            t,
            t.input("A", (side, side), "symmetric"),
            t.input("B", (side, side), t.pick("symmetric", "symmetric", "own")),
        )
    )


def matrix_scalar(t: Draft) -> None:
    rows_, cols = (t.dim(r, e) for r, e in zip("MN", sizes.shape(t.random, 2, sizes.elements(t.random)), strict=True))
    a = t.input("A", (rows_, cols))
    value = round(t.random.uniform(-4, 4), t.random.choice((1, 2)))
    s = t.scalar_input(value)
    op, text = t.random.choice((("mul", f"{a} * {s}"), ("mul", f"{s} * {a}"), ("mul", f"torch.mul({a}, {s})"),
                                ("add", f"{a} + {s}"), ("div", f"{a} / {s}"), ("rsub", f"{s} - {a}"), ("sub",
                                f"{a} - {s}")))  # fmt: skip
    t.mark(f"{op}_scalar_input")
    t.say(t.pick("an operation of a matrix and a number", "scaling by a number", "matrix and scalar"))
    t.finish(t.step(text, a.shape))


def outer(t: Draft) -> None:
    m, n = sizes.shape(t.random, 2, sizes.log_uniform(t.random, 1e6, 1e8))
    a, b = t.input("A", (t.dim("M", m),)), t.input("B", (t.dim("N", n),))
    t.mark("outer")
    t.say("the outer product of two vectors")
    forms = (
        f"torch.outer({a}, {b})",
        f"{a}.unsqueeze(1) * {b}.unsqueeze(0)",
        f"{a}[:, None] * {b}[None, :]",
        f"{a}.outer({b})",
    )
    t.finish(t.step(t.pick(*forms), (m, n)))


def gram(t: Draft) -> None:
    """Drafts X @ X.T or X.T @ X: one tensor read twice."""
    m, _, k = extents(t, *uniform(t, 128, 4096))
    x = t.keep(t.input("A", (t.dim("M", m), t.dim("K", k))))
    first = t.chance(0.5)
    t.say("a Gram matrix")
    t.finish(product(t, x, x, a_t=first, b_t=not first))


def families() -> list[Family]:
    """Returns all matrix products."""
    single = [_plain(name) for name in _SHAPES]
    single += [
        _with_transposes("matmul_transposed_a", True, False),
        _with_transposes("matmul_transposed_b", False, True),
        _with_transposes("matmul_transposed_both", True, True),
    ]
    makers = [(f.name, f.make) for f in single]
    makers += [("matvec", matvec), ("bmm", bmm), ("matmul_3d_4d", tensor_matrix), ("einsum", einsum)]
    makers += [("matmul_triangular", triangular), ("matmul_diagonal", diagonal), ("matmul_symmetric", symmetric)]
    makers += [("matrix_scalar", matrix_scalar), ("outer", outer), ("gram", gram)]
    return rows("matmul", 18.0, makers)
