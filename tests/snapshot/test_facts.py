"""Facts of captured kernels: what identifies them, and their figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshot.conftest import Compile
from tritonhook.capture.model import Capture, Stage
from tritonhook.cli._inputs import kernels_at
from tritonhook.errors import CaptureError
from tritonhook.snapshot.facts import FIGURES, KernelFacts, identity_of


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
        assert {name for name, figure in one.figures.items() if figure is None} == {"local_bytes", "code_bytes"}
        assert sum(one.classes.values()) == one.figures["instructions"]
        assert list(one.stages) == ["ttir", "ttgir", "llir", "ptx"]
        assert (len(one.codes), one.threads, one.failure) == (1, 256 if one.identity.kernel[0] == "g" else 128, "")
    addition, product = facts
    assert addition.figures["shared"] == addition.figures["loop_instructions"] == 0
    assert product.figures["shared"] == product.dynamic_shared + 1024  # of the 1,024, the system's, the image tells
    assert 0 < product.figures["loop_instructions"] < product.figures["instructions"]


def test_one_kernel_for_two_sizes_is_two(compiled: Compile) -> None:
    compiled("a")
    found = [facts.identity for _, facts in kernels_at(str(compiled("a", block=256)))[0][0]]
    assert len(found) == len(set(found)) == 3
    assert {text for one in found for text in one.specialisation if text.startswith("BLOCK=")} == {
        "BLOCK=128",
        "BLOCK=256",
    }


def test_kernels_that_have_everything_in_common_are_numbered(compiled: Compile) -> None:
    import triton_kernels as kernels

    compiled("a")
    folder = compiled("a", adds=kernels.other_add_kernel())
    found = [facts for _, facts in kernels_at(str(folder))[0][0] if facts.identity.kernel == "add_kernel"]
    assert [facts.identity.number for facts in found] == [1, 2]
    assert len({facts.codes for facts in found}) == 2


def test_a_folder_without_kernels_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with pytest.raises(CaptureError, match="no kernels were captured"):
        kernels_at(str(tmp_path))


def test_a_tensor_descriptor_is_one_type_in_every_version_of_triton() -> None:
    types = ("!tt.tensordesc<tensor<64x128xbf16, #shared>>", "!tt.tensordesc<64x128xbf16, #shared>")
    texts = [f"  tt.func public @k(%a: {kind}, %n: i32) attributes {{noinline = false}} {{\n" for kind in types]
    old, new = (identity_of(Capture("k", "0", "sm_90a", {Stage.TTIR: text})) for text in texts)
    assert old == new
    assert "64x128xbf16" in old.specialisation[0]
