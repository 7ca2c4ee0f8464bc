"""`tritonhook run --arch --emulate`: results of programs that use Triton are real, without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from dry_runs import run_dry
from repository import ROOT, SUPPORT

pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytest.importorskip("triton", minversion="3.6")

from tritonhook.capture.store import CaptureFolder  # noqa: E402
from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm_start")
KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def normed(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + at, powers / tl.sum(powers, 0), mask=at < n)

@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k), tl.load(b + k[:, None] * N + j)
    tl.store(c + i[:, None] * N + j, tl.dot(x, y))
"""


@pytest.mark.parametrize(
    "arch", [*(pytest.param(a, marks=pytest.mark.nightly) for a in ("sm_80", "sm_90a")), "sm_120a"]
)
def test_tensors_hold_what_kernels_compute(tmp_path, triton_cache, arch):
    script = (
        KERNELS
        + """
torch.manual_seed(0)
x = torch.randn(70, 100, device="cuda")
out = torch.zeros_like(x)
normed[(70,)](x, out, 100, BLOCK=128)
assert torch.allclose(out, torch.softmax(x, 1), atol=1e-6), (out - torch.softmax(x, 1)).abs().max()
a, b = (torch.randn(64, 64, device="cuda").half() for _ in "ab")
c = torch.zeros(64, 64, device="cuda")
product[(1,)](a, b, c, 64, 64, 64)
assert torch.allclose(c, a.float() @ b.float(), atol=1e-4), (c - a.float() @ b.float()).abs().max()
"""
    )
    run_dry(tmp_path, script, "--emulate", arch=arch)


def test_what_tests_of_triton_use_beside_tensors(tmp_path, triton_cache):
    """cuBLAS, histograms of integers, and arguments that have only an address and a type."""
    script = (
        KERNELS
        + """
from triton._C.libtriton import nvidia
class Wrapped:
    def __init__(self, data):
        self.data, self.dtype = data, data.dtype
    def data_ptr(self):
        return self.data.data_ptr()
a, b = (torch.randn(64, 64, device="cuda").half() for _ in "ab")
c, wanted = torch.zeros(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
product[(1,)](Wrapped(a), b, Wrapped(c), 64, 64, 64)
nvidia.cublas.CublasLt(torch.empty(1024, device="cuda", dtype=torch.uint8)).matmul(a, b.T, wanted)
assert torch.allclose(c, wanted, atol=1e-4), (c - wanted).abs().max()
counts = torch.histc(torch.tensor([0, 3, 3, 1], device="cuda", dtype=torch.int32), bins=4, min=0, max=3)
assert counts.tolist() == [1, 1, 0, 2] and counts.dtype is torch.int32, counts
"""
    )
    run_dry(tmp_path, script, "--emulate")


def test_attention_is_what_float64_says(tmp_path, triton_cache):
    script = """
import torch
from gluon_kernels.mma.launch import attention
torch.manual_seed(0)
for dtype, causal in ((torch.float16, None), (torch.bfloat16, "bottom-right")):
    sizes = (70, 2), (150, 1), (150, 1)
    q, k, v = (torch.randn(1, n, heads, 64).to(dtype).cuda().transpose(1, 2) for n, heads in sizes)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    s = q.double() @ k.double().transpose(-1, -2) / 8
    if causal:
        s = s.masked_fill(torch.arange(150)[None, :] > torch.arange(70)[:, None] + 80, float("-inf"))
    wanted = torch.softmax(s, -1) @ v.double()
    assert (o.double() - wanted).abs().max() < (1e-3 if dtype is torch.float16 else 1e-2)
    assert (lse.double() - torch.logsumexp(s, -1)).abs().max() < 1e-5
"""
    run_dry(tmp_path, script, "--emulate")


def test_hopper_s_attention_is_what_float64_says(tmp_path, triton_cache):
    """Warps with jobs of their own, descriptors that the host makes, mbarriers, named barriers and wgmma. Heads that
    share a key head, rows that see no key, and scores that grow with each block, whose maxima are guessed too small."""
    script = """
import torch
from gluon_kernels.hopper.launch import attention
from gluon_kernels.verify.reference import attention_reference
torch.manual_seed(0)
q, k, v = (torch.randn(1, n, heads, 64).half().transpose(1, 2) for n, heads in ((160, 2), (150, 1), (150, 1)))
k = k * torch.linspace(4, 1, 150)[:, None].half()
for causal in (None, "bottom-right"):
    o, lse = attention(q.cuda(), k.cuda(), v.cuda(), causal=causal, return_lse=True)
    exact, exact_lse = attention_reference(q, k, v, causal=causal)
    assert (o.cpu().double() - exact).abs().max() < 3e-3, causal
    seen = exact_lse > float("-inf")
    assert bool((lse.cpu() == float("-inf"))[~seen].all()) and (lse.cpu() - exact_lse)[seen].abs().max() < 1e-3, causal
    assert int((~seen).sum()) == (20 if causal else 0)
"""
    run_dry(tmp_path, script, "--emulate")


SWEEP = [
    pytest.param(*case, marks=pytest.mark.nightly)
    for case in ((None, 172, 300, (1, 4)), ("top-left", 300, 300, (1, 4)))
]


@pytest.mark.parametrize(("causal", "queries", "keys", "own_sums"), [("top-left", 100, 100, (4,)), *SWEEP])
def test_own_sums_make_a_query_s_score_with_its_own_key_exact(tmp_path, triton_cache, causal, queries, keys, own_sums):
    """Hopper's tensor cores lose 0.07% of a sum of 128 fp8 products of one sign."""
    script = (
        f"CASE = {(causal, queries, keys, own_sums)}"
        + """
import torch
from dataclasses import replace
from gluon_kernels.hopper.config import default_config
from gluon_kernels.hopper.launch import attention
from gluon_kernels.verify.reference import attention_reference
torch.manual_seed(0)
causal, queries, keys, own_sums = CASE
k, v = (torch.randn(1, 1, keys, 128).to(torch.float8_e4m3fn) for _ in "kv")
q = k[:, :, keys - queries :].clone()
exact, exact_lse = attention_reference(q, k, v, causal=causal)
config = default_config(90, "fp8e4nv", 128, causal)
lost = {}
for sums in own_sums:
    one = replace(config, own_sums=sums)
    o, lse = attention(q.cuda(), k.cuda(), v.cuda(), causal=causal, return_lse=True, config=one)
    assert ((o.cpu().double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max() < 2**-8, (causal, sums)
    lost[sums] = float((exact_lse - lse.cpu()).mean())
assert lost.get(1, 1.0) > 0.006 and lost[4] < 0.0012, (causal, queries, lost)
"""
    )
    run_dry(tmp_path, script, "--emulate")


@pytest.mark.nightly
def test_blackwell_s_attention_passes_its_own_check(tmp_path, triton_cache):
    """Tensor memory, tcgen05, partitions of one warp; within the limits that a GPU would have to keep."""
    script = """
from gluon_kernels.blackwell.launch import attention
from gluon_kernels.verify.check import Case, judge
verdict = judge(Case(150, 300, 64, "bf16", "bottom-right", qheads_per_kvhead=2), attention, 0)
assert verdict.right, verdict
"""
    run_dry(tmp_path, script, "--emulate", arch="sm_100a")


@pytest.mark.nightly
def test_triton_s_persistent_matmul_with_warps_of_their_own(tmp_path, triton_cache):
    script = """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across, first, step = tl.cdiv(M, BM), tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(first, across * tl.cdiv(N, BN), step, flatten=True, warp_specialize=True):
        i, j = tile % across * BM, tile // across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            total = tl.dot(a.load([i, k * BK]), b.load([j, k * BK]).T, total)
        c.store([i, j], total.to(tl.float16))

torch.manual_seed(0)
a, b = (torch.randn(rows, 160, device="cuda").half() for rows in (300, 200))
c = torch.zeros(300, 200, dtype=torch.float16, device="cuda")
blocks = [TensorDescriptor.from_tensor(x, box) for x, box in ((a, [128, 64]), (b, [64, 64]), (c, [128, 64]))]
matmul[(2,)](*blocks, 300, 200, 160, 128, 64, 64)
wanted = a.double() @ b.double().T
assert ((c.double() - wanted).abs() <= wanted.abs() * 2**-11 + 1e-4).all()
"""
    run_dry(tmp_path, script, "--emulate", arch="sm_100a")


def test_a_recorded_launch_with_descriptors_of_the_host_is_executed(tmp_path, triton_cache):
    """The PTX and the machine code of the capture, from the launch's record alone."""
    run_dry(tmp_path, (SUPPORT / "host_descriptors.py").read_text(), "--launches")
    folder = CaptureFolder.open(tmp_path / "out")
    (record,) = folder.records
    capture, (launched,) = folder.capture(record), folder.launches(record)
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((100, 96), (64, 96)))
    contents = a.tobytes(), b.tobytes(), bytes(2 * 100 * 64)
    run = Run(launched.launch, (0, 1))
    stored = run_ptx(capture.ptx, run, contents).contents
    found = np.frombuffer(stored[2], np.float16).reshape(100, 64)
    assert np.abs(found - a.astype(np.float32) @ b.astype(np.float32).T).max() < 0.02
    assert run_cubin(Cubin.from_bytes(capture.cubin), "product", run, contents).contents == stored


FAULTY = """
import sys, torch, triton, triton.language as tl

@triton.jit
def gather(idx, x, y, stride, n, B: tl.constexpr):
    at = tl.load(idx) * stride + tl.arange(0, B)
    tl.store(y + tl.arange(0, B), tl.load(x + at, at < n))

@triton.jit
def await_(flag, wanted):
    while tl.atomic_add(flag, 0, sem="acquire") < wanted:
        pass

x, y = (torch.zeros(64, dtype=torch.int32, device="cuda") for _ in "xy")
launch = {launch}
launch()
"""


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        # 3 * 2**30 wraps to -2**30
        ("lambda: gather[(1,)](x + 3, x, y, 1 << 30, 1000, B=64)",
         ("gather: out of bounds at script.py:7: read of 4 bytes outside of argument x", "bytes before its start",
          "at script.py:6 a 32-bit product wrapped: 3 * 1,073,741,824 became -1,073,741,824")),
        ("lambda: gather[(1,)](x, x, y[:32].clone(), 1, 1000, B=64)",
         ("gather: out of bounds at script.py:7: write of 4 bytes outside of argument y (128 bytes)",)),
        ("lambda: await_[(1,)](x, 1)", ("await_: hang at script.py:11",)),
    ],
)  # fmt: skip
def test_a_fault_of_the_kernel_is_told_as_such_below_the_line_that_launched_it(tmp_path, triton_cache, launch, words):
    done = run_dry(tmp_path, FAULTY.replace("{launch}", launch), "--emulate", status=1)
    shown = done.stderr.partition("1 kernel of 1 process")[0]
    assert set(re.findall(r'File "([^"]*)"', shown)) == {str(tmp_path / "script.py")}
    (note,) = CaptureFolder.open(tmp_path / "out").notes
    assert all(word in shown and word in note for word in words) and "cannot be emulated" not in done.stderr


TUNED = """
@triton.autotune([triton.Config({"B": b}, num_warps=1) for b in (64, 128)], key=["n"], **OPTIONS)
@triton.jit
def NAME(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    BODY

x, y = torch.ones(200, device="cuda"), torch.full((200,), 5.0, device="cuda")
NAME[lambda given: (triton.cdiv(200, given["B"]),)](x, y, 200)
print(sorted(set(x.tolist())), sorted(set(y.tolist())))
"""
IN_PLACE, OUT, SUM = (
    "tl.store(x + at, tl.load(x + at, at < n) * 2, at < n)",
    "tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)",
    "tl.atomic_add(y + at, tl.load(x + at, at < n), at < n)",
)
# A row: the kernel's body, the autotuner's options, the printed x and y, the argument that trials would change.
TRIED = {
    "doubles": (IN_PLACE, "{}", "[2.0] [5.0]", "argument x"),
    "doubles_again": (IN_PLACE, "{'restore_value': ['x']}", "[2.0] [5.0]", None),
    "writes": (OUT, "{}", "[1.0] [2.0]", None),
    "adds": (SUM, "{}", "[1.0] [6.0]", "argument y"),
    "adds_to_zero": (SUM, "{'reset_to_zero': ['y']}", "[1.0] [1.0]", None),
    "does_both": (f"{IN_PLACE}; {SUM}", "{'restore_value': ['x']}", "[2.0] [7.0]", "argument y"),
}


@pytest.mark.parametrize("autotune", ["first", "all"])
def test_trials_of_an_autotuner_leave_nothing_and_what_they_would_spoil_is_named(tmp_path, triton_cache, autotune):
    script = "import torch, triton, triton.language as tl\n"
    for name, (body, options, _, _) in TRIED.items():
        script += TUNED.replace("NAME", name).replace("OPTIONS", options).replace("BODY", body)
    done = run_dry(tmp_path, script, "--emulate", "--autotune", autotune)
    assert done.stdout.splitlines() == [printed for _, _, printed, _ in TRIED.values()]
    notes = sorted(note for note in CaptureFolder.open(tmp_path / "out").notes if "trial" in note)
    spoiled = [f"{name}: " for name, (*_, what) in sorted(TRIED.items()) if what is not None]
    assert [note[: len(name)] for note, name in zip(notes, spoiled, strict=True)] == spoiled, notes
    assert all(f"changes {TRIED[note.partition(':')[0]][-1]} again" in note for note in notes)


def test_what_is_not_understood_ends_the_program(tmp_path, triton_cache):
    script = """
import torch, triton, triton.language as tl

@triton.jit
def clock(x):
    tl.store(x, tl.extra.cuda.globaltimer())

clock[(1,)](torch.zeros(1, dtype=torch.int64, device="cuda"))
"""
    done = run_dry(tmp_path, script, "--emulate", status=1)
    assert "clock cannot be emulated: line" in done.stderr and "globaltimer" in done.stderr


@pytest.mark.parametrize(("mask", "ends"), [("at < columns", "1 passed"), ("at <= columns", "1 failed")])
def test_the_example_of_the_readme(tmp_path, triton_cache, mask, ends):
    source = (ROOT / "examples" / "test_row_sum.py").read_text().replace("at < columns", mask)
    (tmp_path / "test_row_sum.py").write_text(source)
    words = "--kernel-arch", "sm_90a", "--kernel-emulate", "-k", "dtype1-1000"
    command = [sys.executable, "-m", "pytest", *words, "test_row_sum.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ends in done.stdout and ("out of bounds at test_row_sum.py:13" in done.stdout) == ("failed" in ends)
