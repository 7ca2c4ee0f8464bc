"""Verified kernels of every kind, made up: for the tests of their document."""

from __future__ import annotations

import struct
from pathlib import Path

from tritonhook.capture.launches.contents import NORMAL
from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.verify.contents import difference
from tritonhook.verify.differential import NotBuilt, Region, Verified, skipped
from tritonhook.verify.judgement import Latitude, judge
from tritonhook.verify.model import Build, Failure, FailureKind, Ran

BUILDS = ("12.8.93 -O3", "12.8.93 -O0", "13.5.37 -O3")


def verified() -> tuple[Verified, ...]:
    launch = Launch("k", (4, 1, 1), (32, 1, 1), (Pointer("out", 0, dtype="float32"),), (Buffer(16, "float32"),))
    builds = tuple(Build(label, Path("k.cubin"), "k", label.split()[0], (label.split()[1],)) for label in BUILDS)
    pair = (struct.pack("<4f", *values) for values in ((1, 2, 4, 8), (1, 2, 4.5, 8)))
    found = difference(0, "float32", *pair)
    assert found is not None
    differ = [Ran(NORMAL, BUILDS[0], us=3.5, stored=1), *(Ran(NORMAL, label, (found,), us=9.0) for label in BUILDS[1:])]
    hang = [differ[0], Ran(NORMAL, BUILDS[1], failure=Failure(FailureKind.HANG, "no end within 10 s"))]
    region = Region(
        BUILDS[0], BUILDS[2], ((16, "SHF.L.W.U32.HI R4,R3,0x8,R2"),), ((16, "SHF.L.U32 R4,R2,0x8,RZ"),), 1, 4
    )
    wrong = Verified(
        "k",
        launch.summary,
        judge(differ, launch, Latitude()),
        builds,
        ((BUILDS[0], "12.8.93 -O3, as used"),),
        (NotBuilt("12.4.131 -O3", "ptxas 12.4.131 rejected the PTX (exit 255): a reason"),),
        tuple(differ),
        ((BUILDS[1], BUILDS[2]), (BUILDS[0],)),
        region,
        ("a note",),
        1.25,
    )
    same = Verified("add", launch.summary, judge([differ[0], Ran(NORMAL, BUILDS[1])], launch, Latitude()), builds[:2])
    stuck = Verified("stuck", launch.summary, judge(hang, launch, Latitude()), builds[:2], seconds=10.5)
    return wrong, same, stuck, skipped("tma", "", "argument a is a TMA descriptor made by the host")
