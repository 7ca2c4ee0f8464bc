"""What "cutlass" in the name does to the time of gluon_kernels' attentions for this GPU, at their default configs.

    python benchmarks/gluon/gluon_ab.py [--ptxas 12.6.85] [--append FILE] [OPTIONS of name_effect.py]

Each row is a `tritonhook ab` of its own, as timing/name_effect.py makes it: B4 H16 S4096. mma.sync and Hopper's,
under the ptxas that Triton takes; --ptxas times Hopper's under that version too. gluon_assembled.py has the code of all
of them, also of those that were not timed. Needs a GPU of sm_90 and torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "timing"))
import name_effect
from common import RESULTS
from gluon_assembled import subjects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", default="", metavar="VERSION", help="for Hopper's, beside Triton's")
    arguments, rest = parser.parse_known_args()
    timed = [(target, kernel) for target, kernel, *_ in subjects() if kernel != "blackwell"]
    targets = [target for target, _ in timed]
    if arguments.ptxas:
        targets += [f"{target}@{arguments.ptxas}" for target, kernel in timed if kernel == "hopper"]
    name_effect.main(["--targets", ",".join(targets), "--out", str(RESULTS / "gluon_ab.json"), *rest])


if __name__ == "__main__":
    main()
