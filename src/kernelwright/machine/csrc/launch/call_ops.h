// The instructions of calls that are not inlined, and the layout of a stack frame.
#pragma once
#include "decode/calls.h"

namespace kw {
struct CallRecord {  // the saved registers follow, then the callee's frame
  u32 site, frame, top, routine;
};

const Inst* op_stack_begin(Warp& w, const Inst* in);    // sets up the stack of every thread
const Inst* op_call(Warp& w, const Inst* in);           // in->imm: call site; in->a: the address when in->x
const Inst* op_return(Warp& w, const Inst* in);         // in->imm: routine
const Inst* op_alloca(Warp& w, const Inst* in);         // in->a bytes, d pointer, n alignment
const Inst* op_stack_save(Warp& w, const Inst* in);     // in->d
const Inst* op_stack_restore(Warp& w, const Inst* in);  // in->a
}  // namespace kw
