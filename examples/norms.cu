// One kernel in three forms, which nvcc of CUDA 13.3 or newer compiles without a GPU:
//
//   nvcc -arch=sm_90a -cubin examples/norms.cu -o plain.cubin
//   nvcc -arch=sm_90a -cubin -DNAME=cutlass_norms examples/norms.cu -o name.cubin
//   nvcc -arch=sm_90a -cubin -DPRAGMA examples/norms.cu -o pragma.cubin
//   tritonhook diff plain.cubin pragma.cubin    # other code
//   tritonhook diff name.cubin pragma.cubin     # the same code

#ifndef NAME
#define NAME norms
#endif

extern "C" __global__ void NAME(const float *matrix, float *norms, int columns) {
#ifdef PRAGMA
  asm volatile(".pragma \"mma_throughput\";");
#endif
  const float *row = matrix + (size_t)blockIdx.x * columns;
  float largest = 0, sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    float value = fabsf(row[c]), next = fmaxf(largest, value);
    sum = sum * __expf(largest - next) + __expf(value - next);
    largest = next;
  }
  norms[blockIdx.x * blockDim.x + threadIdx.x] = largest + __logf(sum);
}
