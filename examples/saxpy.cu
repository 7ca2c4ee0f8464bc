// A CUDA C++ program whose kernels tritonhook captures where nvcc calls ptxas:
//
//   tritonhook run -- nvcc -arch=sm_90a examples/saxpy.cu -o saxpy
//   tritonhook show tritonhook-captures
//
// With `--prefix cutlass_` the program gets the same machine code, and each kernel's renamed form lies beside its own in
// the captures, to be compared: nvcc's host code looks kernels up by name, so that they keep it in the program.

#include <cstdio>

extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

template <typename T>
__global__ void row_sum(const T *matrix, T *sums, int columns) {
  T sum = 0;
  for (int c = 0; c < columns; ++c) sum += matrix[blockIdx.x * columns + c] * matrix[blockIdx.x * columns + c];
  sums[blockIdx.x] = sum;
}

int main() {
  const int n = 1024;
  float *x, *y;
  if (cudaError_t error = cudaMallocManaged(&x, n * sizeof(float))) {
    std::printf("not run: %s\n", cudaGetErrorString(error));
    return 0;
  }
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; ++i) x[i] = 1, y[i] = i;
  saxpy<<<n / 256, 256>>>(2, x, y, n);
  row_sum<<<1, 1>>>(x, y, n);
  cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s: y[0] = %g, y[1] = %g\n", cudaGetErrorString(error), y[0], y[1]);  // 1024, then 3
  return error != cudaSuccess || y[0] != 1024 || y[1] != 3;
}
