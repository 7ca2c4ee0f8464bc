"""A CuTe DSL kernel, compiled without a GPU, captured, and compiled again without `cutlass` in its name.

    pip install 'nvidia-cutlass-dsl[cu13]'
    python examples/cute_dsl.py                              # tritonhook.session in the program
    tritonhook run --strip examples/cute_dsl.py --plain      # or from outside, the program unchanged

With a GPU, leave CUTE_DSL_ARCH out and call the compiled function with tensors.
"""

import os
import sys

os.environ.setdefault("CUTE_DSL_ARCH", "sm_120a")  # before cutlass is imported; there may be no GPU to ask

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def scale_kernel(source: cute.Tensor, target: cute.Tensor, factor: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    target[index] = source[index] * factor


@cute.jit
def scale(source: cute.Tensor, target: cute.Tensor, factor: cutlass.Float32):
    blocks = cute.size(source) // THREADS
    scale_kernel(source, target, factor).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


def compile_scale(elements: int = 1024):
    """Tensors that only have a type and a shape are enough to compile."""
    source, target = (make_fake_compact_tensor(cutlass.Float32, (elements,)) for _ in range(2))
    return cute.compile(scale, source, target, cutlass.Float32(2.0))


def main() -> None:
    import tritonhook

    with tritonhook.session() as plain:
        compile_scale()
    with tritonhook.session(strip=True) as stripped:
        compile_scale()
    for capture in (*plain.captures, *stripped.captures):
        made_by = f"ptxas {capture.assembler.version} inside the DSL"
        print(f"{capture.kernel}  {capture.arch}, {made_by}, cubin of {len(capture.cubin):,} bytes")


if __name__ == "__main__":
    compile_scale() if "--plain" in sys.argv else main()
