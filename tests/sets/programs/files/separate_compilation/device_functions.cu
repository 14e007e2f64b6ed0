#include "device_functions.h"
__constant__ float weight;
__device__ int offset = 4;
__device__ float weighted(float x) { return weight * x; }
