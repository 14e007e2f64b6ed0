// Molecular forces by neighbour boxes: nested structs on both sides, a header-like block of macros, timers by clock_gettime.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define NUMBER_PAR_PER_BOX 20
#define DOT(A, B) ((A.x) * (B.x) + (A.y) * (B.y) + (A.z) * (B.z))
typedef struct { float x, y, z; } THREE_VECTOR;
typedef struct { float v, x, y, z; } FOUR_VECTOR;
typedef struct nei_str { int x, y, z, number; long offset; } nei_str;
typedef struct box_str { int x, y, z, number; long offset; int nn; nei_str nei[26]; } box_str;
typedef struct par_str { float alpha; } par_str;
struct dim_str { int cur_arg; int boxes1d; long number_boxes, space_elem; timespec began; };

__host__ __device__ inline FOUR_VECTOR force(const FOUR_VECTOR &a, const FOUR_VECTOR &b, float q, float a2) {
  float r2 = a.v + b.v - DOT(a, b), vij = expf(-a2 * r2), fs = 2 * vij;
  FOUR_VECTOR f = {q * vij, q * fs * (a.x - b.x), q * fs * (a.y - b.y), q * fs * (a.z - b.z)};
  return f;
}
__global__ void kernel_gpu(par_str par, long boxes, const box_str *box, const FOUR_VECTOR *rv, const float *qv, FOUR_VECTOR *fv) {
  int bx = blockIdx.x, i = threadIdx.x;
  if (bx >= boxes || i >= NUMBER_PAR_PER_BOX) return;
  float a2 = 2 * par.alpha * par.alpha;
  FOUR_VECTOR sum = {0, 0, 0, 0}, a = rv[box[bx].offset + i];
  for (int k = 0; k < 1 + box[bx].nn; k++) {
    long first = k == 0 ? box[bx].offset : box[box[bx].nei[k - 1].number].offset;
    for (int j = 0; j < NUMBER_PAR_PER_BOX; j++) {
      FOUR_VECTOR f = force(a, rv[first + j], qv[first + j], a2);
      sum.v += f.v; sum.x += f.x; sum.y += f.y; sum.z += f.z;
    }
  }
  fv[box[bx].offset + i] = sum;
}

int main(int argc, char *argv[]) {
  dim_str dim;
  dim.boxes1d = 2;
  clock_gettime(CLOCK_MONOTONIC, &dim.began);
  dim.number_boxes = dim.boxes1d * dim.boxes1d * dim.boxes1d;
  dim.space_elem = dim.number_boxes * NUMBER_PAR_PER_BOX;
  box_str *box = (box_str *)calloc(dim.number_boxes, sizeof(box_str));
  int nh = 0, n1 = dim.boxes1d;
  for (int i = 0; i < n1; i++)
    for (int j = 0; j < n1; j++)
      for (int k = 0; k < n1; k++, nh++) {
        box[nh].x = k; box[nh].y = j; box[nh].z = i; box[nh].number = nh; box[nh].offset = nh * NUMBER_PAR_PER_BOX;
        for (int l = -1; l < 2; l++)
          for (int m = -1; m < 2; m++)
            for (int n = -1; n < 2; n++)
              if (i + l >= 0 && j + m >= 0 && k + n >= 0 && i + l < n1 && j + m < n1 && k + n < n1 && (l || m || n))
                box[nh].nei[box[nh].nn++].number = (i + l) * n1 * n1 + (j + m) * n1 + k + n;
      }
  FOUR_VECTOR *rv = (FOUR_VECTOR *)malloc(dim.space_elem * sizeof(FOUR_VECTOR)), *fv = (FOUR_VECTOR *)malloc(dim.space_elem * sizeof(FOUR_VECTOR)), *d_rv, *d_fv;
  float *qv = (float *)malloc(dim.space_elem * sizeof(float)), *d_qv;
  box_str *d_box;
  srand(3);
  for (long i = 0; i < dim.space_elem; i++) {
    rv[i].x = (rand() % 10 + 1) / 10.0f; rv[i].y = (rand() % 10 + 1) / 10.0f; rv[i].z = (rand() % 10 + 1) / 10.0f;
    rv[i].v = DOT(rv[i], rv[i]) * 0.5f;
    qv[i] = (rand() % 10 + 1) / 10.0f;
  }
  cudaMalloc((void **)&d_box, dim.number_boxes * sizeof(box_str));
  cudaMalloc((void **)&d_rv, dim.space_elem * sizeof(FOUR_VECTOR));
  cudaMalloc((void **)&d_fv, dim.space_elem * sizeof(FOUR_VECTOR));
  cudaMalloc((void **)&d_qv, dim.space_elem * sizeof(float));
  cudaMemcpy(d_box, box, dim.number_boxes * sizeof(box_str), cudaMemcpyHostToDevice);
  cudaMemcpy(d_rv, rv, dim.space_elem * sizeof(FOUR_VECTOR), cudaMemcpyHostToDevice);
  cudaMemcpy(d_qv, qv, dim.space_elem * sizeof(float), cudaMemcpyHostToDevice);
  par_str par = {0.5f};
  kernel_gpu<<<dim.number_boxes, 32>>>(par, dim.number_boxes, d_box, d_rv, d_qv, d_fv);
  cudaMemcpy(fv, d_fv, dim.space_elem * sizeof(FOUR_VECTOR), cudaMemcpyDeviceToHost);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  float worst = now.tv_sec < dim.began.tv_sec;
  for (long i = 0; i < dim.space_elem; i++) {
    FOUR_VECTOR s = {0, 0, 0, 0};
    for (long j = 0; j < dim.space_elem; j++) {
      FOUR_VECTOR f = force(rv[i], rv[j], qv[j], 0.5f);
      s.v += f.v; s.x += f.x;
    }
    worst = fmaxf(worst, fmaxf(fabsf(s.v - fv[i].v), fabsf(s.x - fv[i].x)));
  }
  puts(worst < 1e-3f ? "PASS" : "FAIL");
  return worst >= 1e-3f;
}
