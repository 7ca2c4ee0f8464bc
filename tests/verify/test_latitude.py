"""What PTX leaves open, opcode by opcode."""

from __future__ import annotations

import pytest
from ptx_modules import HEADER, kernel

from tritonhook.ptx.module import Ptx
from tritonhook.verify.judgement import Latitude, latitude_of


def of(*opcodes: str) -> Latitude:
    return latitude_of(Ptx(HEADER + kernel("k", "\n".join(f"{opcode} %f1, %f2, %f3;" for opcode in opcodes))))


@pytest.mark.parametrize(
    ("opcode", "contraction"),
    [
        ("mul.f32", True),
        ("add.ftz.f32", True),
        ("sub.f64", True),
        ("mul.bf16x2", True),
        *((f"mul.{rounding}.f32", False) for rounding in ("rn", "rz", "rm", "rp")),
        ("add.rn.ftz.f32", False),
        ("fma.rn.f32", False),
        ("add.s32", False),
        ("mul.lo.u64", False),
    ],
)
def test_only_what_names_no_rounding_may_be_contracted(opcode: str, contraction: bool) -> None:
    assert of(opcode) == Latitude(contraction=contraction)


@pytest.mark.parametrize(
    ("opcode", "float_atomics"),
    [
        ("atom.global.add.f32", True),
        ("red.global.add.f32", True),
        ("red.relaxed.gpu.global.add.noftz.bf16x2", True),
        ("red.global.v4.f32.add", True),
        ("red.global.add.u32", False),
        ("atom.global.add.s32", False),
        ("atom.global.max.f32", False),
        ("st.global.f32", False),
    ],
)
def test_atomics_add_floats_in_any_order(opcode: str, float_atomics: bool) -> None:
    assert of(opcode) == Latitude(float_atomics=float_atomics)


def test_the_worst_approximate_instruction_sets_the_share() -> None:
    assert of("ex2.approx.f32", "rcp.approx.f32") == Latitude(
        approximate=("ex2.approx.f32", "rcp.approx.f32"), share=64 * 2.0**-22
    )
    assert of("tanh.approx.bf16").share == 0.05, "never more"
    assert of("rcp.rn.f32", "sqrt.rn.f64") == Latitude()


@pytest.mark.parametrize(
    ("opcodes", "pairs"), [(("mul", "sub.rn"), True), (("mul", "add.rz"), False), (("add",), False)]
)
def test_products_and_sums_of_pairs_are_contracted_whatever_the_options_are(
    opcodes: tuple[str, ...], pairs: bool
) -> None:
    assert of(*(f"{one}.f32x2" for one in opcodes)).pairs is pairs
