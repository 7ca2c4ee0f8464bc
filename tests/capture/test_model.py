"""Captures as values."""

from __future__ import annotations

from typing import Any

import pytest

from tritonhook.capture.model import (
    META_DRY_RUN,
    META_LEVER,
    META_REWRITES,
    Assembler,
    Capture,
    Stage,
    dry_run_note,
    front_end_name,
    is_binary_only,
)
from tritonhook.errors import CaptureError

PTX = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def capture(artifacts: dict[Stage, Any] | None = None, note: str | None = None, **metadata: Any) -> Capture:
    return Capture("k", "h", "sm_90a", artifacts or {}, metadata=metadata, note=note)


def test_stages_are_text_or_code_without_tritons_padding() -> None:
    whole = capture({Stage.PTX: f"{PTX} \n\0\0", Stage.CUBIN: b"code\0"})
    assert (whole.text(Stage.PTX), whole.ptx.text, whole.cubin) == (f"{PTX} \n", f"{PTX} \n", b"code\0")
    assert whole.text(Stage.CUBIN) is whole.text(Stage.TTIR) is None
    for note, why in ((None, "it was not available"), ("the cache had none", "the cache had none")):
        empty = capture({Stage.TTIR: "ir"}, note)
        with pytest.raises(CaptureError, match=f"k: no PTX in the capture; {why}"):
            _ = empty.ptx
        with pytest.raises(CaptureError, match=f"k: no cubin in the capture; {why}"):
            _ = empty.cubin


def test_binaries_alone_are_told_from_the_rest() -> None:
    assert [stage for stage in Stage if stage.is_binary] == [Stage.CUBIN, Stage.HSACO]
    assert [is_binary_only(stages) for stages in ([], [Stage.CUBIN], [Stage.CUBIN, Stage.PTX])] == [False, True, False]
    assert capture({Stage.HSACO: b""}).binary_only and not capture().binary_only


def test_metadata_says_how_a_kernel_was_made() -> None:
    plain = capture()
    assert (plain.front_end, plain.dry_run, plain.lever, plain.rewrites) == ("Triton", False, None, None)
    made = capture(front_end="nvcc", **{META_DRY_RUN: True, META_LEVER: "O1", META_REWRITES: "tma-cta"})
    assert (made.front_end, made.dry_run, made.lever, made.rewrites) == ("nvcc", True, "O1", "tma-cta")
    damaged = capture(front_end="", **{META_LEVER: 5, META_REWRITES: ["x"]})
    assert (damaged.front_end, damaged.lever, damaged.rewrites) == ("Triton", None, None)
    assert (front_end_name("cute"), front_end_name("nvcc")) == ("CuTe DSL", "nvcc")


def test_a_note_says_which_kernels_come_from_a_dry_run() -> None:
    dry, real = capture(**{META_DRY_RUN: True}), capture()
    assert dry_run_note([]) == dry_run_note([real]) == []
    assert dry_run_note([dry, dry]) == ["dry run: compiled, not launched"]
    assert dry_run_note([dry, real, dry]) == ["2 of 3 kernels: dry run: compiled, not launched"]


def test_options_are_the_arguments_without_the_target() -> None:
    assert Assembler().options is None
    assert Assembler(arguments=("-v", "--gpu-name=sm_90a", "-O1")).options == ("-v", "-O1")
