"""Sessions in Triton's pipeline: what is kept, errors, and how sessions begin and end."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton import knobs
from triton_kernels import add_kernel, compile_kernel, fused_kernel, multiply_kernel
from triton_sessions import CRASH_ON_CUTLASS, entries, wrapper_around_ptxas

import tritonhook
from tritonhook import Stage
from tritonhook.capture.session import Session
from tritonhook.errors import CaptureError, PtxError, UsageError
from tritonhook.ptx.module import Ptx

STAGES = [Stage.TTIR, Stage.TTGIR, Stage.LLIR, Stage.PTX, Stage.CUBIN]

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content. The path of the folder, which Triton writes into its group files, is replaced."""
    own = str(folder).encode()
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(own, b"CACHE")
        for path in folder.rglob("*")
        if path.is_file()
    }


# --- capture changes nothing ---------------------------------------------------------------------


def test_capture_leaves_hash_cache_and_code_as_they_are(tmp_path, out, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "without"))
    without = compile_kernel()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "with"))
    with tritonhook.session(out):
        assert knobs.runtime.add_stages_inspection_hook is None
        captured = compile_kernel()
    assert captured.hash == without.hash
    assert captured.metadata == without.metadata
    assert captured.asm == without.asm
    assert files_below(tmp_path / "with") == files_below(tmp_path / "without")


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("hit", [False, True], ids=["miss", "disk-cache hit"])
def test_artifacts_are_complete_and_equal_to_tritons(out, hit):
    kernel = compile_kernel()
    if not hit:
        os.environ["TRITON_CACHE_DIR"] += "-other"
    with tritonhook.session(out) as session:
        kernel = compile_kernel()
    (capture,) = session.captures
    assert (capture.kernel, capture.hash, capture.arch) == ("add_kernel", kernel.hash, "sm_90a")
    assert capture.cache_hit is hit
    assert session.from_cache == int(hit)
    assert list(capture.artifacts) == STAGES
    assert {stage.value: capture.artifacts[stage] for stage in STAGES} == {
        stage.value: kernel.asm[stage.value] for stage in STAGES
    }
    assert capture.metadata["num_warps"] == 4
    assert capture.rewritten_from is None
    assert f"1 kernel seen, {int(hit)} from cache" in session.summary
    times = tritonhook.CaptureFolder.open(out).compile_us(session.records[0])
    assert set(times) == (set() if hit else {"ir", *(stage.value for stage in STAGES), "store"})


def test_an_edit_of_the_capture_does_not_reach_tritons_cache(out, triton_cache):
    with tritonhook.session(out):
        compile_kernel()
    before = files_below(triton_cache)
    for path in (out / "kernels").rglob("add_kernel.*"):
        path.write_bytes(b"edited")
    assert files_below(triton_cache) == before


def test_a_binary_only_cache_is_reported(out, monkeypatch):
    monkeypatch.setenv("TRITON_STORE_BINARY_ONLY", "1")
    with tritonhook.session(out) as session:
        compile_kernel()
    (capture,) = session.captures
    assert list(capture.artifacts) == [Stage.CUBIN]
    assert capture.binary_only
    assert "only the binary" in str(capture.note)
    assert "1 from a binary-only cache (TRITON_STORE_BINARY_ONLY)" in session.summary
    with pytest.raises(CaptureError, match="TRITON_STORE_BINARY_ONLY"):
        _ = capture.ptx


def test_a_full_kernel_after_a_binary_only_one_is_kept_in_full(out, monkeypatch):
    with tritonhook.session(out) as session, monkeypatch.context() as patch:
        patch.setenv("TRITON_STORE_BINARY_ONLY", "1")
        compile_kernel()
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    with tritonhook.session(out) as session:
        compile_kernel()
    (capture,) = session.captures
    assert list(capture.artifacts) == STAGES


def test_only_keeps_kernels_by_their_own_name(out):
    with tritonhook.session(out, rename="cutlass_", only="^add") as session:
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)
        assert entries(compile_kernel(multiply_kernel)) == ("multiply_kernel",)
        compile_kernel()
    assert [capture.kernel for capture in session.captures] == ["cutlass_add_kernel"]


def test_the_summary_is_printed_at_exit(out, run_python):
    run_python("tritonhook.enable(os.environ['OUT']); kernels.compile_kernel()", OUT=str(out), TRITONHOOK_QUIET="")
    assert "tritonhook: 1 kernel seen, 0 from cache" in run_python.stderr


@pytest.mark.usefixtures("parsing_by_turns")
def test_four_threads_lose_nothing(out):
    todo = [(kernel, block) for kernel in (add_kernel, multiply_kernel, fused_kernel) for block in (64, 128, 256)]
    with (
        tritonhook.session(out, rename="cutlass_") as session,
        ThreadPoolExecutor(4) as pool,
    ):
        names = list(pool.map(lambda item: entries(compile_kernel(item[0], block=item[1]))[0], todo))
    assert names == [f"cutlass_{kernel.__name__}" for kernel, _ in todo]
    assert len(session.records) == len(todo)
    assert sorted(capture.kernel for capture in session.captures) == sorted(names)
    assert not session.notes


# --- errors of ours ------------------------------------------------------------------------------


def test_an_error_while_reading_is_contained(out, monkeypatch, capfd):
    def broken(self, *arguments):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(Session, "read", broken)
    with tritonhook.session(out) as session:
        assert entries(compile_kernel()) == ("add_kernel",)
        compile_kernel(block=256)
    assert capfd.readouterr().err.count("broken on purpose") == 1
    assert "RuntimeError: broken on purpose" in session.summary


class Broken:
    """A rewrite that fails."""

    key = "broken"

    def apply(self, ptx: Ptx) -> Ptx:
        raise RuntimeError("broken on purpose")


def test_an_error_while_rewriting_is_contained(out, capfd):
    with tritonhook.session(out, rewrites=[Broken()]) as session:
        assert entries(compile_kernel()) == ("add_kernel",)
        compile_kernel(block=256)
    assert capfd.readouterr().err.count("broken on purpose") == 1
    assert [capture.note for capture in session.captures] == ["not rewritten: broken on purpose"] * 2


def test_a_capture_that_cannot_be_written_is_contained(out, capfd):
    with tritonhook.session(out) as session:
        for folder in ("kernels", "index", ".staging"):
            (out / folder).rmdir()
        (out / ".gitignore").unlink()
        out.rmdir()
        out.write_text("in the way")
        assert entries(compile_kernel()) == ("add_kernel",)
        assert entries(compile_kernel(block=256)) == ("add_kernel",)
    assert not session.records
    assert capfd.readouterr().err.count("not all kernels are captured") == 1


# --- wrong arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"rename": "1bad"}, PtxError),
        ({"rename": "a-b"}, PtxError),
        ({"rename": "cutlass_", "strip": True}, UsageError),
        ({"only": "("}, CaptureError),
        ({"rewrites": [object()]}, CaptureError),
        ({"rewrites": [tritonhook.Rename]}, CaptureError),
        ({"rewrites": 5}, CaptureError),
        ({"rewrites": None}, CaptureError),
        ({"only": 5}, CaptureError),
        ({"only": re.compile("x")}, CaptureError),
        ({"out": 5}, CaptureError),
        ({"out": b"captures"}, CaptureError),
        ({"out": ""}, CaptureError),
        ({"out": "a\0b"}, CaptureError),
        ({"strip": 5}, UsageError),
        ({"rename": 5}, UsageError),
        ({"rename": ["a"]}, UsageError),
        ({"rename": {"a": 5}}, UsageError),
    ],
)
def test_wrong_arguments_change_nothing(tmp_path, out, monkeypatch, arguments, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        tritonhook.enable(**{"out": out} | arguments)
    assert list(tmp_path.iterdir()) == []
    assert tritonhook.status()["compilation.listener"] == "free"
    assert tritonhook.disable() is None


# --- beginning and ending ------------------------------------------------------------------------


def test_enable_twice_replaces_the_settings(tmp_path):
    first = tritonhook.enable(tmp_path / "1", rename="a_")
    second = tritonhook.enable(tmp_path / "2", rename="b_")
    assert entries(compile_kernel()) == ("b_add_kernel",)
    assert tritonhook.disable() is second
    assert not first.seen and len(second.seen) == 1


def test_enable_again_with_the_same_folder_carries_on(out, run_python):
    # given a notebook whose first cell is run twice
    code = "tritonhook.enable(os.environ['OUT']); kernels.compile_kernel()\n"
    code += "again = tritonhook.enable(os.environ['OUT'], rename='x_')\n"
    code += "print(json.dumps([len(again.records), [c.kernel for c in again.captures]]))"
    assert run_python(code, OUT=str(out), TRITONHOOK_QUIET="") == [1, ["add_kernel"]]
    assert run_python.stderr.count("tritonhook: ") == 1
    assert "tritonhook: 1 kernel seen, 0 from cache" in run_python.stderr


def test_enable_again_keeps_crashes_and_notes(out, monkeypatch, tmp_path):
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    first = tritonhook.enable(out, rename="cutlass_")
    compile_kernel()
    monkeypatch.setenv("TRITON_STORE_BINARY_ONLY", "1")
    compile_kernel(multiply_kernel)
    second = tritonhook.enable(out)
    compile_kernel(fused_kernel)
    tritonhook.disable()
    assert (second.crashes, second.notes) == (first.crashes, first.notes)
    assert len(second.crashes) == 2
    assert (len(first.records), len(second.records)) == (2, 3)
    assert second.records[:2] == first.records
    assert len(second.binary_only) == 2
    assert len(second.captures) == 3


@pytest.mark.parametrize("quiet", ["", "1"])
def test_enable_again_with_another_folder_prints_what_the_first_saw(tmp_path, capfd, monkeypatch, quiet):
    monkeypatch.setenv("TRITONHOOK_QUIET", quiet)
    tritonhook.enable(tmp_path / "1")
    compile_kernel()
    second = tritonhook.enable(tmp_path / "2")
    printed = capfd.readouterr().err
    assert ("1 kernel seen, 0 from cache; captures in " + str(tmp_path / "1") in printed) is not bool(quiet)
    tritonhook.disable()
    assert not second.seen


def test_a_session_ends_with_an_exception_too(out):
    with pytest.raises(ZeroDivisionError), tritonhook.session(out, rename="cutlass_"):
        _ = 1 / 0
    assert tritonhook.status()["compilation.listener"] == "free"
    assert entries(compile_kernel()) == ("add_kernel",)


def test_disable_inside_a_session_and_the_other_way_round(tmp_path):
    tritonhook.enable(tmp_path / "1", rename="a_")
    with tritonhook.session(tmp_path / "2", rename="b_"):
        tritonhook.disable()
        assert entries(compile_kernel()) == ("b_add_kernel",)
    assert entries(compile_kernel()) == ("add_kernel",)


def test_out_defaults_to_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITONHOOK_OUT", str(tmp_path / "there"))
    with tritonhook.session() as session:
        compile_kernel()
    assert session.out == tmp_path / "there"
    assert len(session.captures) == 1
