"""The matrix of `check`: what it promises to hold, it holds."""

import pytest

from sm120_attn.config import FP8, Config, why_not
from sm120_attn.planner import CHOICES, Shape, plan
from sm120_attn.verify import cases

ALL = list(cases.matrix())


@pytest.mark.parametrize("kernel", [None, "tma", "cp_async", *cases.TILES])
def test_every_case_has_a_kernel_that_can_be_built(kernel: str | None) -> None:
    for case in cases.matrix(kernel):
        config = case.config("sm_90a", 132)
        assert why_not(config) is None, case.name
        assert kernel in (None, config.kernel, *cases.TILES), case.name


def test_all_tiles_that_plan_chooses_from_are_checked() -> None:
    for head_dim in (64, 128):
        forced = {cases.tiles_of(Config(head_dim=head_dim), number) for number in range(len(cases.TILES))}
        assert len(forced) == len(CHOICES[head_dim]) <= len(cases.TILES)
        shapes = (
            Shape("sm_120a", "bf16", head_dim, b, 16, 16, s, s) for b in (1, 4) for s in (100, 512, 1024, 4096, 16384)
        )
        planned = {plan(shape).config for shape in shapes}
        assert planned <= forced
    assert {name for choices in CHOICES.values() for c in choices for name, _ in c.fields} <= set(cases.TILE_FIELDS)


@pytest.mark.parametrize("kernel", [None, *cases.FP8_TILES])
def test_fp8_has_all_cases_of_16_bit_inputs_and_its_own(kernel: str | None) -> None:
    chosen = list(cases.fp8_matrix(kernel))
    configs = [case.config("sm_90a", 132) for case in chosen]
    assert len({case.name for case in chosen}) == len(chosen) > len(ALL) + 100
    assert all(why_not(config) is None and config.fp8 for config in configs)
    assert {c.split_keys for c in configs} == {None: {True, False}, "tiles 0": {False}, "tiles 1": {True, False}}[
        kernel
    ]
    assert not any(c.split_keys for c in configs if c.head_dim > 128)
    assert {(c.dtype, c.out_dtype) for c in chosen} >= {(d, o) for d in FP8 for o in ("bf16", "fp16", "fp32")}
