"""Capturing and rewriting in Triton's pipeline: what is kept, and that Triton's caches stay sound.

Hook slots shared with other tools are in triton/test_hooks.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
import triton_kernels
from triton import knobs
from triton.runtime._async_compile import AsyncCompileMode
from triton.runtime.errors import PTXASError
from triton_kernels import add_kernel, compile_kernel, cutlass_copy_kernel, fresh, fused_kernel, launch, multiply_kernel
from triton_sessions import RELEASE, entries, slots_are_given_back, wrapper_around_ptxas  # noqa: F401

import tritonhook
from tritonhook import Stage, ptx_capture
from tritonhook.capture.session import Session
from tritonhook.capture.triton import hooks, metadata
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, PtxError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import Assembled, assemble
from tritonhook.ptxas.tool import Tool

STAGES = [Stage.TTIR, Stage.TTGIR, Stage.LLIR, Stage.PTX, Stage.CUBIN]

pytestmark = pytest.mark.usefixtures("triton_cache")


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content; the cache's own path, which its group files spell out, is blanked."""
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


def test_capture_only_takes_no_hook_and_wraps_no_function(out):
    from triton.compiler import compiler
    from triton.runtime import jit

    before = jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key
    tritonhook.enable(out)
    assert knobs.runtime.add_stages_inspection_hook is None
    assert before == (jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key)
    tritonhook.disable()


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


def test_a_hit_in_another_process_is_captured(out, run_python):
    compile_kernel()
    code = "with tritonhook.session(os.environ['OUT']) as s:\n    kernels.compile_kernel()\n"
    code += "print(json.dumps([[c.kernel, c.cache_hit, len(c.cubin)] for c in s.captures]))"
    ((kernel, hit, size),) = run_python(code, OUT=str(out))
    assert (kernel, hit) == ("add_kernel", True)
    assert size > 0


def test_a_kernel_met_twice_is_kept_once(out):
    with tritonhook.session(out) as session:
        compile_kernel()
        compile_kernel()
        compile_kernel(block=256)
    assert len(session.kernels) == 2
    assert len(tritonhook.CaptureFolder.open(out).records) == 2


def test_an_edit_of_the_capture_does_not_reach_tritons_cache(out, triton_cache):
    with tritonhook.session(out):
        compile_kernel()
    before = files_below(triton_cache)
    for path in (out / "kernels").rglob("add_kernel.*"):
        path.write_bytes(b"edited")
    assert files_below(triton_cache) == before


OPTIONS = {
    "default": ({}, {}),
    "no fp fusion": ({"enable_fp_fusion": False}, {}),
    "ptx_options": ({"ptx_options": "--maxrregcount=32 --opt-level=2"}, {}),
    "no line info": ({}, {"TRITON_DISABLE_LINE_INFO": "1"}),
    "no ptxas optimisation": ({}, {"DISABLE_PTXAS_OPT": "1"}),
    "warps": ({"num_warps": 8}, {}),
}


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("options, env", OPTIONS.values(), ids=OPTIONS)
def test_the_kept_arguments_give_the_same_cubin(out, monkeypatch, arch, options, env):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with tritonhook.session(out) as session:
        compile_kernel(fused_kernel, arch, **options)
    (capture,) = session.captures
    assert without_file_name(assemble_again(capture), env) == without_file_name(capture.cubin, env)
    assert capture.options["fp_fusion"] is options.get("enable_fp_fusion", True)
    assert capture.options["line_info"] is ("TRITON_DISABLE_LINE_INFO" not in env)
    assert capture.options["ptxas_optimises"] is ("DISABLE_PTXAS_OPT" not in env)
    assert capture.options["ptx_options"] == options.get("ptx_options")
    assert capture.options["num_warps"] == options.get("num_warps", 4)


def without_file_name(cubin: bytes, env: dict[str, str]) -> Any:
    """With -g, ptxas 13 writes the name of its output file into the tool note, and nothing else differs."""
    if "DISABLE_PTXAS_OPT" not in env:
        return cubin
    return [(s.name, s.data) for s in Cubin.from_bytes(cubin).sections if s.name not in NAMES_OUTPUT_FILE]


NAMES_OUTPUT_FILE = (".note.nv.tkinfo",)


def assemble_again(capture: tritonhook.Capture) -> bytes:
    path, version, arguments = capture.assembler.path, capture.assembler.version, capture.assembler.arguments
    assert path and version and arguments
    listed = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"V{version}" in listed
    made = assemble(Tool(Path(path), version, "Triton"), capture.ptx, arguments)
    assert isinstance(made, Assembled), made
    return made.cubin.data


def test_the_kept_arguments_are_the_ones_ptxas_was_given(out, tmp_path, monkeypatch):
    # given a ptxas that writes down how it was called, for every option that changes the command line
    log = tmp_path / "calls"
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, f'printf "%s\\n" "$*" >> {log}')
    for number, (options, env) in enumerate(OPTIONS.values()):
        log.write_text("")
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            with tritonhook.session(out / str(number)) as session:
                compile_kernel(fused_kernel, **options)
        (capture,) = session.captures
        (call,) = [line for line in log.read_text().splitlines() if line != "--version"]
        given = call.split()
        assert capture.assembler.arguments == tuple(given[: given.index("-o") - 1])


def test_the_kept_arguments_of_instrumented_kernels():
    # make_cubin of Triton 3.8 lowers the optimisation level of sanitised kernels
    plain = metadata.assembler_of(90, {"enable_fp_fusion": True, "instrumentation_mode": ""})
    consan = metadata.assembler_of(90, {"enable_fp_fusion": True, "instrumentation_mode": "consan"})
    assert plain.arguments is not None and "--opt-level" not in plain.arguments
    assert consan.arguments is not None and ("--opt-level" in consan.arguments) == (RELEASE >= (3, 8))


def test_blackwell_kernel_assembles_to_the_same_code(out):
    # ptxas is not deterministic for some sm_100a kernels: its choices depend on addresses.
    with tritonhook.session(out) as session:
        compile_kernel(fused_kernel, arch=100)
    (capture,) = session.captures
    assert capture.arch == "sm_100a"
    assert any(assemble_again(capture) == capture.cubin for _ in range(5))


def test_a_binary_only_cache_is_reported(out, monkeypatch):
    monkeypatch.setenv("TRITON_STORE_BINARY_ONLY", "1")
    with tritonhook.session(out) as session:
        compile_kernel()
    (capture,) = session.captures
    assert list(capture.artifacts) == [Stage.CUBIN]
    assert capture.binary_only
    assert "binary only" in str(capture.note)
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


def test_nothing_seen_is_said(out):
    with tritonhook.session(out) as session:
        pass
    assert "0 kernels seen" in session.summary
    assert "no kernel was compiled or loaded" in session.summary


def test_the_summary_is_printed_at_exit(out, run_python):
    run_python("tritonhook.enable(os.environ['OUT']); kernels.compile_kernel()", OUT=str(out), TRITONHOOK_QUIET="")
    assert "tritonhook: 1 kernel seen, 0 from cache" in run_python.stderr


@pytest.fixture
def parsing_by_turns(monkeypatch):
    """CPython 3.11 counts the depth of ast.parse for all threads together, and now and then ends Triton's with
    a SystemError (python/cpython issue 106905)."""
    parse, lock = ast.parse, threading.Lock()

    def parse_alone(*arguments, **named):
        with lock:
            return parse(*arguments, **named)

    monkeypatch.setattr(ast, "parse", parse_alone)


@pytest.mark.usefixtures("parsing_by_turns")
def test_four_threads_lose_nothing(out):
    todo = [(kernel, block) for kernel in (add_kernel, multiply_kernel, fused_kernel) for block in (64, 128, 256)]
    with (
        tritonhook.session(out, rename="cutlass_") as session,
        ThreadPoolExecutor(4) as pool,
    ):
        names = list(pool.map(lambda item: entries(compile_kernel(item[0], block=item[1]))[0], todo))
    assert names == [f"cutlass_{kernel.__name__}" for kernel, _ in todo]
    assert len(session.kernels) == len(todo)
    assert sorted(capture.kernel for capture in session.captures) == sorted(names)
    assert not session.notes


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
    assert ptx_capture.enabled_session() is None


def test_no_folder_says_what_to_give(out):
    with pytest.raises(CaptureError, match=r"out='' names no folder; give one, e.g. out='captures'"):
        tritonhook.enable("")


def test_one_rewrite_needs_no_list(out):
    with tritonhook.session(out, rewrites=tritonhook.Rename(prefix="cutlass_")):
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)


def test_rename_of_one_entry_leaves_other_kernels_alone(out, capfd):
    with tritonhook.session(out, rename=tritonhook.Rename(prefix="cutlass_", entry="add_kernel")) as session:
        assert entries(compile_kernel(multiply_kernel)) == ("multiply_kernel",)
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    assert not session.notes
    assert capfd.readouterr().err == ""
    # and nothing of it is in Triton's metadata
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


def test_three_sessions_around_one_another(tmp_path):
    with (
        tritonhook.session(tmp_path / "1", rename="a_"),
        tritonhook.session(tmp_path / "2"),
        tritonhook.session(tmp_path / "3", rename="b_") as last,
    ):
        compile_kernel()
    assert [(c.kernel, c.rewritten_from) for c in last.captures] == [("b_a_add_kernel", "add_kernel")]


# --- Triton's caches stay sound ------------------------------------------------------------------

PLAN = [
    ({}, "add_kernel"),
    ({"rename": "cutlass_"}, "cutlass_add_kernel"),
    ({"strip": "add"}, "kernel"),
    ({}, "add_kernel"),
    ({"rename": "cutlass_"}, "cutlass_add_kernel"),
    (None, "add_kernel"),  # tritonhook not enabled at all
]


def compiled_names(out: Path, plan: Any = PLAN) -> list[str]:
    names = []
    for number, (arguments, _) in enumerate(plan):
        if arguments is None:
            names.append(entries(compile_kernel())[0])
        else:
            with tritonhook.session(out / str(number), **arguments):
                names.append(entries(compile_kernel())[0])
    return names


def launched_names(out: Path, driver: Any) -> list[str]:
    kernel = fresh(add_kernel)
    for number, (arguments, _) in enumerate(PLAN):
        if arguments is None:
            launch(kernel)
        else:
            with tritonhook.session(out / str(number), **arguments):
                launch(kernel)
                launch(kernel)
                driver.launched.pop()
    return driver.launched


def async_names(out: Path) -> list[str]:
    """Compiles of one kernel in a pool, under changing sessions, all in one AsyncCompileMode."""
    functions = [fresh(add_kernel) for _ in PLAN]
    tensor = triton_kernels.Tensor()
    futures = []
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        for number, (function, (arguments, _)) in enumerate(zip(functions, PLAN, strict=True)):
            if arguments is None:
                futures.append(function.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,)))
            else:
                with tritonhook.session(out / str(number), **arguments):
                    futures.append(function.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,)))
    return [entries(future.result() if hasattr(future, "result") else future)[0] for future in futures]


def no_rewrite_in_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: rewriting is left out of the keys that tritonhook adds it to."""
    monkeypatch.setattr(hooks.KeyedCaches, "key", "")


EXPECTED = [name for _, name in PLAN]


def test_compile_in_one_process_gets_the_right_kernel(out):
    assert compiled_names(out) == EXPECTED


def test_plain_hash_is_tritons_own(out):
    before = compile_kernel().hash
    compiled_names(out)
    assert compile_kernel().hash == before


def test_launches_in_one_process_run_the_right_kernel(out, driver):
    assert launched_names(out, driver) == EXPECTED
    # and kernels that were in the in-memory cache were not loaded again
    assert sorted(driver.loaded) == sorted(set(EXPECTED))


def test_async_compiles_get_the_right_kernel(out, driver):
    assert async_names(out) == EXPECTED


def test_async_compiles_launch_the_right_kernel_afterwards(out, driver):
    kernel, tensor = fresh(add_kernel), triton_kernels.Tensor()
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,))
        with tritonhook.session(out, rename="cutlass_"):
            launch(kernel)
        launch(kernel)
    with tritonhook.session(out, rename="cutlass_"):
        launch(kernel)
    assert driver.launched == ["cutlass_add_kernel", "add_kernel", "cutlass_add_kernel"]


def test_a_compile_that_waits_in_the_pool_ends_under_the_settings_it_was_asked_under(out, driver):
    # given a compile that has been asked for and has not begun, because the pool is busy
    kernel, tensor = fresh(add_kernel), triton_kernels.Tensor()
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(time.sleep, 0.3)
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,))
        with tritonhook.session(out, rename="cutlass_"):
            pass
    launch(kernel)
    with tritonhook.session(out, rename="cutlass_"), ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(time.sleep, 0.3)
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=256, grid=(1,))
    launch(kernel, block=256)
    assert driver.launched == ["add_kernel", "add_kernel"]


PROCESS = """
arguments = json.loads(os.environ["ARGUMENTS"])
names = []
with fake_driver.active() as driver:
    if arguments is not None:
        tritonhook.enable("captures", **arguments)
    names.append(kernels.compile_kernel().name)
    kernels.launch(kernels.add_kernel)
print(json.dumps([*names, *driver.launched]))
"""


def test_processes_that_share_a_cache_get_the_right_kernel(run_python):
    for arguments, name in PLAN[1:]:
        assert run_python(PROCESS, ARGUMENTS=json.dumps(arguments)) == [name, name]


@pytest.mark.skipif(RELEASE >= (3, 7), reason="from 3.7 on Triton itself asks the hook for its key")
def test_mutation_compile_on_36_would_get_the_wrong_kernel(out, monkeypatch):
    no_rewrite_in_keys(monkeypatch)
    assert compiled_names(out) != EXPECTED
    with tritonhook.session(out, rename="cutlass_"):
        poisoned = compile_kernel(multiply_kernel)
    assert compile_kernel(multiply_kernel).name == poisoned.name == "cutlass_multiply_kernel"


@pytest.mark.skipif(RELEASE >= (3, 7), reason="from 3.7 on Triton itself asks the hook for its key")
def test_mutation_launches_on_36_would_run_the_wrong_kernel(out, driver, monkeypatch):
    no_rewrite_in_keys(monkeypatch)
    assert launched_names(out, driver) == ["add_kernel"] * len(PLAN)


def test_mutation_async_compiles_would_get_the_wrong_kernel(out, driver, monkeypatch):
    no_rewrite_in_keys(monkeypatch)
    # from 3.7 on the hook's mere presence changes the merge key, but not which rewriting it is
    assert async_names(out) != EXPECTED


def test_a_compile_whose_key_was_made_before_the_session_is_not_rewritten(out, monkeypatch):
    # given a compile that is between its cache key and its stages when the session begins
    from triton.backends.nvidia import compiler as backend

    add_stages = backend.CUDABackend.add_stages
    begun = []

    def begin_first(self, *arguments):
        if not begun:
            begun.append(tritonhook.enable(out, rename="cutlass_"))
        return add_stages(self, *arguments)

    monkeypatch.setattr(backend.CUDABackend, "add_stages", begin_first)
    assert entries(compile_kernel()) == ("add_kernel",)
    # then later compiles are, and the plain kernel's cache holds the plain kernel
    assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    tritonhook.disable()
    assert entries(compile_kernel()) == ("add_kernel",)


# --- Triton's own ways to replace stages ---------------------------------------------------------


def plain_ptx(tmp_path: Path, name: str = "add_kernel") -> Path:
    text = compile_kernel().asm["ptx"]
    path = tmp_path / "add_kernel.ptx"
    path.write_text(Ptx(text).rename_entries({"add_kernel": name}).text)
    return path


@pytest.mark.parametrize("name", ["add_kernel", "somebody_elses"])
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


CRASH_ON_CUTLASS = (
    'for file in "$@"; do case "$file" in *.ptx) grep -q cutlass_ "$file" && kill -SEGV $$;; esac; done; true'
)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_a_kernel_that_ptxas_cannot_rename_keeps_its_name(tmp_path, out, monkeypatch, capfd, run_python, arch):
    script = wrapper_around_ptxas(tmp_path, monkeypatch, arch, CRASH_ON_CUTLASS)
    with tritonhook.session(out, rename="cutlass_") as session:
        kernel = compile_kernel(arch=arch)
        compile_kernel(arch=arch)
    # then PTX, cubin and name belong together, and so does what is in the cache
    assert entries(kernel) == ("add_kernel",)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == ("add_kernel", None)
    assert capture.note == "not renamed: ptxas failed under the name cutlass_add_kernel"
    # and the crash is kept, with all it takes to repeat it
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
    assert not session.kernels
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
    assert [capture.note for capture in session.captures] == ["not renamed: broken on purpose"] * 2


def test_a_name_that_is_taken_is_contained(out, capfd):
    with tritonhook.session(out, rename={"add_kernel": "global_smem"}) as session:
        name = entries(compile_kernel())
    if name == ("add_kernel",):  # the symbol exists in this kernel's PTX
        assert "already has a symbol" in session.summary
    capfd.readouterr()


def test_a_capture_that_cannot_be_written_is_contained(out, capfd):
    with tritonhook.session(out) as session:
        for folder in ("kernels", "index"):
            (out / folder).rmdir()
        out.rmdir()
        out.write_text("in the way")
        assert entries(compile_kernel()) == ("add_kernel",)
        assert entries(compile_kernel(block=256)) == ("add_kernel",)
    assert not session.kernels
    assert capfd.readouterr().err.count("could not be captured") == 1


# --- beginning and ending ------------------------------------------------------------------------


def test_enable_twice_replaces_the_settings(tmp_path):
    first = tritonhook.enable(tmp_path / "1", rename="a_")
    second = tritonhook.enable(tmp_path / "2", rename="b_")
    assert entries(compile_kernel()) == ("b_add_kernel",)
    assert ptx_capture.enabled_session() is second
    assert tritonhook.disable() is second
    assert not first.seen and len(second.seen) == 1


def test_enable_again_with_the_same_folder_carries_on(out, run_python):
    # given a notebook's first cell run twice
    code = "tritonhook.enable(os.environ['OUT']); kernels.compile_kernel()\n"
    code += "again = tritonhook.enable(os.environ['OUT'], rename='x_')\n"
    code += "print(json.dumps([len(again.kernels), [c.kernel for c in again.captures]]))"
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
    assert (len(first.kernels), len(second.kernels)) == (2, 3)
    assert second.kernels[:2] == first.kernels
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


def missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    "error, message",
    [
        (missing("triton"), "triton is not installed in this Python; `pip install"),
        (missing("numpy"), "triton cannot be imported: ModuleNotFoundError: No module named 'numpy'; `python -c"),
        (missing("triton._C.libtriton"), "triton cannot be imported: ModuleNotFoundError: No module named 'triton._C"),
        (ImportError("libz.so: not found"), "triton cannot be imported: ImportError: libz.so: not found"),
    ],
)
def test_why_triton_cannot_be_imported_is_said(out, monkeypatch, error, message):
    def fails() -> str:
        raise error

    monkeypatch.setattr(metadata, "triton_version", fails)
    with pytest.raises(CaptureError, match=message):
        tritonhook.enable(out)


def test_disable_without_enable(out):
    assert tritonhook.disable() is None


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


def test_an_unwritable_folder_is_an_error_before_anything_changes(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="choose another folder"):
        tritonhook.enable(tmp_path / "file" / "below")
    assert tritonhook.status()["compilation.listener"] == "free"
