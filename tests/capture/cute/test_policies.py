"""Policies for CuTe kernels: the lever is applied by the DSL's own naming, and taken back where the PTX or the code is
not the one that was certified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cute_sessions import captured_loop, code, forget_in_memory
from policies import entry_like

import tritonhook
from tritonhook.capture.model import Capture
from tritonhook.capture.policy.model import Entry, write_policy
from tritonhook.ptx.throughput_pragma import entries_with_pragma


@pytest.fixture
def plain(tmp_path: Path) -> Capture:
    return captured_loop(tmp_path / "plain")


def written(folder: Path, *entries: Entry) -> Path:
    write_policy(folder / "tritonhook.toml", entries)
    return folder / "tritonhook.toml"


@pytest.fixture
def stripped(tmp_path: Path, plain: Capture) -> Entry:
    """The lever that takes "cutlass" out of the kernel's name."""
    return entry_like(plain, "strip", captured_loop(tmp_path / "stripped", strip=True))


def test_a_kernel_gets_its_lever_and_its_capture_says_so(tmp_path: Path, out: Path, plain: Capture, stripped) -> None:
    path = written(tmp_path, stripped)
    with tritonhook.session(out, policy=path) as session:
        function = kernels.compiled(kernels.loop, cutlass.Int32(9))
        other = kernels.compiled()
    loop, add = session.captures
    assert (loop.lever, loop.rewritten_from, add.lever) == ("strip", plain.kernel, None)
    assert kernels.asked_for(function) == kernels.kernels_in(function) == [plain.kernel.replace("cutlass_", "")]
    assert code(loop) != code(plain) and "cutlass" in kernels.kernels_in(other)[0]
    assert session.notes == []


def test_the_pragma(tmp_path: Path, out: Path, plain: Capture) -> None:
    """The kernel has "cutlass" in its name already, so that the pragma gives it no other code: here it only shows."""
    pragma = captured_loop(tmp_path / "pragma", rewrites="mma-throughput")
    found = captured_loop(out, policy=written(tmp_path, entry_like(plain, "pragma", pragma)))
    assert (found.lever, entries_with_pragma(found.ptx)) == ("pragma", (plain.kernel,))


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"ptx": "0" * 64}, "its PTX differs from the PTX in"),
        ({"code": "0" * 16}, "its machine code differs from the code in"),
        ({"ptxas": "12.1.66"}, "certified against ptxas 12.1.66, but the DSL has"),
        ({"kernel": "kernel_other"}, None),
        ({"front_end": "Triton"}, None),
    ],
)
def test_what_does_not_fit_stays_as_it_is(
    tmp_path: Path, out: Path, plain: Capture, stripped, values: dict[str, Any], note: str | None
) -> None:
    path = written(tmp_path, replace(stripped, **values))
    with tritonhook.session(out, policy=path) as session:
        function = kernels.compiled(kernels.loop, cutlass.Int32(9))
    (capture,) = session.captures
    assert (capture.lever, capture.rewritten_from, capture.kernel) == (None, None, plain.kernel)
    assert code(capture) == code(plain) and kernels.asked_for(function) == [plain.kernel]
    assert len(session.notes) == (note is not None) and (note is None or note in session.notes[0]), session.notes


def test_plain_and_tuned_kernels_have_cache_keys_of_their_own(tmp_path: Path, out: Path, dsl_cache: Path) -> None:
    with tritonhook.session(tmp_path / "p") as session:
        first = kernels.kernels_in(kernels.called())
    plain = session.captures[0]
    with tritonhook.session(tmp_path / "s", strip=True) as session:
        kernels.called()
    path = written(tmp_path, entry_like(plain, "strip", session.captures[0]))
    seen = []
    for number, wish in enumerate(({"policy": path}, {}, {"policy": path})):
        forget_in_memory()
        with tritonhook.session(out / str(number), **wish) as session:
            seen.append(
                (kernels.kernels_in(kernels.called()), session.captures[0].cache_hit, session.captures[0].lever)
            )
    assert [names == first for names, _, _ in seen] == [False, True, False]
    assert [hit for _, hit, _ in seen] == [False, True, True]
    assert [lever for _, _, lever in seen] == ["strip", None, "strip"]
