"""Products of a large matrix and a few rows or columns, judged on the functional machine."""

from __future__ import annotations

import pytest
from solutions.test_split_products import MODULE, PRODUCT, judged

from kernelwright.solutions.kernels.cost import ProductSizes, best_product

PRODUCTS = {
    "vector": PRODUCT.format(expression="torch.matmul(A, B)", a="70, 133", b="133"),
    "vector times matrix": PRODUCT.format(expression="torch.matmul(A, B) * 2.0", a="260", b="260, 67"),
    "row": PRODUCT.format(expression="torch.matmul(A, B)", a="1, 257", b="257, 70"),
    "packs": PRODUCT.format(expression="torch.matmul(A, B)", a="5, 512", b="512, 68"),
    "both transposed": PRODUCT.format(expression="torch.matmul(A.T, B.T)", a="131, 9", b="70, 131"),
    "columns": PRODUCT.format(expression="torch.relu(torch.matmul(A, B))", a="67, 132", b="132, 3"),
    "tall by columns": PRODUCT.format(expression="torch.matmul(A.T, B)", a="132, 67", b="132, 3"),
    "batch": PRODUCT.format(expression="torch.bmm(A, B.transpose(1, 2))", a="3, 6, 90", b="3, 33, 90"),
    "many": PRODUCT.format(expression="torch.matmul(A, B)", a="35, 70", b="70, 90"),
    "linear": MODULE.format(layer="Linear(1032, 9)", shape="20, 1032"),
    "one": PRODUCT.format(expression="torch.matmul(A, B)", a="1, 1", b="1, 1"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_skinny_products_are_right(name: str) -> None:
    text, verdict, reason = judged(PRODUCTS[name], "product=skinny")
    assert "kw::Skinny<" in text
    assert verdict == "correct", reason


VECTORS = {
    "tail": PRODUCT.format(expression="torch.relu(torch.matmul(A, B) - 0.5)", a="131, 37", b="37, 70"),
    "packs": PRODUCT.format(expression="torch.bmm(A, B)", a="2, 132, 36", b="2, 36, 68"),
    "by columns": PRODUCT.format(expression="torch.bmm(A.mT, B.mT)", a="2, 20, 68", b="2, 72, 20"),
    "linear": MODULE.format(layer="Linear(20, 68)", shape="3, 45, 20"),
    "one": PRODUCT.format(expression="torch.matmul(A, B)", a="1, 1", b="1, 1"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_products_from_registers_are_right(name: str) -> None:
    text, verdict, reason = judged(VECTORS[name], "product=vector")
    assert "kw::VectorTile<" in text
    assert verdict == "correct", reason


def test_short_sums_are_not_packed() -> None:
    assert best_product(ProductSizes(128, 64, 128, 512)) == "vector"


@pytest.mark.parametrize(
    "size", [ProductSizes(1, 4096, 4096), ProductSizes(8192, 1, 8192), ProductSizes(16, 8192, 8192)]
)
def test_few_rows_are_read_once(size: ProductSizes) -> None:
    assert best_product(size, along_k=True) == "skinny"
