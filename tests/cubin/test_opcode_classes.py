"""Each SASS opcode has a class, and classes count every instruction."""

from __future__ import annotations

import pytest

from tests.compare.test_diff import golden
from tritonhook.cubin.sass import CLASSES, class_counts, opcode_class


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        *[(name, "tensor") for name in ("HMMA", "QMMA", "HGMMA", "UTCHMMA", "UTCQMMA", "IMMA", "BGMMA")],
        *[(name, "global memory") for name in ("LDG", "STG", "UTMALDG", "UBLKCP", "LDGSTS", "RED", "LDC")],
        *[(name, "shared memory") for name in ("LDS", "STS", "LDSM", "SHFL", "LDTM")],
        *[
            (name, "floating point")
            for name in ("FFMA", "FFMA2", "MUFU", "HFMA2", "FADD", "FSETP", "DFMA", "I2F", "UFADD")
        ],
        *[(name, "synchronisation") for name in ("BAR", "SYNCS", "WARPSYNC", "DEPBAR", "FENCE", "UCGABAR_ARV")],
        *[(name, "control") for name in ("BRA", "EXIT", "BSSY", "NOP")],
        *[
            (name, "integer and moves")
            for name in ("MOV", "IADD3", "IMAD", "LOP3", "FLO", "UFLO", "R2UR", "UIADD3", "ISETP")
        ],
    ],
)
def test_opcodes_have_a_class(opcode: str, kind: str) -> None:
    assert opcode_class(opcode) == kind


def test_classes_count_every_instruction_of_real_code() -> None:
    for name in ("sm_80.exp.plain", "sm_100a.tcgen05.cutlass"):
        _, codes = golden(name)
        for sass in codes.values():
            counts = class_counts(sass.opcode_counts())
            assert tuple(counts) == CLASSES and sum(counts.values()) == len(sass.instructions)
