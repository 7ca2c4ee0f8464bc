/* A libcuda.so.1 without a GPU: memory is the process's own, and a "kernel" is the last byte of its image. It adds that
   byte to every byte of the buffer of its first argument; 0xEE is an illegal address, 0xDD never ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t sizes[64][2];
static int count;
static unsigned char kernel;

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = context; return (int)flags + device; }
int cuModuleLoadData(void **module, const unsigned char *image) {
    uint64_t end; /* of the section headers, which these images have last */
    memcpy(&end, image + 40, 8);
    kernel = image[end + 64];
    *module = &kernel;
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "k") ? 500 : 0;
}
int cuFuncSetAttribute(void *function, int which, int value) { return function == 0 || which > 14 || value < 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    *address = (uint64_t)malloc(size);
    sizes[count][0] = *address;
    sizes[count++][1] = size;
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuLaunchKernelEx(const unsigned *config, void *function, void **arguments, void **extra) {
    uint64_t address = *(uint64_t *)arguments[0];
    if (!function || extra || config[0] != 2 || config[3] != 32) return 1;
    while (kernel == 0xDD) sleep(1);
    for (int i = 0; i < count; i++)
        for (size_t at = 0; sizes[i][0] == address && at < sizes[i][1]; at++) ((unsigned char *)address)[at] += kernel;
    return 0;
}
int cuCtxSynchronize(void) { return kernel == 0xEE ? 700 : 0; }
int cuGetErrorName(int code, const char **name) {
    *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return 0;
}
