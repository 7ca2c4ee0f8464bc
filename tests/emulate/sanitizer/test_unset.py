"""Memory of torch.empty: a kernel that uses what nothing has written has a finding, and others have none."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from dry_runs import run_dry  # noqa: E402
from emulated import launch_of, module_of  # noqa: E402

from tritonhook.capture.launches.record import POISON  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402
from tritonhook.emulate.sanitizer.unset import unset_words  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm_start")
AT = "mad.wide.u32 %rd9, %r20, 4, %rd20; mad.wide.u32 %rd8, %r20, 4, %rd21;\n"  # in the output, in the input
KERNELS = {
    "stored": ("ld.global.b32 %r1, [%rd8]; st.global.b32 [%rd9], %r1;", "24 elements of argument x1"),
    "added to": ("red.global.add.u32 [%rd8], 1;", "24 elements of argument x1"),
    "an address": (
        "ld.global.b32 %r1, [%rd8]; mad.wide.u32 %rd7, %r1, 4, %rd20; st.global.b32 [%rd7], 1;",
        "24 elements of argument x1",
    ),
    "not chosen": (
        "ld.global.b32 %r1, [%rd8]; setp.lt.u32 %p1, %r20, 40; selp.b32 %r2, %r1, 0, %p1; st.global.b32 [%rd9], %r2;",
        None,
    ),
    "written before": ("st.global.b32 [%rd8], 1; ld.global.b32 %r1, [%rd8]; st.global.b32 [%rd9], %r1;", None),
    "stored where it was": ("ld.global.b32 %r1, [%rd8]; st.global.b32 [%rd8], %r1;", None),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_nothing_has_written_is_a_finding_where_it_is_used(name):
    body, said = KERNELS[name]
    buffers = [np.zeros(64, np.uint32), np.frombuffer(POISON * 32, np.uint32).copy()]
    buffers[1][:40] = np.arange(40)
    run = Run(launch_of(*buffers, threads=64), (0,))

    def texts(first):
        contents = [buffers[0].tobytes(), first.tobytes()]
        return [one.text for one in sanitize(module_of(AT + body, 2), run, contents, is_poisoned=True).findings]

    assert any(said in text for text in texts(buffers[1])) if said else texts(buffers[1]) == []
    assert texts(np.arange(64, dtype=np.uint32)) == []


FEW = "setp.lt.u32 %p1, %r20, 4; @%p1 ld.global.b32 %r1, [%rd8];\n"  # other lanes have garbage in %r1
REGISTERS = {  # what follows, and whether what the kernel stores depends on it
    "stored": ("st.global.b32 [%rd9], %r1;", True),
    "stored by the lanes that have it": ("@%p1 st.global.b32 [%rd9], %r1;", False),
    "of other lanes": (
        "shfl.sync.bfly.b32 %r2, %r1, 2, 31, -1; max.u32 %r3, %r1, %r2; @%p1 st.global.b32 [%rd9], %r3;",
        False,
    ),
    "of too far a lane": (
        "shfl.sync.bfly.b32 %r2, %r1, 4, 31, -1; max.u32 %r3, %r1, %r2; @%p1 st.global.b32 [%rd9], %r3;",
        True,
    ),
    "a guard": ("setp.gt.u32 %p2, %r1, 99; @%p2 st.global.b32 [%rd9], 7;", True),
    "a guard in the lanes that have it": (
        "setp.gt.u32 %p2, %r1, 99; and.pred %p2, %p2, %p1; @%p2 st.global.b32 [%rd9], 7;",
        False,
    ),
    "a branch": ("setp.gt.u32 %p2, %r1, 99; @%p2 bra E; st.global.b32 [%rd9], 7; E:", True),
    "an address": ("and.b32 %r1, %r1, 4; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd1, %rd8; "
                   "ld.global.b32 %r2, [%rd1]; st.global.b32 [%rd9], %r2;", True),
    "overwritten": ("@!%p1 mov.b32 %r1, 5; st.global.b32 [%rd9], %r1;", False),
    "overwritten from memory": ("@!%p1 ld.global.b32 %r1, [%rd8]; st.global.b32 [%rd9], %r1;", False),
}  # fmt: skip


@pytest.mark.parametrize("name", REGISTERS)
def test_registers_that_nothing_has_written_are_a_finding_where_they_are_used(name):
    body, is_used = REGISTERS[name]
    buffers = [np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32)]
    run = Run(launch_of(*buffers, threads=32), (0,))
    found = sanitize(module_of(AT + FEW + body, 2), run, [one.tobytes() for one in buffers]).findings
    assert [one.text.startswith("registers") for one in found] == [True] * is_used


def test_data_is_not_taken_for_memory_of_torch_empty():
    words = np.frombuffer(POISON, np.uint32)
    data = np.r_[words, 0, words[1:], 0, words[1:], words[:1]].astype(np.uint32)
    assert unset_words(data.view(np.uint8)).tolist() == [True, True, *[False] * 2, False, True, True]
    assert unset_words(np.frombuffer(POISON[:4], np.uint8)).tolist() == [True]


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def total(y, z, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z, tl.sum(tl.where(at < n, tl.load(y + at), 0), 0))

y, z = torch.empty(256, device="cuda"), torch.empty(1, device="cuda")
y[:200] = 1
total[(1,)](y, z, 200, 256)  # the rest is read, and not used
assert z.item() == 200
"""
FAULTY = """
for _ in range(2):
    total[(1,)](torch.empty(4, 256, device="cuda")[2], z, 256, 256)
print(y.tolist()[0])
"""


def test_a_program_that_launches_nothing_may_have_a_fault(tmp_path, triton_cache):
    pytest.importorskip("torch")
    script = 'import torch\nx = torch.empty(8, 6, device="cuda")\nx[:4] = 1\nprint(x[2:, ::2].tolist())\n'
    done = run_dry(tmp_path, script, "--emulate", "--sanitize", status=1)
    assert "script.py:4: uninitialised: the program uses 12 of 18 elements" in done.stderr


def test_a_run_ends_with_1_if_a_fault_counts(tmp_path, triton_cache):
    """A fault counts once, however many launches have it."""
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.6")
    words = ["--emulate", "--sanitize"]
    done = run_dry(tmp_path, SCRIPT + FAULTY, *words, status=1)
    assert done.stderr.count("256 elements of argument y") == 1 and "200 elements" not in done.stderr
    assert "script.py:16: uninitialised: the program uses 56 of 256 elements" in done.stderr
    known = 'kernel = "t*"\nkind = "uninitialised"\nline = "script.py:7"', 'kernel = "other"', 'line = "script.py:16"'
    (tmp_path / "known.toml").write_text("\n".join(f"[[suppress]]\n{one}" for one in known))
    done = run_dry(tmp_path, SCRIPT + FAULTY, *words, "--suppress", "known.toml")
    assert "no fault found" in done.stderr and 'unused suppression: kernel = "other"' in done.stderr
