// A Mandelbrot image by dynamic work: blocks take tiles from a counter; colours by uchar4.
#include <cstdio>
#include <cstdlib>
#include <vector>
__device__ unsigned int blockCounter;

template <class T>
__device__ __host__ inline int CalcMandelbrot(const T xPos, const T yPos, const int crunch) {
  T x, y, xx, yy;
  int i = crunch;
  T xC = xPos, yC = yPos;
  y = x = yy = xx = 0;
  while (--i && (xx + yy < T(4.0))) {
    y = x * y * T(2.0) + yC;
    x = xx - yy + xC;
    yy = y * y;
    xx = x * x;
  }
  return i;
}
template <class T>
__global__ void Mandelbrot1(uchar4 *dst, const int imageW, const int imageH, const int crunch, const T xOff, const T yOff, const T scale,
                            const uchar4 colors, const int gridWidth, const int numBlocks) {
  __shared__ unsigned int blockIndex, blockX, blockY;
  while (1) {
    if ((threadIdx.x == 0) && (threadIdx.y == 0)) {
      blockIndex = atomicAdd(&blockCounter, 1);
      blockX = blockIndex % gridWidth;
      blockY = blockIndex / gridWidth;
    }
    __syncthreads();
    if (blockIndex >= numBlocks) break;
    const int ix = blockDim.x * blockX + threadIdx.x, iy = blockDim.y * blockY + threadIdx.y;
    if ((ix < imageW) && (iy < imageH)) {
      int m = CalcMandelbrot<T>((T)ix * scale + xOff, (T)iy * scale + yOff, crunch);
      m = m > 0 ? crunch - m : 0;
      dst[imageW * iy + ix] = m ? make_uchar4(m * colors.x, m * colors.y, m * colors.z, 255) : make_uchar4(0, 0, 0, 0);
    }
    __syncthreads();
  }
}
int main() {
  const int w = 48, h = 32, crunch = 64, gw = (w + 15) / 16, gh = (h + 7) / 8;
  uchar4 *d, colors = {3, 5, 7, 0};
  std::vector<uchar4> out(w * h);
  cudaMalloc((void **)&d, w * h * sizeof(uchar4));
  unsigned int zero = 0;
  cudaMemcpyToSymbol(blockCounter, &zero, sizeof(unsigned int), 0, cudaMemcpyHostToDevice);
  Mandelbrot1<float><<<3, dim3(16, 8)>>>(d, w, h, crunch, -2.0f, -1.0f, 0.0625f, colors, gw, gw * gh);
  cudaMemcpy(out.data(), d, w * h * sizeof(uchar4), cudaMemcpyDeviceToHost);
  int wrong = 0, inside = 0;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      int m = CalcMandelbrot<float>(x * 0.0625f - 2.0f, y * 0.0625f - 1.0f, crunch);
      m = m > 0 ? crunch - m : 0;
      inside += m == 0;
      wrong += out[y * w + x].y != (unsigned char)(m * 5) && abs(out[y * w + x].y / 5 - m) > 2;
    }
  printf("%d inside\n", inside > 100);
  puts(wrong > w * h / 100 ? "FAIL" : "PASS");
  return wrong > w * h / 100;
}
