#include <stdio.h>
#include <assert.h>
#include <iostream>

extern "C" __global__ void checked_copy(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    assert(x[i] >= 0 && "values are counts");
    if (i == 0) printf("first value %d of %d (%f)\n", x[0], n, 1.5);
    y[i] = x[i];
}
