"""What is found of long sums of FP8 products. On the CPU, with kernels that lose what a test tells them to."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.launch import prepare  # noqa: E402
from sm120_attn.verify import cases, inputs, judging, long_sums  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> dict[bool, float]:
    """What a kernel with two levels (True) or one (False) loses of a sum."""
    found = {True: 0.0, False: 0.0}

    def forward(tensors: Any, call: Any) -> Any:
        given = {name: t for name, t in tensors._asdict().items() if t is not None}
        o, lse = attention_reference(**given, low_precision=True, config=call.config, out_dtype=call.out_dtype)
        return (o * (1 - found[call.config.two_level])).to(call.out_dtype), lse

    monkeypatch.setattr(inputs, "tensors", functools.partial(inputs.tensors, device="cpu"))
    monkeypatch.setattr(prepare, "device_facts", lambda index: ("sm_120a", 170))
    monkeypatch.setattr(prepare, "forward", forward)
    monkeypatch.setattr(cases, "LONG_SUMS", (4096,))
    return found


@pytest.mark.parametrize(
    ("one", "two", "needed", "enough"), [(0.0, 0.0, False, True), (0.02, 1e-4, True, True), (0.4, 0.1, True, False)]
)
def test_one_level_is_compared_with_two(lost: Any, one: float, two: float, needed: bool, enough: bool) -> None:
    lost |= {False: one, True: two}
    found = long_sums.measure()
    assert [row["values"] for row in found["errors"]] == ["ones", "mean"]
    for row in found["errors"]:
        assert row["one_level"] == pytest.approx(one, abs=1e-6) and row["two_levels"] == pytest.approx(two, abs=1e-6)
    assert (found["two_levels_needed"], found["two_levels_enough"]) == (needed, enough)
    assert ("are needed" in long_sums.summary(found)) == needed and "4096 keys" in long_sums.summary(found)


@pytest.mark.parametrize("case", [c for c in cases.long_sums() if c.keys == 4096], ids=lambda case: case.name)
def test_the_judge_takes_a_good_sum_and_refuses_one_that_loses(case: Any) -> None:
    made, options = inputs.tensors(case, device="cpu")
    o, lse = attention_reference(**made, **options, low_precision=True)
    assert judging.judge(case, made, options, o.float().contiguous(), lse.float()).passed
    lost = (o * (1 - 4e-3)).float().contiguous()
    assert not judging.judge(case, made, options, lost, lse.float()).passed
