"""The ptxas and the arguments that a capture holds: they give the same cubin again."""

from __future__ import annotations

import dataclasses
import enum
import re
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_kernels import compile_kernel, fused_kernel
from triton_sessions import RELEASE, assemble_again, wrapper_around_ptxas

import tritonhook
from tritonhook.capture.triton import metadata
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


OPTIONS = {
    "default": ({}, {}),
    "no fp fusion": ({"enable_fp_fusion": False}, {}),
    "ptx_options": ({"ptx_options": "--maxrregcount=32 --opt-level=2"}, {}),
    "no line info": ({}, {"TRITON_DISABLE_LINE_INFO": "1"}),
    "no ptxas optimisation": ({}, {"DISABLE_PTXAS_OPT": "1"}),
    "warps": ({"num_warps": 8}, {}),
}


@pytest.mark.parametrize("arch", [pytest.param(80, marks=pytest.mark.nightly), 90])
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
    """The sections to compare: with -g, ptxas 13 writes the name of its output file into the tool note."""
    if "DISABLE_PTXAS_OPT" not in env:
        return cubin
    return [(s.name, s.data) for s in Cubin.from_bytes(cubin).sections if s.name not in NAMES_OUTPUT_FILE]


NAMES_OUTPUT_FILE = (".note.nv.tkinfo",)


def test_the_kept_arguments_are_the_ones_ptxas_was_given(out, tmp_path, monkeypatch):
    # given a ptxas that writes down its arguments, and every option that changes them
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


def test_the_version_is_that_of_the_ptxas_in_use_though_triton_keeps_the_first(tmp_path, monkeypatch):
    # torch.compile sets TRITON_PTXAS_PATH in a process that may have compiled before. Triton 3.9 reads it below sm_90.
    metadata.assembler_of(80, {})
    later = tmp_path / "ptxas"
    later.write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.88\n")
    later.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(later))
    now = metadata.assembler_of(80, {})
    assert (now.path, now.version) == (str(later), "13.0.88")


def test_blackwell_kernel_assembles_to_the_same_code(out):
    # ptxas is not deterministic for some sm_100a kernels: its choices depend on addresses.
    with tritonhook.session(out) as session:
        compile_kernel(fused_kernel, arch=100)
    (capture,) = session.captures
    assert capture.arch == "sm_100a"
    assert any(assemble_again(capture) == capture.cubin for _ in range(5))


class Mode(enum.Enum):
    FAST = 1


class Bare:
    pass


@dataclasses.dataclass(frozen=True)
class Tile:
    rows: int
    dtype: Any


@triton.jit
def scale_kernel(x, y, out, n, BLOCK: tl.constexpr, HOW: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=at < n)


def constant_kept(out, value: Any) -> tuple[list[Any], list[str]]:
    """What a capture keeps of a constexpr, and the notes of the session."""
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr", "HOW": "constexpr"}
    source = ASTSource(fn=scale_kernel, signature=signature, constexprs={"BLOCK": 128, "HOW": value})
    with tritonhook.session(out) as session:
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return [capture.options["constants"]["HOW"] for capture in session.captures], session.notes


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (fused_kernel, "fused_kernel"),  # as an activation function
        (len, "len"),
        (Bare, "Bare"),
        (Mode.FAST, "Mode.FAST"),
        (tl.float16, "fp16"),
        (tl.constexpr(4), 4),
        (Tile(16, tl.bfloat16), {"rows": 16, "dtype": "bf16"}),
        ((1, (2.5, None)), [1, [2.5, None]]),
    ],
    ids=str,
)
def test_constexprs_of_all_kinds_are_kept(out, value: Any, kept: Any) -> None:
    assert constant_kept(out, value) == ([kept], [])


def test_an_object_without_a_text_of_its_own_is_kept_without_its_address(out) -> None:
    ((kept,), _) = constant_kept(out, Bare())
    assert re.fullmatch(r"<\S+Bare object>", kept)


# --- without a compile ---------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "good"), [("3.6.0", True), ("3.5.9", False), ("4.0", True), ("3.10.1+git", True)])
def test_a_triton_that_is_too_old_is_named(monkeypatch, version: str, good: bool) -> None:
    monkeypatch.setattr(metadata, "triton_version", lambda: version)
    with nullcontext() if good else pytest.raises(CaptureError, match=version):
        metadata.check_triton()
