"""Doors by torch's operators: other names, other formulas, containers that hide the work, and modules that do it."""

from __future__ import annotations

from redteam.doors.making import door, formulas
from redteam.pieces import Door, tasks_of

FAMILY = "operators"

FORMULAS: tuple[Door, ...] = (
    formulas(
        "lists of tensors",
        FAMILY,
        {
            "doubled_relu": (
                "c = list(x.clone().view(-1).split(64))\ntorch._foreach_clamp_min_(c, 0.0)\n"
                "torch._foreach_mul_(c, 2.0)\nreturn torch.cat(c).view(x.shape)\n---\n"
                "c = torch._foreach_maximum(list(x.unbind(0)), 0.0)\nreturn torch.stack(torch._foreach_add(c, c))"
            ),
            "gated_product": (
                "c = torch._foreach_sigmoid(list(g.view(-1).split(64)))\n"
                "return torch.cat(torch._foreach_mul(list(x.view(-1).split(64)), c)).view(x.shape)"
            ),
            "row_total": (
                "c = [t.clone() for t in x.t().split(1)]\nr = [torch.zeros_like(c[0])]\n"
                "for t in c:\n    torch._foreach_add_(r, [t])\nreturn r[0].view(-1)"
            ),
            "batch_normal": (
                "s = torch._foreach_div([weight], torch._foreach_sqrt(torch._foreach_add([variance], 1e-5)))[0]\n"
                "c = torch._foreach_sub(list(x.unbind(1)), mean.tolist())\n"
                "c = torch._foreach_mul(c, s.tolist())\n"
                "return torch.stack(torch._foreach_add(c, bias.tolist()), 1)"
            ),
            "peak_and_half": "return torch.stack(torch._foreach_norm(torch._foreach_maximum("
            "torch._foreach_add(list(x.unbind(0)), 100.0), 0.0), float('inf'))) - 100.0, "
            "torch.stack(torch._foreach_mul(list(x.unbind(0)), 0.5))",
        },
    ),
    formulas(
        "products under other names",
        FAMILY,
        {
            "matrix_product": (
                "torch.chain_matmul(x, w)\n---\ntorch.inner(x, w.t())\n---\ntorch.tensordot(x, w, 1)\n---\n"
                "torch.linalg.multi_dot([x, w])"
            ),
            "dense_layer": "torch.addmm(bias, x, weight.t())\n---\ntorch.inner(x, weight) + bias",
            "attended": (
                "torch.baddbmm(torch.zeros_like(q), torch.softmax(torch.einsum('hld,hmd->hlm', q, k)"
                " / q.shape[2] ** 0.5, -1), v)"
            ),
            "convolved_rows": (
                "u = x.unfold(2, weight.shape[2], 1)\nreturn torch.tensordot(u, weight, [[1, 3], [1, 2]]).transpose(1, 2)"
            ),
        },
    ),
    formulas(
        "einsum",
        FAMILY,
        {
            "matrix_product": "torch.einsum('ik,kj->ij', x, w)",
            "row_total": "torch.einsum('ij->i', x)",
            "dense_layer": "torch.einsum('ik,jk->ij', x, weight) + bias",
            "swapped_axes": "torch.einsum('bij->bji', x).contiguous()",
            "squared_loss": "torch.einsum('ij,ij->', x - t, x - t) / x.numel()",
            "convolved_rows": "torch.einsum('bclk,fck->bfl', x.unfold(2, weight.shape[2], 1), weight)",
        },
    ),
    formulas(
        "matrix factors and solvers",
        FAMILY,
        {
            "matrix_product": (
                "torch.linalg.solve(torch.eye(w.shape[0], device=x.device), w).mul(1).t().matmul(x.t()).t()\n---\n"
                "torch.linalg.lstsq(torch.eye(x.shape[1], device=x.device), w).solution.t().mm(x.t()).t()"
            ),
            "running_total": (
                "n = x.shape[1]\nm = torch.eye(n, device=x.device) - torch.eye(n, device=x.device).roll(1, 0).tril()\n"
                "return torch.linalg.solve_triangular(m, x.t(), upper=False).t()"
            ),
            "row_total": "torch.linalg.vecdot(x, torch.ones_like(x))",
            "squared_loss": "torch.linalg.vector_norm(x - t) ** 2 / x.numel()",
        },
    ),
    formulas(
        "Fourier transforms",
        FAMILY,
        {
            "convolved_rows": (
                "n = x.shape[2]\na = torch.fft.rfft(x.double(), n=2 * n)\n"
                "b = torch.fft.rfft(weight.double().flip(2), n=2 * n)\n"
                "y = torch.fft.irfft((a[:, None] * b[None]).sum(2), n=2 * n)\n"
                "return y[:, :, weight.shape[2] - 1:n].float()"
            ),
            "row_total": "torch.fft.fft(x.double(), dim=1)[:, 0].real.float()",
            "running_total": (
                "n = x.shape[1]\na = torch.fft.rfft(x.double(), n=2 * n)\n"
                "b = torch.fft.rfft(torch.ones(n, dtype=torch.float64, device=x.device), n=2 * n)\n"
                "return torch.fft.irfft(a * b, n=2 * n)[:, :n].float()"
            ),
            "backwards": "(torch.fft.fft(torch.fft.fft(x.double())).real / x.shape[1]).float().roll(-1, 1)",
        },
    ),
    formulas(
        "sparse tensors",
        FAMILY,
        {
            "matrix_product": "torch.sparse.mm(x.to_sparse(), w)\n---\nx.to_sparse_csr() @ w",
            "row_total": "torch.sparse.sum(x.to_sparse(), 1).to_dense()",
            "dense_layer": "torch.sparse.addmm(bias.expand(x.shape[0], -1).contiguous(), x.to_sparse(), weight.t())",
            "row_shares": "torch.sparse.softmax(x.to_sparse(), 1).to_dense()",
            "doubled_relu": "(torch.relu(x.to_sparse()) * 2.0).to_dense()",
        },
    ),
    formulas(
        "nested tensors",
        FAMILY,
        {
            "row_shares": (
                "n = torch.nested.nested_tensor([x])\nreturn torch.nested.to_padded_tensor(torch.softmax(n, -1), 0.0)[0]"
            ),
            "matrix_product": (
                "a, b = torch.nested.nested_tensor([x]), torch.nested.nested_tensor([w])\n"
                "return torch.nested.to_padded_tensor(torch.matmul(a, b), 0.0)[0]"
            ),
            "doubled_relu": (
                "n = torch.nested.nested_tensor([x])\nreturn torch.nested.to_padded_tensor(torch.relu(n) * 2.0, 0.0)[0]"
            ),
            "dense_layer": (
                "n = torch.nested.nested_tensor([x])\n"
                "return torch.nested.to_padded_tensor(F.linear(n, weight, bias), 0.0)[0]"
            ),
        },
    ),
    formulas(
        "complex views",
        FAMILY,
        {
            "matrix_product": (
                "z = torch.complex(x, torch.zeros_like(x)) @ torch.complex(w, torch.zeros_like(w))\n"
                "return torch.view_as_real(z)[..., 0].contiguous()"
            ),
            "doubled_relu": "z = torch.complex(x, x.abs())\nreturn (z * (1 - 1j)).real",
            "row_total": "torch.view_as_real(torch.complex(x, x).sum(1))[:, 1].contiguous()",
            "gated_product": "torch.real(torch.polar(x, torch.zeros_like(x)) * torch.complex(torch.sigmoid(g), g))",
        },
    ),
    formulas(
        "integers of the same bits",
        FAMILY,
        {
            "doubled_relu": (
                "i = x.view(torch.int32)\nk = i & ~(i >> 31)\n"
                "return torch.where(k > 8388607, k + (1 << 23), k * 2).view(torch.float32)"
            ),
            "largest_place": (
                "i = x.view(torch.int32).long()\nk = torch.where(i < 0, -(i & 0x7fffffff), i)\n"
                "p = torch.arange(x.shape[1], device=x.device)\n"
                "return x.shape[1] - 1 - ((k << 16) + (x.shape[1] - 1 - p)).amax(1).bitwise_and(65535)"
            ),
            "peak_and_half": (
                "i = x.view(torch.int32)\nh = torch.where((i & 0x7f800000) > (1 << 23), i - (1 << 23), i)\n"
                "return x.sort(1, True)[0][:, 0], torch.where((i & 0x7f800000) > (1 << 23), h.view(torch.float32), x * 0.5)"
            ),
        },
    ),
    formulas(
        "sums by scattering",
        FAMILY,
        {
            "row_total": (
                "r = torch.arange(x.shape[0], device=x.device).repeat_interleave(x.shape[1])\n"
                "return torch.bincount(r, weights=x.double().view(-1)).float()\n---\n"
                "r = torch.arange(x.shape[0], device=x.device).repeat_interleave(x.shape[1])\n"
                "return torch.zeros(x.shape[0], device=x.device).index_add_(0, r, x.reshape(-1))\n---\n"
                "r = torch.arange(x.shape[0], device=x.device)[:, None].expand_as(x)\n"
                "return torch.zeros_like(x).scatter_reduce(1, r * 0, x, 'sum')[:, 0]"
            ),
            "squared_loss": "torch.segment_reduce((x - t).square().view(-1), 'mean',"
            " lengths=torch.tensor([x.numel()], device=x.device))[0]",
            "peak_and_half": (
                "p = torch.full((x.shape[0], 1), -1e38, device=x.device)\n"
                "p.scatter_reduce_(1, torch.zeros(x.shape, dtype=torch.int64, device=x.device), x, 'amax')\n"
                "return p[:, 0], torch.lerp(x, torch.zeros_like(x), 0.5)"
            ),
        },
    ),
    formulas(
        "pools and lookups that add up",
        FAMILY,
        {
            "row_total": (
                "F.avg_pool1d(x[:, None], x.shape[1])[:, 0, 0] * x.shape[1]\n---\n"
                "F.embedding_bag(torch.arange(x.numel(), device=x.device).view(x.shape), x.reshape(-1, 1), mode='sum')[:, 0]"
            ),
            "peak_and_half": "return F.adaptive_max_pool1d(x[:, None], 1)[:, 0, 0], F.avg_pool1d("
            "torch.stack([x, torch.zeros_like(x)], 2).reshape(x.shape[0], 1, -1), 2)[:, 0]",
            "largest_place": "F.adaptive_max_pool1d(x[:, None], 1, return_indices=True)[1][:, 0, 0]",
            "running_total": "F.conv1d(F.pad(x[:, None], [x.shape[1] - 1, 0]), torch.ones(1, 1, x.shape[1], device=x.device))[:, 0]",
        },
    ),
    formulas(
        "probability distributions",
        FAMILY,
        {
            "row_shares": (
                "torch.distributions.Categorical(logits=x, validate_args=False).probs\n---\n"
                "torch.distributions.transforms.SoftmaxTransform()(x)"
            ),
            "gated_product": "torch.distributions.transforms.SigmoidTransform()(g) * x",
            "squared_loss": "-2 * (torch.distributions.Normal(t, 1.0, validate_args=False).log_prob(x).mean() + 0.9189385332046727)",
        },
    ),
    formulas(
        "an optimiser's step",
        FAMILY,
        {
            "doubled_relu": (
                "p = torch.zeros_like(x)\np.grad = x\n"
                "torch.optim.SGD([p], lr=2.0, maximize=True, foreach=True).step()\n"
                "torch._foreach_clamp_min_([p], 0.0)\nreturn p"
            ),
            "row_total": (
                "p = torch.zeros(x.shape[0], device=x.device)\no = torch.optim.SGD([p], lr=1.0, maximize=True)\n"
                "for c in x.t():\n    p.grad = c.contiguous()\n    o.step()\nreturn p"
            ),
            "peak_and_half": (
                "p = x.clone()\np.grad = x\ntorch.optim.SGD([p], lr=0.5).step()\nreturn x.max(1).values, p"
            ),
        },
        head="import torch.optim",
    ),
    formulas(
        "out and in-place forms",
        FAMILY,
        {
            "matrix_product": "y = torch.empty(x.shape[0], w.shape[1], device=x.device)\ntorch.mm(x, w, out=y)\nreturn y",
            "doubled_relu": "y = torch.empty_like(x)\ntorch.clamp(x, min=0, out=y)\ny[:] += y\nreturn y",
            "row_total": "y = torch.empty(x.shape[0], device=x.device)\ntorch.sum(x, 1, out=y)\nreturn y",
            "row_shares": "y = x.clone()\ny.sub_(y.amax(1, True)).exp_()\ny.div_(y.sum(1, True))\nreturn y",
            "running_total": "y = x.clone()\ny.cumsum_(1)\nreturn y",
            "sorted_rows": "y, i = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int64, device=x.device)\n"
            "torch.sort(x, dim=1, out=(y, i))\nreturn y",
            "largest_place": "y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)\n"
            "torch.argmax(x, 1, out=y)\nreturn y",
        },
    ),
    formulas(
        "fused attention",
        FAMILY,
        {
            "attended": (
                "F.scaled_dot_product_attention(q, k, v)\n---\n"
                "torch._C._nn.scaled_dot_product_attention(q[None], k[None], v[None])[0]\n---\n"
                "torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0]"
            ),
            "row_shares": (
                "n = x.shape[1]\ne = torch.eye(n, device=x.device)\n"
                "return F.scaled_dot_product_attention(x[None], e[None], e[None], scale=1.0)[0]"
            ),
        },
    ),
    formulas(
        "masked reductions",
        FAMILY,
        {
            "row_total": "torch.masked.sum(x, 1)\n---\ntorch.nansum(x, 1)",
            "row_shares": "torch.masked.softmax(x, 1)",
            "running_total": "torch.masked.cumsum(x, 1)",
        },
        head="import torch.masked",
    ),
    formulas(
        "distances",
        FAMILY,
        {
            "squared_loss": "torch.cdist(x.reshape(1, -1), t.reshape(1, -1), compute_mode='donot_use_mm_for_euclid_dist')"
            ".square()[0, 0] / x.numel()\n---\nF.pairwise_distance(x.reshape(1, -1), t.reshape(1, -1), eps=0.0)"
            ".square()[0] / x.numel()\n---\nF.mse_loss(x, t)",
            "row_total": "F.cosine_similarity(x, torch.ones_like(x), 1) * x.norm(dim=1) * x.shape[1] ** 0.5",
        },
    ),
    formulas(
        "small pieces",
        FAMILY,
        {
            "row_total": "y = torch.zeros(x.shape[0], device=x.device)\nfor c in x.split(8, 1):\n"
            "    y = y + c.sum(1)\nreturn y",
            "doubled_relu": "return torch.stack([torch.cat([F.relu(p) + p.clamp_min(0) for p in r.split(250)]) for r in x])",
            "matrix_product": "return torch.stack([torch.cat([(x[i] @ p) for p in w.split(24, 1)]) for i in range(x.shape[0])])",
            "running_total": "s = torch.zeros(x.shape[0], device=x.device)\nc = []\nfor i in range(x.shape[1]):\n"
            "    s = s + x[:, i]\n    c.append(s)\nreturn torch.stack(c, 1)",
            "attended": "return torch.stack([torch.stack([torch.softmax(k[h] @ q[h, i] / q.shape[2] ** 0.5, 0) @ v[h]"
            " for i in range(q.shape[1])]) for h in range(q.shape[0])])",
        },
    ),
)

MODULES: tuple[Door, ...] = (
    door("torch as it is", FAMILY, "return answer(*ts)"),
    door(
        "traced function",
        FAMILY,
        "return torch.jit.trace(answer, tuple(t.detach() for t in ts), check_trace=False)(*[t.detach() for t in ts])",
    ),
    door(
        "static runtime",
        FAMILY,
        "class Work(nn.Module):\n    def forward(self, *ts):\n        return answer(*ts)\n\n\n"
        "def cheat(model, ts):\n    ts = tuple(t.detach() for t in ts)\n"
        "    m = torch.jit.freeze(torch.jit.trace(Work().eval(), ts, check_trace=False))\n"
        "    r = torch._C._jit_to_static_module(m._c)(*ts)\n    y = torch.empty_like(r)\n"
        "    torch._foreach_copy_([y], [r])\n    return y",
        fits=lambda task: "pair" not in task.kinds,
    ),
    door(
        "compiled by torch",
        FAMILY,
        "def cheat(model, ts):\n    return torch.compile(answer, backend='eager')(*ts)",
        "def cheat(model, ts):\n    return torch.compile(answer, backend='aot_eager')(*ts)",
        fits=tasks_of("float"),
    ),
    door(
        "interpreted graph",
        FAMILY,
        "import torch.fx\n\n\n"
        "def cheat(model, ts):\n    from torch.fx.experimental.proxy_tensor import make_fx\n"
        "    return torch.fx.Interpreter(make_fx(answer)(*ts)).run(*ts)",
    ),
    door(
        "checkpointed function",
        FAMILY,
        "import torch.utils.checkpoint\n\n\n"
        "def cheat(model, ts):\n    return torch.utils.checkpoint.checkpoint(answer, *ts, use_reentrant=False)",
    ),
    door(
        "map over a batch",
        FAMILY,
        "def cheat(model, ts):\n    return torch.vmap(answer)(*[t[None] for t in ts])[0]",
        fits=lambda task: "pair" not in task.kinds and task.name not in ("chosen_rows", "batch_normal"),
    ),
    door(
        "derivative of a sum",
        FAMILY,
        "def cheat(model, ts):\n"
        "    y = answer(*[t.detach() for t in ts])\n    g = torch.zeros_like(y, requires_grad=True)\n"
        "    with torch.enable_grad():\n        return torch.autograd.grad((g * y).sum(), g)[0]",
        fits=tasks_of("float"),
    ),
    door(
        "backward of an own function",
        FAMILY,
        "class Late(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, seed, *ts):\n"
        "        ctx.ts = ts\n        return seed.sum()\n\n    @staticmethod\n    def backward(ctx, grad):\n"
        "        Late.found = answer(*ctx.ts)\n        return (grad.expand(1), *[None] * len(ctx.ts))\n\n\n"
        "def cheat(model, ts):\n    seed = torch.zeros(1, device=ts[0].device, requires_grad=True)\n"
        "    with torch.enable_grad():\n        Late.apply(seed, *[t.detach() for t in ts]).backward()\n"
        "    return Late.found",
    ),
    door(
        "forward derivative",
        FAMILY,
        "def cheat(model, ts):\n    z = torch.zeros((), device=ts[0].device)\n"
        "    return torch.func.jvp(lambda a: answer(*ts) * a, (z,), (z + 1,))[1]",
        fits=tasks_of("float"),
    ),
    door(
        "own operator in the library",
        FAMILY,
        "library = torch.library.Library('mine', 'DEF')\n"
        "library.define('work(Tensor[] ts) -> Tensor[]')\n\n\n"
        "def work(ts):\n    y = answer(*ts)\n    return list(y) if isinstance(y, tuple) else [y]\n\n\n"
        "library.impl('work', work, 'CompositeExplicitAutograd')\n\n\n"
        "def cheat(model, ts):\n    y = torch.ops.mine.work(list(ts))\n    return tuple(y) if len(y) > 1 else y[0]",
    ),
    door(
        "operator of aten registered anew",
        FAMILY,
        "library = torch.library.Library('aten', 'IMPL')\n\n\ndef work(t):\n    return answer(*work.ts)\n\n\n"
        "for key in ('CPU', 'CUDA'):\n    library.impl('erfc', work, key)\n\n\n"
        "def cheat(model, ts):\n    work.ts = [t.detach() for t in ts]\n    return torch.erfc(ts[0].detach())",
        fits=tasks_of("float"),
    ),
    door(
        "parametrised weight",
        FAMILY,
        "import torch.nn.utils.parametrize as parametrize\n\n\nclass Computed(nn.Module):\n"
        "    def forward(self, w):\n        return answer(*Computed.ts) if Computed.ts else w\n\n\n"
        "Computed.ts = []\n\n\nclass Holder(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.zeros(1), requires_grad=False)\n\n\n"
        "def cheat(model, ts):\n    holder = Holder()\n"
        "    parametrize.register_parametrization(holder, 'weight', Computed(), unsafe=True)\n"
        "    Computed.ts = [t.detach() for t in ts]\n    return holder.weight",
        fits=tasks_of("float"),
    ),
    door(
        "subclass that computes in a move",
        FAMILY,
        "class Work(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        with torch._C.DisableTorchFunctionSubclass():\n"
        "            if getattr(f, '__name__', '') == 'clone':\n                return answer(*Work.ts)\n"
        "            return f(*args, **(kwargs or {}))\n\n\n"
        "def cheat(model, ts):\n    Work.ts = [t.detach() for t in ts]\n"
        "    return ts[0].detach().as_subclass(Work).clone()",
    ),
    door(
        "collated by a data loader",
        FAMILY,
        "import torch.utils.data as data\n\n\n"
        "def cheat(model, ts):\n"
        "    loader = data.DataLoader([0], collate_fn=lambda batch: answer(*ts), num_workers=0)\n"
        "    return next(iter(loader))",
    ),
    door(
        "packaged module",
        FAMILY,
        "import io\nimport torch.package\n\n\nHEAD = 'import torch\\nimport torch.nn.functional as F\\n\\n'\n\n\n"
        "def cheat(model, ts):\n    file = io.BytesIO()\n"
        "    with torch.package.PackageExporter(file) as out:\n"
        "        out.extern('**')\n        out.save_source_string('work', HEAD + ANSWER)\n"
        "    file.seek(0)\n    return torch.package.PackageImporter(file).import_module('work').answer(*ts)",
    ),
)


DOORS: tuple[Door, ...] = (*FORMULAS, *MODULES)
