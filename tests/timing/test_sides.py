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
    KernelImage,
    Sides,
    compared_sides,
    describe_images,
    sides_of_cubins,
    sides_of_ptx,
)
from tritonhook.timing.plan import Compiled, Plan, Prepared, SideImage
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE


def report(*kernels: str, ptxas: tuple[str, str] = ("12.8.93", "12.8.93")) -> Prepared:
    versions = {REFERENCE: ptxas[0], CANDIDATE: ptxas[1], CONTROL: ptxas[0]}
    made = {side: Compiled(kernels, (version,) if version else ()) for side, version in versions.items()}
    return Prepared({REFERENCE: dict.fromkeys(kernels, ())}, made, outputs=1)


@pytest.mark.parametrize(
    ("change", "kernels", "ptxas", "names"),
    [
        ({"rename": Rename(prefix="cutlass_")}, ["add"], None, ("add", "cutlass_add")),
        ({"rename": Rename(strip="cutlass")}, ["cutlass_add"], None, ("cutlass_add", "add")),
        (
            {"rename": Rename(prefix="x_")},
            ["a", "b"],
            None,
            ("2 kernels of m:f", "2 kernels of m:f with the prefix x_"),
        ),
        ({"rewrites": ("tma-cta",)}, ["add"], None, ("add", "add with tma-cta")),
        ({"candidate_options": "-O2"}, ["add"], None, ("add", "add with -O2")),
        ({"candidate": "m:g"}, ["add"], None, ("m:f", "m:g")),
        ({"candidate_ptxas": "p"}, ["add"], ("12.8.93", "13.5.37"), ("add by ptxas 12.8.93", "add by ptxas 13.5.37")),
        ({"candidate_ptxas": "p"}, ["add"], ("12.8.93", ""), ("add", "add by another ptxas")),
        ({"rewrites": ("tma-cta",)}, ["add"], ("", ""), ("add", "add with tma-cta")),
        ({"rename": Rename(prefix="x_"), "names": ("a.cubin", "b.cubin")}, ["k"], None, ("a.cubin", "b.cubin")),
    ],
)
def test_names_tell_the_sides_apart(
    change: dict[str, Any], kernels: list[str], ptxas: tuple[str, str] | None, names: tuple[str, str]
) -> None:
    plan = Plan("m:f", Path("out"), **change)
    found = compared_sides(plan, report(*kernels, **({} if ptxas is None else {"ptxas": ptxas})))
    assert (found[REFERENCE].name, found[CANDIDATE].name) == names
    assert found[CONTROL].name == ", ".join(kernels)


def test_the_sides_are_written_each_to_its_file(tmp_path: Path) -> None:
    codes = {
        side: KernelImage(side.encode(), f"k_{side}", version)
        for side, version in ((REFERENCE, "12.8.93"), (CANDIDATE, "13.1.80"), (CONTROL, None))
    }
    written = Sides("k", *codes.values()).write(tmp_path / "new" / "folder")
    for (side, code), image in zip(codes.items(), written, strict=True):
        assert image == SideImage(side, image.path, code.entry, "k", code.ptxas)
        assert Path(image.path).read_bytes() == code.image


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
