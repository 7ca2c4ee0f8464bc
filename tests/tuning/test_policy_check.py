"""What becomes of each entry of a policy, here and beside captures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tritonhook.capture.policy.levers import lever
from tritonhook.capture.policy.model import read_blocks, write_policy
from tritonhook.report.results.policy import PolicyResult
from tritonhook.tuning.policy_check import Checked, State, against_captures, policy_here


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Any], list[Any], str]]:
    """The captures of a GEMM with 8 warps, then with 2; and the policy that gives the first one a lever."""
    pytest.importorskip("triton", minversion="3.6")
    import policies
    from triton_kernels import compile_gemm

    import tritonhook

    folder = tmp_path_factory.mktemp("gemm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        found = []
        for number, warps in enumerate((8, 2)):
            with tritonhook.session(folder / f"{number}") as session:
                compile_gemm(num_warps=warps)
            found.append(list(session.captures))
        path = policies.policy(folder / "tritonhook.toml", found[0], "O1")
        yield found[0], found[1], path.read_text()


@pytest.fixture
def captured(gemm: Any, tmp_path: Path, triton_cache: Path) -> tuple[list[Any], Path]:
    (tmp_path / "tritonhook.toml").write_text(gemm[2])
    return gemm[0], tmp_path / "tritonhook.toml"


def check(path: Path, captures: Any) -> list[Checked]:
    from tritonhook.ptxas.pool import sweep

    return against_captures(policy_here(path)[0], captures, sweep, path.parent)


def state(captures: Any, path: Path, **values: Any) -> tuple[State, str]:
    (entry,) = read_blocks(path).entries
    write_policy(path, [replace(entry, **values)])
    (checked,) = check(path, captures)
    return checked.state, checked.reason


@pytest.mark.parametrize(
    ("values", "expected", "reason"),
    [
        ({}, State.APPLIES, ""),
        (
            {"ptx": "0" * 64},
            State.STALE,
            "PTX; if the kernel has changed, tune again and remove this block",
        ),
        ({"ptxas": "12.1.66"}, State.STALE, "and was 12.1.66; tune again"),
        ({"code": "0" * 16}, State.STALE, "its lever gives the code "),
        ({"lever": lever("O3")}, State.STALE, "the code of plain; tune again"),
        ({"lever": lever("maxnreg=32")}, State.STALE, "ptxas rejects it"),
        ({"kernel": "other"}, State.NOT_SEEN, "no captured Triton kernel of this name for sm_90a"),
        ({"arch": "sm_80"}, State.NOT_SEEN, "no captured Triton kernel of this name for sm_80"),
    ],
)
def test_what_is_stale(captured, values: dict[str, Any], expected: State, reason: str) -> None:
    captures, path = captured
    found, why = state(captures, path, **values)
    assert (found, reason in why) == (expected, True), why


def test_a_variant_whose_kernel_was_not_captured_is_not_stale(captured, tmp_path: Path) -> None:
    from triton_kernels import compile_gemm

    import tritonhook

    captures, path = captured
    (entry,) = read_blocks(path).entries
    write_policy(path, [entry, replace(entry, ptx="0" * 64, code="0" * 16)])
    states = {one.entry.ptx: one.state for one in check(path, captures)}
    assert states == {entry.ptx: State.APPLIES, "0" * 64: State.NOT_SEEN}
    with tritonhook.session(tmp_path / "tuned", policy=path) as session:
        compile_gemm()
    states = {one.entry.ptx: one.state for one in check(path, session.captures)}
    assert states == {entry.ptx: State.APPLIED, "0" * 64: State.NOT_SEEN}
    write_policy(path, [entry])
    assert state(session.captures, path, code="0" * 16)[0] is State.STALE


def test_an_entry_is_called_as_its_kernel_among_the_others(gemm, captured) -> None:
    captures, path = captured
    (entry,) = read_blocks(path).entries
    write_policy(path, [entry, replace(entry, ptx="0" * 64)])
    checked = check(path, [*captures, *gemm[1]])
    assert {one.entry.ptx: one.title for one in checked} == {entry.ptx: "gemm_kernel[num_warps=8]", "0" * 64: ""}
    rows = PolicyResult.of(str(path), "captures", checked).summary().tables[0].rows
    assert {row[0] for row in rows} == {"gemm_kernel[num_warps=8]", "gemm_kernel (PTX 00000000)"}
