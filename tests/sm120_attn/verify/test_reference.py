"""The float64 reference, against loops over plain Python numbers and against torch's own attention."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.config import Config  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402


def by_hand(q, k, v, scale, softcap, causal, window, align):
    """One head of one sequence, as the definition says it."""
    rows, keys, dim = len(q), len(k), len(q[0])
    offset = keys - rows if align == "bottom-right" else 0
    outputs, sums = [], []
    for i in range(rows):
        scores = {}
        for j in range(keys):
            left, right = window
            if (causal and j > i + offset) or (left is not None and j < i + offset - left):
                continue
            if right is not None and j > i + offset + right:
                continue
            s = scale * sum(q[i][d] * k[j][d] for d in range(dim))
            scores[j] = softcap * math.tanh(s / softcap) if softcap else s
        total = sum(math.exp(s) for s in scores.values())
        outputs.append([sum(math.exp(s) * v[j][d] for j, s in scores.items()) / (total or 1) for d in range(dim)])
        sums.append(math.log(total) if total else -math.inf)
    return outputs, sums


OPTIONS = list(
    itertools.product(
        ((5, 7), (7, 5), (4, 4)), (False, True), ((None, None), (2, None), (1, 0), (None, 1), (0, 2)), (0, 3)
    )
)


@pytest.mark.parametrize(("sizes", "causal", "window", "softcap"), OPTIONS)
@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_it_is_the_definition(sizes, causal, window, softcap, align) -> None:
    # given two query heads to a key head
    rows, keys = sizes
    q, k, v = (torch.randn(1, n, h, 3, dtype=torch.float64) for n, h in ((rows, 4), (keys, 2), (keys, 2)))

    # when
    o, lse = attention_reference(q, k, v, scale=0.7, softcap=softcap, causal=causal, window=window, align=align)

    # then
    for head in range(4):
        lists = [t[0, :, h].tolist() for t, h in ((q, head), (k, head // 2), (v, head // 2))]
        wanted, wanted_lse = by_hand(*lists, scale=0.7, softcap=softcap, causal=causal, window=window, align=align)
        assert torch.allclose(o[0, :, head], torch.tensor(wanted, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(lse[0, head], torch.tensor(wanted_lse, dtype=torch.float64), atol=1e-12)


def test_packed_sequences_are_each_their_own() -> None:
    # given one of them empty, one without keys
    q, k, v = torch.randn(20, 4, 8), torch.randn(31, 2, 8), torch.randn(31, 2, 8)
    starts_q = torch.tensor([0, 7, 7, 12, 20], dtype=torch.int32)
    starts_k = torch.tensor([0, 9, 20, 20, 31], dtype=torch.int32)

    # when
    o, lse = attention_reference(q, k, v, causal=True, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k)

    # then
    for i in range(4):
        rows, keys = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        wanted, wanted_lse = attention_reference(q[None, rows], k[None, keys], v[None, keys], causal=True)
        assert torch.equal(o[rows], wanted[0])
        assert torch.equal(lse[:, rows], wanted_lse[0])
    assert (o[7:12] == 0).all() and torch.isneginf(lse[:, 7:12]).all()


@pytest.mark.parametrize("causal", [False, True])
def test_torch_agrees(causal: bool) -> None:
    q, k, v = (torch.randn(2, 33, 4, 16, dtype=torch.float64) for _ in range(3))
    o, _ = attention_reference(q, k, v, causal=causal)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    assert torch.allclose(o, wanted, atol=1e-12)


def test_low_precision_loses_what_16_bits_lose() -> None:
    q, k, v = (torch.randn(1, 100, 2, 64, dtype=torch.bfloat16) for _ in range(3))
    exact, lse = attention_reference(q, k, v)
    low, low_lse = attention_reference(q, k, v, low_precision=True)
    error = (low - exact).abs().max().item()
    assert 1e-4 < error < 2e-2
    assert torch.allclose(lse, low_lse, atol=1e-5)
    assert torch.equal(low, low.bfloat16().double())


# --- the replay of FP8 ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def fp8(*shape: int, factor: float = 1.0):
    return (torch.randn(*shape) * factor).clamp(-400, 400).to(torch.float8_e4m3fn)


def config_of(**fields) -> Config:
    return Config(dtype="e4m3", out_dtype="fp32", tile_n=64, **fields)


def replay(q, k, v, **options):
    return attention_reference(q, k, v, low_precision=True, out_dtype=torch.float32, **options)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (70, 3)}])
def test_the_replay_is_the_walk_of_each_warp(options, split) -> None:
    """Given keys that grow towards the left, when each warp is walked by itself, tile by tile, then O is the same."""
    q, k, v = fp8(1, 40, 1, 32, factor=3), fp8(1, 330, 1, 32), fp8(1, 330, 1, 32)
    k = (k.double() * torch.linspace(3, 0.5, 330, dtype=torch.float64)[None, :, None, None]).to(k.dtype)
    o, lse = replay(q, k, v, config=config_of(split_keys=split), **options)
    exact, exact_lse = attention_reference(q, k, v, **options)

    scores = (q[0, :, 0].double() @ k[0, :, 0].double().T) / math.sqrt(32) * math.log2(math.e)
    left, right = options.get("window", (1000, 1000))
    offset = torch.arange(330)[None] - torch.arange(40)[:, None] - 290
    scores[(offset < -left) | (offset > (0 if "causal" in options else right))] = -math.inf
    for first in range(0, 40, 16):
        wanted = one_warp(scores[first : first + 16], v[0, :, 0], split)
        assert torch.allclose(o[0, first : first + 16, 0], wanted.float().double(), atol=1e-6)
    assert torch.allclose(lse, exact_lse, atol=1e-9)
    assert 1e-3 < (o - exact).abs().max() < 0.5


def one_warp(scores, v, split):
    """By the kernel's rules, for the rows of one warp; rows that fill it up see nothing that matters here."""
    bias, lazy = 6.0, 2.75
    tiles = [t for t in reversed(range(6)) if not torch.isneginf(scores[:, 64 * t : 64 * t + 64]).all()]
    parts = [[t for t in tiles if t % 2 == part] for part in (0, 1)] if split else [tiles]
    found = []
    for own in parts:
        peak, total, output = torch.full((len(scores),), -1e30, dtype=torch.float64), 0.0, 0.0
        for t in own:
            part = scores[:, 64 * t : 64 * t + 64]
            if (part.amax(1) - peak > lazy + bias).any():
                larger = torch.maximum(peak, part.amax(1) - bias)
                total, output = total * (peak - larger).exp2(), output * (peak - larger).exp2()[:, None]
                peak = larger
            p = (part - peak[:, None]).exp2()
            total = total + p.sum(1)
            output = output + p.to(v.dtype).double() @ v[64 * t : 64 * t + 64].double()
        found.append((peak, total, output))
    peak = torch.stack([f[0] for f in found]).amax(0)
    output = sum(f[2] * (f[0] - peak).exp2()[:, None] for f in found)
    return output / sum(f[1] * (f[0] - peak).exp2() for f in found)[:, None]
