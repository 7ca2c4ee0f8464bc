"""The hardware probes of `python -m sm120_attn selftest --quick`, compiled for sm_90a, on an H100.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks sm120_probes_h100 [--out FILE]

They ask the GPU for what the FP8 kernels rely on; `banks` has the clocks per ldmatrix. On sm_90a stand-ins are asked:
see sm120_attn/verify/hardware_probes.py.
"""

from __future__ import annotations

import argparse
from typing import Any

NEEDS = ("gpu", "torch", "cutlass")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from sm120_attn.verify import bench
    from sm120_attn.verify import hardware_probes as probes

    found = probes.run()
    what = "the probes of `python -m sm120_attn selftest --quick`, compiled for sm_90a, on an H100"
    print(probes.summary(found))
    return {"what": what, "device": bench.device(), "probes": found}
