"""Captured kernels for a lock, of whatever front end: names that last, spills, and updates that change no more than is
needed."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ptx.test_kernel_names import ANONYMOUS
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.changes import ChangeStatus, compare
from tritonhook.snapshot.facts import sha256
from tritonhook.snapshot.folders import facts_of
from tritonhook.snapshot.lockable import lockable, settled
from tritonhook.snapshot.lockfile import kept_ptx, read_lock, write_lock
from tritonhook.snapshot.rules import failures, rules

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
    assert [change.status for change in compare([old], [new])] == [ChangeStatus.SAME]


@pytest.mark.parametrize(
    ("bounds", "read"),
    [
        (".maxntid 256", "maxntid 256 1 1"),
        (".reqntid 64, 2", "reqntid 64 2 1"),
        (".maxclusterrank 8", "maxclusterrank 8"),
        (".explicitcluster", "explicitcluster"),
        (".reqntid 64 .reqnctapercluster 2", "reqntid 64 1 1, reqnctapercluster 2 1 1"),
    ],
)
def test_other_launch_bounds_are_a_change(bounds: str, read: str, tools: Toolchain, tmp_path: Path) -> None:
    """Programs that launch the kernel as before may fail, or get other clusters. The code is the same."""
    old, new = facts_of([captured(tools, text=text) for text in (STACK, STACK.replace("at)\n", f"at) {bounds}\n"))])
    assert (old.launch_bounds, ", ".join(new.launch_bounds), old.codes) == ((), read, new.codes)
    write_lock(tmp_path / "tritonhook.lock", [(new, None)])
    (locked,) = read_lock(tmp_path / "tritonhook.lock")
    for before, after in ((old, new), (locked, old)):
        (change,) = compare([before], [after])
        assert (change.status, change.code_changed, change.blame) == (ChangeStatus.CHANGED, False, "nvcc (ptx)")
        assert failures([change], rules("code")) and not failures([change], rules("registers,stack"))
    assert [change.status for change in compare([locked], [new])] == [ChangeStatus.SAME]


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
    """Another text of the PTX, as of another build of a compiler, gives the same code."""
    lock, texts = tmp_path / "tritonhook.lock", [f"// Compiler Build ID: {build}\n{STACK}" for build in "ab"]
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
    next((tmp_path / "tritonhook.lock.d").iterdir()).unlink()
    assert settled(lock, read_lock(lock), new) == new


def test_a_lock_does_not_depend_on_where_the_source_is(tools: Toolchain, tmp_path: Path) -> None:
    """Nor on its lines: two homes have one lock, which names neither."""
    locks = []
    for home, line in (("alice", 3), ("bob", 70)):
        text = STACK.replace("ret;", f".loc 1 {line} 5\nret;") + f'.file 1 "/home/{home}/k.cu"\n'
        assert f"/home/{home}" in text and f".loc 1 {line}" in text
        capture = captured(tools, text=text)
        (tmp_path / home).mkdir()
        write_lock(tmp_path / home / "tritonhook.lock", lockable([(capture, *facts_of([capture]))]))
        (kept,) = (tmp_path / home / "tritonhook.lock.d").iterdir()
        assert home not in lzma.decompress(kept.read_bytes()).decode()
        locks.append(((tmp_path / home / "tritonhook.lock").read_bytes(), kept.name, kept.read_bytes()))
    assert locks[0] == locks[1]


def test_code_of_an_amd_gpu_is_equal_or_not() -> None:
    capture = Capture("k", "", "gfx942", {Stage.HSACO: b"\x7fELF", Stage.AMDGCN: "s_endpgm"})
    same, other = facts_of([capture, replace(capture, artifacts={Stage.HSACO: b"x"})])
    assert [change.status for change in compare([same], [same])] == [ChangeStatus.SAME]
    assert [change.status for change in compare([same], [other])] == [ChangeStatus.CHANGED]


def test_without_machine_code_nothing_is_said() -> None:
    ptx = "a text"
    (one,) = facts_of([Capture("k", "", "sm_90a", {Stage.PTX: ptx})])
    assert (one.codes, one.ptx_sha256) == ((), sha256(ptx))
    assert [change.status for change in compare([one], [one])] == [ChangeStatus.UNKNOWN]


def test_a_table_whose_entries_change_places_is_a_change_that_is_not_code(tools: Toolchain) -> None:
    table = ".global .u32 first;\n.global .u32 second;\n.global .align 8 .u64 table[2] = {{generic({}), generic({})}};"
    texts = [
        STACK.replace(".visible", f"{table.format(*names)}\n.visible")
        for names in (("first", "second"), ("second", "first"))
    ]
    old, new = (facts_of([captured(tools, "k", text)])[0] for text in texts)
    (change,) = compare([old], [new])
    assert (change.status, change.code_changed, change.loaded_changed) == (
        ChangeStatus.CHANGED,
        False,
        ("relocations",),
    )
