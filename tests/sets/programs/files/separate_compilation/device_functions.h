#pragma once
extern __constant__ float weight;
extern __device__ int offset;
extern __device__ float weighted(float x);
