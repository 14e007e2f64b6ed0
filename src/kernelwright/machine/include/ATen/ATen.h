// For NVRTC: the device side of this header.
#pragma once
#include "kernelwright_scalar.h"
