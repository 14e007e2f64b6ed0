"""Leaves NaN in the memory of a GPU's multiprocessors, so that a kernel which reads unwritten memory gets no zeros.

Shared memory is not cleared between kernels: a block finds there the contents that the last block on the same
multiprocessor left, and on an idle GPU those are often zeros. One block per multiprocessor takes all the shared memory
that a block may have, so no second block fits there. It fills that memory and a part of each thread's stack. It stays
long enough for the other blocks to start on other multiprocessors meanwhile.
"""

from __future__ import annotations

import ctypes

THREADS = 1024
_STAY_CYCLES = 40_000
"""About 20 us: starting a block for each multiprocessor takes less."""
_MULTIPROCESSORS, _MOST_SHARED = 16, 97  # of CUdevice_attribute: MULTIPROCESSOR_COUNT, ..._PER_BLOCK_OPTIN
_MOST_DYNAMIC_SHARED = 8  # of CUfunction_attribute: MAX_DYNAMIC_SHARED_SIZE_BYTES
ENTRY = "leave_nan"
PTX = """.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry leave_nan(.param .u32 words, .param .u64 cycles, .param .u32 zero)
{
  .local .align 16 .b8 stack[512];
  .reg .pred more;
  .reg .b32 ones, none, word, count, index, step, base, at;
  .reg .b64 place, first, now, gone, stay;
  mov.u64 first, %clock64;
  mov.b32 ones, 0xffffffff;
  ld.param.u32 none, [zero];  // not known when this is compiled, so that no store is left out
  mov.u64 place, stack;
  mov.u32 index, 0;
STACK:
  and.b32 word, index, none;
  sub.u32 word, ones, word;
  st.local.v4.b32 [place], {word, word, word, word};
  add.u64 place, place, 16;
  add.u32 index, index, 16;
  setp.lt.u32 more, index, 512;
  @more bra STACK;
  mov.u32 index, %tid.x;  // one is read back: ones, and so 0 is added to the stay
  and.b32 at, index, 127;
  mul.wide.u32 place, at, 4;
  mov.u64 now, stack;
  add.u64 place, place, now;
  ld.local.b32 at, [place];
  add.u32 at, at, 1;
  cvt.u64.u32 gone, at;
  ld.param.u64 stay, [cycles];
  add.u64 stay, stay, gone;
  ld.param.u32 count, [words];
  mov.u32 step, %ntid.x;
  mov.u32 base, room;
  setp.lt.u32 more, index, count;
  @!more bra WAIT;
SHARED:
  shl.b32 at, index, 2;
  add.u32 at, base, at;
  st.volatile.shared.b32 [at], ones;
  add.u32 index, index, step;
  setp.lt.u32 more, index, count;
  @more bra SHARED;
WAIT:
  mov.u64 now, %clock64;
  sub.u64 gone, now, first;
  setp.lt.u64 more, gone, stay;
  @more bra WAIT;
  ret;
}
"""


class ChipPoison:
    """The kernel, loaded in the current context of this process. Raises RuntimeError if the driver reports an error."""

    def __init__(self, device: int) -> None:
        from kernelwright.machine import driver

        self._check, self._library = driver.check, driver.load()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._library.cuModuleLoadData(ctypes.byref(module), PTX.encode() + b"\0"))
        self._check(self._library.cuModuleGetFunction(ctypes.byref(self._function), module, ENTRY.encode()))
        self.blocks = self._attribute(_MULTIPROCESSORS, device)
        self.nbytes = self._attribute(_MOST_SHARED, device)
        self._check(self._library.cuFuncSetAttribute(self._function, _MOST_DYNAMIC_SHARED, self.nbytes))
        self._values = (ctypes.c_uint32(self.nbytes // 4), ctypes.c_uint64(_STAY_CYCLES), ctypes.c_uint32(0))
        self._arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in self._values])

    def _attribute(self, which: int, device: int) -> int:
        value, handle = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.cuDeviceGet(ctypes.byref(handle), device))
        self._check(self._library.cuDeviceGetAttribute(ctypes.byref(value), which, handle))
        return value.value

    def spread(self, stream: int) -> None:
        """Starts the kernel on a stream; does not wait."""
        sizes = [ctypes.c_uint(n) for n in (self.blocks, 1, 1, THREADS, 1, 1, self.nbytes)]
        self._check(
            self._library.cuLaunchKernel(self._function, *sizes, ctypes.c_void_p(stream), self._arguments, None)
        )
