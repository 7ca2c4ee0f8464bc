"""`tritonhook verify script.py` with --orders, --configs, --set and --rows: which bits of a script's kernels depend on
what."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("triton", minversion="3.6")

from tritonhook.cli import main

START = """
import torch, triton, triton.language as tl
x = torch.randn(32, 256, device="cuda")
"""
TOTALS = (
    START
    + """
@triton.jit
def total(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.atomic_add(y + at, tl.load(x + tl.program_id(0) * B + at))

for tensor in (x * 1e3, x.int()):
    total[(32,)](tensor, torch.zeros(256, device="cuda", dtype=tensor.dtype), 256)
"""
)
TUNED = (
    START
    + """
CONFIGS = [triton.Config({"B": b}, num_warps=4) for b in (64, 1024, 1 << 21)]

@triton.autotune(CONFIGS, key=["WRONG"])
@triton.jit
def total(x, y, N, WRONG: tl.constexpr, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    for i in range(0, N, B):
        acc += tl.load(x + i + tl.arange(0, B))
    tl.store(y, tl.sum(acc, 0) + (WRONG and B == 64) * 1000.0)

@triton.jit
def doubled(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) * 2)

for wrong in (False, True):
    total[(1,)](x, torch.zeros(1, device="cuda"), 8192, wrong)
doubled[(1,)](x, torch.empty(256, device="cuda"), 256)
"""
)
SPLIT = (
    START
    + """
@triton.jit
def summed(x, y, N: tl.constexpr, SPLIT: tl.constexpr):
    at = (tl.program_id(1) * (N // SPLIT)) + tl.arange(0, N // SPLIT)
    tl.atomic_add(y + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * N + at), 0))

def sums(x, bias, splits=lambda rows: 4 if rows < 16 else 1):
    y = torch.zeros(len(x), device="cuda")
    split = splits(len(x))
    summed[(len(x), split)](x, y, 256, split)
    return y + bias

def steady(x, bias):
    return sums(x, bias, lambda rows: 2)

sums(x, 0.0), steady(x, 0.0)
"""
)

LAUNCHES = (
    START
    + """
@triton.jit
def scaled(a, w, y, M, N: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(a + at, row[:, None] < M, 0.0) * tl.load(w + tl.arange(0, N))[None, :]
    tl.store(y + at, value * 1.1 if M > 7 else value, row[:, None] < M)

@triton.jit
def columns(b, y, M, N: tl.constexpr):
    total = 0.0
    for row in range(M):
        total += tl.load(b + row * N + tl.program_id(0))
    tl.store(y + tl.program_id(0), total)

scaled[(1, 4)](x, torch.ones(256, device="cuda"), torch.empty_like(x), 32, 256, 8)
columns[(32,)](x, torch.empty(32, device="cuda"), 32, 256)
"""
)
SUMMED = (
    START
    + """
CONFIGS = [triton.Config({"PLUS": plus}, num_warps=warps) for warps, plus in ((1, 0), (4, 0), (4, 1), (8, 0))]

@triton.autotune(CONFIGS, key=["N"])
@triton.jit
def summed(x, y, N: tl.constexpr, PLUS: tl.constexpr):
    total = tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0)
    tl.store(y + tl.program_id(0), total + 0.0 if PLUS else total)

summed[(32,)](x, torch.zeros(32, device="cuda"), 256)
"""
)


STAGES = (
    START
    + """
@triton.jit
def scaled(value, factor):
    return value * factor

@triton.jit
def unset(x, y, N, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * 256 + at, at < N)
    tl.store(y + tl.program_id(0), tl.max(tl.abs(value), 0))

@triton.jit
def kept(x, y, N, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, scaled(tl.load(x + at, at < N), 2.0), at < N)

@triton.jit
def product(a, b, c, B: tl.constexpr):
    at = tl.arange(0, B)
    both = at[:, None] * B + at[None, :]
    tl.store(c + both, (tl.dot(tl.load(a + both), tl.load(b + both)) + 1).to(tl.bfloat16))

@triton.jit
def counted(x, y, B: tl.constexpr):
    at = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_add(y + at % 7, at // 3)

@triton.jit
def inline(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=r,r", [tl.load(x + at)], tl.float32, True, 1)
    tl.store(y + at, value)

@triton.jit
def narrow(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at) * 300
    tl.store(y + at, value.to(tl.float8e4nv).to(tl.float16) + value.to(tl.float8e5).to(tl.float32))

@triton.jit
def tile(source, to):
    to.store([0, 0], source.load([1, 8]) * 3)

unset[(4,)](x, torch.empty(4, device="cuda"), 250, 256)
kept[(1,)](x, torch.empty(256, device="cuda"), 250, 256)
a, b = x[:, :32].bfloat16().contiguous(), x[:, 32:64].bfloat16().contiguous()
product[(1,)](a, b, torch.empty_like(a), 32)
counted[(4,)]((x.abs() * 9).int(), torch.zeros(7, device="cuda", dtype=torch.int32), 256)
inline[(1,)](x, torch.empty(256, device="cuda"), 256)
narrow[(1,)](x, torch.empty(256, device="cuda"), 256)
from triton.tools.tensor_descriptor import TensorDescriptor
some = x[:10, :24].contiguous()
tile[(1,)](*(TensorDescriptor.from_tensor(one, [16, 32]) for one in (some, torch.zeros(16, 32, device="cuda"))))
"""
)


@pytest.fixture
def verified(tmp_path, triton_cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(script: str, *words: str, status: int, verb: str = "verify") -> dict:
        (tmp_path / "script.py").write_text(script)
        code = main([verb, "script.py", *words, "--json"])
        out, error = capsys.readouterr()
        assert code == status, error
        return json.loads(out) if out else {"error": error}

    return run


def test_only_a_sum_of_floats_depends_on_the_order(verified):
    document = verified(TOTALS, "--orders", "3", "--sanitize", status=1)
    assert sorted(one["verdict"] for one in document["kernels"]) == ["NONDETERMINISTIC", "SAME"]
    why = next(one["why"] for one in document["kernels"] if one["why"])
    assert "argument y" in why and "ulp" in why and "script.py:8" in why and "atom" in why


def test_configurations_are_grouped_by_their_bits(verified):
    rounding, wrong = verified(TUNED, "--configs", status=1)["kernels"]
    assert [one["verdict"] for one in (rounding, wrong)] == ["OTHER BITS", "WRONG"]
    for kernel in (rounding, wrong):
        assert [one["group"] for one in kernel["executions"]] == [1, 2, None]
        assert "out of resource" in kernel["executions"][2]["reason"] or kernel["executions"][2]["reason"]
    assert 0 < rounding["executions"][1]["share"] < 1e-5 < wrong["executions"][1]["share"]


def test_settings_are_tried_on_kernels_that_have_them(verified):
    document = verified(TUNED, "--set", "num_warps=1,4", "--set", "WRONG=0", status=1)
    by_kernel = {one["kernel"]: one for one in document["kernels"]}
    assert len(by_kernel["total"]["executions"]) == len(by_kernel["doubled"]["executions"]) == 3
    assert by_kernel["doubled"]["verdict"] == "SAME"
    assert [one["label"] for one in by_kernel["doubled"]["executions"]] == ["as launched", "num_warps=1", "num_warps=4"]


@pytest.mark.parametrize(
    ("rows", "status", "text"),
    [
        ("x", 1, "summed stores other bits: SPLIT=4"),
        ("steady.x", 0, ""),
        ("x:2", 2, "argument x of sums has no dimension 2: its shape is [32, 256]"),
        ("z", 2, "functions that launch one: sums(x), steady(x)"),
        ("bias", 2, "functions that launch one"),
        ("x;y", 2, "--rows x;y: must be ARG"),
    ],
)
def test_the_same_rows_among_fewer_and_more(verified, rows, status, text):
    document = verified(SPLIT, "--rows", rows, status=status)
    if status == 2:
        assert text in document["error"]
        return
    (function,) = document["kernels"]
    assert function["verdict"] == ("BATCH VARIANT" if status else "SAME") and text in function["why"]
    assert [one["label"] for one in function["executions"]][:2] == ["1 row", "2 rows"]
    few = [one["group"] for one in function["executions"]]
    assert few[3:] == [1] * 4 and (2 in few[:3]) == bool(status)


@pytest.mark.parametrize(
    ("rows", "status", "text"),
    [
        ("a", 1, "scaled stores other bits: grid 1x1x1 with 7 rows, grid 1x4x1 with 32"),
        ("y", 1, "scaled"),
        ("w", 2, "no axis of the grid 1x4x1 can be shown to divide the 256 rows of w"),
        ("b", 2, "no axis of the grid 32x1x1 can be shown to divide the 32 rows of b"),
        ("a:2", 2, "argument a of scaled has no dimension 2: its shape is [32, 256]"),
    ],
)
def test_a_launch_again_with_fewer_rows(verified, rows, status, text):
    document = verified(LAUNCHES, "--rows", rows, status=status)
    if status == 2:
        assert text in document["error"]
        return
    (kernel,) = document["kernels"]
    assert kernel["verdict"] == "BATCH VARIANT" and text in kernel["why"]
    assert [(one["label"], one["group"]) for one in kernel["executions"]][2:] == [
        ("7 rows", 2), ("16 rows", 1), ("32 rows", 1)
    ]  # fmt: skip


def test_each_stage_is_compared_with_the_one_before(verified):
    by_kernel = {one["kernel"]: one for one in verified(STAGES, "--stages", status=1)["kernels"]}
    assert {name: one["verdict"] for name, one in by_kernel.items()} == {
        "unset": "UNDEFINED", "kept": "SAME", "product": "ROUNDING", "counted": "SAME", "inline": "SAME",
        "narrow": "SAME", "tile": "SAME",
    }  # fmt: skip
    assert "argument x at script.py:12 " in by_kernel["unset"]["why"]
    assert all(len(one["executions"]) == 4 for one in by_kernel.values())
    reasons = {name: one["executions"][0]["reason"] for name, one in by_kernel.items()}
    inline = reasons.pop("inline")
    assert inline.startswith("not known: ") and "inline_asm" in inline and not any(reasons.values())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--set", "num_warps"], "NAME=VALUE"),
        (["--set", "NONE=1"], "no kernel that it launched has"),
        (["--configs"], "launched no autotuned kernel"),
        (["--arch", "sm_90a"], "only with --orders"),
        (["--rows", "x", "--configs"], "not allowed with --configs"),
    ],
)
def test_bad_input(verified, words, text):
    assert text in verified(TOTALS, *words, status=2)["error"]


def test_tune_keeps_configurations_of_the_same_bits(verified):
    words = ("--arch", "sm_90a", "--assemble-only", "--levers", "O1", "--same-bits-as", "num_warps=4,PLUS=1")
    (kernel,) = verified(SUMMED, *words, verb="tune", status=0)["kernels"]
    (other,) = (one["config"] for one in kernel["candidates"] if one["lever"] == "plain")
    assert other.startswith("PLUS: 0, num_warps: 4")
    assert len(kernel["notes"]) == 2 and all("argument y: " in note and "ulp" in note for note in kernel["notes"])
