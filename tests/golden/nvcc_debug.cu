__device__ __noinline__ float square(float x) { return x * x; }
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
template <class T> __global__ void scale(T* p, int n) {
  __shared__ T tile[64];
  tile[threadIdx.x] = square(p[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x < n) p[threadIdx.x] = tile[n - threadIdx.x];
}
template __global__ void scale<float>(float*, int);
