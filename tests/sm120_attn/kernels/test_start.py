"""The start of a CTA, in PTX: how it finds its tile, when it asks for Q, and that it waits for the kernel before."""

import re
from dataclasses import replace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

from sm120_attn.compile.compiler import compile_offline
from sm120_attn.config import Config

CONFIG = Config(arch="sm_90a", head_dim=64, q_in_registers=True, split_keys=True)


def places(config: Config) -> dict[str, list[int]]:
    """Where these instructions stand."""
    ptx = compile_offline(config).ptx
    names = "div.s32", "cp.async.bulk.tensor", "setmaxnreg.inc", "griddepcontrol.wait"
    return {name: [found.start() for found in re.finditer(re.escape(name), ptx)] for name in names}


def test_a_fast_start_divides_by_nothing_and_asks_for_q_before_registers():
    plain, fast = places(CONFIG), places(replace(CONFIG, fast_start=True))
    assert plain["div.s32"] and plain["cp.async.bulk.tensor"][0] > plain["setmaxnreg.inc"][0]
    assert not fast["div.s32"] and fast["cp.async.bulk.tensor"][0] < fast["setmaxnreg.inc"][0]


def test_a_dependent_launch_waits_before_it_reads_memory():
    found = places(replace(CONFIG, fast_start=True, dependent_launch=True))
    assert len(found["griddepcontrol.wait"]) == 1
    assert found["griddepcontrol.wait"][0] < found["cp.async.bulk.tensor"][0]
    assert not places(CONFIG)["griddepcontrol.wait"]
