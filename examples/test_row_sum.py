"""A test for a GPU. Without one: pytest --kernel-arch sm_90a --kernel-emulate examples/test_row_sum.py"""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(values.to(tl.float32), axis=0))


@pytest.mark.parametrize("columns", [128, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_sum(columns, dtype):
    x = torch.randn(64, columns, device="cuda", dtype=dtype)
    out = torch.empty(64, device="cuda")
    row_sum[(64,)](x, out, columns, BLOCK=1024)
    torch.testing.assert_close(out, x.float().sum(dim=1), rtol=1e-5, atol=1e-4)
