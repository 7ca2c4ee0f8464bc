"""Measure how exactly tensor cores sum many FP8 products, by attention that sums on one level and on two.

V is 1 or has a mean above 0, so sums only grow, and the losses of an accumulator add up. Errors are differences from a
replay of the kernel's rounding, so that the rounding of P to FP8 does not count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import cases, inputs, judging
from .judging import FP8_TIGHT

HEAD_DIM = 128


def measure() -> dict[str, Any]:
    """Measure errors with one and two levels for each case, and whether two levels are needed on this device.

    An error is the 99th percentile of all rows, relative to the row's largest value.
    """
    found: list[dict[str, Any]] = []
    for case in cases.long_sums():
        if case.mask != "none" or case.head_dim != HEAD_DIM:
            continue
        made, options = inputs.tensors(case)
        errors = {name: error(case, made, options, two) for name, two in (("one_level", False), ("two_levels", True))}
        found.append({"keys": case.keys, "values": case.values, **errors})
    return {
        "errors": found,
        "limit": FP8_TIGHT,
        "two_levels_needed": any(row["one_level"] > FP8_TIGHT for row in found),
        "two_levels_enough": all(row["two_levels"] <= FP8_TIGHT for row in found),
    }


def error(case: cases.Case, made: dict[str, Any], options: dict[str, Any], two_level: bool) -> float:
    """Compute the error of the planned kernel with one or two levels."""
    from ..launch.call import Tensors
    from ..launch.prepare import device_facts, forward
    from .reference import attention_reference

    config = replace(case.config(*device_facts(made["q"].get_device())), two_level=two_level)
    tensors = Tensors(**made, **{name: options[name] for name in Tensors._fields if name in options})
    o, _ = forward(tensors, judging.call_of(tensors, options)._replace(config=config))
    replay, _ = attention_reference(**made, **options, low_precision=True, config=config)
    off = (o.double() - replay).abs().amax(-1) / replay.abs().amax(-1)
    return float(off.flatten().quantile(0.99))


def summary(found: dict[str, Any]) -> str:
    """Summarise the errors in one line."""
    longest = max(found["errors"], key=lambda row: (row["keys"], row["one_level"]))
    said = "are needed" if found["two_levels_needed"] else "are not needed here"
    return (
        f"sums of {longest['keys']} keys, V of {longest['values']}: off by {longest['one_level']:.1e} on one level, "
        f"{longest['two_levels']:.1e} on two (limit {found['limit']:g}): two levels {said}"
    )
