"""A Triton kernel, captured and renamed. Without a GPU it is compiled for Hopper and not launched.

python examples/triton_kernel.py [FOLDER]
tritonhook run --prefix cutlass_ examples/triton_kernel.py      # from outside: its name comes first
tritonhook show FOLDER
"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tritonhook


@triton.jit
def scale_rows(x, y, columns, B: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.program_id(0) * columns
    value = tl.load(x + row + at, mask=at < columns, other=0.0)
    tl.store(y + row + at, value / tl.max(tl.abs(value), 0), mask=at < columns)


def launch_or_compile() -> str:
    """Run the kernel where there is a GPU, else compile it; returns its name."""
    try:
        import torch

        has_gpu = torch.cuda.is_available()
    except ImportError:
        has_gpu = False
    if has_gpu:
        x = torch.randn(64, 100, device="cuda")
        y = torch.empty_like(x)
        kernel = scale_rows[(64,)](x, y, 100, B=128)
        torch.testing.assert_close(y, x / x.abs().amax(1, keepdim=True))
    else:
        signature = {"x": "*fp32", "y": "*fp32", "columns": "i32", "B": "constexpr"}
        source = ASTSource(fn=scale_rows, signature=signature, constexprs={"B": 128})
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return str(kernel.metadata.name)


if __name__ == "__main__":
    with tritonhook.session(sys.argv[1] if len(sys.argv) > 1 else None, rename={"scale_rows": "fast_rows"}) as session:
        print(launch_or_compile())
    print(session.summary)
    for capture in session.captures:
        stages = [stage.value for stage in capture.artifacts]
        print(capture.kernel, "was", capture.rewritten_from, "on", capture.arch, *stages)
