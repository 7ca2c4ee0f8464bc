"""What goes on beside a program that runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import tritonhook
from tritonhook.cli import _programs
from tritonhook.ptx import miscompiles


def test_kernels_are_searched_for_known_bugs_while_others_compile(
    tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    monkeypatch.setattr(miscompiles, "_met", {})
    monkeypatch.setattr(_programs, "_AHEAD_S", 0.01)
    out = tmp_path / "captures"
    with tritonhook.session(out):
        kernels.compile_kernel(block=128)
    with _programs.reading_ahead(out):
        with tritonhook.session(out) as session:
            kernels.compile_kernel(block=256)
        end = time.monotonic() + 30
        while not miscompiles._met and time.monotonic() < end:
            time.sleep(0.01)
    (capture,) = session.captures
    assert len(miscompiles._met) == 1  # not the kernel that was there before
    known = dict(miscompiles._met)
    miscompiles.note_of([(capture.ptx.text, capture.assembler.version, "-O3")])
    assert miscompiles._met == known  # at the end nothing is left to do
