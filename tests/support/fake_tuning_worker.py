"""A process of a tuning without a GPU: speaks the protocol of tuning/worker.py with simulated times.

A code's file is JSON, or FAKE_TUNING is, by the code's name in the order. "us": its time (50); "us_at": by launch's
file, where it is another one; "wrong": what differs; "refused"; "crash", "hang": at its first launch ("hang" says so,
for support/patient_child.py); "crash_timed":
while it is timed; "unsteady"; "fickle": microseconds less in the process that races, and in no other; "unfit": the GPU
is slowed down; "interrupt": the parent, at any launch or at that of this file. "no gpu" in FAKE_TUNING: there is none.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from patient_child import HANGS

from tritonhook.device.conditions import Conditions
from tritonhook.errors import DeviceError
from tritonhook.timing.statistics import REFERENCE, Block
from tritonhook.tuning.worker import ContextLost, serve

BY_NAME = json.loads(os.environ.get("FAKE_TUNING", "{}"))


def behaviour(name: str, path: str) -> dict:
    data = Path(path).read_bytes()
    return json.loads(data) if data.startswith(b"{") else BY_NAME.get(name, {})


class FakeCodes:
    def __init__(self) -> None:
        self.sides: dict[str, dict] = {}

    def begin(self) -> str:
        if "no gpu" in BY_NAME:
            raise DeviceError("no GPU that torch can use: tuning needs one; --assemble-only needs none")
        return "Fake GPU"

    def ready(self, order, say):
        self.racing, self.draw = order["racing"], random.Random(order["seed"])
        self.launch = Path(order["launch"]).name
        self.sides = {name: behaviour(name, path) for name, path, _ in order["codes"]}
        failed = {}
        for name, how in list(self.sides.items()):
            say({"at": name})
            if how.get("interrupt") in (True, self.launch):
                os.kill(os.getppid(), signal.SIGINT)
                time.sleep(5)
            if "hang" in how:
                say(HANGS)
                time.sleep(60)
            if "crash" in how:
                raise ContextLost("CUDA_ERROR_ILLEGAL_ADDRESS")
            say({"after": name})
            if why := how.get("wrong") or how.get("refused"):
                failed[name] = why
                del self.sides[name]
        unsteady = "unsteady" in self.sides.get(REFERENCE, {})
        return {"failed": failed, "unsteady": unsteady, "notes": ["simulated"]}

    def take(self, count, process, sides):
        if any("crash_timed" in self.sides[name] for name in sides):
            os._exit(7)
        offset = {name: self.draw.gauss(0, 0.0005) for name in sides}
        return [self._block(process, sides, offset) for _ in range(count)]

    def _block(self, process, sides, offset):
        def sample(name):
            how = self.sides[name]
            us = how.get("us_at", {}).get(self.launch, how.get("us", 50.0)) - (
                how.get("fickle", 0.0) if self.racing else 0.0
            )
            return us * (1 + offset[name] + self.draw.gauss(0, 0.003))

        slowed = ("HW_SLOWDOWN",) if any("unfit" in self.sides[name] for name in sides) else ()
        conditions = Conditions(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0, slowed=slowed)
        times = {name: tuple(sample(name) for _ in range(10)) for name in sides}
        return asdict(Block(process, times, conditions, dict.fromkeys(sides, 1980.0)))

    def free(self) -> None:
        self.sides = {}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers, FakeCodes())
