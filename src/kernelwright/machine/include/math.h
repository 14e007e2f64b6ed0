// For NVRTC: everything of this header that device code may use.
#pragma once
#include "kernelwright_device.h"
