// Part of cuRAND's device interface: all of it is in one header here.
#pragma once
#include <curand_kernel.h>
