// Writes an image as PGM, reads it again by the samples' loader, and filters it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>
#include <helper_image.h>
typedef unsigned char Pixel;

__device__ unsigned char ComputeSobel(Pixel ul, Pixel um, Pixel ur, Pixel ml, Pixel mr, Pixel ll, Pixel lm, Pixel lr) {
  short Horz = ur + 2 * mr + lr - ul - 2 * ml - ll;
  short Vert = ul + 2 * um + ur - ll - 2 * lm - lr;
  short Sum = (short)(abs((int)Horz) + abs((int)Vert));
  if (Sum < 0) return 0;
  else if (Sum > 0xff) return 0xff;
  return (unsigned char)Sum;
}

__global__ void SobelTex(Pixel *pSobelOriginal, unsigned int Pitch, int w, int h, cudaTextureObject_t tex) {
  unsigned char *pSobel = (unsigned char *)(((char *)pSobelOriginal) + blockIdx.x * Pitch);
  for (int i = threadIdx.x; i < w; i += blockDim.x) {
    Pixel pix00 = tex2D<unsigned char>(tex, (float)i - 1, (float)blockIdx.x - 1);
    Pixel pix01 = tex2D<unsigned char>(tex, (float)i + 0, (float)blockIdx.x - 1);
    Pixel pix02 = tex2D<unsigned char>(tex, (float)i + 1, (float)blockIdx.x - 1);
    Pixel pix10 = tex2D<unsigned char>(tex, (float)i - 1, (float)blockIdx.x + 0);
    Pixel pix12 = tex2D<unsigned char>(tex, (float)i + 1, (float)blockIdx.x + 0);
    Pixel pix20 = tex2D<unsigned char>(tex, (float)i - 1, (float)blockIdx.x + 1);
    Pixel pix21 = tex2D<unsigned char>(tex, (float)i + 0, (float)blockIdx.x + 1);
    Pixel pix22 = tex2D<unsigned char>(tex, (float)i + 1, (float)blockIdx.x + 1);
    pSobel[i] = ComputeSobel(pix00, pix01, pix02, pix10, pix12, pix20, pix21, pix22);
  }
}

int main(int argc, char **argv) {
  unsigned int w = 50, h = 40;
  std::vector<Pixel> image(w * h);
  for (unsigned i = 0; i < w * h; i++) image[i] = (Pixel)((i % w) * (i / w) * 3 + (i % 7) * 20);
  if (!sdkSavePGM("scene.pgm", image.data(), w, h)) return 1;
  Pixel *loaded = NULL;
  unsigned int lw = 0, lh = 0;
  char *image_path = sdkFindFilePath("scene.pgm", argv[0]);
  if (image_path == NULL) return 2;
  if (sdkLoadPGM<unsigned char>(image_path, &loaded, &lw, &lh) != true) return 3;
  if (lw != w || lh != h || memcmp(loaded, image.data(), w * h)) return 4;
  cudaArray *array;
  cudaChannelFormatDesc desc = cudaCreateChannelDesc<unsigned char>();
  checkCudaErrors(cudaMallocArray(&array, &desc, w, h));
  checkCudaErrors(cudaMemcpy2DToArray(array, 0, 0, loaded, w, w, h, cudaMemcpyHostToDevice));
  cudaResourceDesc texRes = {};
  texRes.resType = cudaResourceTypeArray;
  texRes.res.array.array = array;
  cudaTextureDesc texDescr = {};
  texDescr.addressMode[0] = texDescr.addressMode[1] = cudaAddressModeClamp;
  texDescr.filterMode = cudaFilterModePoint;
  texDescr.readMode = cudaReadModeElementType;
  cudaTextureObject_t tex;
  checkCudaErrors(cudaCreateTextureObject(&tex, &texRes, &texDescr, NULL));
  Pixel *odata;
  checkCudaErrors(cudaMalloc(&odata, w * h));
  SobelTex<<<h, 32>>>(odata, w, w, h, tex);
  checkCudaErrors(cudaDeviceSynchronize());
  std::vector<Pixel> out(w * h);
  checkCudaErrors(cudaMemcpy(out.data(), odata, w * h, cudaMemcpyDeviceToHost));
  auto px = [&](int x, int y) {
    x = x < 0 ? 0 : x >= (int)w ? (int)w - 1 : x;
    y = y < 0 ? 0 : y >= (int)h ? (int)h - 1 : y;
    return (int)image[y * w + x];
  };
  for (int y = 0; y < (int)h; y++)
    for (int x = 0; x < (int)w; x++) {
      int hz = px(x + 1, y - 1) + 2 * px(x + 1, y) + px(x + 1, y + 1) - px(x - 1, y - 1) - 2 * px(x - 1, y) - px(x - 1, y + 1);
      int vt = px(x - 1, y - 1) + 2 * px(x, y - 1) + px(x + 1, y - 1) - px(x - 1, y + 1) - 2 * px(x, y + 1) - px(x + 1, y + 1);
      int want = abs(hz) + abs(vt);
      if (want > 255) want = 255;
      if (out[y * w + x] != want) {
        printf("FAIL at %d %d: %d %d\n", x, y, out[y * w + x], want);
        return 5;
      }
    }
  free(loaded);
  free(image_path);
  cudaDestroyTextureObject(tex);
  cudaFreeArray(array);
  cudaFree(odata);
  puts("PASS");
  return 0;
}
