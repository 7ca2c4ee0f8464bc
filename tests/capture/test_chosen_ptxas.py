"""Sessions that assemble by another ptxas or with further options: what Triton returns, caches, captures, failures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from at_hand import ptxas_at_hand
from ended import python_ended

pytest.importorskip("triton", minversion="3.6")

from repository import ROOT, SUPPORT
from triton.backends.nvidia.compiler import get_ptxas
from triton_kernels import add_kernel, compile_gemm, compile_kernel, fresh

import tritonhook
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, ToolError
from tritonhook.ptx.throughput_pragma import ThroughputPragma
from tritonhook.ptxas.tool import Tool, tool_at

OTHER = "12.8.93"


def tritons_own(arch: int) -> str:
    return tool_at(Path(get_ptxas(arch).path), "Triton").version


OWN = tritons_own(100)  # cubins for sm_100 say which ptxas made them


@pytest.fixture(scope="module")
def other() -> Tool:
    return ptxas_at_hand(OTHER)


@pytest.fixture(scope="module")
def newest() -> Tool:
    return ptxas_at_hand()


def made_by(compiled: Any) -> str | None:
    """The version of the ptxas that assembled what Triton returned, by the cubin's own note."""
    return Cubin.from_bytes(compiled.asm["cubin"]).ptxas_version


def test_the_sessions_ptxas_assembles_what_triton_returns(out, triton_cache, other) -> None:
    plain = compile_kernel(arch=100, ptx_version=87)
    with tritonhook.session(out, ptxas=OTHER) as session:
        inside = compile_kernel(arch=100, ptx_version=87)
    after = compile_kernel(arch=100, ptx_version=87)
    assert (made_by(plain), made_by(inside), made_by(after)) == (OWN, OTHER, OWN)
    assert inside.asm["ptx"] == plain.asm["ptx"]
    (capture,) = session.captures
    assert capture.assembler.version == OTHER
    assert capture.assembler.path == str(other.path)
    assert after.asm["cubin"] == plain.asm["cubin"]


def test_captures_say_so_from_the_cache_too(out, triton_cache, other) -> None:
    for hit in (False, True):
        with tritonhook.session(out.with_name(str(hit)), ptxas=OTHER, options="-O1") as session:
            compile_kernel(fresh(add_kernel), 100, ptx_version=87)
        (capture,) = session.captures
        assert capture.cache_hit is hit
        assert capture.assembler.version == OTHER
        assert capture.assembler.arguments[-1] == "-O1"


def test_binaries_and_options_have_cache_keys_of_their_own(triton_cache, run_python, other) -> None:
    wishes: list[dict[str, str]] = [{}, {"ptxas": OTHER}, {"options": "-O1"}, {"ptxas": OTHER, "options": "-O1"}]
    program = (
        "s = tritonhook.enable(os.environ['OUT'], **json.loads(os.environ['WISH']))\n"
        "kernels.compile_kernel(arch=100, ptx_version=87)\n"
        "print(json.dumps([c.assembler.version for c in s.captures] + [c.cache_hit for c in s.captures]))"
    )
    environments = [{"OUT": f"run{n}", "WISH": json.dumps(wish)} for n, wish in enumerate(wishes * 2)]
    found = run_python.forked(program, environments)
    versions = [OWN, OTHER, OWN, OTHER]
    assert found == [[version, False] for version in versions] + [[version, True] for version in versions]


def test_an_older_ptxas_gets_the_version_that_it_reads(out, triton_cache, other) -> None:
    with tritonhook.session(out, ptxas=OTHER) as session:
        compiled = compile_kernel(arch=100)
    (capture,) = session.captures
    assert (capture.note, made_by(compiled)) == (None, OTHER)
    assert (capture.ptx.version, compiled.asm["ptx"]) == ("8.7", capture.ptx.text)


def test_options_go_behind_tritons_own(out, triton_cache) -> None:
    plain = compile_gemm(arch=100, ptx_version=87)
    with tritonhook.session(out, options="-O0") as session:
        inside = compile_gemm(arch=100, ptx_version=87)
    assert len(Cubin.from_bytes(inside.asm["cubin"]).text("gemm_kernel")) > 2 * len(
        Cubin.from_bytes(plain.asm["cubin"]).text("gemm_kernel")
    )
    (capture,) = session.captures
    assert capture.assembler.arguments[-2:] == ("--gpu-name=sm_100a", "-O0")


def test_a_ptxas_that_fails_leaves_tritons_code_and_a_note(out, triton_cache, tmp_path) -> None:
    broken = tmp_path / "ptxas"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "Cuda compilation tools, release 13.9, V13.9.1";; *) exit 3;; esac\n'
    )
    broken.chmod(0o755)
    plain = compile_kernel(arch=100, ptx_version=87)
    with tritonhook.session(out, ptxas=str(broken)) as session:
        inside = compile_kernel(arch=100, ptx_version=87)
    assert inside.asm["cubin"] == plain.asm["cubin"]
    (capture,) = session.captures
    assert capture.note == "ptxas 13.9.1 failed; assembled by Triton's own ptxas"
    assert capture.assembler.version == OWN
    assert "ptxas 13.9.1 rejected the PTX: exit code 3, without a message on add_kernel" in session.summary


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"ptxas": "99.1.2"}, ToolError, "99.1.2"),
        ({"ptxas": "/nowhere/ptxas"}, ToolError, "no such file"),
        ({"options": [3]}, CaptureError, "give ptxas options as text"),
        (
            {"ptxas": OTHER, "rewrites": "mma-throughput"},
            CaptureError,
            "needs ptxas 13.3 or newer, and this is 12.8.93",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(out, triton_cache, other, given, error, message) -> None:
    with pytest.raises(error, match=message):
        tritonhook.enable(out, **given)
    assert not out.exists()


# --- the pragma ----------------------------------------------------------------------------------


def test_the_pragma_gives_the_code_of_the_name(out, triton_cache, newest, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from layer_norm import compile_for_hopper  # under every Triton its code changes with its name

    with tritonhook.session(out.with_name("plain"), ptxas="13.5.37"):
        plain = compile_for_hopper()
    with tritonhook.session(out.with_name("name"), ptxas="13.5.37", rename="cutlass_"):
        named = compile_for_hopper()
    with tritonhook.session(out.with_name("pragma"), ptxas="13.5.37", rewrites="mma-throughput") as session:
        with_pragma = compile_for_hopper()
    codes = [Cubin.from_bytes(one.asm["cubin"]).text(one.name) for one in (plain, named, with_pragma)]
    assert codes[2] == codes[1] != codes[0]
    assert with_pragma.name == "layer_norm"
    assert [capture.rewrites for capture in session.captures] == ["mma-throughput"]
    assert main(["diff", str(out.with_name("plain")), str(out.with_name("pragma"))]) == 1
    assert "1 kernel changed by tritonhook's rewrite none -> mma-throughput" in capsys.readouterr().out
    assert 'layer_norm: .pragma "mma_throughput" added' in session.notes


def test_without_a_ptxas_that_knows_it_both_remedies_are_named(out, triton_cache, monkeypatch) -> None:
    from tritonhook.capture import front_ends

    monkeypatch.setattr(front_ends.cute, "is_installed", lambda: False)
    monkeypatch.setattr(front_ends, "ptxas_versions", lambda: ["12.8.93", "12.9.86"])
    with pytest.raises(CaptureError, match=r"this is 12.9.86; use a newer one .*, or give the kernel a name"):
        tritonhook.enable(out, rewrites="mma-throughput")
    monkeypatch.setattr(front_ends, "ptxas_versions", lambda: ["12.9.86", "13.4.59"])
    with tritonhook.session(out, rewrites=[ThroughputPragma()]) as session:
        plain = compile_kernel(arch=80)
    assert "mma_throughput" not in plain.asm["ptx"]
    assert f"needs ptxas 13.3 or newer, and this is {tritons_own(80)}" in session.summary


def test_a_kernel_that_is_not_wanted_gets_no_note_of_a_ptxas_too_old(out, triton_cache, monkeypatch) -> None:
    from tritonhook.capture import front_ends

    monkeypatch.setattr(front_ends, "ptxas_versions", lambda: ["12.9.86", "13.4.59"])
    with tritonhook.session(out, rewrites="mma-throughput", only="gemm") as session:
        plain = compile_kernel()
    assert session.notes == []
    assert "mma_throughput" not in plain.asm["ptx"]


def test_the_run_verb_hands_it_to_the_children(tmp_path, triton_cache, other, warm_start) -> None:
    script = tmp_path / "script.py"
    script.write_text("import triton_kernels\ntriton_kernels.compile_kernel(arch=100, ptx_version=87)\n")
    words = ["run", "--out", str(tmp_path / "out"), "--ptxas", OTHER, "--options=-O1", str(script)]
    paths = os.pathsep.join([str(SUPPORT), str(ROOT)])
    python_ended("-m", "tritonhook", *words, folder=tmp_path, PYTHONPATH=paths)
    (record,) = Path(tmp_path / "out" / "kernels").iterdir()
    assert CaptureFolder.open(tmp_path / "out").capture(record.name).assembler.version == OTHER
