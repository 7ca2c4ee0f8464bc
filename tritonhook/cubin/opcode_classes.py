"""Map SASS opcodes to classes of work (tensor, memory, control ...), for charts. Reading SASS is sass.py's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

# The first pattern that fits decides. Opcodes as nvdisasm prints them for sm_70 to sm_121.
_CLASSES = (
    ("tensor", r"[HIDQBO]MMA|[HIQB]GMMA|UTC.*MMA|WARPGROUP"),
    ("global memory", r"LD|LDG|ST|STG|LDL|STL|ATOM|ATOMG|RED|REDG|CCTL|LDC|LDCU|ULDC|UTMA.*|UBLK.*|LDGSTS|LDGDEPBAR"),
    ("shared memory", r"LDS|STS|LDSM|STSM|ATOMS|LDT|STT|LDTM|STTM|MOVM|UTCCP|SHFL|MATCH|UTCATOMSWS"),
    ("floating point", r"U?F(?!LO|ENCE).*|MUFU|H(?:ADD|MUL|FMA|SET|MNMX).*|D(?:ADD|MUL|FMA|SETP).*|U?I2F.*"),
    (
        "synchronisation",
        r"BAR|U?SYNCS.*|DEPBAR|MEMBAR|FENCE|WARPSYNC|NANOSLEEP|ERRBAR|ELECT|UTCBAR|UCGABAR.*|ACQBULK|ARRIVES|B2R|R2B",
    ),
    (
        "control",
        r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BPT|KILL|YIELD|NOP|BMOV|LEPC|PREEXIT|USETMAXREG",
    ),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
CLASSES = (*(name for name, _ in _CLASSES), "integer and moves")


@lru_cache(maxsize=4096)
def opcode_class(base_opcode: str) -> str:
    """The class of an opcode, one of CLASSES; without a fitting pattern it is integer arithmetic, logic or a move."""
    return next((name for name, pattern in _COMPILED if pattern.fullmatch(base_opcode)), CLASSES[-1])


def class_counts(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Count instructions per class; every class is present."""
    counts = dict.fromkeys(CLASSES, 0)
    for name, count in opcodes.items():
        counts[opcode_class(name)] += count
    return counts
