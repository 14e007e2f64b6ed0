"""Writes rows as a data set on disk: deduplicated, decontaminated against suites, with manifest and datasheet."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from kernelwright import __version__
from kernelwright.corpus.decontaminate import removal
from kernelwright.corpus.guard import away, removals_summary, taught
from kernelwright.corpus.shards import MANIFEST, write_whole
from kernelwright.curation.methods import CuratedRows, CurationSettings
from kernelwright.curation.samples import digest, tree_hash
from kernelwright.errors import ConfigError, StoreError
from kernelwright.runs.folders import claim

FILE = "data/train.jsonl"
REMOVED = "decontamination.json"


def write(
    folder: Path,
    made: CuratedRows,
    *,
    method: str,
    runs: Sequence[str],
    settings: CurationSettings,
    licence: str | None = None,
) -> dict[str, Any]:
    """Removes duplicates and rows too near to a suite, writes the first `size` of the rest, returns the manifest.

    Suites come from the settings. Raises `StoreError` for a folder with other files, and `ConfigError` where no row is
    left: an empty data set is never written.
    """
    claim(folder)
    if (folder / MANIFEST).exists():
        raise StoreError(f"{str(folder)!r} holds a data set already", hint="name another folder with --out")
    if not _is_own(folder):
        raise StoreError(f"{str(folder)!r} holds other files", hint="name a new or an empty folder with --out")
    rows, doubles = without_doubles(made.rows)
    rows, removed = away_from(rows, settings.against, settings.one_operator)
    if not rows:
        why = f"{len(made.rows)} rows were made, {doubles} of them doubles, {len(removed)} too near to a suite"
        left = ", ".join(f"{n} {reason}" for reason, n in made.left_out.items() if n)
        raise ConfigError(f"method {method} leaves no row: {why}", hint=left or "judge more, or use another method")
    left_out = {**made.left_out, "beyond-the-size": len(rows) - len(rows[: settings.size])}
    rows = rows[: settings.size]
    data = b"".join(json.dumps(r, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for r in rows)
    # Written first: a later call recognizes by it the files of an interrupted call (`_is_own`).
    write_whole(folder / REMOVED, (json.dumps({"removed": removed}, indent=1) + "\n").encode())
    write_whole(folder / FILE, data)
    manifest = {
        "kernelwright": __version__,
        "method": method,
        "kind": made.kind,
        "settings": {k: v for k, v in asdict(settings).items() if k not in ("against", "one_operator")},
        "runs": list(runs),
        "licence": licence,
        "rows": len(rows),
        "tasks": len({r["reference"] for r in rows}),
        "rules": dict(Counter(r["why"] for r in rows)),
        "verdicts": dict(Counter(r["verdict"] for r in rows)),
        "policies": dict(Counter(r["policy"] or "unknown" for r in rows)),
        "timed": sum(r["speedup"] is not None for r in rows),
        "doubles": doubles,
        "left_out": {why: n for why, n in left_out.items() if n},
        "decontamination": {
            "against": list(settings.against),
            "one_operator": settings.one_operator,
            **removals_summary(removed),
        },
        "files": [{"file": FILE, "rows": len(rows), "sha256": hashlib.sha256(data).hexdigest()}],
    }
    write_whole(folder / "README.md", datasheet(manifest, features(rows)).encode())
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return manifest


def _is_own(folder: Path) -> bool:
    """Tells whether a folder without a manifest holds nothing but files of an interrupted call."""
    found = {p.relative_to(folder).as_posix().removesuffix(".new") for p in folder.rglob("*") if folder.is_dir()}
    began = (folder / REMOVED).is_file() or found == {REMOVED}
    return not found or (began and found <= {REMOVED, "data", FILE, "README.md", MANIFEST})


def without_doubles(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Removes rows with the same prompt and code (and rejected or failed code); returns the rest and a count.

    Code is compared without comments and layout, also of C++ in Python strings (`tree_hash`).
    """
    seen: set[tuple[str, ...]] = set()
    kept = []
    for row in rows:
        others = (str(row.get(name, "")) for name in ("rejected_code", "failed_code"))
        said = json.dumps(row.get("prompt") or row.get("messages"), sort_keys=True)
        key = (digest(said), tree_hash(row["code"]), *(tree_hash(o) for o in others))
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return kept, len(rows) - len(kept)


def away_from(
    rows: Sequence[dict[str, Any]], suites: Sequence[str], one_operator: Literal["remove", "keep"]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Removes rows whose task or code is too near to a suite; returns the rest and the removals, one per task."""
    if not suites:
        return list(rows), []
    kept_away, kept = away(tuple(suites), one_operator), []
    removed: dict[str, dict[str, Any]] = {}
    for row in rows:
        near, names = kept_away.near(row["reference"], *taught(row))
        if near.reasons:
            removed.setdefault(row["reference"], removal(row["task_id"], "", near, names))
        else:
            kept.append(row)
    return kept, list(removed.values())


_USES = {
    "sft": "`trl.SFTTrainer` takes `prompt` and `completion` as they are (the loss is on the completion).",
    "preference": "`trl.DPOTrainer` takes `prompt`, `chosen` and `rejected` as they are.",
    "episodes": "Only messages whose entry in `actions` (`chosen_actions`, `rejected_actions`) is true are the "
    "policy's own; the others are what the environment said and carry no loss.",
}


def features(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns names and types of the fields in the form that `datasets` reads from a datasheet.

    Without them `datasets` guesses types from the first rows, and fails on a speedup where these have none.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{"name": name, **_feature([row.get(name) for row in rows], _EMPTY.get(name, "string"))} for name in names]


_EMPTY = {"speedup": "float64"}
"""Types of non-text fields for which no row has a value."""


def _feature(values: Sequence[Any], empty: str) -> dict[str, Any]:
    """Returns the type of a field with these values."""
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, list) for v in known):
        inner = _feature([x for v in known for x in v], empty)
        return {"list": inner.get("dtype") or inner.get("struct") or inner}
    if known and all(isinstance(v, dict) for v in known):
        return {"struct": features(known)}
    kinds = {type(v) for v in known}
    names = {bool: "bool", int: "int64", float: "float64", str: "string"}
    return {"dtype": names[kinds.pop()] if len(kinds) == 1 else "float64" if kinds == {int, float} else empty}


def datasheet(manifest: dict[str, Any], fields: Sequence[dict[str, Any]]) -> str:
    """Returns the datasheet: motivation, composition, collection, use and limits; `fields` are the `features`."""
    licence, names = manifest["licence"], ", ".join(field["name"] for field in fields)
    removed = manifest["decontamination"]
    against = ", ".join(removed["against"]) or "no suite: check before you report results on one"
    settings = ", ".join(f"{k}={v}" for k, v in manifest["settings"].items() if v is not None)
    left = ", ".join(f"{n} {why}" for why, n in manifest["left_out"].items()) or "nothing"
    return f"""---
license: {json.dumps((licence or "unknown").lower())}
configs:
- config_name: default
  data_files: {FILE}
dataset_info:
  features: {json.dumps(list(fields))}
---
# {manifest["rows"]} rows by `{manifest["method"]}`

- **Motivation**: training data for models that write GPU kernels, selected from judged answers.
- **Composition**: {manifest["rows"]} rows over {manifest["tasks"]} tasks. Fields: {names}.
  Rules: {", ".join(f"{n} {w}" for w, n in manifest["rules"].items())}. {manifest["timed"]} rows have a speedup.
- **Collection**: Kernelwright {manifest["kernelwright"]} judged every answer by execution; runs:
  {", ".join(manifest["runs"])}. Answers by: {", ".join(f"{n} {p}" for p, n in manifest["policies"].items())}.
- **Preprocessing**: method `{manifest["method"]}` with {settings}. Left out: {left};
  {manifest["doubles"]} doubles. Kept away from: {against} ({removed["removed"]} tasks removed).
- **Use**: {_USES[manifest["kind"]]}
- **Limits**: a verdict holds for the sizes and values that were tried. Answers are as good as the policies that gave
  them, and their licence is that of the runs{"" if licence else "; none was stated"}.
"""


def check_choices(form: str, one_operator: str) -> None:
    """Raises `ConfigError` for an unknown form or `one_operator` choice."""
    if form not in ("plain", "chat"):
        raise ConfigError(f"--form {form!r} is not a form", hint="use plain or chat")
    if one_operator not in ("remove", "keep"):
        raise ConfigError(f"--one-operator {one_operator!r} is not a choice", hint="use remove or keep")


def push_to_hub(folder: Path, name: str) -> None:
    """Pushes a data set to the Hub as a private one. Raises `ConfigError` without the library or the permission."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ConfigError("--push needs huggingface_hub", hint='pip install "kernelwright[hub]"') from error
    try:
        api = huggingface_hub.HfApi()
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(repo_id=name, repo_type="dataset", folder_path=str(folder))
    except Exception as error:  # the library raises many types, for names, tokens and networks
        first = next(iter(str(error).splitlines()), "")
        raise ConfigError(
            f"the data set cannot be pushed to {name!r}: {type(error).__name__}: {first}"[:500],
            hint=f"it is whole in {str(folder)!r}: log in with `hf auth login`, then "
            f"`hf upload {name} {folder} . --repo-type dataset --private`",
        ) from error
