"""Policies in Triton's pipeline: which kernels get their lever, what the caches and captures know, and what is said
where a lever is not applied."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import policies
import triton
from triton_kernels import add_kernel, compile_gemm, compile_kernel, fresh, launch, multiply_kernel
from triton_sessions import CRASH_ON_CUTLASS, assemble_again, entries, wrapper_around_ptxas

import tritonhook
from tritonhook.capture.model import Capture
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.policy.model import read_blocks, write_policy
from tritonhook.cubin.image import Cubin
from tritonhook.errors import PolicyError, UsageError
from tritonhook.ptx.throughput_pragma import entries_with_pragma
from tritonhook.ptxas.tool import available_ptxas

pytestmark = pytest.mark.usefixtures("triton_cache")
OTHER = "13.5.37"
needs_other = pytest.mark.skipif(
    OTHER not in {tool.version for tool in available_ptxas()}, reason=f"needs `tritonhook ptxas add {OTHER}`"
)


def code(kernel: Any) -> bytes:
    return Cubin.from_bytes(kernel.asm["cubin"]).text(kernel.name)


@pytest.fixture
def plain(tmp_path: Path) -> Capture:
    """The GEMM as Triton compiles it, captured."""
    with tritonhook.session(tmp_path / "plain") as session:
        compile_gemm()
    return session.captures[0]


@pytest.fixture
def policy(tmp_path: Path, plain: Capture) -> Callable[[str], Path]:
    """Write a policy that gives the GEMM a lever."""
    return lambda text: policies.policy(tmp_path / "tritonhook.toml", [plain], text)


@pytest.mark.parametrize("text", ["name+regusage=10", "O1", "regalloc=0+O1"])
def test_a_kernel_gets_its_lever_and_others_stay(tmp_path: Path, out: Path, plain: Capture, policy, text: str) -> None:
    (expected,) = read_blocks(policy(text)).entries
    with tritonhook.session(out, policy=policy(text)) as session:
        tuned, other = compile_gemm(), compile_kernel()
    assert entries(other) == ("add_kernel",) and entries(tuned) == (
        ("cutlass_gemm_kernel",) if "name" in text else ("gemm_kernel",)
    )
    captures = {capture.rewritten_from or capture.kernel: capture for capture in session.captures}
    assert (captures["gemm_kernel"].lever, captures["add_kernel"].lever) == (lever(text).text, None)
    assert (session.notes, captures["gemm_kernel"].note) == ([], None)
    assert code(tuned) != Cubin.from_bytes(plain.cubin).text("gemm_kernel")
    made = assemble_again(captures["gemm_kernel"])
    assert Cubin.from_bytes(made).text(tuned.name) == code(tuned)
    assert policies.entry(plain, text).code == expected.code


@pytest.mark.parametrize("known_first", [True, False])
def test_where_the_policy_knows_one_specialisation_the_others_are_not_noted(
    tmp_path: Path, out: Path, known_first: bool
) -> None:
    with tritonhook.session(tmp_path / "plain") as session:
        compile_kernel(block=1024)
    path = policies.policy(tmp_path / "tritonhook.toml", session.captures, "name")
    with tritonhook.session(out, policy=path) as session:
        for block in (1024, 256) if known_first else (256, 1024):
            compile_kernel(block=block)
    assert (sorted(str(capture.lever) for capture in session.captures), session.notes) == (["None", "name"], [])


@needs_other
def test_the_pragma_comes_with_the_ptxas_that_knows_it(out: Path, plain: Capture, policy) -> None:
    with tritonhook.session(out, policy=policy(f"pragma+ptxas={OTHER}")) as session:
        tuned = compile_gemm()
    (capture,) = session.captures
    assert (capture.assembler.version, capture.lever) == (OTHER, f"pragma+ptxas={OTHER}")
    assert entries_with_pragma(capture.ptx) == entries(tuned) == ("gemm_kernel",)


def test_the_policy_is_in_the_key_of_its_kernels_only(tmp_path: Path, policy, run_python) -> None:
    """Cold and warm, plain and with two policies, in one cache; each process gets what it asked for."""
    asked = (None, "name", "O1", None, "O1", "name")
    program = (
        "with tritonhook.session('s', **({'policy': os.environ['POLICY']} if os.environ['POLICY'] else {})) as s:\n"
        "    kernels.compile_gemm(); kernels.compile_kernel()\n"
        "print(json.dumps([[c.rewritten_from or c.kernel, c.lever, c.cache_hit] for c in s.captures]))"
    )
    paths = {text: tmp_path / f"{text}.toml" for text in asked if text is not None}
    for text, path in paths.items():
        shutil.copy(policy(text), path)
    seen = run_python.forked(program, [{"POLICY": str(paths.get(text, ""))} for text in asked])
    assert [found[0][1] for found in seen] == list(asked)
    assert [found[0][2] for found in seen] == [True, False, False, True, True, True]
    assert [found[1][2] for found in seen] == [False] + 5 * [True], "the other kernel is never compiled again"


def change(path: Path, **values: Any) -> Path:
    write_policy(path, [replace(entry, **values) for entry in read_blocks(path).entries])
    return path


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"ptx": "0" * 64}, "1 kernel not rewritten (gemm_kernel): "),
        ({"kernel": "another_kernel"}, None),
        ({"ptxas": "12.1.66"}, "certified against ptxas 12.1.66, but the compiler's ptxas is now"),
        ({"code": "0" * 16, "lever": lever("O1")}, "but 0000000000000000 was certified"),
        ({"arch": "sm_80", "ptx": "0" * 64}, "has only entries for sm_80; the kernel's target is sm_90a"),
        ({"lever": lever("ptxas=11.0.1")}, "ptxas 11.0.1 is not here; get it with `tritonhook ptxas add 11.0.1`"),
    ],
)
def test_what_does_not_fit_stays_as_it_is_and_one_note_says_why(
    out: Path, plain: Capture, policy, values: dict[str, Any], note: str | None
) -> None:
    path = change(policy("name"), **values)
    with tritonhook.session(out, policy=path) as session:
        kernels = [compile_gemm() for _ in range(2)]
    assert {kernel.asm["cubin"] for kernel in kernels} == {plain.cubin}
    assert [(one.lever, one.assembler) for one in session.captures] == [(None, plain.assembler)]
    assert len(session.notes) == (note is not None) and (note is None or note in session.notes[0]), session.notes


def test_a_ptxas_that_fails_leaves_the_kernel_plain(
    tmp_path: Path, out: Path, plain: Capture, policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = policy("name")
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    with tritonhook.session(out, policy=path) as session:
        kernel = compile_gemm()
    assert entries(kernel) == ("gemm_kernel",) and code(kernel) == Cubin.from_bytes(plain.cubin).text("gemm_kernel")
    assert len(session.crashes) == 1 and "SIGSEGV" in session.summary


def test_controls_files(tmp_path: Path, out: Path, plain: Capture) -> None:
    """A file that ptxas refuses, one that was changed, and one that is gone: the kernel stays plain, and it is said."""
    (tmp_path / "fast.bin").write_bytes(b"no controls")
    path = tmp_path / "tritonhook.toml"
    entry = policies.entry(plain, "name", tmp_path)
    controls = hashlib.sha256(b"no controls").hexdigest()
    write_policy(path, [replace(entry, lever=lever(f"ptxas={OTHER}+controls=fast.bin"), controls=controls)])
    said = []
    for content in (b"no controls", b"others", None):
        (tmp_path / "fast.bin").unlink()
        if content is not None:
            (tmp_path / "fast.bin").write_bytes(content)
        with tritonhook.session(out / str(content), policy=path) as session:
            kernel = compile_gemm()
        assert kernel.asm["cubin"] == plain.cubin
        said.append(" ".join(session.notes))
    if OTHER in {tool.version for tool in available_ptxas()}:
        assert "Invalid compiler controls file" in said[0]
    assert "fast.bin: not the controls file that was certified; restore it" in said[1]
    assert re.search(
        r"1 kernel \(gemm_kernel\) of tritonhook.toml not applied: .*fast.bin: cannot read the controls file", said[2]
    )


def test_a_policy_goes_with_no_other_change(out: Path, policy) -> None:
    path = policy("name")
    for wish in ({"rename": "a_"}, {"strip": True}, {"rewrites": "tma-cta"}, {"ptxas": "12.8.93"}, {"options": "-O1"}):
        with (
            pytest.raises(UsageError, match="the policy chooses the changes of each kernel"),
            tritonhook.session(out, policy=path, **wish),
        ):
            raise AssertionError
    with pytest.raises(PolicyError, match="none.toml: cannot read the policy: No such file"):
        tritonhook.enable(out, policy="none.toml")


def test_a_kernel_that_its_program_names_gets_its_lever(tmp_path: Path, out: Path) -> None:
    """The name is made of constants, by the `repr` of the function; the cache key is made before there is PTX."""
    named = triton.jit(add_kernel.fn, repr=lambda made: f"add_of_{made.constants['BLOCK']}")
    with tritonhook.session(tmp_path / "plain") as before:
        assert entries(compile_kernel(named)) == ("add_of_128",)
    path = policies.policy(tmp_path / "tritonhook.toml", before.captures, "name+O1")
    with tritonhook.session(out, policy=path) as session:
        assert entries(compile_kernel(named)) == ("cutlass_add_of_128",)
        assert entries(compile_kernel(multiply_kernel)) == ("multiply_kernel",)
    assert {capture.lever for capture in session.captures} == {"name+O1", None} and not session.notes


def test_a_launch_gets_the_lever_and_after_the_session_the_plain_kernel(tmp_path: Path, out: Path, driver) -> None:
    kernel = fresh(add_kernel)
    with tritonhook.session(tmp_path / "plain") as before:
        assert launch(kernel).name == "add_kernel"
    path = policies.policy(tmp_path / "tritonhook.toml", before.captures, "name")
    with tritonhook.session(out, policy=path):
        names = {launch(kernel).name for _ in range(2)}
    assert names == {"cutlass_add_kernel"} and launch(kernel).name == "add_kernel"
