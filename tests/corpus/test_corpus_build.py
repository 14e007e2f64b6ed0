"""The corpus builder: it makes the same corpus when killed, interrupted, out of disk space, or undisturbed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import Command

from kernelwright.corpus.build import CorpusPlan, build
from kernelwright.corpus.pairs import recipe
from kernelwright.corpus.shards import FIELDS, read_manifest, read_rows
from kernelwright.errors import ConfigError, StoreError

TASKS = 544
"""Two shards, of which the second is short."""
FAMILIES = "relu,selu,abs,exp,tanh,sin,sum,outer,bmm"
RECIPE = recipe(seed=4, families=FAMILIES.split(","))
WORDS = ("--tasks", str(TASKS), "--seed", "4", "--families", FAMILIES, "--judge", "none", "--jobs")


def start(out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernelwright.cli", "corpus", "build", "--out", str(out), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def left_over(session: int) -> list[psutil.Process]:
    """Returns the living processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def all_gone(session: int, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not left_over(session):
            return True
        time.sleep(0.1)
    return False


def lines_on_disk(out: Path) -> int:
    return sum(p.read_bytes().count(b"\n") for p in out.glob("work/part-*.jsonl"))


def content(out: Path) -> dict[str, str]:
    """Returns the hash of every data file."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(out.glob("data/*"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a corpus of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "corpus"
    build(out, CorpusPlan(RECIPE, TASKS, "none"), jobs=1)
    return out


def test_what_the_manifest_says_is_what_is_there(whole: Path) -> None:
    manifest = read_manifest(whole)
    rows = list(read_rows(whole))
    assert manifest["complete"] and manifest["rows"] == len(rows) == sum(s["rows"] for s in manifest["shards"])
    assert len(manifest["shards"]) == 2 and manifest["tasks"] == TASKS
    assert len({r["row_id"] for r in rows}) == len(rows)
    assert all(list(r) == list(FIELDS) for r in rows)
    for shard in manifest["shards"]:
        data = (whole / shard["file"]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (shard["sha256"], shard["bytes"])
    tasks = {r["task_id"] for r in rows}
    assert len(tasks) + sum(manifest["skipped"].values()) + manifest["duplicates"] == TASKS
    assert manifest["judged"] == 0 and not any(r["judged"] or r["verdict"] for r in rows)
    assert sum(c.get("rows", 0) for c in manifest["families"].values()) == len(rows)
    assert not list(whole.glob("work/part-*")) and not list(whole.rglob("*.new"))


@pytest.mark.slow
def test_killed_at_random_points_it_loses_and_doubles_nothing(whole: Path, tmp_path: Path) -> None:
    out, draw, kills = tmp_path / "corpus", random.Random(7), 0
    for _ in range(20):
        process = start(out, *WORDS, "2")
        before = lines_on_disk(out)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if kills < 3 and lines_on_disk(out) != before:  # it writes: any moment from here on
                time.sleep(draw.random() * 0.6)
                break
            time.sleep(0.01)
        if process.poll() is None and kills < 3:
            process.kill()
            kills += 1
        process.communicate()
        assert all_gone(process.pid), "processes outlive the builder"
        if process.returncode == 0:
            break
    assert kills >= 2
    assert content(out) == content(whole)
    manifest, expected = read_manifest(out), read_manifest(whole)
    assert {k: v for k, v in manifest.items()} == {k: v for k, v in expected.items()}


def test_a_line_that_a_kill_cut_off_is_written_again(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    plan = CorpusPlan(RECIPE, TASKS, "none")
    part = out / "work" / "part-00001.jsonl"
    part.parent.mkdir(parents=True)
    (out / "build.json").write_text((whole / "build.json").read_text())
    row = next(r for r in read_rows(whole) if r["row_id"] == "train-4-000064-0000")
    kept = json.dumps({"chunk": 64, "place": 0, "row": row}) + "\n"
    part.write_text(kept + kept + kept[: len(kept) // 2])
    build(out, plan, jobs=1)
    assert content(out) == content(whole)


def test_interrupted_it_says_so_and_goes_on(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    process = start(out, *WORDS, "1")
    while process.poll() is None and lines_on_disk(out) < 5:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the builder and its processes
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    assert all_gone(process.pid)
    again = start(out, *WORDS, "1")
    again.communicate(timeout=120)
    assert again.returncode == 0 and content(out) == content(whole)


def test_a_disk_without_room_is_a_clear_error_and_not_the_end(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    words = [sys.executable, "-m", "kernelwright.cli", "corpus", "build", "--out", str(out), *WORDS, "1"]

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=little_room, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "cannot be written: File too large" in done.stderr and "hint:" in done.stderr
    build(out, CorpusPlan(RECIPE, TASKS, "none"), jobs=1)
    assert content(out) == content(whole)


def test_a_full_device_is_named(tmp_path: Path) -> None:
    """/dev/full refuses every byte, as a full disk does."""
    out = tmp_path / "corpus"
    (out / "work").mkdir(parents=True)
    plan = CorpusPlan(recipe(seed=4), 32, "none")
    (out / "build.json").write_text(json.dumps(plan.fields()))
    (out / "work" / "part-00000.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left on device"):
        build(out, plan, jobs=1)


def test_another_request_is_refused(whole: Path) -> None:
    with pytest.raises(StoreError, match="other settings: recipe, tasks"):
        build(whole, CorpusPlan(recipe(seed=5), 10, "none"))
    before = content(whole)
    assert build(whole, CorpusPlan(RECIPE, TASKS, "none")) == read_manifest(whole)
    assert content(whole) == before


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        build(tmp_path, CorpusPlan(recipe(seed=4), 10, "none"))
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "fields", [{"tasks": 0}, {"share": 2.0}, {"judge": "tpu"}, {"format": "csv"}, {"timing_seconds": -1.0}]
)
def test_a_request_out_of_range_is_said(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CorpusPlan(**{"recipe": recipe(seed=1), "tasks": 5, **fields})


def test_how_long_a_gpu_times_is_part_of_what_a_corpus_is() -> None:
    on_gpu = CorpusPlan(recipe(seed=1), 5, "gpu", timing_seconds=0.2).options()
    on_cpu = CorpusPlan(recipe(seed=1), 5, "cpu", timing_seconds=0.2).options()
    assert on_gpu is not None and on_gpu.timing_seconds == 0.2
    assert on_cpu == CorpusPlan(recipe(seed=1), 5, "cpu").options()  # nothing is timed there


def test_judged_rows_are_kept_through_kills_and_not_judged_again(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    words = ("--tasks", "6", "--seed", "2", "--families", "relu,tanh,softplus", "--jobs", "1", "--judge", "cpu")
    process = start(out, *words)
    while process.poll() is None and lines_on_disk(out) < 2:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert all_gone(process.pid), "judging processes outlive the builder"
    kept = [json.loads(x)["row"] for x in (out / "work" / "part-00000.jsonl").read_text().splitlines()]
    again = start(out, *words, "--json")
    stdout, stderr = again.communicate(timeout=200)
    assert again.returncode == 0, stderr
    manifest = json.loads(stdout)
    rows = list(read_rows(out))
    assert manifest["rows"] == manifest["judged"] == len(rows) == 6 and manifest["verdicts"] == {"correct": 6}
    assert all(r in rows for r in kept)  # with the seconds that were measured before the kill


def test_a_share_is_judged_and_a_suite_kept_away(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    source = "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
    (suite / "one.py").write_text(source + "        return torch.tanh(x)\n\ndef get_inputs():\n    return []\n")
    made = recipe(seed=2, families=["selu", "tanh"], against=[str(suite)])
    manifest = build(tmp_path / "corpus", CorpusPlan(made, 24, "cpu", share=0.4), jobs=1)
    assert set(manifest["decontamination"]["by_family"]) == {"tanh"}
    rows = list(read_rows(tmp_path / "corpus"))
    assert {r["family"] for r in rows} == {"selu"} and 0 < manifest["judged"] < len(rows)
    assert {r["verdict"] for r in rows if r["judged"]} == {"correct"}
    assert manifest["skipped"]["contaminated"] == manifest["decontamination"]["removed"]


def test_both_formats_load_as_data_sets(whole: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("pyarrow")
    datasets.config.HF_DATASETS_CACHE = tmp_path / "cache"
    out = tmp_path / "parquet"
    build(out, CorpusPlan(RECIPE, TASKS, "none", format="parquet"), jobs=1)
    assert list(read_rows(out)) == list(read_rows(whole))
    for folder in (whole, out):
        loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded.num_rows == read_manifest(whole)["rows"] and loaded.column_names == list(FIELDS)
        assert loaded[0] == next(read_rows(whole))


def test_bad_words_are_one_error(tmp_path: Path, kernelwright: Command) -> None:
    for words, said in ((("--families", "relu,nothing"), "nothing"), (("--split", "test"), "test")):
        done = kernelwright("corpus", "build", "--out", tmp_path / "corpus", "--judge", "none", *words)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_show(whole: Path, kernelwright: Command) -> None:
    done = kernelwright("corpus", "show", whole)
    assert done.returncode == 0 and f"{TASKS} tasks" in done.stdout
    row = json.loads(kernelwright("corpus", "show", whole, "--row", "3", "--json").stdout)
    assert row == list(read_rows(whole))[3]
    missing = kernelwright("corpus", "show", whole.parent)
    assert missing.returncode == 2 and "holds no corpus" in missing.stderr


def test_every_choice_of_schedules_has_a_size_of_chunks() -> None:
    from typing import get_args

    from kernelwright.corpus.build import CHUNK
    from kernelwright.corpus.pairs import Schedules

    assert set(CHUNK) == set(get_args(Schedules))
