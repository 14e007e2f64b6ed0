"""Names a task's family from the torch names that its text calls, for tables of speed by family."""

from __future__ import annotations

import ast
import re

FAMILIES = {
    "attention": r"scaled_dot_product_attention|multiheadattention",
    "transposed convolution": r"conv_?transpose\dd",
    "convolution": r"conv\dd",
    "loss": r"\w+_loss|\w+loss|kl_div|(binary_)?cross_entropy(_with_logits)?|cosine_similarity",
    "product": r"matmul|bmm|mm|linear|einsum|addmm|baddbmm|diag|tensordot",
    "scan": r"cum(sum|prod|max|min)|logcumsumexp",
    "pooling": r"(adaptive_?)?(avg|max|lp)_?pool\dd",
    "norm": r"(batch|instance|layer|group|rms|local_response)_?norm\d?d?|normalize|norm|frobenius_norm",
    "softmax": r"(log_?)?softmax|logsumexp|softmin",
    "arg-reduction": r"arg(max|min|sort)|topk|sort",
    "reduction": r"sum|mean|prod|amax|amin|max|min|var|std|median",
    "embedding": r"embedding\w*|gather|index_select|scatter\w*",
}
"""Full matches of lower-case names, in the order in which they decide. A `@` counts as `matmul`."""


def family_of(source: str) -> str:
    """Returns the first family of which the text's class calls a name; `elementwise` for none."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {name for node in classes for name in _called(node)}
    grouped = any(k.arg == "groups" for node in classes for k in ast.walk(node) if isinstance(k, ast.keyword))
    for family, pattern in FAMILIES.items():
        if any(re.fullmatch(pattern, name) for name in names):
            return "grouped convolution" if family == "convolution" and grouped and _is_grouped(source) else family
    return "elementwise"


def _called(tree: ast.AST) -> set[str]:
    """Returns the last names of what is called, in lower case."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            names.add((node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id).lower())
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            names.add("matmul")
    return names


def _is_grouped(source: str) -> bool:
    """Tells whether a constant `groups` is more than 1, or `groups` is a number of channels."""
    stated = re.findall(r"\bgroups\s*=\s*(\w+)", source)
    return any((s.isdigit() and int(s) > 1) or "channels" in s for s in stated)
