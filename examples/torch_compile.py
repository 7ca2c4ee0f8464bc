"""A small transformer block under torch.compile, with a Triton kernel of its own in it. Needs a GPU.

tritonhook run --strip examples/torch_compile.py
tritonhook run --prefix cutlass_ examples/torch_compile.py --mode max-autotune
tritonhook show tritonhook-captures
"""

import argparse

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional


@triton.jit
def cutlass_gate(x, y, n, B: tl.constexpr):
    """A kernel with "cutlass" in its name, for `--strip` to find."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value * tl.sigmoid(value.to(tl.float32)).to(value.dtype), mask=at < n)


def gate(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    cutlass_gate[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)
    return y


class Block(nn.Module):
    """Attention and a gated MLP, each behind a layer norm. x: (batch, tokens, width), as the result."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(mixed)
        return x + self.down(functional.gelu(gate(self.up(self.before_mlp(x)))))


def make(
    device: str = "cuda", width: int = 256, heads: int = 4, batch: int = 4, tokens: int = 128
) -> tuple[Block, torch.Tensor]:
    """The block and an input, the same in each process."""
    torch.manual_seed(0)
    block = Block(width, heads).to(device, torch.float16).eval()
    return block, torch.randn(batch, tokens, width, device=device, dtype=torch.float16)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="default", help="of torch.compile, e.g. reduce-overhead or max-autotune")
    mode = parser.parse_args().mode
    if not torch.cuda.is_available():
        raise SystemExit("examples/torch_compile.py needs an NVIDIA GPU: torch.cuda.is_available() says no")
    block, x = make()
    with torch.no_grad():
        compiled = torch.compile(block, mode=mode)
        for _ in range(3):  # under reduce-overhead the third run replays a graph
            y = compiled(x)
        torch.testing.assert_close(y, block(x), rtol=2e-2, atol=2e-2)
    print(f"{mode}: equal to eager, within half precision")


if __name__ == "__main__":
    main()
