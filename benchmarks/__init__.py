"""What makes the figures in the docs: `python -m benchmarks NAME`."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# What is no package: the fake driver of the tests, the examples, and targets as `tritonhook ab` reads them.
sys.path[1:1] = [str(_ROOT / folder) for folder in ("tests/support", "examples", "benchmarks/timing/targets")]
