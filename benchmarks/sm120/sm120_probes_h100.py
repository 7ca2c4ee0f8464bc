"""The hardware probes of `python -m sm120_attn selftest --quick`, compiled for sm_90a, on an H100.

    CUTE_DSL_ARCH=sm_90a python benchmarks/sm120/sm120_probes_h100.py [--out FILE]

They ask the GPU for what the FP8 kernels rely on; `banks` has the clocks per ldmatrix. On sm_90a stand-ins are asked:
see sm120_attn/verify/hardware_probes/run.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "sm120_probes_h100.json")
    arguments = parser.parse_args()
    from sm120_attn.verify import bench
    from sm120_attn.verify.hardware_probes import run as probes

    found = probes.run()
    what = "the probes of `python -m sm120_attn selftest --quick`, compiled for sm_90a, on an H100"
    write_json(arguments.out, {"what": what, "device": bench.device(), "probes": found})
    print(probes.summary(found), f"wrote {arguments.out}", sep="\n")


if __name__ == "__main__":
    main()
