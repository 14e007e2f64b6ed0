"""Makes training data from our own parts: generated tasks, library solutions, verdicts, and short true reasoning.

`stream` gives (task, answer) pairs made by construction; `build` judges them and stores them as shards; `decontaminate`
measures how near tasks are to a suite. Imports neither torch nor pyarrow.
"""

from __future__ import annotations

from kernelwright.corpus.pairs import Pair
from kernelwright.corpus.stream import PairStream, pairs

__all__ = ["Pair", "PairStream", "pairs"]
