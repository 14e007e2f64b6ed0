"""Decontamination: each rule on cases made for it, the report, and the command line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from running import Command

from kernelwright.corpus.decontaminate import Index, Rules, Text, common_subsequence
from kernelwright.corpus.fingerprint import fingerprint
from kernelwright.corpus.guard import Away, decontaminate
from kernelwright.errors import ConfigError

TASK = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """{doc}"""

    def __init__(self{arguments}):
        super().__init__()
{init}

    def forward(self, {names}):
        {body}


{constants}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
'''


def task(
    body: str,
    *,
    names: str = "x",
    init: str = "",
    arguments: str = "",
    constants: str = "rows = 16\ncols = 256",
    inputs: str = "torch.randn(rows, cols)",
    given: str = "",
    doc: str = "A task.",
) -> str:
    init = "\n".join(f"        {line}" for line in init.splitlines())
    return TASK.format(**{k: v for k, v in locals().items()})


CONV = task(
    "y = self.conv(x)\n        y = torch.relu(y)\n        return y * self.scale",
    init="self.conv = nn.Conv2d(cin, cout, kernel_size=k, padding=1)\nself.scale = scale",
    arguments=", cin, cout, k, scale",
    constants="cin = 8\ncout = 32\nk = 3\nscale = 0.5",
    inputs="torch.randn(4, cin, 32, 32)",
    given="cin, cout, k, scale",
)
# The same work: other names, sizes, comments, and functions in place of modules.
DISGUISED = '''\
import torch
from torch import nn
import torch.nn.functional as F
WIDTH, DEPTH = 64, 5
class Model(nn.Module):
    # nothing in common but what it does
    def __init__(self, inner: int, outer: int, window: int, factor: float):
        """Builds."""
        super(Model, self).__init__()
        self.layer = nn.Conv2d(inner, outer, kernel_size=window, padding=2)
        self.factor = factor
    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layer(picture)) * self.factor
def get_inputs():
    return [torch.rand(2, DEPTH, WIDTH, WIDTH)]
def get_init_inputs():
    return [DEPTH, 7, 5, 2.0]
'''
OTHER = task("return torch.cumsum(torch.sigmoid(x) - x, dim=1) / x.shape[1]")
RELU = task("return torch.relu(x)")
RELU_MODULE = task(
    "return self.act(values)", names="values", init="self.act = nn.ReLU()", constants="rows, cols = 9, 9"
)


def reasons(source: str, *suite: str, rules: Rules | None = None) -> tuple[str, ...]:
    return Index(suite, rules).near(source).reasons


def test_a_copy_with_other_comments_and_layout_is_exact() -> None:
    changed = CONV.replace('"""A task."""', '"""Quite another docstring."""').replace(", x)", ", x: torch.Tensor)")
    changed = "# a comment\n" + changed.replace("\n\n\n", "\n")
    assert "exact" in reasons(changed, OTHER, CONV)
    assert "exact" not in reasons(CONV.replace("cout = 32", "cout = 64"), OTHER, CONV)


def test_the_same_work_in_other_words_is_found_by_ast_only() -> None:
    assert reasons(DISGUISED, CONV) == ("ast",)
    assert Index([CONV]).near(DISGUISED).ast == 1.0


def test_other_sizes_under_the_same_names_are_found_by_tokens() -> None:
    changed = CONV.replace("cout = 32", "cout = 64").replace("return y * self.scale", "return self.scale * y")
    near = Index([CONV]).near(changed)
    assert near.jaccard > 0.8 and "jaccard" in near.reasons and "exact" not in near.reasons


def test_other_work_stays() -> None:
    assert reasons(OTHER, CONV, RELU) == ()
    assert reasons(task("return torch.sigmoid(q)", names="q", inputs="torch.randn(3, 4)"), RELU_MODULE) == ()


def test_one_operator_tasks_are_alike_and_can_be_spared() -> None:
    assert reasons(RELU, RELU_MODULE) == ("ast",)
    assert reasons(RELU, RELU_MODULE, rules=Rules(one_operator="keep")) == ()
    assert reasons(RELU, RELU, rules=Rules(one_operator="keep")) == ("exact", "jaccard")
    assert reasons(DISGUISED, CONV, rules=Rules(one_operator="keep")) == ("ast",)


def test_structure_only_takes_all_operators_for_one() -> None:
    sigmoid = task("return torch.sigmoid(q)", names="q", inputs="torch.randn(3, 4)")
    assert reasons(sigmoid, RELU_MODULE, rules=Rules(structure_only=True)) == ("ast",)


def test_thresholds_are_what_must_be_exceeded() -> None:
    near = Index([CONV]).near(OTHER)
    at = Rules(ast=near.ast, jaccard=near.jaccard)
    below = Rules(ast=near.ast - 1e-6, jaccard=near.jaccard - 1e-6)
    assert near.ast > 0 and reasons(OTHER, CONV, rules=at) == ()
    assert reasons(OTHER, CONV, rules=below) == ("ast", "jaccard")


def test_similarity_is_that_of_the_definition() -> None:
    near = Index([task("return torch.relu(torch.exp(x)) + x")]).near(task("return torch.relu(torch.exp(x)) - x"))
    # input exp relu input add | input exp relu input sub: four of five in common
    assert near.ast == pytest.approx(2 * 4 / 10)


def test_common_subsequence_agrees_with_the_textbook() -> None:
    draw = random.Random(1)
    for _ in range(200):
        a = [draw.choice("abcd") for _ in range(draw.randint(0, 40))]
        b = [draw.choice("abcde") for _ in range(draw.randint(0, 40))]
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
        assert common_subsequence(a, b) == table[-1][-1] == common_subsequence(b, a)


def test_the_nearest_is_found_whatever_the_bound_says_first() -> None:
    """The upper bound ignores order; the index must still return the maximum over all pairs."""
    draw = random.Random(2)
    bodies = ["exp", "relu", "abs", "sin"]
    sources = []
    for _ in range(60):
        text = "x"
        for _ in range(draw.randint(2, 7)):
            text = f"torch.{draw.choice(bodies)}({text})"
        sources.append(task(f"return {text}"))
    index = Index(sources[:40])
    views = [fingerprint(s).nodes for s in sources]
    for i in range(40, 60):
        scores = [2 * common_subsequence(views[i], v) / (len(views[i]) + len(v)) for v in views[:40]]
        assert index.near(sources[i]).ast == pytest.approx(max(scores))


def test_text_that_is_no_python_is_compared_by_its_words() -> None:
    broken = CONV.replace("class Model(", "class Model((")
    assert "jaccard" in reasons(broken, broken + "\n") and reasons(broken, OTHER) == ()
    assert reasons("", OTHER) == ()


def test_sequential_and_helper_classes_count() -> None:
    chain = task("return self.net(x)", init="self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))")
    single = task(
        "return self.c(self.b(self.a(x)))",
        init="self.a = nn.Linear(8, 8)\nself.b = nn.ReLU()\nself.c = nn.Linear(8, 4)",
    )
    assert Index([single]).near(chain).ast == 1.0


def test_embeddings_remove_what_is_near() -> None:
    def embed(texts: list[str]) -> np.ndarray:
        rows = np.array([[t.count("relu"), t.count("cumsum"), 1.0] for t in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    index = Index([OTHER], Rules(ast=1.0, jaccard=1.0), embed)
    assert index.near(task("return torch.cumsum(x, 0)")).reasons == ("embedding",)
    assert index.near(RELU).reasons == ()
    assert index.near(RELU).distance == pytest.approx(1.0, abs=0.2)


def test_the_report_counts_by_rule_and_family() -> None:
    tasks = [Text("a", RELU, "relu"), Text("b", DISGUISED, "fused"), Text("c", OTHER, "scan"), Text("d", RELU, "relu")]
    report = decontaminate(tasks, Away({"one": [Text("r", RELU_MODULE)], "two": [Text("c", CONV)]})).plain()
    assert (report["tasks"], report["removed"], report["kept"]) == (4, 3, 1)
    assert report["by_rule"] == {"ast": 3}
    assert report["by_family"]["relu"] == {"tasks": 2, "removed": 2}
    assert report["one_operator"] == {"tasks": 2, "removed": 2, "removed_by_ast_only": 2}
    assert [r["nearest"] for r in report["rows"]] == ["one#r", "two#c", "one#r"]


def test_no_suite_is_an_error() -> None:
    with pytest.raises(ConfigError):
        Away({"none": []})
    with pytest.raises(ConfigError):
        Rules(ast=1.2)


def test_the_command_line(tmp_path: Path, kernelwright: Command) -> None:
    rows = [{"id": "near", "reference": DISGUISED, "extra": 1}, {"id": "far", "reference": OTHER, "extra": 2}]
    corpus, suite = tmp_path / "corpus.jsonl", tmp_path / "suite"
    corpus.write_text("".join(json.dumps(r) + "\n" for r in rows))
    suite.mkdir()
    (suite / "held.py").write_text(CONV)
    out, report = tmp_path / "clean.jsonl", tmp_path / "report.json"
    done = kernelwright(*("decontaminate", corpus, "--against", suite, "--out", out, "--report", report, "--json"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["removed"] == 1 and found["rows"][0]["nearest"] == f"{suite}#held"
    assert [json.loads(line) for line in out.read_text().splitlines()] == [rows[1]]
    assert json.loads(report.read_text()) == found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.jsonl", "--against", "starter"), "missing.jsonl"),
        (("starter", "--against", "nothing_here"), "nothing_here"),
        (("starter", "--against", "starter", "--ast", "2"), "ast"),
        (("starter", "--against", "cudabench:FILE:1"), "FILE"),
    ],
)
def test_bad_words_are_one_error(words: tuple[str, ...], said: str, kernelwright: Command) -> None:
    done = kernelwright("decontaminate", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("error:") and said in done.stderr and "hint:" in done.stderr
