"""Read the memory semantics of a PTX instruction from its opcode: strength, scope, acquire, release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

WEAK, CTA, CLUSTER, GPU, SYSTEM = range(5)
_SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "gl": GPU, "sys": SYSTEM}
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "cv", "wt"}
_OPCODE = re.compile(r"(?:@!?[\w%$]+\s+)?([\w.:]+)")


@dataclass(frozen=True, slots=True)
class Semantics:
    """Memory semantics of an instruction. scope: of a strong access or a fence; WEAK for other instructions.
    is_constant: it is `ld.global.nc`. is_relaxed: it is a barrier that orders only accesses before a fence.
    is_of_warps: its lanes wait for one another."""

    scope: int = WEAK
    acquires: bool = False
    releases: bool = False
    is_constant: bool = False
    is_relaxed: bool = False
    is_of_warps: bool = False


@cache
def semantics(text: str) -> Semantics | None:
    """Read the semantics of an instruction's text; None if it accesses no memory that others can write."""
    match = _OPCODE.match(text.strip())
    name, *parts = match[1].split(".") if match is not None else [""]
    how = set(parts)
    if how & {"param", "const", "local"} or any(one.startswith("param::") for one in parts):
        return None
    is_fence = name in ("membar", "fence")
    if not (name in ("atom", "red") or is_fence or (name in ("ld", "st") and how & _STRONG)):
        is_relaxed = "barrier" in name and "relaxed" in how
        return Semantics(is_constant="nc" in how, is_relaxed=is_relaxed, is_of_warps=name in ("ldmatrix", "stmatrix"))
    default = SYSTEM if how & {"volatile", "mmio", "cv", "wt"} else GPU
    scope = next((_SCOPES[one] for one in parts if one in _SCOPES), default)
    return Semantics(
        scope,
        is_fence or bool(how & {"acquire", "acq_rel"}),
        is_fence or bool(how & {"release", "acq_rel"}),
    )
