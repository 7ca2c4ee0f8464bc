"""The TMA rewrite in Triton's pipeline: alone and with a rename, in one process and several, with one cache."""

from __future__ import annotations

from typing import Any

import pytest
from ended import Done, python_ended

pytest.importorskip("triton", minversion="3.6")

import triton
from repository import SUPPORT
from tma_kernels import compile_tma, copy_2d

import tritonhook
from tritonhook.capture import session as sessions
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError
from tritonhook.ptx.cta_loads import ClusterToCta
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename

pytestmark = [
    pytest.mark.usefixtures("triton_cache", "slots_are_given_back"),
    pytest.mark.skipif(
        tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6), reason="Triton 3.7 and newer emits .shared::cta"
    ),
]

BLOCK = {"BLOCK_M": 64, "BLOCK_N": 64}
# settings, the expected name, whether the load is expected to be to shared::cta
STEPS: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "copy_2d", False),
    ({"rewrites": ["tma-cta"]}, "copy_2d", True),
    ({"rename": "cutlass_", "rewrites": "tma-cta"}, "cutlass_copy_2d", True),
    ({"rename": "cutlass_"}, "cutlass_copy_2d", False),
    ({"rewrites": [ClusterToCta(), Rename(prefix="cutlass_")]}, "cutlass_copy_2d", True),
    ({}, "copy_2d", False),
]


def check(kernel: Any, name: str, fixed: bool) -> None:
    ptx, cubin = Ptx(kernel.asm["ptx"]), Cubin.from_bytes(kernel.asm["cubin"])
    assert ptx.entries == cubin.kernels == (kernel.name,) == (name,)
    assert ("shared::cta.global.mbarrier" in ptx.text) == fixed
    assert ("shared::cluster.global.mbarrier" in ptx.text) == (not fixed)
    assert bool(cubin.resources[name].syscalls) == (not fixed)


@pytest.mark.parametrize("order", [STEPS, STEPS[::-1]], ids=["forth", "back"])
def test_one_cache_gives_the_right_kernel_for_every_setting(out, order) -> None:
    for settings, name, fixed in order:
        with tritonhook.session(out, **settings):
            check(compile_tma(copy_2d, BLOCK), name, fixed)


def test_the_session_says_what_changed_and_the_capture_what_it_is(out) -> None:
    with tritonhook.session(out, rewrites=["tma-cta"]) as session:
        compile_tma(copy_2d, BLOCK)
    (capture,) = session.captures
    assert capture.rewritten_from is None  # its name has not changed
    assert "copy_2d: 1 TMA load to .shared::cta" in session.notes
    assert "copy_2d: 1 TMA load to .shared::cta" in session.summary


def test_a_fix_reaches_torch_compiles_kernels_where_a_rename_does_not(out, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_compiled_by_inductor", lambda: True)
    monkeypatch.setattr(sessions.inductor, "may_rename", lambda: "its launcher is not known")
    monkeypatch.setattr(sessions.inductor, "may_rewrite", lambda: None)
    with tritonhook.session(out, rewrites=["tma-cta"]) as session:
        check(compile_tma(copy_2d, BLOCK), "copy_2d", True)
    assert session.notes == ["copy_2d: 1 TMA load to .shared::cta"]
    with tritonhook.session(out, rename="cutlass_", rewrites=["tma-cta"]) as session:
        check(compile_tma(copy_2d, BLOCK), "copy_2d", True)
    assert any("are not renamed: its launcher is not known" in note for note in session.notes)


def test_where_the_graph_cache_has_no_key_for_it_nothing_is_changed(out, monkeypatch) -> None:
    # otherwise a program without tritonhook would get the rewritten kernel from a warm cache
    monkeypatch.setattr(sessions, "_compiled_by_inductor", lambda: True)
    for reason in ("may_rename", "may_rewrite"):
        monkeypatch.setattr(sessions.inductor, reason, lambda: "the key could not be extended")
    for settings in ({"rewrites": ["tma-cta"]}, {"rename": "cutlass_", "rewrites": ["tma-cta"]}):
        with tritonhook.session(out, **settings) as session:
            check(compile_tma(copy_2d, BLOCK), "copy_2d", False)
        assert any("the key could not be extended" in note for note in session.notes)


@pytest.mark.parametrize("wrong", ["tma", ["tma-cta", "faster"]])
def test_a_name_that_is_none_is_refused(out, wrong) -> None:
    with pytest.raises(CaptureError, match=r"no such rewrite; choose from tma-cta"):
        tritonhook.enable(out, rewrites=wrong)


def test_run_with_fix_reaches_the_script_and_leaves_its_cache_clean(tmp_path, warm_start) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from tma_kernels import compile_tma, copy_2d\n"
        f"k = compile_tma(copy_2d, {BLOCK!r})\n"
        "print(k.name, k.asm['ptx'].count('shared::cta.global.mbarrier'))\n"
    )

    def run(*words: str) -> Done:
        return python_ended(*words, str(script), folder=tmp_path, without=["TRITONHOOK"])

    run_verb = ("-m", "tritonhook", "run", "--rewrite", "tma-cta")
    assert run(*run_verb).stdout.split() == ["copy_2d", "1"]
    assert run(*run_verb, "--prefix", "cutlass_").stdout.split() == ["cutlass_copy_2d", "1"]
    assert run().stdout.split() == ["copy_2d", "0"]
