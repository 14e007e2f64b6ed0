"""Each method on samples made for it: the selected rows, the rule that selects them, and the rows left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.curation import METHODS, CuratedSample, CurationSettings, Episode
from kernelwright.curation import select as selecting
from kernelwright.curation.deciles import retrieve, speed_deciles
from kernelwright.curation.methods import load_method
from kernelwright.curation.pairing import episode_pairs, preferences, repairs
from kernelwright.curation.reverse import statement
from kernelwright.curation.samples import tree_hash
from kernelwright.curation.writing import away_from, features, without_doubles, write
from kernelwright.errors import ConfigError, StoreError
from kernelwright.inference.chat import with_speed
from kernelwright.records import Evaluation, Finding, Message, Task, Timing, WorkloadResult

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return "
TAIL = "\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n\n\ndef get_init_inputs():\n    return []\n"


def task(name: str, body: str = "torch.relu(torch.exp(x)) + x") -> Task:
    return Task(task_id=name, source=HEAD + body + TAIL)


def judged(of: Task, verdict: str, speedup: float | None = None, log: str = "") -> Evaluation:
    timing = Timing(candidate_ms=1.0, eager_ms=speedup, speedup=speedup) if speedup is not None else None
    return Evaluation(
        task_id=of.task_id,
        task_hash=of.content_hash,
        candidate_id="c",
        verdict=verdict,  # type: ignore[arg-type]
        reason="" if verdict == "correct" else f"{verdict}: why",
        workloads=(WorkloadResult(name="w", passed=True),) if verdict == "correct" else (),
        findings=(Finding(rule="r", evidence="e", severity="reject"),) if verdict == "rejected" else (),
        timing=timing,
        log=log,
    )


def sample(
    of: Task, verdict: str = "correct", speedup: float | None = None, words: int = 5, **more: Any
) -> CuratedSample:
    code = more.pop("code", f"class ModelNew:\n    version = {words}, {speedup!r}, {verdict!r}\n")
    answer = f"<think>{'word ' * words}</think>\n```python\n{code}```\n"
    return CuratedSample(of, answer, code, judged(of, verdict, speedup, more.pop("log", "")), "runs/a", **more)


def episodes(*samples: CuratedSample) -> list[Episode]:
    return [Episode((s,)) for s in samples]


A, B, C = task("a"), task("b", "torch.tanh(x) * 2 - x"), task("c", "torch.sin(x) @ x.T")
ONE, TWO = task("one", "torch.relu(x)"), task("two", "torch.sum(x, dim=1)")


def test_reasoning_is_what_was_thought_and_no_code() -> None:
    assert sample(A, words=7).length == 7
    plain = CuratedSample(
        A, "first this, then that\n```python\nclass ModelNew: pass\n```", "class ModelNew: pass\n", None, "r"
    )
    assert plain.reasoning == "first this, then that"
    file = CuratedSample(A, "class ModelNew: pass", "class ModelNew: pass", None, "r", note="from the corpus")
    assert file.reasoning == "from the corpus"


def test_concur_rule_a_needs_the_shortest_to_be_the_fastest() -> None:
    both = [sample(A, speedup=2.0, words=3), sample(A, speedup=1.0, words=9), sample(A, "wrong", words=1)]
    picks = selecting.concur(both)
    assert [(p.sample.speedup, p.rule) for p in picks] == [(2.0, "a")]
    assert picks[0].reasoning_length == pytest.approx((3 + 9 + 1) / 3) and picks[0].difficulty == "easy"
    apart = [sample(A, speedup=1.0, words=3), sample(A, speedup=2.0, words=9)]
    assert selecting.concur(apart) == []


def test_of_equally_short_answers_concur_takes_the_fastest() -> None:
    for speeds in ((1.0, 2.0), (2.0, 1.0)):
        picks = selecting.concur([sample(A, speedup=s, words=3) for s in speeds])
        assert [(p.sample.speedup, p.rule) for p in picks] == [(2.0, "a")]


def test_the_fastest_are_timed() -> None:
    pool = [sample(A, speedup=2.0), sample(A), sample(B)]
    assert [s.speedup for s in selecting.ranked(pool, "fastest", 9)] == [2.0]


def test_reasoning_that_began_in_the_prompt_counts() -> None:
    text = "a draft\n```cuda\n__global__ void no() {}\n```\nand more</think>\n```python\nclass ModelNew: pass\n```"
    thought = CuratedSample(A, text, "class ModelNew: pass\n", None, "r").reasoning
    assert thought.startswith("a draft") and thought.endswith("and more")


def test_a_file_is_fenced_by_its_language() -> None:
    for code, label in (("#include <cuda.h>\n__global__ void k() {}\n", "cuda"), ("import torch\n", "python")):
        row = METHODS["verified"](
            episodes(CuratedSample(A, code, code, judged(A, "correct"), "r")), CurationSettings(form="chat")
        )
        assert row.rows[0]["completion"][0]["content"] == f"```{label}\n{code}```\n"


def test_concur_rule_b_takes_fast_ones_above_the_threshold_only() -> None:
    fast = [sample(A, speedup=1.0, words=1), sample(A, speedup=5.0, words=2), sample(A, speedup=5.1, words=3)]
    assert [(p.sample.speedup, p.rule) for p in selecting.concur(fast)] == [(5.1, "b")]


def test_concur_counts_the_first_answers_only_and_levels_by_length() -> None:
    late = [sample(A, speedup=1.0, words=n) for n in (9000, 9000)] + [sample(A, speedup=9.0, words=1)]
    picks = selecting.concur(late, k_samples=2)
    assert [p.sample.speedup for p in picks] == [1.0] and picks[0].difficulty == "hard"


def test_concur_balances_with_one_operator_tasks() -> None:
    kept = [sample(t, speedup=2.0, words=4) for t in (A, B, C)]
    # Not by rule a: the shortest is the slower one. The one-operator tasks differ in mean length.
    single = [sample(ONE, speedup=1.0, words=10), sample(ONE, speedup=2.0, words=20)]
    harder = [sample(TWO, speedup=1.0, words=50), sample(TWO, speedup=2.0, words=60)]
    chain = task("chain", "torch.cos(x) + 1.5 * x")
    other = [sample(chain, speedup=1.0, words=1), sample(chain, speedup=2.0, words=2)]
    picks = selecting.concur([*kept, *harder, *single, *other], balance=1 / 3)
    assert [(p.rule, p.sample.task.task_id) for p in picks] == [("a", "a"), ("a", "b"), ("a", "c"), ("c", "one")]
    assert picks[-1].sample.length == 10
    assert len(selecting.concur([*kept, *single], balance=1e308)) == 4


def test_concur_goes_by_the_shortest_of_all_and_by_speed_among_equals() -> None:
    untimed = [sample(A, words=3), sample(A, speedup=2.0, words=9)]
    assert selecting.concur(untimed) == []  # without times the shortest cannot be shown to be the fastest
    equal = [sample(ONE, speedup=1.0, words=5), sample(ONE, speedup=1.2, words=5), sample(ONE, speedup=1.1, words=4)]
    others = [sample(A, speedup=1.0, words=1), sample(A, speedup=9.0, words=2)]
    picks = selecting.concur([*others, *equal[:2], sample(ONE, speedup=1.3, words=6)], balance=1.0)
    assert [(p.rule, p.sample.speedup) for p in picks] == [("b", 9.0), ("c", 1.2)]


def test_mdpo_pairs_what_was_said() -> None:
    silent = replace(sample(A, "wrong"), answer="", code="", evaluation=None)
    pool = [
        rollout(sample(A, speedup=2.0), name="x"),
        rollout(silent, name="y"),
        rollout(sample(A, "wrong", words=3), name="z"),
    ]
    for form in ("plain", "chat"):
        made = METHODS["mdpo"](pool, CurationSettings(form=form))  # type: ignore[arg-type]
        assert [m["content"] != "" and "```python\n\n```" not in m["content"] for m in made.rows[0]["rejected"]] == [
            True
        ]
        assert made.left_out["rollouts-with-an-empty-answer"] == 1


def test_speed_deciles_of_any_speed() -> None:
    assert [t.tag for t in speed_deciles([sample(A, speedup=s) for s in (1e308, 1e-308)])] == ["10/10", "1/10"]


def test_controls_take_one_a_task_by_their_order() -> None:
    pool = [sample(A, speedup=s, words=w) for s, w in ((1.0, 9), (3.0, 5))] + [sample(B, speedup=2.0, words=7)]
    assert [s.length for s in selecting.ranked(pool, "longest", 9)] == [9, 7]
    assert [s.length for s in selecting.ranked(pool, "shortest", 9)] == [5, 7]
    assert [s.speedup for s in selecting.ranked(pool, "fastest", 1)] == [3.0]
    drawn = selecting.ranked(pool, "random", 2, seed=3)
    assert drawn == selecting.ranked(pool, "random", 2, seed=3) and len({s.task.task_id for s in drawn}) == 2


@pytest.mark.parametrize("method", ["concur", "fastest", "speed-deciles"])
def test_methods_by_speed_refuse_what_was_not_timed(method: str) -> None:
    with pytest.raises(ConfigError, match="timed"):
        METHODS[method](episodes(sample(A)), CurationSettings())


def test_best_of_is_the_fastest_else_the_shortest_file() -> None:
    assert [s.speedup for s in selecting.best_of([sample(A, speedup=s) for s in (1.0, 4.0, 2.0)])] == [4.0]
    short, long = sample(A, code="class ModelNew: pass\n"), sample(A, code="class ModelNew:\n    x = 1\n")
    assert selecting.best_of([long, short, sample(A, "wrong")]) == [short]


def test_speed_deciles_are_shares_of_the_best_of_the_task() -> None:
    tagged = speed_deciles([sample(A, speedup=s) for s in (4.0, 2.0, 0.4, 0.1)] + [sample(B, speedup=0.5)])
    assert [t.tag for t in tagged] == ["10/10", "5/10", "1/10", "1/10", "10/10"]
    rows = METHODS["speed-deciles"](episodes(sample(A, speedup=2.0)), CurationSettings()).rows
    assert rows[0]["prompt"][-1]["content"].startswith("Speed: 10/10 of the fastest known.\n\nimport torch")


def test_speed_is_asked_for_where_bench_asks_for_it() -> None:
    """The request for a speed is in the first message, and replaces the speed that was requested then."""
    roles = (
        ("system", "s"),
        ("user", "Speed: 10/10 of the fastest known.\n\ntask"),
        ("assistant", "a"),
        ("user", "wrong"),
    )
    asked = tuple(Message(role=role, content=text) for role, text in roles)  # type: ignore[arg-type]
    slow = replace(sample(A, speedup=1.0), messages=asked, turn=1)
    (_, row) = METHODS["speed-deciles"](episodes(sample(A, speedup=2.0), slow), CurationSettings(form="chat")).rows
    assert [m["content"] for m in row["prompt"]] == ["s", "Speed: 5/10 of the fastest known.\n\ntask", "a", "wrong"]
    assert tuple(Message.model_validate(m) for m in row["prompt"]) == with_speed(asked, "5/10")


def test_retrieval_shows_similar_tasks_and_never_the_task_itself() -> None:
    near, far = task("near", "torch.relu(torch.exp(x)) - x"), task("far", "torch.cumsum(x, 0)")
    pool = [sample(A, speedup=9.0), sample(near, speedup=1.0), sample(near, speedup=2.0), sample(far), sample(B)]
    shots = retrieve(sample(A), pool, 2)
    assert [s.task.task_id for s in shots] == ["near"] and shots[0].speedup == 2.0
    row = METHODS["verified"](episodes(sample(A), *pool[1:]), CurationSettings(few_shot=1)).rows[0]
    assert row["demonstrations"] == ["near"]
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("method", ["verified", "best-of", "speed-deciles"])
def test_no_demonstration_comes_from_a_suite_to_keep_away_from(method: str, tmp_path: Path) -> None:
    near = task("near", "torch.tanh(torch.relu(torch.exp(x))) - x.mean()")
    (tmp_path / "held.py").write_text(A.source)
    pool = episodes(sample(A, speedup=2.0), sample(near, speedup=1.0))
    rows = METHODS[method](pool, CurationSettings(few_shot=1)).rows
    assert [r["demonstrations"] for r in rows if r["task_id"] == "near"] == [["a"]]
    kept = METHODS[method](pool, CurationSettings(few_shot=1, against=(str(tmp_path),))).rows
    assert [r["demonstrations"] for r in kept if r["task_id"] == "near"] == [[]]


def test_demonstrations_are_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match="repair") as caught:
        load_method("repair", 2)
    assert "best-of" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "choice",
    [{"margin": 0.0}, {"margin": float("nan")}, {"faster_by": 1.0}, {"faster_by": float("inf")}]
    + [{"balance": float("inf")}, {"balance": -1.0}, {"fast_threshold": float("nan")}],
)
def test_numbers_that_decide_nothing_are_refused(choice: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="--"):
        CurationSettings(**choice)  # type: ignore[arg-type]


def test_no_pair_has_the_same_code_twice() -> None:
    code = "class ModelNew:\n    x = 1\n"
    right, failed = sample(A, code=code), sample(A, "wrong", code="# layout\n" + code)
    twice = episodes(right, failed)
    assert preferences(twice) == [] and repairs(twice) == [] and repairs([rollout(failed, right)]) == []
    assert episode_pairs(twice) == [] and episode_pairs(twice[:1], margin=0.0) == []
    other = sample(A, "wrong")
    assert [p.rejected for p in preferences(episodes(right, failed, other))] == [other]
    assert [p.rejected.turns[0] for p in episode_pairs(episodes(right, failed, other))] == [other]
    same = episodes(*(sample(A, speedup=s, code=code) for s in (1.0, 3.0)))
    assert preferences(same, faster_by=2.0) == []


def rollout(*turns: CuratedSample, name: str = "r") -> Episode:
    fields = [{k: getattr(t, k) for k in t.__dataclass_fields__} for t in turns]
    return Episode(tuple(CuratedSample(**{**f, "rollout": name, "turn": i}) for i, f in enumerate(fields)))


def test_repairs_prefer_the_rollouts_own_and_skip_what_is_not_the_answers_fault() -> None:
    mended = rollout(sample(A, "compile_error", log="no ;"), sample(A, "harness_error"), sample(A, words=8))
    stuck = rollout(sample(A, "wrong", words=6), name="s")
    found = repairs([mended, stuck, rollout(sample(B, "wrong"), name="b")])
    assert [(r.failed.verdict, r.same_rollout) for r in found] == [("compile_error", True), ("wrong", False)]
    made = METHODS["repair"]([mended, stuck], CurationSettings(other_rollouts=False))
    assert len(made.rows) == 1 and made.left_out == {"failed-and-never-mended": 1}
    row = made.rows[0]
    assert row["failed_log"] == "no ;" and "compile_error" in row["prompt"][-1]["content"]
    assert row["completion"][0]["content"] == row["code"] == mended.turns[2].code


def test_preferences_are_right_over_failed_of_one_task_without_doubles() -> None:
    pool = [sample(A, words=w) for w in (1, 2)] + [sample(A, v) for v in ("wrong", "compile_error", "rejected")]
    pool += [sample(A, "unsupported"), sample(B), sample(C, "wrong")]
    pairs = preferences(episodes(*pool), per_task=10)
    assert len(pairs) == 6 == len({(p.chosen.code, p.rejected.code) for p in pairs})
    assert all(p.chosen.correct and p.rejected.verdict in ("wrong", "compile_error", "rejected") for p in pairs)
    few = preferences(episodes(*pool), per_task=2)
    assert len({p.chosen.code for p in few}) == len({p.rejected.code for p in few}) == 2


def test_both_answers_of_a_preference_follow_the_conversation_that_is_written() -> None:
    said = (Message(role="user", content="Do it."),)
    more = (*said, Message(role="assistant", content="So?"), Message(role="user", content="It is wrong."))
    mended = rollout(sample(A, "wrong", words=1, messages=said), sample(A, words=2, messages=more))
    alone = [sample(A, "wrong", words=3, messages=more), sample(B, messages=more), sample(A, words=4)]
    made = METHODS["preferences"]([mended, *episodes(*alone)], CurationSettings(form="chat"))
    assert [(r["code"], r["rejected_code"]) for r in made.rows] == [(mended.turns[1].code, alone[0].code)]
    assert [m["content"] for m in made.rows[0]["prompt"]] == ["Do it.", "So?", "It is wrong."]
    assert made.left_out == {"tasks-without-a-pair": 1, "answers-in-another-conversation": 2}
    assert len(METHODS["preferences"]([mended, *episodes(*alone)], CurationSettings()).rows) == 4


def test_code_that_came_twice_takes_no_pair_from_a_task() -> None:
    right = [sample(A, words=n) for n in (1, 1, 1, 2)]
    failed = [sample(A, "wrong", words=n) for n in (3, 3, 4)]
    found = preferences(episodes(*right, *failed))
    assert len({(p.chosen.tree, p.rejected.tree) for p in found}) == len(found) == 4


def test_one_problem_under_other_names_is_one_problem() -> None:
    first, second = task("row-1"), task("row-2")  # a data set that names each of its rows
    assert [(p.chosen.task.task_id, p.rejected.task.task_id) for p in preferences(episodes(
        sample(first), sample(second, "wrong", words=2), sample(B, "wrong")
    ))] == [("row-1", "row-2")]  # fmt: skip
    picks = selecting.concur([sample(first, speedup=2.0, words=3), sample(second, speedup=1.0, words=9)])
    assert [p.sample.speedup for p in picks] == [2.0]
    assert retrieve(sample(first), [sample(second, speedup=2.0)], 1) == []


def test_preferences_by_speed_only_when_asked_and_far_enough() -> None:
    pool = episodes(*(sample(A, speedup=s) for s in (1.0, 1.5, 3.0)))
    assert preferences(pool) == []
    pairs = preferences(pool, faster_by=2.0)
    assert [(p.chosen.speedup, p.rejected.speedup, p.kind) for p in pairs] == [
        (3.0, 1.5, "faster"),
        (3.0, 1.0, "faster"),
    ]


def test_episode_pairs_need_the_margin() -> None:
    good = rollout(sample(A, "wrong"), sample(A, speedup=1.5), name="good")
    bad = rollout(sample(A, "wrong"), sample(A, "timeout"), name="bad")
    near = rollout(sample(A, speedup=1.3), name="near")
    pair = episode_pairs([bad, near, good])[0]
    assert (pair.chosen.name, pair.rejected.name) == ("runs/a/good", "runs/a/bad")
    assert pair.scores == pytest.approx((1.8, 0.0))
    assert episode_pairs([good, near]) == [] and episode_pairs([good]) == []


def test_mdpo_marks_what_the_policy_said() -> None:
    good = rollout(sample(A, "wrong"), sample(A, speedup=1.5), name="good")
    bad = rollout(sample(A, "wrong", words=2), name="bad")
    row = METHODS["mdpo"]([good, bad], CurationSettings(form="chat")).rows[0]
    assert [m["role"] for m in row["chosen"]] == ["assistant", "user", "assistant"]
    assert row["chosen_actions"] == [True, False, True] and row["rejected_actions"] == [True]
    assert "<think>" in row["chosen"][0]["content"] and "Verdict: wrong" in row["chosen"][1]["content"]


def test_two_rollouts_of_mdpo_were_asked_the_same() -> None:
    """A row has one prompt, so a rollout with another prompt, however good, is not paired."""
    briefly, fully = ((Message(role="user", content=text),) for text in ("Do it.", "Do it, and say why."))
    best = rollout(sample(A, speedup=3.0, words=1, messages=fully), name="best")
    good = rollout(sample(A, speedup=1.5, words=2, messages=briefly), name="good")
    bad = rollout(sample(A, "wrong", words=3, messages=briefly), name="bad")
    rows = METHODS["mdpo"]([best, good, bad], CurationSettings(form="chat")).rows
    assert [(r["code"], r["prompt"][0]["content"]) for r in rows] == [(good.turns[0].code, "Do it.")]
    assert METHODS["mdpo"]([best, bad], CurationSettings(form="chat")).left_out == {"tasks-without-a-pair": 1}
    assert [r["code"] for r in METHODS["mdpo"]([best, good, bad], CurationSettings()).rows] == [best.turns[0].code]


def test_rft_drops_loops_unreadable_answers_and_what_paid_nothing() -> None:
    good = rollout(sample(A, "wrong"), sample(A), name="good")
    loop = rollout(sample(A, "wrong"), sample(A, "wrong"), sample(A), name="loop")
    nothing = rollout(sample(A, "wrong"), name="nothing")
    broken = CuratedSample(A, "no code at all", "", None, "runs/a", parse_failure="the answer has no fenced code block")
    invalid = rollout(broken, sample(A), name="invalid")
    kept, dropped = selecting.rft([good, loop, nothing, invalid])
    assert [e.name for e in kept] == ["runs/a/good"] and dropped == {"no-reward": 1, "loop": 1, "invalid": 1}
    row = METHODS["rft"]([good], CurationSettings()).rows[0]
    assert [m["role"] for m, own in zip(row["messages"], row["actions"], strict=True) if own] == ["assistant"] * 2


def test_an_example_that_was_shown_is_no_action() -> None:
    asked = tuple(Message(role=r, content=c) for r, c in (("user", "e.g."), ("assistant", "shown"), ("user", "now")))
    good = rollout(sample(A, messages=asked))
    row = METHODS["rft"]([good], CurationSettings(form="chat")).rows[0]
    assert row["actions"] == [False, False, False, True]


def test_statements_say_less_with_each_level() -> None:
    made = [statement(sample(A, note="relu_kernel: 4 blocks of 256 threads."), level) for level in (1, 2, 3)]
    assert all("exp, relu, add" in text and "forward(x)" in text for text in made)
    assert "256 threads" in made[0] and "256" not in made[1] + made[2]
    assert "torch.relu(torch.exp(x)) + x" in made[1] and "torch.relu" not in made[2]
    rows = METHODS["reverse"](episodes(sample(A), sample(B, "wrong")), CurationSettings()).rows
    assert [r["level"] for r in rows] == [1, 2, 3] and {r["task_id"] for r in rows} == {"a"}


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("import triton\n@triton.jit\ndef k(x): pass\n", "a Triton kernel"),
        ("source = '__global__ void k() {}'\n", "a CUDA kernel"),
        ("from torch.utils.cpp_extension import load_inline\nm = load_inline('m', '')\n", "a C++ kernel"),
        ("#include <torch/extension.h>\ntorch::Tensor forward(torch::Tensor x) { return x; }\n", "a C++ kernel"),
    ],
)
def test_statements_ask_for_what_the_answer_is(code: str, asked: str) -> None:
    assert statement(sample(A, code=code), 3).startswith(f"Write {asked} for PyTorch: exp, relu, add.")


def test_statements_name_starred_arguments_and_count_what_they_cannot_read() -> None:
    starred = HEAD.replace("(self, x)", "(self, *xs, scale=2.0, **kw)") + "torch.relu(xs[0])" + TAIL
    made = statement(sample(Task(task_id="s", source=starred)), 3)
    assert "forward(*xs, scale=2.0, **kw)" in made
    unread = [Task(task_id="p", source="x = 1\n"), Task(task_id="c", source="#include <cuda.h>\nint main() {}\n")]
    left = METHODS["reverse"](episodes(sample(A), *map(sample, unread)), CurationSettings()).left_out
    assert left == {"unreadable-reference": 1, "cuda-program": 1}


def test_programs_that_were_asked_for_in_words_are_named_as_programs(tmp_path: Path) -> None:
    from kernelwright.bench.program_suite import load

    program = "#include <cstdio>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n"
    scripts = {"gen.py": "open('data/in.bin', 'w')", "compare.py": "print('T')"}
    row = {"id": "p", "bench.cu": program, **scripts, "level1_prompt": "Double each number\nfrom data/in.bin."}
    (tmp_path / "bench.jsonl").write_text(json.dumps(row) + "\n")
    tasks, _, _ = load(f"cudabench:{tmp_path / 'bench.jsonl'}:1", 1, None, None)
    made = METHODS["reverse"](episodes(sample(tasks[0], code=program)), CurationSettings())
    assert (made.rows, made.left_out) == ([], {"cuda-program": 1})


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    made = METHODS["verified"](episodes(sample(A)), CurationSettings())
    (tmp_path / "data").mkdir()
    for name in ("README.md", "data/train.jsonl"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(StoreError, match="other files"):
        write(tmp_path, made, method="verified", runs=["r"], settings=CurationSettings())
    assert (tmp_path / "README.md").read_text() == (tmp_path / "data/train.jsonl").read_text() == "mine"
    out = tmp_path / "out"
    write(out, made, method="verified", runs=["r"], settings=CurationSettings())
    (out / "manifest.json").unlink()  # as an interrupted call leaves it
    assert write(out, made, method="verified", runs=["r"], settings=CurationSettings())["rows"] == 1


def test_doubles_are_told_by_their_tree() -> None:
    one = METHODS["verified"](episodes(sample(A, code="class ModelNew:\n    x = 1\n")), CurationSettings()).rows
    two = METHODS["verified"](
        episodes(sample(A, code="# other\nclass ModelNew:\n\n    x = 1\n")), CurationSettings()
    ).rows
    rows, doubles = without_doubles([*one, *two])
    assert (rows, doubles) == (one, 1)


@pytest.mark.parametrize("frame", ["source = '''{}'''\n", "#include <cstdio>\n{}"])
def test_doubles_are_told_by_their_kernels_without_comments_and_layout(frame: str) -> None:
    kernel = '__global__ void f(float* x) {\n    x[0] = 1; // the "first"\n    printf("a // b");\n}'
    same = '/* other */ __global__ void f(float* x) { x[0] = 1;\n printf("a // b"); }'
    first, again, other = (tree_hash(frame.format(t)) for t in (kernel, same, same.replace("a // b", "a // c")))
    assert first == again != other
    assert tree_hash("x = 7 // 2 +") != tree_hash("x = 7 // 3 +")  # Python that does not parse


def test_the_size_counts_what_is_left(tmp_path: Path) -> None:
    """The input has a duplicate, a task of the suite, and one task more; of two requested rows both are given."""
    (tmp_path / "held.py").write_text(B.source)
    made = episodes(sample(A), sample(A), sample(B), sample(C), sample(TWO))
    settings = CurationSettings(size=2, against=(str(tmp_path / "held.py"),))
    manifest = write(
        tmp_path / "out",
        METHODS["verified"](made, settings),
        method="verified",
        runs=["r"],
        settings=settings,
    )
    assert (manifest["rows"], manifest["doubles"], manifest["left_out"]) == (2, 1, {"beyond-the-size": 1})
    assert manifest["decontamination"]["removed"] == 1


def test_rows_too_near_to_a_suite_go(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(A.source.replace("(x)", "(x )"))
    rows = METHODS["verified"](episodes(sample(A), sample(B)), CurationSettings()).rows
    kept, removed = away_from(rows, [str(tmp_path)], "remove")
    assert [r["task_id"] for r in kept] == ["b"]
    assert [(r["task_id"], r["nearest"].rsplit("#")[1]) for r in removed] == [("a", "held")]


def test_nothing_left_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    made = METHODS["verified"](episodes(sample(A, "wrong")), CurationSettings())
    with pytest.raises(ConfigError, match="leaves no row") as caught:
        write(tmp_path / "data", made, method="verified", runs=["r"], settings=CurationSettings())
    assert caught.value.hint == "1 wrong" and not (tmp_path / "data").exists()


def test_types_of_fields_are_those_of_all_rows() -> None:
    rows = [
        {"a": None, "b": [], "speedup": None},
        {"a": 1, "b": [{"role": "x"}], "speedup": None},
        {"a": 0.5, "c": [[True]]},
    ]
    assert features(rows) == [
        {"name": "a", "dtype": "float64"},
        {"name": "b", "list": [{"name": "role", "dtype": "string"}]},
        {"name": "speedup", "dtype": "float64"},
        {"name": "c", "list": {"list": "bool"}},
    ]


def test_what_is_written_loads(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pool = [
        rollout(sample(A, "wrong"), sample(A, speedup=2.0), name="x"),
        rollout(sample(A, "timeout", words=3), name="y"),
        *episodes(sample(B, speedup=6.0), sample(ONE, speedup=1.0)),
    ]
    for method in METHODS:
        out = tmp_path / method
        made = METHODS[method](pool, CurationSettings(form="chat"))
        manifest = write(out, made, method=method, runs=["r"], settings=CurationSettings(), licence="Apache-2.0")
        loaded = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded.num_rows == manifest["rows"] == len((out / "data/train.jsonl").read_text().splitlines()) > 0
        assert json.loads((out / "manifest.json").read_text()) == manifest
        assert method in (out / "README.md").read_text()
        texts = loaded.features["prompt"].feature if "prompt" in loaded.features else None
        assert loaded.features["speedup"].dtype == "float64" and (texts is None or texts["role"].dtype == "string")
    with pytest.raises(StoreError):
        write(tmp_path / "rft", made, method="rft", runs=["r"], settings=CurationSettings())
