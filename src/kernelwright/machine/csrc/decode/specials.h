// Special registers whose value does not change while a block runs.
#pragma once
#include "launch/machine.h"

namespace kw {
int special_named(string_view name);  // -1: unknown, or it changes with time (%clock)
bool special_per_block(int which);
bool special_is_workspace(int which);  // what cooperative_groups reads for this_grid().sync()
// The value for one lane of one warp of one block.
u64 special_value(const Launch& l, const Block& b, const Warp& w, int lane, int which);
}  // namespace kw
