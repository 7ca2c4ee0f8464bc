"""A process that times, without a GPU: answers what timing/worker.py and tuning/worker.py are asked, in made-up times.

For a comparison the target's name says what to simulate: fake:slower3 is 3% slower, fake:faster10, fake:equal,
fake:samecode, fake:wrong, fake:noisycontrol, fake:error, fake:dies (after the first block), fake:undecided (never
precise), fake:scattered (each process is off by its own 0.6%), fake:slowclock3 (3% slower in time, as its clock is 3%
lower), fake:othercode (each process has code of its own), fake:interrupted.

For a tuning a code's file is JSON, or FAKE_TUNING is, by the code's name in the request. "us": its time (50); "us_at":
by launch's file, where it is another one; "wrong": what differs; "off_by": by how much; "refused"; "crash", "hang": at
its first launch
("hang" says so, for support/patient_child.py); "crash_timed": while it is timed; "unsteady"; "fickle":
microseconds less in the process that races, and in no other; "unfit": the GPU is slowed down; "interrupt": the parent;
both at any launch or at that of this file. "no gpu" in FAKE_TUNING: there is none.
"""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from patient_child import say_that_it_hangs

from tritonhook.device.child import After, At, Begin, Begun, ContextLost, own_output, serve
from tritonhook.device.sm_clock import Conditions
from tritonhook.errors import DeviceError, UsageError
from tritonhook.timing.plan import Compiled, HowLaunched, KernelCode, Prepare, Prepared, Take, Taken
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, SampleBlock
from tritonhook.tuning.gpu import Free, Freed, LoadCodes, RaceReady

BY_NAME = json.loads(os.environ.get("FAKE_TUNING", "{}"))
NORMAL = Conditions(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0, power_capped=False, other_processes=1)


class Compared:
    """A side of each kind of a comparison."""

    def __init__(self, plan) -> None:
        self.case = plan.target.partition(":")[2]
        self.seed, self.draw = plan.seed, random.Random(plan.seed)

    def prepared(self):
        if self.case == "error":
            raise UsageError("fake: no such target")
        codes = {REFERENCE: "a", CANDIDATE: "a" if self.case == "samecode" else "b", CONTROL: "a"}
        if self.case == "strip":
            codes[CONTROL] = "b"
        if self.case == "othercode":
            codes[CANDIDATE] = f"b of {self.seed}"
        prefixes = {REFERENCE: "", CANDIDATE: "cutlass_", CONTROL: "cutlasz_"}
        return Prepared(
            {side: {"kernel": (KernelCode(code, 40, 0),)} for side, code in codes.items()},
            {side: Compiled((f"{prefix}kernel",), ("12.8.93",)) for side, prefix in prefixes.items()},
            outputs=1,
            wrong={CANDIDATE: "output 0 differs in its bits"} if self.case == "wrong" else {},
            notes=("simulated",),
            device="no GPU",
            versions={},
            flushes=True,
            sides={side: HowLaunched(1, True) for side in codes},
        )

    def block(self, asked):
        if self.case == "dies" and asked.process == 1:
            os._exit(7)
        if self.case == "interrupted" and asked.process == 2:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.2)
        match = re.fullmatch(r"(slower|faster|slowclock)(\d+)", self.case)
        sign = {"slower": 1, "slowclock": 1, "faster": -1}[match[1]] if match else 0
        scale = {
            REFERENCE: 1.0,
            CANDIDATE: 1 + sign * int(match[2]) / 100 if match else 1.0,
            CONTROL: 1.03 if self.case == "noisycontrol" else 1.0,
        }
        if self.case == "scattered":
            scale[CANDIDATE] = 1 + random.Random(asked.process).choice((-0.006, 0.0, 0.006))
        noise = 0.08 if self.case in ("undecided", "interrupted") else 0.004
        times = {s: tuple(50 * f * (1 + self.draw.gauss(0, noise)) for _ in range(10)) for s, f in scale.items()}
        slow = self.case.startswith("slowclock")
        return SampleBlock(asked.process, times, NORMAL, {s: 1980.0 / f if slow else 1980.0 for s, f in scale.items()})


class Tuned:
    """The codes of a kernel."""

    def __init__(self, asked, raced) -> None:
        self.raced = raced
        self.draw = random.Random(asked.seed)
        self.launch = asked.launch.name
        self.rtol = asked.rtol
        self.codes = {code.name: _behaviour(code) for code in asked.codes}

    def ready(self):
        failed = {}
        for name, how in list(self.codes.items()):
            yield At(name)
            if how.get("interrupt") in (True, self.launch):
                os.kill(os.getppid(), signal.SIGINT)
                time.sleep(5)
            if "hang" in how:
                say_that_it_hangs(ANSWERS)
                time.sleep(60)
            if "crash" in how:
                raise ContextLost("CUDA_ERROR_ILLEGAL_ADDRESS")
            yield After()
            if how.get("off_by", 0.0) > (self.rtol or 0.0):
                failed[name] = "output 0 differs"
                del self.codes[name]
            elif why := how.get("wrong") or how.get("refused"):
                failed[name] = why
                del self.codes[name]
        yield RaceReady(failed, "unsteady" in self.codes.get(REFERENCE, {}), ("simulated",))

    def block(self, asked):
        if any("crash_timed" in self.codes[name] for name in asked.sides):
            os._exit(7)
        slowed = (
            ("HW_SLOWDOWN",)
            if any(self.codes[name].get("unfit") in (True, self.launch) for name in asked.sides)
            else ()
        )
        times = {name: self._times(self.codes[name]) for name in asked.sides}
        conditions = Conditions(sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0, slowed=slowed)
        return SampleBlock(asked.process, times, conditions, dict.fromkeys(asked.sides, 1980.0))

    def _times(self, how):
        us = how.get("us_at", {}).get(self.launch, how.get("us", 50.0))
        us -= how.get("fickle", 0.0) if self.raced else 0.0
        offset = self.draw.gauss(0, 0.0005)
        return tuple(us * (1 + offset + self.draw.gauss(0, 0.003)) for _ in range(10))


def _behaviour(code) -> dict:
    data = Path(code.path).read_bytes()
    return json.loads(data) if data.startswith(b"{") else BY_NAME.get(code.name, {})


class FakeWorker:
    raced = False  # once

    def carry_out(self, asked):
        if isinstance(asked, Begin):
            if "no gpu" in BY_NAME:
                raise DeviceError("no GPU that torch can use: tuning needs one; --assemble-only needs none")
            yield Begun("Fake GPU")
        elif isinstance(asked, Prepare):
            self.timed = Compared(asked.plan)
            yield self.timed.prepared()
        elif isinstance(asked, LoadCodes):
            self.raced |= asked.racing
            self.timed = Tuned(asked, self.raced)
            yield from self.timed.ready()
        elif isinstance(asked, Take):
            yield Taken(tuple(self.timed.block(asked) for _ in range(asked.blocks)))
        else:
            yield Freed()


if __name__ == "__main__":
    ANSWERS = own_output()
    serve(sys.stdin, ANSWERS, FakeWorker().carry_out, Begin, Prepare, LoadCodes, Take, Free)
