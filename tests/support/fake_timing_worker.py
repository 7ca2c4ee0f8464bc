"""A timing process without a GPU: speaks the protocol of timing/worker.py with simulated times.

The target's name says what to simulate: fake:slower3 is 3% slower, fake:faster10, fake:equal, fake:samecode,
fake:wrong, fake:noisycontrol, fake:error, fake:dies (after the first block), fake:undecided (never precise),
fake:scattered (each process is off by its own 0.6%), fake:slowclock3 (3% slower in time, as its clock is 3% lower).
"""

import os
import random
import re
import sys
import time
from dataclasses import asdict

from tritonhook.device.conditions import Conditions
from tritonhook.errors import UsageError
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Block
from tritonhook.timing.worker import serve


class FakeWorker:
    def __init__(self, plan) -> None:
        self.plan = plan
        self.case = plan.target.partition(":")[2]
        self.draw = random.Random(plan.seed)

    def prepare(self):
        if self.case == "error":
            raise UsageError("fake: no such target")
        codes = {REFERENCE: "a", CANDIDATE: "a" if self.case == "samecode" else "b", CONTROL: "a"}
        if self.case == "strip":
            codes[CONTROL] = "b"
        return {
            "kernels": {
                side: {"kernel": [{"code": code, "registers": 40, "stack": 0}]} for side, code in codes.items()
            },
            "compiled": {
                side: {"kernels": [f"{prefix}kernel"], "ptxas": ["12.8.93"]}
                for side, prefix in ((REFERENCE, ""), (CANDIDATE, "cutlass_"), (CONTROL, "cutlasz_"))
            },
            "wrong": {CANDIDATE: "output 0 differs in its bits"} if self.case == "wrong" else {},
            "outputs": 1,
            "notes": ["simulated"],
            "device": "no GPU",
            "versions": {},
            "flushes": True,
            "sides": {side: {"copies": 1, "graph": True, "why_eager": None} for side in codes},
        }

    def take(self, count, process):
        if self.case == "dies" and process == 1:
            os._exit(7)
        if self.case == "interrupted" and process == 2:
            os.kill(os.getppid(), 2)
            time.sleep(0.2)
        match = re.fullmatch(r"(slower|faster|slowclock)(\d+)", self.case)
        sign = {"slower": 1, "slowclock": 1, "faster": -1}[match[1]] if match else 0
        scale = {
            REFERENCE: 1.0,
            CANDIDATE: 1 + sign * int(match[2]) / 100 if match else 1.0,
            CONTROL: 1.03 if self.case == "noisycontrol" else 1.0,
        }
        if self.case == "scattered":
            scale[CANDIDATE] = 1 + random.Random(process).choice((-0.006, 0.0, 0.006))
        noise = 0.08 if self.case in ("undecided", "interrupted") else 0.004
        return [
            asdict(
                Block(
                    process,
                    {s: tuple(50 * f * (1 + self.draw.gauss(0, noise)) for _ in range(10)) for s, f in scale.items()},
                    Conditions(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0, power_capped=False, other_processes=1),
                    {s: 1980.0 / f if self.case.startswith("slowclock") else 1980.0 for s, f in scale.items()},
                )
            )
            for _ in range(count)
        ]


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers, FakeWorker)
