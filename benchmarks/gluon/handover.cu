// Does racecheck know barriers of a part of a CTA's threads? Kernels with the hand-over of Triton's warp_specialize.
//
//     nvcc -gencode=arch=compute_90a,code=sm_90a -o handover handover.cu
//     for n in 0 1 2 4 8 15; do compute-sanitizer --tool racecheck ./handover $n; done
//
// Warpgroup 0 writes a byte for each warp of the others, which read it: what to run, and at last that there is no more.
// Between each write and its reads all threads meet at barrier 1, so no kernel has a race.

#include <cstdio>
#include <cstdlib>

#define MEET asm volatile("barrier.sync 1;" ::: "memory")

enum Also {
    FIRST_GROUP = 1,  // bar.sync 0 of warpgroup 0 alone, while the others wait at barrier 1
    MBARRIERS = 2,    // mbarriers are initialised before
    NAMED = 4,        // a named barrier at which two warpgroups arrive and one waits
    REGISTERS = 8,    // setmaxnreg
};
const int RUN = 0, EXIT = 2;  // what the bytes say; RUN + 1 for the last warpgroup

template <int also> __global__ void __launch_bounds__(384, 1) handover(int *out) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const unsigned mbarriers = (unsigned)__cvta_generic_to_shared(smem), state = mbarriers + 1024;
    if (threadIdx.x < 128) {
        if (also & REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 256;");
        for (int i = 0; i < 6; i++) {
            if ((also & MBARRIERS) && threadIdx.x == 0)
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mbarriers + 8 * i) : "memory");
            if (also & FIRST_GROUP) asm volatile("bar.sync 0, 128;" ::: "memory");
        }
        asm volatile("st.shared.v2.b32 [%0], {0, 16843009};" ::"r"(state) : "memory");
        MEET;
        if (also & REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        MEET;
        if (also & NAMED) asm volatile("bar.sync 5, 384;" ::: "memory");
        MEET;
        if (also & REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 256;");
        asm volatile("st.shared.v2.b32 [%0], {33686018, 33686018};" ::"r"(state) : "memory");
        MEET;
    } else {
        int sum = 0;
        while (true) {
            if (also & REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
            MEET;
            int got;
            asm volatile("{ .reg .b16 x; ld.shared.b8 x, [%1]; cvt.u32.u16 %0, x; }"
                         : "=r"(got) : "r"(state + threadIdx.x / 32 - 4) : "memory");
            if (got == EXIT) break;
            if (also & REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
            MEET;
            sum += 1 + got;
            if (also & NAMED) asm volatile("bar.arrive 5, 384;" ::: "memory");
            MEET;
            if (also & REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
        }
        out[blockIdx.x * 256 + threadIdx.x - 128] = sum;
    }
}

template <int also> void run() {
    int *out, host[256], right = 0;
    cudaMalloc(&out, 6 * sizeof host);
    handover<also><<<6, 384, 2048>>>(out);
    cudaError_t error = cudaDeviceSynchronize();
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 256; i++) right += host[i] == 1 + RUN + i / 128;
    printf("%d: %s, %d of 256 right\n", also, cudaGetErrorString(error), right);
    cudaFree(out);
}

int main(int count, char **words) {
    switch (count > 1 ? atoi(words[1]) : 15) {
        case 0: run<0>(); break;
        case 1: run<FIRST_GROUP>(); break;
        case 2: run<MBARRIERS>(); break;
        case 4: run<NAMED>(); break;
        case 8: run<REGISTERS>(); break;
        default: run<15>();
    }
}
