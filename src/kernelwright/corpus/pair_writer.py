"""The process that writes chunks of pairs: reads a recipe and chunk numbers, answers one JSON line a chunk."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from kernelwright.corpus.pairs import from_fields, make_chunk
from kernelwright.corpus.processes import ignore_interrupts, request


def _main() -> None:
    ignore_interrupts()
    recipe = from_fields(request())
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = asdict(make_chunk(recipe, json.loads(line)))
        except Exception as error:  # sent to the parent, which raises it
            answer = {"failed": f"{type(error).__name__}: {error}"}
        try:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)


if __name__ == "__main__":
    _main()
