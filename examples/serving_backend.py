"""How a serving engine would call sm120_attn: a paged KV cache, a small random Llama, greedy text of 64 tokens.

    python examples/serving_backend.py [nvfp4]          # on an RTX 50, GB10 or Hopper GPU

`PagedCache` keeps the pages of all layers, in BF16 or NVFP4, and gives pages to sequences. `Backend` is what an engine
has as its attention backend: one call turns queries and new keys by rotary embedding, appends, and attends, for prefill
and for decode alike. The model is plain torch; its own causal attention over all tokens (`Dense`) gives the numbers to
compare with; of NVFP4, over what the cache has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from sm120_attn import attention_with_kv_cache
from sm120_attn.verify.block_scaled import dequantised

LAYERS, HEADS, HEADS_KV, DIM, WORDS = 2, 8, 2, 64, 500
WIDTH = HEADS * DIM
PAGE_SIZE, PAGES = 16, 64
NEW_TOKENS = 64
LIMIT = 0.04  # of the largest logit; about what torch's own bf16 differs from its float32


@dataclass
class PagedCache:
    """K and V of all layers in pages, and which pages each sequence has."""

    device: torch.device
    kv_cache_dtype: str = "bf16"  # or "nvfp4"
    k: torch.Tensor = field(init=False)
    v: torch.Tensor = field(init=False)
    scales: tuple[torch.Tensor, ...] = ()  # of K and of V
    free: list[int] = field(default_factory=lambda: list(range(PAGES)))

    def __post_init__(self) -> None:
        columns, dtype = (DIM // 2, torch.uint8) if self.kv_cache_dtype == "nvfp4" else (DIM, torch.bfloat16)
        self.k, self.v = (self.rows(columns, dtype) for _ in range(2))
        if self.kv_cache_dtype == "nvfp4":
            self.scales = tuple(self.rows(DIM // 16, torch.float8_e4m3fn) for _ in range(2))

    def rows(self, columns: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty((LAYERS, PAGES, PAGE_SIZE, HEADS_KV, columns), dtype=dtype, device=self.device)

    def read(self, layer: int, table: torch.Tensor, tokens: int) -> list[torch.Tensor]:
        """K and V of the first tokens of each sequence, from NVFP4: [batch, tokens, heads, head_dim]."""
        found = []
        for cache, scales in zip((self.k, self.v), self.scales, strict=True):
            parts = [of[layer].view(torch.uint8)[table.long()].flatten(1, 2)[:, :tokens] for of in (cache, scales)]
            found.append(dequantised(*parts, "nvfp4"))
        return found

    def take(self, sequences: int, longest: int) -> torch.Tensor:
        """A block table with pages for sequences of up to `longest` tokens."""
        rows = [[self.free.pop() for _ in range(-(-longest // PAGE_SIZE))] for _ in range(sequences)]
        return torch.tensor(rows, dtype=torch.int32, device=self.device)


@dataclass
class Backend:
    """Attention over the cache, for a batch of sequences. lengths: tokens that they have in the cache."""

    cache: PagedCache
    table: torch.Tensor
    lengths: torch.Tensor
    angles: tuple[torch.Tensor, torch.Tensor]
    attend: Callable[..., torch.Tensor] = attention_with_kv_cache

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scales = {f"{name}_scales": of[layer] for name, of in zip("kv", self.cache.scales, strict=False)}
        return self.attend(
            q, self.cache.k[layer], self.cache.v[layer], cache_seqlens=self.lengths, block_table=self.table,
            k_new=k, v_new=v, rotary_cos=self.angles[0], rotary_sin=self.angles[1], rotary_interleaved=False,
            **scales,
        )  # fmt: skip


class Llama(torch.nn.Module):
    """RMS norm, grouped queries, gated MLP: small, with random weights. `attend` has the rotary embedding."""

    def __init__(self) -> None:
        super().__init__()

        def linear(columns: int, rows: int, size: float = 1.0) -> torch.nn.Linear:
            made = torch.nn.Linear(columns, rows, bias=False)
            torch.nn.init.normal_(made.weight, std=size / columns**0.5)
            return made

        # Small embeddings and large Q and K: so what attention finds weighs much in the logits.
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        torch.nn.init.normal_(self.words.weight, std=0.1)
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "qkv": linear(WIDTH, WIDTH + 2 * HEADS_KV * DIM, 2.0), "out": linear(WIDTH, WIDTH),
                    "up": linear(WIDTH, 4 * WIDTH), "down": linear(2 * WIDTH, WIDTH),
                }
            )
            for _ in range(LAYERS)
        )  # fmt: skip

    def forward(self, tokens: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Logits of the last token. attend(layer, q, k, v): q [batch, tokens, heads, head_dim]."""
        x = self.words(tokens)
        for number, layer in enumerate(self.layers):
            q, k, v = layer["qkv"](norm(x)).unflatten(-1, (-1, DIM)).split((HEADS, HEADS_KV, HEADS_KV), -2)
            x = x + layer["out"](attend(number, q, k, v).flatten(-2))
            gate, up = layer["up"](norm(x)).chunk(2, -1)
            x = x + layer["down"](torch.nn.functional.silu(gate) * up)
        return norm(x[:, -1]) @ self.words.weight.T


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:])


def angles_of(positions: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of a rotary embedding, [positions, DIM / 2]."""
    speeds = 10_000.0 ** (-torch.arange(DIM // 2, device=device) / (DIM // 2))
    angles = torch.arange(positions, device=device)[:, None] * speeds
    return angles.cos(), angles.sin()


@dataclass
class Dense:
    """torch's own causal attention over all tokens, with the rotary embedding written out.

    backend: whose cache is read for K and V, where it is in NVFP4.
    """

    angles: tuple[torch.Tensor, torch.Tensor]
    backend: Backend

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        dtype = q.dtype
        q, k = self.turned(q), self.turned(k)
        if self.backend.cache.scales:
            k, v = self.backend.cache.read(layer, self.backend.table, q.shape[1])
        q, k, v = (t.to(dtype).transpose(1, 2) for t in (q, k, v))
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return found.transpose(1, 2)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """The halves of head_dim are turned by angles that grow with the position."""
        cos, sin = (t[: x.shape[1], None] for t in self.angles)
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@torch.no_grad()
def compare(
    device: torch.device,
    attend: Callable[..., torch.Tensor] = attention_with_kv_cache,
    kv_cache_dtype: str = "bf16",
) -> float:
    """Make NEW_TOKENS tokens of two sequences; returns the largest difference of the logits, relative to their size.

    The text is that of the dense model, so that one token chosen otherwise does not hide what follows.
    """
    torch.manual_seed(0)
    model = Llama().to(device, torch.bfloat16)
    tokens = torch.randint(WORDS, (2, 37), device=device)
    cache = PagedCache(device, kv_cache_dtype)
    table = cache.take(2, tokens.shape[1] + NEW_TOKENS)
    angles = angles_of(tokens.shape[1] + NEW_TOKENS, device)
    backend = Backend(cache, table, torch.zeros(2, dtype=torch.int32, device=device), angles, attend)
    new, worst = tokens, 0.0
    for _ in range(NEW_TOKENS):
        ours = model(new, backend)
        theirs = model(tokens, Dense(angles, backend))
        worst = max(worst, ((ours - theirs).abs().max() / theirs.abs().max()).item())
        backend.lengths = backend.lengths + new.shape[1]
        new = theirs.argmax(-1, keepdim=True)
        tokens = torch.cat((tokens, new), 1)
    return worst


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("serving_backend.py: needs a GPU: an RTX 50, GB10, or a Hopper GPU with CUTE_DSL_ARCH=sm_90a")
    found = compare(torch.device("cuda"), kv_cache_dtype="nvfp4" if "nvfp4" in sys.argv else "bf16")
    print(f"{NEW_TOKENS} tokens of two sequences: logits differ by at most {found:.1e} of the largest one")
    sys.exit(0 if found < LIMIT else 1)
