"""Launches of two streams: run --emulate --sanitize."""

import re

import pytest
from dry_runs import run_dry

pytestmark = pytest.mark.usefixtures("warm_start")
SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def fill(x, v, N: tl.constexpr):
    tl.store(x + tl.program_id(0) * N + tl.arange(0, N), v)

@triton.jit
def double(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, 2 * tl.load(x + at))

@triton.jit
def dependent(x, y, N: tl.constexpr, WAITS: tl.constexpr):
    if WAITS:
        tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + at)
    if not WAITS:
        tl.extra.cuda.gdc_wait()
    tl.store(y + at, v)

def new():
    return (torch.zeros(1024, device="cuda") for _ in "xyz")

s, main = torch.cuda.Stream(), torch.cuda.current_stream()
"""
FAULT = r"FAULT \w+: race: .*? \(script.py:(\d+)\) after"
CASE = "x, y, z = new(); fill[(2,)](x, 1.0, 256); {between}; double[(2,)]({arguments}, 256); {after}  # {name}\n"
OTHER = "torch.cuda.set_stream(s)"
CASES = {  # between two launches, the arguments of the second one, whether they race
    "one stream": ("", "x, y", False),
    "two streams": (OTHER, "x, y", True),
    "the first one reads": (f"double[(2,)](x, y, 256); {OTHER}", "z, x", True),
    "other halves": (OTHER, "x[512:], y", False),
    "reads alone": (f"torch.cuda.synchronize(); double[(2,)](x, y, 256); {OTHER}", "x, z", False),
    "wait_stream": (f"s.wait_stream(main); {OTHER}", "x, y", False),
    "wait_event": (f"s.wait_event(main.record_event()); {OTHER}", "x, y", False),
    "an event before": (f"e = main.record_event(); fill[(2,)](x, 2.0, 256); s.wait_event(e); {OTHER}", "x, y", True),
    "synchronize": (f"torch.cuda.synchronize(); {OTHER}", "x, y", False),
    "the host reads": (f"x[0].item(); {OTHER}", "x, y", False),
    "the host copies": (f"x.cpu(); {OTHER}", "x, y", False),
    "the same stream by its address": (
        "torch.cuda.set_stream(torch.cuda.ExternalStream(main.cuda_stream))",
        "x, y",
        False,
    ),
    "another one by its address": ("torch.cuda.set_stream(torch.cuda.ExternalStream(s.cuda_stream))", "x, y", True),
    "a third stream": (f"t = torch.cuda.Stream(); t.wait_stream(main); s.wait_stream(t); {OTHER}", "x, y", False),
}


def test_launches_of_two_streams_race_unless_something_orders_them(tmp_path, triton_cache):
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.6")
    after, script = "torch.cuda.set_stream(main)", SCRIPT
    for name, (between, arguments, _) in CASES.items():
        script += CASE.format(name=name, between=between or "pass", arguments=arguments, after=after)
    script += "torch.cuda.synchronize(); g = torch.cuda.CUDAGraph(); g.replay()\n"
    done = run_dry(tmp_path, script, "--emulate", "--sanitize", status=1)
    found = {script.splitlines()[int(line) - 1].partition("# ")[2] for line in re.findall(FAULT, done.stderr)}
    assert found == {name for name, (_, _, is_race) in CASES.items() if is_race}, done.stderr
    assert "both access byte 0 of argument x, at x[0] of (1024,)" in done.stderr and "CUDA graphs" in done.stderr


EARLY = "dependent[(2,)]({arguments}, 256, {waits}, launch_pdl={pdl})"
DEPENDENT = {  # what is launched behind `fill`, whether it races
    "reads before its wait": (EARLY.format(arguments="x, y", waits=False, pdl=True), True),
    "reads behind its wait": (EARLY.format(arguments="x, y", waits=True, pdl=True), False),
    "reads something else": (EARLY.format(arguments="z, y", waits=False, pdl=True), False),
    "begins when the other one has ended": (EARLY.format(arguments="x, y", waits=False, pdl=False), False),
    "torch lies between": ("w = x + 1; " + EARLY.format(arguments="x, y", waits=False, pdl=True), False),
}


def test_a_dependent_launch_reads_behind_its_wait(tmp_path, triton_cache):
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.6")
    lines = [f"x, y, z = new(); fill[(2,)](x, 1.0, 256); {what}  # {name}" for name, (what, _) in DEPENDENT.items()]
    script = "\n".join([SCRIPT, *lines])
    done = run_dry(tmp_path, script, "--emulate", "--sanitize", status=1)
    found = {script.splitlines()[int(line) - 1].partition("# ")[2] for line in re.findall(FAULT, done.stderr)}
    assert found == {name for name, (_, is_race) in DEPENDENT.items() if is_race}, done.stderr
