"""Renaming in Triton's pipeline: the name, its origin, other ways to replace PTX, and a ptxas that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from triton.runtime.errors import PTXASError
from triton_kernels import add_kernel, compile_kernel, cutlass_copy_kernel, multiply_kernel
from triton_sessions import CRASH_ON_CUTLASS, assemble_again, entries, wrapper_around_ptxas

import tritonhook
from tritonhook.ptx.module import Ptx

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


# --- renaming ------------------------------------------------------------------------------------


def test_rename_sets_name_and_origin_and_a_later_process_knows(out, run_python):
    with tritonhook.session(out, rename="cutlass_") as session:
        kernel = compile_kernel()
    assert entries(kernel) == ("cutlass_add_kernel",)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == ("cutlass_add_kernel", "add_kernel")
    assert capture.cubin == kernel.asm["cubin"]
    assert assemble_again(capture) == capture.cubin
    code = "with tritonhook.session('later', rename='cutlass_') as s:\n    kernels.compile_kernel()\n"
    code += "print(json.dumps([[c.kernel, c.rewritten_from, c.cache_hit] for c in s.captures]))"
    assert run_python(code) == [["cutlass_add_kernel", "add_kernel", True]]


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"rename": {"add_kernel": "another"}}, "another"),
        ({"rename": {"something": "another"}}, "add_kernel"),
        ({"rename": tritonhook.Rename(prefix="p_", strip="add")}, "p_kernel"),
        ({"rename": "x_", "strip": "kernel"}, "x_add"),
    ],
)
def test_ways_to_rename(out, arguments, name):
    with tritonhook.session(out, **arguments) as session:
        assert entries(compile_kernel()) == (name,)
    (capture,) = session.captures
    assert capture.rewritten_from == (None if name == "add_kernel" else "add_kernel")


def test_strip(out):
    with tritonhook.session(out, strip=True) as session:
        assert entries(compile_kernel(cutlass_copy_kernel)) == ("copy_kernel",)
        assert entries(compile_kernel(add_kernel)) == ("add_kernel",)
    assert [capture.rewritten_from for capture in session.captures] == ["cutlass_copy_kernel", None]


def test_rename_of_one_entry_leaves_other_kernels_alone(out, capfd):
    with tritonhook.session(out, rename=tritonhook.Rename(prefix="cutlass_", entry="add_kernel")) as session:
        assert entries(compile_kernel(multiply_kernel)) == ("multiply_kernel",)
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    assert not session.notes
    assert capfd.readouterr().err == ""
    # and Triton's metadata has no note on it
    assert [(c.rewritten_from, c.note) for c in session.captures] == [(None, None), ("add_kernel", None)]


def test_nested_sessions_rewrite_in_order_and_know_the_kernels_own_name(tmp_path):
    with tritonhook.session(tmp_path / "outer", rename="a_") as outer:
        with tritonhook.session(tmp_path / "inner", rename="b_", only="^add_kernel$") as inner:
            assert entries(compile_kernel()) == ("b_a_add_kernel",)
        assert entries(compile_kernel()) == ("a_add_kernel",)
    assert [(c.kernel, c.rewritten_from) for c in inner.captures] == [("b_a_add_kernel", "add_kernel")]
    assert [(c.kernel, c.rewritten_from) for c in outer.captures] == [
        ("b_a_add_kernel", "add_kernel"),
        ("a_add_kernel", "add_kernel"),
    ]
    assert entries(compile_kernel()) == ("add_kernel",)


# --- Triton's own ways to replace stages ---------------------------------------------------------


def plain_ptx(tmp_path: Path, name: str = "add_kernel") -> Path:
    text = compile_kernel().asm["ptx"]
    path = tmp_path / "add_kernel.ptx"
    path.write_text(Ptx(text).rename_entries({"add_kernel": name}).text)
    return path


@pytest.mark.parametrize("name", ["add_kernel", "another"])
def test_ir_override_of_the_ptx_counts(tmp_path, out, name):
    path = plain_ptx(tmp_path, name)
    with tritonhook.session(out, rename="cutlass_") as session:
        assert entries(compile_kernel(ir_override=str(path))) == (name,)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == (name, None)


def test_kernel_override_of_the_ptx_counts(tmp_path, out, monkeypatch, driver):
    path = plain_ptx(tmp_path)
    source = triton.compiler.ASTSource(
        fn=add_kernel,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 128},
    )
    folder = Path(triton.runtime.cache.get_override_manager(source.hash()).cache_dir)
    assert tmp_path in folder.parents
    folder.mkdir(parents=True)
    path.rename(folder / "add_kernel.ptx")
    monkeypatch.setenv("TRITON_KERNEL_OVERRIDE", "1")
    with tritonhook.session(out, rename="cutlass_"):
        kernel = compile_kernel()
        assert entries(kernel) == ("add_kernel",)
        kernel._init_handles()
    assert driver.loaded == ["add_kernel"]


# --- ptxas fails under the new name --------------------------------------------------------------


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_a_kernel_that_ptxas_cannot_rename_keeps_its_name(tmp_path, out, monkeypatch, capfd, run_python, arch):
    script = wrapper_around_ptxas(tmp_path, monkeypatch, arch, CRASH_ON_CUTLASS)
    with tritonhook.session(out, rename="cutlass_") as session:
        kernel = compile_kernel(arch=arch)
        compile_kernel(arch=arch)
    # then PTX, cubin and name belong together, here and in the cache
    assert entries(kernel) == ("add_kernel",)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == ("add_kernel", None)
    assert capture.note == "not renamed: ptxas failed under the name cutlass_add_kernel"
    # and the crash is kept, with all that is needed to repeat it
    (crash,) = session.crashes
    details = json.loads((crash / "crash.json").read_text())
    assert details["signal"] == "SIGSEGV"
    assert str(script) in details["command"] and f"--gpu-name={capture.arch}" in details["command"]
    assert details["ptxas"] == capture.assembler.version
    assert Ptx((crash / "kernel.ptx").read_text()).entries == ("cutlass_add_kernel",)
    # and the user is told once, without Triton's dump of the PTX
    assert len(session.notes) == 1
    assert "died with SIGSEGV on cutlass_add_kernel" in session.summary
    printed = capfd.readouterr()
    assert ".visible" not in printed.out + printed.err
    # and another process finds the plain kernel with the note
    code = f"with tritonhook.session('later', rename='cutlass_') as s:\n    k = kernels.compile_kernel(arch={arch})\n"
    code += "print(json.dumps([[k.name, c.kernel, c.cache_hit, c.note] for c in s.captures]))"
    assert run_python(code) == [["add_kernel", "add_kernel", True, capture.note]]


def test_a_kernel_that_ptxas_cannot_assemble_at_all_is_tritons_error(tmp_path, out, monkeypatch, capfd):
    always = 'for file in "$@"; do case "$file" in *.ptx) echo "no way" >&2; exit 3;; esac; done'
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, always)
    with tritonhook.session(out, rename="cutlass_") as session, pytest.raises(PTXASError, match="no way"):
        compile_kernel()
    assert len(session.crashes) == 1
    assert not session.records
    printed = capfd.readouterr().out  # Triton's own report, of the kernel under its own name
    assert ".entry add_kernel" in printed
    assert "cutlass_" not in printed


def test_a_crash_under_the_second_of_two_names_keeps_the_first(tmp_path, monkeypatch, driver):
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    with (
        tritonhook.session(tmp_path / "outer", rename="a_") as outer,
        tritonhook.session(tmp_path / "inner", rename="cutlass_") as inner,
    ):
        kernel = compile_kernel()
        kernel._init_handles()
    assert entries(kernel) == ("a_add_kernel",)
    assert driver.loaded == ["a_add_kernel"]
    assert [(c.kernel, c.rewritten_from) for c in outer.captures] == [("a_add_kernel", "add_kernel")]
    assert len(inner.crashes) == 1 and not outer.crashes


def test_a_crash_is_told_even_if_it_cannot_be_kept(tmp_path, out, monkeypatch, capfd):
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    with tritonhook.session(out, rename="cutlass_") as session:
        (out / "crashes").write_text("in the way")
        assert entries(compile_kernel()) == ("add_kernel",)
    assert "could not be kept" in session.summary
    assert "could not be kept" in capfd.readouterr().err
