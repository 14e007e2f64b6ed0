#include "matrix.hpp"
#include <stdexcept>
namespace {
struct DeviceMatrix { double *data; int rows, columns; };
__global__ void multiply(DeviceMatrix a, DeviceMatrix b, DeviceMatrix c) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= c.columns) return;
  double s = 0;
  for (int k = 0; k < a.columns; k++) s += a.data[i * a.columns + k] * b.data[k * b.columns + j];
  c.data[i * c.columns + j] = s;
}
DeviceMatrix upload(const std::vector<double> &v, int rows, int columns) {
  DeviceMatrix m{nullptr, rows, columns};
  if (cudaMalloc(&m.data, v.size() * sizeof(double)) != cudaSuccess) throw std::runtime_error("no memory");
  cudaMemcpy(m.data, v.data(), v.size() * sizeof(double), cudaMemcpyHostToDevice);
  return m;
}
}  // namespace
Matrix Matrix::operator*(const Matrix &other) const {
  if (columns_ != other.rows_) throw std::invalid_argument("shapes");
  Matrix out(rows_, other.columns_);
  auto a = upload(values_, rows_, columns_), b = upload(other.values_, other.rows_, other.columns_), c = upload(out.values_, out.rows_, out.columns_);
  multiply<<<dim3((c.columns + 31) / 32, c.rows), 32>>>(a, b, c);
  cudaMemcpy(out.values_.data(), c.data, out.values_.size() * sizeof(double), cudaMemcpyDeviceToHost);
  for (auto m : {a, b, c}) cudaFree(m.data);
  return out;
}
