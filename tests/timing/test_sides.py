"""What a timed comparison compares: the names of both sides, for every kind of change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tuned import PTX

from tritonhook.errors import TritonHookError
from tritonhook.lab.kernels.families import family
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Assembled, AssembleError, Crash, Toolchain
from tritonhook.rename import Rename
from tritonhook.timing import images as module
from tritonhook.timing.images import (
    CandidateChange,
    KernelImage,
    Sides,
    compared_sides,
    describe_captures,
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


def test_a_comparison_of_ptx_says_what_differs_under_the_kernels_name(tools: Toolchain, tmp_path: Path) -> None:
    ptx = family("fma").ptx("loop", "sm_90a", "k")
    made = sides_of_ptx(ptx, "k", CandidateChange(options=("-O1",)), tools, ("--gpu-name=sm_90a",))
    images = made.write(tmp_path)
    assert [(image.kernel, image.entry) for image in images] == [("k", "k"), ("k", "k"), ("k", "control_k")]
    assert describe_images(images, None, tools)["k"].startswith("different code: ")


# --- what the tools are asked, without tools -----------------------------------------------------


class Tools:
    """A toolchain whose cubins say how they were made; refused: for a kernel of this name there is none."""

    def __init__(self, version: str, refused: str = "") -> None:
        self.ptxas, self.refused = SimpleNamespace(version=version), refused

    def assemble(self, ptx: Ptx, arguments: Any) -> Assembled | Crash:
        if ptx.entries == (self.refused,):
            return Crash(Tool(Path("ptxas"), "12", "fake"), ptx, "ptxas -v", 1, None, "no such thing")
        text = f"{self.ptxas.version} {ptx.entries} {arguments} {'rewritten' if '// rewritten' in ptx.text else ''}"
        return Assembled(SimpleNamespace(data=text), "", "")  # type: ignore[arg-type]


def image(name: str, arguments: tuple[str, ...] = ("-O3",), version: str = "12", rewritten: str = "") -> KernelImage:
    return KernelImage(f"{version} {(name,)} {arguments} {rewritten}", name, version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "candidate", "control"),
    [
        ({"options": ("-O1",)}, image("k", ("-O3", "-O1")), "control_k"),
        ({"toolchain": "other"}, image("k", version="13"), "control_k"),
        ({"rewrites": ("one", "two")}, image("k", rewritten="rewritten"), "control_k"),
        ({"rename": Rename(prefix="x_"), "rewrites": ("one",)}, image("x_k", rewritten="rewritten"), "y_k"),
        ({"rename": Rename(prefix="x_"), "toolchain": "other"}, image("x_k", version="13"), "y_k"),
        ({"rename": Rename(prefix="x_"), "options": ("-O1",)}, image("x_k", ("-O3", "-O1")), "y_k"),
    ],
)
def test_each_side_is_assembled_as_the_change_says(
    change: dict[str, Any], candidate: KernelImage, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten: list[str] = []

    def rewrite(ptx: Ptx, name: str) -> tuple[Ptx, tuple[str, ...]]:
        rewritten.append(name)
        return Ptx(ptx.text + "// rewritten\n"), ()

    monkeypatch.setattr(module, "rewrite_by_name", rewrite)
    monkeypatch.setattr(module, "control_name", lambda old, new: {("k", "x_k"): "y_k"}[old, new])
    if "toolchain" in change:
        change = {**change, "toolchain": Tools("13")}
    tools: Any = Tools("12")
    made = sides_of_ptx(PTX, "k", CandidateChange(**change), tools, ("-O3",))
    assert made == Sides("k", image("k"), candidate, image(control)) and rewritten == [*change.get("rewrites", ())]
    refusing: Any = Tools("12", control)
    with pytest.raises(AssembleError):
        sides_of_ptx(PTX, "k", CandidateChange(**change), refusing, ("-O3",))


def test_a_rename_alone_is_compared_under_three_names(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, rename = Tools("12"), Rename(prefix="x_")

    def compare(*given: Any) -> Any:
        assert given == (PTX, rename, tools, ("-O3",), "k")
        made = {name: tools.assemble(PTX.rename_entries({"k": name}), ("-O3",)) for name in ("k", "x_k", "y_k")}
        builds = [SimpleNamespace(kernel=name, result=result) for name, result in made.items()]
        return SimpleNamespace(original=builds[0], renamed=builds[1], control=builds[2])

    monkeypatch.setattr(module, "compare_names", compare)
    made = sides_of_ptx(PTX, "k", CandidateChange(rename), tools, ("-O3",))  # type: ignore[arg-type]
    assert made == Sides("k", *map(image, ("k", "x_k", "y_k")))
    assert sides_of_cubins(made.control, made.candidate) == Sides("y_k", made.control, made.candidate, made.control)


@pytest.fixture
def diffs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference of two cubins says of what it is."""

    def from_bytes(data: bytes, name: str) -> str:
        if data == b"damaged":
            raise TritonHookError(f"{Path(name).name}: not an ELF file")
        return f"{data.decode()} of {Path(name).name}"

    def difference(a: str, b: str, tools: str, a_kernel: str, b_kernel: str) -> SimpleNamespace:
        text = f"{tools}: {a_kernel} in {a}, {b_kernel} in {b}"
        return SimpleNamespace(with_launches=lambda *shared: SimpleNamespace(summary=f"{text}, {shared}"))

    monkeypatch.setattr(module, "Cubin", SimpleNamespace(from_bytes=from_bytes))
    monkeypatch.setattr(module, "diff_cubins", difference)


@pytest.mark.parametrize("recorded", [True, False])
def test_the_images_of_reference_and_candidate_are_described(
    recorded: bool, diffs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "read_launch", lambda path: {tmp_path / "launch": SimpleNamespace(shared=64)}[path])
    written = Sides("k", *(KernelImage(name.encode(), f"{name}_k") for name in "abc")).write(tmp_path)
    tools: Any = "tools"
    told = describe_images(written[::-1], tmp_path / "launch" if recorded else None, tools)
    shared = (64, 64) if recorded else (None, None)
    text = f"tools: a_k in a of reference.cubin, b_k in b of candidate.cubin, {shared}"
    assert told == {"k": text}


def test_the_captures_of_reference_and_candidate_are_described(
    diffs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(kernel: str, cubin: bytes, own: str | None = None) -> SimpleNamespace:
        return SimpleNamespace(
            kernel=kernel, rewritten_from=own, cubin=cubin, text=lambda stage: f"{stage} of {kernel}"
        )

    names = [f"k{number}" for number in range(10)]
    held = {
        REFERENCE: [*(capture(name, b"a") for name in names), capture("twice", b"a"), capture("bad", b"a")],
        CANDIDATE: [
            *(capture(f"x_{name}", b"b", name) for name in names),
            *(capture("twice", b"b"), capture("twice", b"c"), capture("bad", b"damaged")),
        ],
    }
    folders = {
        tmp_path / side: SimpleNamespace(running=range(len(held[side])), capture=held[side].__getitem__)
        for side in held
    }
    monkeypatch.setattr(module, "CaptureFolder", SimpleNamespace(open=folders.__getitem__))
    monkeypatch.setattr(module, "dynamic_shared_of", lambda capture, ptx: f"{capture.kernel}: {ptx}")
    tools: Any = "tools"
    told = describe_captures(tmp_path, ["twice", "bad", "gone", *names], tools)
    assert told == {
        "bad": "not known: bad: not an ELF file",
        **{
            name: f"tools: {name} in a of {name}, x_{name} in b of x_{name}, "
            f"('{name}: Stage.PTX of {name}', 'x_{name}: Stage.PTX of x_{name}')"
            for name in names[:5]
        },
    }, "of the first eight that changed"
