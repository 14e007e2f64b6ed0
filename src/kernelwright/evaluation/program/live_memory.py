"""The memory of a candidate whose records run on a GPU as they arrive: blocks on a card, one label a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from kernelwright.evaluation.device.card import LiveCard, OutOfCardMemory
from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.memory import Block, DeviceMemory, OutOfMemory
from kernelwright.machine.device_memory import POISON


class LiveMemory(DeviceMemory):
    """Blocks on a card. What kernels store cannot be seen there, so a block has one label for all of its bytes.

    Freed memory stays mapped until `clear`: the candidate's process gives its addresses to later blocks.
    """

    def __init__(self, limit: int, card: LiveCard) -> None:
        super().__init__(limit, sparse=True)
        self.card = card
        self.device = card.device
        self.poisoned = True
        """True while memory is poisoned when a block begins. `poison_free` has done it before a call that is timed."""
        self._free: list[tuple[int, int]] = []
        """Addresses and bytes that blocks of the judge's tensors have left."""

    def _begin(self, block: Block) -> None:
        if block.variable:
            return  # it has its memory
        try:
            self.card.map(block.address, block.nbytes)
        except OutOfCardMemory as error:
            raise OutOfMemory(str(error)) from error
        if block.label == memory.UNWRITTEN and self.poisoned:
            self.card.fill(block.address, POISON, block.nbytes)

    def _end(self, block: Block) -> None:
        block.flat = torch.empty(0, dtype=torch.uint8)
        if block.given:
            self._free.append((block.address, block.nbytes))

    def given(self, nbytes: int, name: str, label: int = memory.GIVEN) -> Block:
        """Maps a block for a tensor of the judge, in memory that an earlier one of the same size has left, if there
        is any."""
        found = next((one for one in self._free if one[1] == nbytes), None)
        if found is None:
            return super().given(nbytes, name, label)
        self._free.remove(found)
        block = self.add(found[0], nbytes, name, label)
        block.given = True
        return block

    def room(self) -> int:
        """Returns 0: the driver chooses."""
        return 0

    def clear(self) -> None:
        """Forgets all blocks, and returns their memory to the GPU."""
        super().clear()
        self.card.release()

    def flat(self, block: Block) -> torch.Tensor:
        """Returns the bytes of a block."""
        if not block.flat.numel():
            block.flat = self.card.tensor(block.address, block.nbytes)
        return block.flat

    def poison_free(self) -> None:
        """Poisons all mapped memory that no block has."""
        self.poison_beside([(block.address, block.nbytes) for block in self.in_order()])

    def poison_beside(self, spans: Sequence[tuple[int, int]]) -> None:
        """Poisons all mapped memory beside spans: address and bytes of each, in the order of addresses."""
        for first, nbytes in self.card.ranges():
            at, end = first, first + nbytes
            for start, length in spans:
                if start >= end or start + length <= first:
                    continue
                if start > at:
                    self.card.fill(at, POISON, start - at)
                at = max(at, start + length)
            if at < end:
                self.card.fill(at, POISON, end - at)

    def in_order(self) -> list[Block]:
        """Returns all blocks in the order of their addresses."""
        return [self.blocks[start] for start in self._starts]

    def _suspect(self, block: Block, labels: np.ndarray | int, whole: bool) -> None:
        if whole and isinstance(labels, int):
            block.mark(labels)
        else:
            block.suspect(labels)

    def read(self, address: int, nbytes: int) -> bytes:
        """Returns a copy of bytes, after all work before."""
        return self.card.read(address, nbytes)

    def put(self, address: int, data: bytes | bytearray) -> None:
        """Writes bytes of the host."""
        self.card.write(address, bytes(data))

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Sets bytes to one value."""
        self.card.fill(address, value, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes to another address of the device."""
        self.card.copy(to, source, nbytes)
