"""Launches of two streams: run --emulate --sanitize."""

import re

import pytest
from dry_runs import run_dry

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def fill(x, v, N: tl.constexpr):
    tl.store(x + tl.program_id(0) * N + tl.arange(0, N), v)

@triton.jit
def double(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, 2 * tl.load(x + at))

def new():
    return (torch.zeros(1024, device="cuda") for _ in "xyz")

s, main = torch.cuda.Stream(), torch.cuda.current_stream()
"""
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
    "a third stream": (f"t = torch.cuda.Stream(); t.wait_stream(main); s.wait_stream(t); {OTHER}", "x, y", False),
}


def test_launches_of_two_streams_race_unless_something_orders_them(tmp_path, triton_cache):
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.6")
    after, script = "torch.cuda.set_stream(main)", SCRIPT
    for name, (between, arguments, _) in CASES.items():
        script += CASE.format(name=name, between=between or "pass", arguments=arguments, after=after)
    done = run_dry(tmp_path, script, "--emulate", "--sanitize", status=1)
    lines = re.findall(r"FAULT double: race: .* in stream 1 \(script.py:(\d+)\)", done.stderr)
    found = {script.splitlines()[int(line) - 1].partition("# ")[2] for line in lines}
    assert found == {name for name, (_, _, is_race) in CASES.items() if is_race}, done.stderr
