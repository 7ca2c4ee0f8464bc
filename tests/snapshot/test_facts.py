"""Facts of captured kernels: what identifies them, and their figures."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from fake_ptxas import PTX
from repository import GOLDEN

from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import loaded_of
from tritonhook.cubin.summary import summarise_image
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.facts import (
    COUNTERS,
    FIGURES,
    Identity,
    KernelFacts,
    identity_of,
    numbered,
    stage_hashes,
    with_code,
    without_stages,
)


def test_a_kernel_is_identified_by_what_it_was_specialised_for(facts: list[KernelFacts]) -> None:
    addition, product = facts
    assert addition.identity.text == (
        "add_kernel sm_90a (*f32, *f32, *f32, i32) BLOCK=128 num_ctas=1 num_stages=3 num_warps=4"
    )
    assert product.identity.kernel == "gemm_kernel"
    assert "BLOCK_K=64" in product.identity.specialisation
    assert any(text.startswith("(*f16:16, *f16:16") for text in product.identity.specialisation)


def test_every_figure_of_a_captured_kernel_is_known(facts: list[KernelFacts]) -> None:
    for one in facts:
        assert set(one.figures) == set(FIGURES)
        assert {name for name, figure in one.figures.items() if figure is None} == {
            "local_bytes",
            "code_bytes",
            *COUNTERS,
        }
        assert sum(one.classes.values()) == one.figures["instructions"]
        assert list(one.stages) == ["ttir", "ttgir", "llir", "ptx"]
        assert (len(one.codes), one.threads, one.failure) == (1, 256 if one.identity.kernel[0] == "g" else 128, "")
    addition, product = facts
    assert addition.figures["shared"] == addition.figures["loop_instructions"] == 0
    assert product.figures["shared"] == product.dynamic_shared + 1024  # of the 1,024, the system's, the image tells
    assert 0 < product.figures["loop_instructions"] < product.figures["instructions"]


def test_a_tensor_descriptor_is_one_type_in_every_version_of_triton() -> None:
    types = ("!tt.tensordesc<tensor<64x128xbf16, #shared>>", "!tt.tensordesc<64x128xbf16, #shared>")
    texts = [f"  tt.func public @k(%a: {kind}, %n: i32) attributes {{noinline = false}} {{\n" for kind in types]
    old, new = (identity_of(Capture("k", "0", "sm_90a", {Stage.TTIR: text})) for text in texts)
    assert old == new
    assert "64x128xbf16" in old.specialisation[0]


TTIR = """module {
  tt.func public @k(%x: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32) attributes {a = b} {
"""
IMAGE = (GOLDEN / "sm_90a.module.cubin").read_bytes()


def test_an_identity_has_constants_types_and_options() -> None:
    options = {"constants": {"A": {"cls": "f32"}, "B": 4, "C": {"x": 1}}, "num_stages": None, "maxnreg": 64, "x": 1}
    capture = Capture("k", "0", "sm_90a", {Stage.TTIR: TTIR}, options=options | {"num_warps": 4, "num_ctas": 1})
    types, constants = "(*f16:16, i32)", ("A=f32", "B=4", "C={'x': 1}")
    expected = Identity("k", "sm_90a", "Triton", (types, *constants, "maxnreg=64", "num_ctas=1", "num_warps=4"))
    assert identity_of(capture) == expected
    assert identity_of(replace(capture, artifacts={Stage.TTGIR: TTIR})) == expected
    renamed = replace(capture, kernel="other", rewritten_from="k", artifacts={}, options={})
    assert identity_of(renamed) == Identity("k", "sm_90a", "Triton")


def test_facts_of_an_image_and_of_its_code(tools: Toolchain) -> None:
    cubin, summary = Cubin.from_bytes(IMAGE), summarise_image(IMAGE, {})
    kernel = "foo"
    text = PTX.format(name=kernel, target="sm_90a")
    facts = without_stages(Capture(kernel, "0", "sm_90a", {Stage.PTX: text, Stage.CUBIN: IMAGE}))
    known = {"registers": 8, "stack": 48, "shared": 2048, "spill_stores": None, "spill_loads": None}
    assert facts.figures == dict.fromkeys(FIGURES) | known
    assert facts.codes == (summary.code_hash(kernel),) and facts.loaded == loaded_of(IMAGE, kernel) != {}
    sass = tools.disassemble(cubin, [kernel])[kernel]
    more, same = with_code([replace(facts, entry="m"), facts], cubin, kernel, sass)
    assert (more.entry, replace(more, entry="foo")) == ("m", same)
    loops = sum(len(loop.instructions) for loop in sass.innermost_loops)
    assert same.figures == facts.figures | {"instructions": len(sass.instructions), "loop_instructions": loops}
    assert (same.threads, same.launch_bounds) == (128, ("reqntid 64 2 1",))
    assert sum(same.classes.values()) <= len(sass.instructions) and same.classes


def test_equal_identities_are_numbered_and_equal_kernels_count_once() -> None:
    def facts(kernel: str, ptx: str | None, code: str) -> KernelFacts:
        return KernelFacts(Identity(kernel, "sm_90a", "Triton"), kernel, {}, ptx, None, None, (code,), {})

    kernels = [
        facts("m", "b", "1"),
        facts("k", "b", "1"),
        facts("k", None, "2"),
        facts("k", "b", "1"),
        facts("k", "b", "0"),
    ]
    found = numbered(list(zip("ABCDE", kernels, strict=True)))
    assert [(name, one.identity.kernel, one.identity.number) for name, one in found] == [
        ("C", "k", 1),
        ("E", "k", 2),
        ("B", "k", 3),
        ("A", "m", 1),
    ]
    assert found[1][1].identity.text == "k sm_90a #2"


def test_the_hash_of_a_stage_does_not_follow_the_kernels_name() -> None:
    texts = {Stage.TTIR: TTIR, Stage.PTX: PTX.format(name="k", target="sm_90a"), Stage.LLIR: "define @k"}
    hashes = stage_hashes(Capture("k", "0", "sm_90a", texts))
    assert list(hashes) == ["ttir", "llir", "ptx"] and {len(one) for one in hashes.values()} == {16}
    renamed = {stage: text.replace("@k", "@other").replace(" k(", " other(") for stage, text in texts.items()}
    renamed[Stage.PTX] = PTX.format(name="other", target="sm_90a")
    assert stage_hashes(Capture("other", "0", "sm_90a", renamed)) == hashes
    assert hashes["llir"] == hashlib.sha256(b"define @{kernel}").hexdigest()[:16]
