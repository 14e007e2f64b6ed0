"""Doors on tasks that are moves: torch moves the whole answer, and a kernel copies it."""

from __future__ import annotations

from redteam.doors.making import formulas
from redteam.pieces import Door

FAMILY = "moves"
T, B, C, J, H = "swapped_axes", "backwards", "chosen_rows", "joined_and_padded", "half_cast"

DOORS: tuple[Door, ...] = (
    formulas(
        "moved by its usual operator",
        FAMILY,
        {
            T: "x.transpose(1, 2).contiguous()",
            B: "x.flip(1)",
            C: "table[index]",
            J: "F.pad(torch.cat([a, b], 1), [3, 3])",
            H: "x.half()",
        },
    ),
    formulas(
        "moved by a gather",
        FAMILY,
        {
            T: "i = torch.arange(x.shape[1] * x.shape[2], device=x.device).view(x.shape[1], x.shape[2]).t().reshape(-1)\n"
            "return torch.gather(x.reshape(x.shape[0], -1), 1, i.expand(x.shape[0], -1))"
            ".view(x.shape[0], x.shape[2], x.shape[1])",
            B: "torch.gather(x, 1, torch.arange(x.shape[1] - 1, -1, -1, device=x.device).expand_as(x))",
            C: "torch.gather(table, 0, index[:, None].expand(-1, table.shape[1]))\n---\ntorch.take_along_dim(table, index[:, None], 0)",
        },
    ),
    formulas(
        "moved by an index",
        FAMILY,
        {
            T: "torch.stack([x[:, :, i] for i in range(x.shape[2])], 1)",
            B: "x[:, torch.arange(x.shape[1] - 1, -1, -1, device=x.device)]\n---\n"
            "torch.index_select(x, 1, torch.arange(x.shape[1] - 1, -1, -1, device=x.device))",
            C: "torch.index_select(table, 0, index)\n---\nF.embedding(index, table)\n---\ntorch.take(table,"
            " index[:, None] * table.shape[1] + torch.arange(table.shape[1], device=index.device))",
            J: "c = torch.cat([a, b], 1)\ny = torch.zeros(c.shape[0], c.shape[1] + 6, device=c.device)\n"
            "return y.index_copy_(1, torch.arange(3, 3 + c.shape[1], device=c.device), c)",
        },
    ),
    formulas(
        "moved by a scatter",
        FAMILY,
        {
            B: "torch.empty_like(x).scatter_(1, torch.arange(x.shape[1] - 1, -1, -1, device=x.device).expand_as(x), x)",
            J: "y = torch.zeros(a.shape[0], a.shape[1] + b.shape[1] + 6, device=a.device)\n"
            "y.slice_scatter(a, 1, 3, 3 + a.shape[1])\n"
            "return y.slice_scatter(a, 1, 3, 3 + a.shape[1]).slice_scatter(b, 1, 3 + a.shape[1], 3 + a.shape[1] + b.shape[1])",
            C: "y = torch.zeros(index.shape[0], table.shape[1], device=table.device)\n"
            "return y.index_put_((torch.arange(index.shape[0], device=index.device),), table[index])",
        },
    ),
    formulas(
        "moved by copies into views",
        FAMILY,
        {
            T: "y = torch.empty(x.shape[0], x.shape[2], x.shape[1], device=x.device)\ny.transpose(1, 2).copy_(x)\nreturn y",
            B: "y = torch.empty_like(x)\nfor i in range(x.shape[1]):\n    y[:, i] = x[:, x.shape[1] - 1 - i]\nreturn y",
            J: "y = torch.zeros(a.shape[0], a.shape[1] + b.shape[1] + 6, device=a.device)\n"
            "y[:, 3:3 + a.shape[1]] = a\ny[:, 3 + a.shape[1]:-3] = b\nreturn y",
            H: "y = torch.empty(x.shape, dtype=torch.float16, device=x.device)\ny.copy_(x)\nreturn y",
        },
    ),
    formulas(
        "moved by strides",
        FAMILY,
        {
            T: "x.contiguous().as_strided((x.shape[0], x.shape[2], x.shape[1]),"
            " (x.shape[1] * x.shape[2], 1, x.shape[2])).clone(memory_format=torch.contiguous_format)",
            B: "torch.cat([c for c in x.split(1, 1)][::-1], 1)\n---\ntorch.rot90(x, 2, [0, 1]).flipud()",
            J: "torch.nn.ConstantPad1d(3, 0.0)(torch.hstack([a, b]))\n---\nz = torch.zeros(a.shape[0], 3, device=a.device)\n"
            "return torch.concatenate([z, a, b, z], 1)",
            H: "x.type(torch.float16)\n---\ntorch.ops.aten._to_copy(x, dtype=torch.float16)\n---\n"
            "torch.ops.prims.convert_element_type(x, torch.float16)",
        },
    ),
    formulas(
        "moved by named patterns",
        FAMILY,
        {
            T: "torch.movedim(x, 1, 2).clone(memory_format=torch.contiguous_format)\n---\nx.mT.contiguous()\n---\n"
            "torch.permute_copy(x, (0, 2, 1)).contiguous()",
            B: "torch.fliplr(x)\n---\nx.roll(1, 1).flip(1).roll(1, 1)\n---\nx.flip(-1)",
            C: "torch.nn.Embedding.from_pretrained(table)(index)\n---\ntorch.cat([table[i:i + 1] for i in index])",
            H: "x.float().to(memory_format=torch.contiguous_format, dtype=torch.float16)\n---\n"
            "torch.empty_like(x, dtype=torch.float16).set_(x.half())",
        },
    ),
    formulas(
        "moved by a list of copies",
        FAMILY,
        {
            T: "y = torch.empty(x.shape[0], x.shape[2], x.shape[1], device=x.device)\n"
            "torch._foreach_copy_(list(y.unbind(1)), list(x.unbind(2)))\nreturn y",
            B: "y = torch.empty_like(x)\ntorch._foreach_copy_(list(y.unbind(1)), list(x.unbind(1))[::-1])\nreturn y",
            H: "y = torch.empty(x.shape, dtype=torch.float16, device=x.device)\n"
            "torch._foreach_copy_(list(y.unbind(0)), list(x.unbind(0)))\nreturn y",
        },
    ),
    formulas(
        "moved by a product with ones and zeros",
        FAMILY,
        {
            B: "x @ torch.eye(x.shape[1], device=x.device).flip(0)",
            C: "F.one_hot(index, table.shape[0]).float() @ table",
            T: "torch.matmul(x.transpose(1, 2), torch.eye(x.shape[1], device=x.device))",
        },
    ),
)
