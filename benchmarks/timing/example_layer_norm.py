"""The timed comparison that README.md and the third tutorial show: the layer norm of examples/ under two names.

    python benchmarks/timing/example_layer_norm.py

Runs `tritonhook ab layer_norm:launch` in examples/ and keeps its document, with all raw samples. Copy what it prints
into README.md and docs/tutorials/3-time.md; tests/docs/test_readme.py compares them with the result. Needs a GPU and
torch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESULT = RESULTS / "example_layer_norm.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "ab.json"
        words = [sys.executable, "-m", "tritonhook", "ab", "layer_norm:launch", "--save", str(saved)]
        done = subprocess.run(words, cwd=EXAMPLES, check=False)
        if not saved.exists():
            raise SystemExit(f"tritonhook ab ended with {done.returncode}, and has no result")
        timed = json.loads(saved.read_text())
    document = {
        "format": 1,
        "environment": environment("torch", "triton", "tritonhook") | {"gpu": timed["device"]},
        "summary": {"blocks": len(timed["blocks"]), "stopped": timed["stopped"], "seconds": timed["seconds"]},
        "samples": timed,
    }
    write_json(arguments.out, document, digits=6)


if __name__ == "__main__":
    main()
