"""Captured kernels for a lock, of whatever front end: names that last, spills, and updates that change no more than is
needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.snapshot.test_kernel_names import ANONYMOUS
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.changes import Status, compare
from tritonhook.snapshot.facts import sha256
from tritonhook.snapshot.lockfile import kept_ptx, read_lock, write_lock
from tritonhook.snapshot.locking import lockable, settled
from tritonhook.snapshot.reading import facts_of

# An array that is indexed by an argument: it lies on the stack, so that not all of its traffic is spills.
STACK = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry NAME(.param .u64 out, .param .u32 at)
{
.local .align 4 .b8 array[64];
.reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<2>;
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [at];
mov.u64 %rd2, array; mov.u32 %r2, %tid.x;
st.local.u32 [%rd2], %r2; st.local.u32 [%rd2+4], %r1; st.local.u32 [%rd2+8], %r2; st.local.u32 [%rd2+60], %r1;
and.b32 %r3, %r1, 15; mul.wide.u32 %rd3, %r3, 4; add.u64 %rd4, %rd2, %rd3;
ld.local.u32 %r3, [%rd4]; cvta.to.global.u64 %rd5, %rd1; st.global.u32 [%rd5], %r3;
ret;
}
"""
OPTIONS = ("-m64",)


def captured(tools: Toolchain, name: str = "k", text: str = STACK, version: str | None = "12.8.93") -> Capture:
    """As the wrapper keeps a kernel of nvcc."""
    ptx = Ptx(text.replace("NAME", name))
    cubin = tools.assemble_or_raise(ptx, OPTIONS).cubin
    return Capture(
        kernel=name,
        hash="",
        arch="sm_90a",
        artifacts={Stage.PTX: ptx.text, Stage.CUBIN: cubin.data},
        assembler=Assembler("/nowhere/ptxas", version, (*OPTIONS, "--gpu-name=sm_90a")),
        metadata={"front_end": "nvcc"},
    )


def test_a_kernel_in_an_anonymous_namespace_is_the_same_in_another_folder(tools: Toolchain) -> None:
    names = ANONYMOUS, ANONYMOUS.replace("8253817b", "0123abcd")
    texts = [  # with a variable, which has the hash in its name as well
        STACK.replace(".visible", f".global .u32 {name.partition('6scaled')[0]}5countE;\n.visible") for name in names
    ]
    old, new = facts_of([captured(tools, name, text) for name, text in zip(names, texts, strict=True)])
    assert old.identity.text == "_ZN12_GLOBAL__N_16scaledILi4EEEvPff sm_90a file=anon_cu"
    assert old.stages == new.stages
    assert [change.status for change in compare([old], [new])] == [Status.SAME]


@pytest.mark.parametrize("how", ["no such ptxas", "other code"])
def test_spills_that_the_cubin_does_not_tell_come_from_one_more_run(tools: Toolchain, how: str) -> None:
    capture = captured(tools)
    other = Assembler(
        "/nowhere/ptxas", *{"no such ptxas": ("9.9.99", OPTIONS), "other code": ("12.8.93", ("-O0",))}[how]
    )
    alone, found = facts_of([replace(capture, assembler=other), capture])
    assert alone.figures["stack"] == 64
    assert (alone.figures["spill_stores"], alone.figures["spill_loads"], alone.ran_again) == (None, None, False)
    assert (found.figures["spill_stores"], found.figures["spill_loads"], found.ran_again) == (0, 0, True)
    assert {**found.figures, "spill_stores": None, "spill_loads": None} == alone.figures


def test_an_update_leaves_kernels_that_did_not_change_as_they_are(tools: Toolchain, tmp_path: Path) -> None:
    """The PTX names the folder of the source; the code does not."""
    lock, texts = tmp_path / "kernels.lock", [f'.file 1 "/{folder}/k.cu"\n' + STACK for folder in "ab"]
    texts = [text.replace(text.splitlines()[0] + "\n", "") + text.splitlines()[0] + "\n" for text in texts]
    old, new = (lockable([(one, *facts_of([one])) for one in [captured(tools, text=text)]]) for text in texts)
    assert old[0][0].ptx_sha256 != new[0][0].ptx_sha256
    write_lock(lock, old)
    before = lock.read_bytes()
    write_lock(lock, settled(lock, read_lock(lock), new))
    assert lock.read_bytes() == before
    assert kept_ptx(lock, read_lock(lock)[0]) == old[0][1]
    # A kernel that changed is written anew, and kept PTX that is missing is mended.
    changed = [(replace(new[0][0], options=("-O1",)), new[0][1])]
    assert settled(lock, read_lock(lock), changed) == changed
    next((tmp_path / "kernels.lock.d").iterdir()).unlink()
    assert settled(lock, read_lock(lock), new) == new


def test_code_of_an_amd_gpu_is_equal_or_not() -> None:
    capture = Capture("k", "", "gfx942", {Stage.HSACO: b"\x7fELF", Stage.AMDGCN: "s_endpgm"})
    same, other = facts_of([capture, replace(capture, artifacts={Stage.HSACO: b"x"})])
    assert [change.status for change in compare([same], [same])] == [Status.SAME]
    assert [change.status for change in compare([same], [other])] == [Status.CHANGED]


def test_without_machine_code_nothing_is_said() -> None:
    ptx = "a text"
    (one,) = facts_of([Capture("k", "", "sm_90a", {Stage.PTX: ptx})])
    assert (one.codes, one.ptx_sha256) == ((), sha256(ptx))
    assert [change.status for change in compare([one], [one])] == [Status.UNKNOWN]
