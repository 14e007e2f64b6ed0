// Includes the whole stand-in, so that one precompiled header serves every candidate.
#pragma once

#include "context.h"
#include "autograd.h"
#include "dispatch.h"
#include "graphs.h"
#include "python.h"
#include "pybind.h"

extern template class std::vector<int64_t>;
extern template class std::vector<at::Tensor>;
