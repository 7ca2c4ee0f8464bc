"""What a timed comparison compares: the names of both sides, for every kind of change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tritonhook.cubin.image import Cubin
from tritonhook.lab.published_table import condition
from tritonhook.ptxas.toolchain import AssembleError, Toolchain
from tritonhook.rename import Rename
from tritonhook.timing.images import (
    CandidateChange,
    Sides,
    describe_images,
    sides_of_cubins,
    sides_of_ptx,
)

PTX = condition("fma").ptx("k", "sm_90a", "8.0")


@pytest.mark.parametrize(
    ("change", "entries", "differs"),
    [
        ({"options": ("-O1",)}, ("k", "control_k"), True),
        ({"options": ("-O3",)}, ("k", "control_k"), False),
        ({"rename": Rename(prefix="cutlass_")}, ("cutlass_k", "cutlasz_k"), None),
        ({"rename": Rename(prefix="x_"), "options": ("-O1",)}, ("x_k", "x_y"), True),
    ],
    ids=str,
)
def test_each_side_is_assembled_as_the_change_says(
    change: dict[str, Any], entries: tuple[str, str], differs: bool | None, tools: Toolchain, tmp_path: Path
) -> None:
    made = sides_of_ptx(PTX, "k", CandidateChange(**change), tools, ("--gpu-name=sm_90a",))
    images = made.write(tmp_path)
    assert [(image.kernel, image.entry) for image in images] == [("k", name) for name in ("k", *entries)]
    told = describe_images(images, None, tools)["k"]
    assert differs is None or told.startswith("different code: " if differs else "same code: ")
    code = {side.entry: Cubin.from_bytes(side.image).text(side.entry) for side in (made.reference, made.control)}
    assert len(set(code.values())) == 1, "the control has the reference's code"
    assert sides_of_cubins(made.control, made.candidate) == Sides(
        made.control.entry, made.control, made.candidate, made.control
    )


@pytest.mark.parametrize(
    "change",
    [{"options": ("--no-such-option",)}, {"rewrites": ("mma-throughput",)}],  # the pragma needs a newer PTX and ptxas
    ids=str,
)
def test_a_side_that_cannot_be_assembled_is_an_error(change: dict[str, Any], tools: Toolchain) -> None:
    with pytest.raises(AssembleError):
        sides_of_ptx(PTX, "k", CandidateChange(**change), tools, ("--gpu-name=sm_90a",))
