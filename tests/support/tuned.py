"""Parts of tunings, as values: codes, kernels with their launches, confirmations."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from summaries import kernel_summary

from tritonhook.capture.policy.levers import lever
from tritonhook.capture.selection import Kernel, Launched
from tritonhook.device.sm_clock import Conditions
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock
from tritonhook.tuning.candidates import Candidate, Choice, Dropped, Subject

PTX = Ptx(".version 8.0\n.target sm_90a\n.visible .entry k()\n{\n\tret;\n}\n")
RESOURCES = kernel_summary("k", "0" * 64, 16, 32)


def code(text: str | None, data: bytes = b"") -> Candidate:
    """The code of a lever; None: the compiler's own."""
    return Candidate(None if text is None else lever(text), "k", data, "3" * 16, RESOURCES, "12.8.93")


def kernel_with(
    *others: Candidate,
    plain: Candidate | None = None,
    name: str = "k",
    us: tuple[float, ...] = (1.0,),
    dropped: tuple[Dropped, ...] = (),
    siblings: dict[str, Choice] | None = None,
) -> tuple[Kernel, Choice]:
    """A kernel with a launch for each of `us`. siblings: its other configurations, each as of `kernel_with`."""
    launches = _launches(name, us)
    subject = Subject(name, PTX, Tool(Path("ptxas"), "12.8.93", "fake"), (), "sm_90a")
    one = Kernel(name, name, "sm_90a", "Triton", "1" * 64, launches, 0.5)
    choice = Choice(subject, plain or code(None), others, dropped)
    if siblings:
        configured = (it.as_config(config, _launches(config, us)) for config, it in siblings.items())
        choice = replace(choice, siblings=tuple(configured))
        one = replace(one, function=name, config="BLOCK: 64", keys=(("n=1000", "torch.float32"),))
    return one, choice


def _launches(name: str, us: tuple[float, ...]) -> tuple[Launched, ...]:
    return tuple(
        Launched(name, f"{n}", Path(f"{n}.json"), f"launch {n}", 1, time, problem=f"problem {n}")
        for n, time in enumerate(us)
    )


def comparison(ratio: float, noise: float = 0.001) -> Comparison:
    """A confirmation of 7 processes with 4 blocks each."""
    draw = random.Random(7)
    sides = {REFERENCE: 50.0, CANDIDATE: 50.0 * ratio, CONTROL: 50.0}
    conditions = Conditions(1980.0, 1980.0, 50.0, 400.0, (), False, 0)
    blocks = tuple(
        SampleBlock(
            process,
            {name: tuple(round(us * (1 + draw.gauss(0, noise)), 4) for _ in range(3)) for name, us in sides.items()},
            conditions,
            dict.fromkeys(sides, 1980.0),
        )
        for process in range(1, 8)
        for _ in range(4)
    )
    return Comparison(blocks)
