"""The append kernel's own functions on Python numbers and real bytes, against plain torch; and what is assembled."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.kernels import epilogue  # noqa: E402
from sm120_attn.kernels.append import kernel  # noqa: E402
from sm120_attn.kernels.append.config import AppendConfig, why_not  # noqa: E402
from sm120_attn.verify import cache_calls, cache_writes  # noqa: E402
from sm120_attn.verify.cache_cases import CacheCase  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Memory:
    """The bytes of some tensors at made-up addresses, and what inline_ptx does with them for one thread."""

    def __init__(self) -> None:
        self.tensors: list[tuple[int, Any]] = []

    def tensor(self, t: Any) -> SimpleNamespace:
        """A tensor as a kernel sees it."""
        base = (1 + len(self.tensors)) << 30
        self.tensors.append((base, cache_writes.bytes_of(t)))
        address = base + t.storage_offset() * t.element_size()
        made = SimpleNamespace(iterator=SimpleNamespace(toint=lambda: address), shape=t.shape, stride=t.stride())
        return type("Seen", (SimpleNamespace,), {"__getitem__": lambda self, at: t[at].item()})(**vars(made))

    def at(self, address: int, size: int) -> Any:
        base, flat = self.tensors[(address >> 30) - 1]
        assert 0 <= address - base <= len(flat) - size and address % size == 0, "outside of the tensor, or misaligned"
        return flat[address - base : address - base + size]

    def load_if(self, address: int, condition: bool, words: int) -> Any:
        found = [0] * words
        if condition:
            found = list(struct.unpack(f"<{words}I", bytes(self.at(address, 4 * words).tolist())))
        return found if words > 1 else found[0]

    def store_if(self, address: int, condition: bool, words: list[int]) -> None:
        if condition:
            data = struct.pack(f"<{len(words)}I", *words)
            self.at(address, len(data)).copy_(torch.tensor(list(data), dtype=torch.uint8))

    def widened(self, dtype: str, x: int) -> float:
        bits = torch.tensor(x, dtype=torch.int32).to(torch.int16)
        return float(bits.view(DTYPES[dtype]))

    def pack(self, dtype: str, low: float, high: float) -> int:
        return sum((int(torch.tensor(x).to(DTYPES[dtype]).view(torch.int16)) & 0xFFFF) << 16 * i
                   for i, x in enumerate((low, high)))  # fmt: skip

    def pack_bytes(self, dtype: str, values: list[float]) -> int:
        rounded = torch.tensor(values).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).tolist()
        return int.from_bytes(bytes(rounded), "little")

    def from_bits(self, x: int) -> float:
        return float(struct.unpack("<f", struct.pack("<I", x))[0])

    def upper(self, x: int) -> int:
        return x >> 16

    def select(self, condition: bool, a: Any, b: Any) -> Any:
        return a if condition else b

    def fma(self, a: float, b: float, c: float) -> float:
        return a * b + c

    def divide(self, a: float, b: float) -> float:
        return a / b


def run(monkeypatch: pytest.MonkeyPatch, case: CacheCase, made: dict[str, Any]) -> Any:
    """Let all threads of the kernel append. Returns the turned copy of Q."""
    memory = Memory()
    for module in (kernel, epilogue):
        monkeypatch.setattr(module, "ptx", memory)
        monkeypatch.setattr(module, "Int64", int)
    monkeypatch.setattr(kernel, "Int32", int)
    monkeypatch.setattr(kernel, "Float32", float)
    monkeypatch.setattr(kernel, "cutlass", SimpleNamespace(min=min, max=max))
    starts = made.get("cu_seqlens_q")
    if starts is not None:
        monkeypatch.setattr(
            kernel, "sequence_of",
            lambda row, batches, seen: max(b for b in range(batches) if seen[b] <= row),
        )  # fmt: skip
    config = case.append_config("sm_120a")
    assert config is not None and why_not(config) is None
    one = kernel.Append(config)
    q_out = torch.zeros_like(made["q"])
    tensors = made | {"q_out": q_out, "k": made["k_cache"], "v": made["v_cache"]}
    scale = torch.ones(len(case.lengths), case.heads_kv)
    tensors |= {f"{n}_descale": made.get(f"{n}_descale", scale).expand_as(scale) for n in "kv"}
    given = kernel.NewRows(
        **{name: memory.tensor(tensors[name]) if name in tensors else None for name in kernel.NewRows._fields}
    )
    seqlens = (0, 0) if starts is not None else (case.counts[0] if case.rotary else 0, case.new)
    tokens = len(made["q"]) if starts is not None else len(case.lengths) * max(seqlens)
    lines = 2 * case.heads_kv + (case.heads if case.rotary else 0)
    masked = case.causal or case.window is not None
    shift = case.page_size.bit_length() - 1
    for row in range(tokens):
        for item in range(-(-lines * config.chunks // 128) * 128):
            token = one.token_of(given, row, len(case.lengths), *seqlens)
            place = kernel.place_of(config, item, lines, case.heads_kv)
            chunk = one.chunk_of(given, token, place, int(masked))
            one.write(given, token, place, chunk, case.capacity, shift)
    return q_out


BASE = CacheCase("", (5, 0, 15), 2, 2, 1, 32, page_size=16, new=2)
CASES = {
    "no rotary": BASE,
    "half": replace(BASE, rotary="half"),
    "interleaved": replace(BASE, rotary="interleaved", dtype="fp16"),
    "half of 16 of 40 columns, table in float32": replace(
        BASE, head_dim=40, rotary="half", rotary_columns=16, table_dtype="fp32", page_size=0, layout="interleaved"
    ),
    "interleaved, 32 of 48 columns, float32": replace(
        BASE, head_dim=48, rotary="interleaved", rotary_columns=32, table_dtype="fp32", layout="wide"
    ),
    "FP8 cache": replace(BASE, rotary="half", kv_dtype="e4m3", descale="head", heads=4, heads_kv=2),
    "FP8 cache, no rotary": replace(BASE, kv_dtype="e4m3", descale="tensor", page_size=0),
    "packed": replace(BASE, queries=(1, 0, 3), rotary="half", heads=3),
    "without a mask": replace(BASE, causal=False, rotary="interleaved"),
    "more queries than new keys": replace(BASE, queries=3, new=1, rotary="half"),
    "more new keys than queries": replace(BASE, queries=1, new=3, rotary="half"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_thread_writes_what_plain_torch_does(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case = CASES[name]
    made, options = cache_calls.tensors(case, device="cpu")
    before = cache_writes.snapshot(made)
    q_out = run(monkeypatch, case, made)
    monkeypatch.undo()
    assert cache_writes.judge_caches(case, made, before) == []
    if case.rotary:
        attended, _ = cache_writes.attended(case, made, options)
        about = torch.finfo(q_out.dtype).eps
        assert torch.allclose(q_out.double(), attended["q"].double(), rtol=about, atol=1e-6)


def test_a_row_that_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one free row, and a page that the cache does not have, then one row of both is written, and no other."""
    for page_size in (0, 16):
        case = replace(BASE, lengths=(5, 15), page_size=page_size)
        made, _ = cache_calls.tensors(case, device="cpu")
        made["cache_seqlens"][0] = case.capacity - 1
        if page_size:
            made["block_table"][0, -1] = 0
            made["block_table"][1, 0] = len(made["k_cache"])
            made["block_table"][1, 1] = -1
        before = cache_writes.snapshot(made)
        run(monkeypatch, case, made)
        monkeypatch.undo()
        rows = 1 if page_size else 3
        for name in ("k_cache", "v_cache"):
            changed = (cache_writes.bytes_of(made[name]) != before[name]).sum()
            assert 0 < changed <= rows * case.heads_kv * case.head_dim * 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arch": "sm_80"}, "arch 'sm_80': compiled for sm_120a"),
        ({"dtype": "fp32"}, "dtype 'fp32': must be bf16 or fp16"),
        ({"head_dim": 24}, "head_dim 24: 32 to 256 in steps of 8"),
        ({"kv_dtype": "e5m2"}, "kv_dtype 'e5m2': must be e4m3"),
        ({"kv_dtype": "e4m3", "head_dim": 40}, "head_dim 40 with a cache in e4m3: must be a multiple of 16"),
        ({"rotary": "neox"}, "rotary 'neox': must be half, interleaved"),
        ({"table_dtype": "fp32"}, "table_dtype 'fp32': must be fp32 with rotary"),
    ],
)
def test_what_cannot_be_built_says_why(changed: dict, said: str) -> None:
    assert str(why_not(replace(AppendConfig(), **changed))).startswith(said)
