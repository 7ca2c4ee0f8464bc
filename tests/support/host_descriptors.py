"""A script that launches a matrix product on TMA descriptors made by the host. The last row of tiles is not whole."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, PART: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    found = tl.zeros((M, N), tl.float32)
    for k in range(0, K, PART):
        found = tl.dot(a.load([row, k]), b.load([column, k]).T, found)
    c.store([row, column], found.to(tl.float16))


a, b, c = (torch.zeros(shape, device="cuda", dtype=torch.float16) for shape in ((100, 96), (64, 96), (100, 64)))
boxes = (64, 32), (64, 32), (64, 64)
product[(2, 1)](
    *(TensorDescriptor.from_tensor(x, list(box)) for x, box in zip((a, b, c), boxes, strict=True)), 96, 64, 64, 32
)
