"""Training data from our own parts: generated tasks, written solutions, verdicts, and short true reasoning.

`pairs` streams (task, answer) pairs made by construction; `build` judges them and keeps them as shards; `decontaminate`
says which tasks are too near to a suite. Imports neither torch nor pyarrow.
"""

from __future__ import annotations

from kernelwright.corpus.pairs import Pair
from kernelwright.corpus.stream import PairStream, pairs

__all__ = ["Pair", "PairStream", "pairs"]
