"""Policies for CuTe kernels: whether a compiled kernel is the one that a policy knows, and the ptxas that made it.

The DSL's ptxas is part of its library, and reads the DSL's PTX at once. So a lever is applied before there is any PTX,
and PTX and machine code are compared with the policy's afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tritonhook.capture.cute.state import FRONT_END
from tritonhook.capture.model import Assembler
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptx.throughput_pragma import DIRECTIVE

if TYPE_CHECKING:
    from tritonhook.capture.policy.model import Entry, Policy

_RELEASE = re.compile(r"^// Cuda compilation tools, release .*V(\d+\.\d+\.\d+)", re.MULTILINE)


def entries_of(policy: Policy, own: str) -> tuple[Entry, ...]:
    """A policy's entries for CuTe kernels of this name."""
    return tuple(entry for entry in policy.of_kernel(own).entries if entry.front_end == FRONT_END)


def entry_of_code(policy: Policy, own: str, kernel: str, cubin: Cubin) -> Entry | None:
    """The entry whose code a kernel has; None if there is none. own: its own name; kernel: its name in the image."""
    entries = entries_of(policy, own)
    if not entries:
        return None
    code = summarise_image(cubin.data, {}).code_hash(kernel)
    return next((entry for entry in entries if entry.code == code), None)


def why_uncertified(policy: Policy, own: str, kernel: str, texts: Sequence[str], cubins: Sequence[Cubin]) -> str | None:
    """Why a policy's lever must not stay on a kernel that was compiled with it; None if it may, or is not the policy's.

    texts, cubins: what the DSL made.
    """
    entries = entries_of(policy, own)
    if not entries:
        return None
    text = next((text for text in texts if kernel in Ptx(text).entries), None)
    cubin = next((cubin for cubin in cubins if kernel in cubin.kernels), None)
    if text is None or cubin is None:
        return f"not known whether it is the kernel of {policy.path}: the DSL wrote no PTX of it"
    ptx = normal_sha256(text.replace(DIRECTIVE, ""), kernel)
    same = [entry for entry in entries if entry.ptx == ptx]
    if not same:
        return f"its PTX is not the one that {policy.path} knows"
    version = assembler_of(cubin, Ptx(text)).version
    if not any(entry.ptxas == version for entry in same):
        return f"{policy.path} was certified against ptxas {same[0].ptxas}, and the DSL's is {version or 'not known'}"
    if entry_of_code(policy, own, kernel, cubin) not in same:
        return f"its code is not the one that {policy.path} has for it"
    return None


def assembler_of(cubin: Cubin, ptx: Ptx | None) -> Assembler:
    """The ptxas inside the DSL's library, from its note in the cubin; the PTX names the same release."""
    version = cubin.ptxas_version
    if version is None and ptx is not None and (release := _RELEASE.search(ptx.text)):
        version = release[1]
    if cubin.ptxas_arguments is None:
        return Assembler(None, version, None)
    # The note has "-O 3", which ptxas does not accept: it must be "-O3".
    words = re.sub(r"(^|\s)-O (\d)", r"\1-O\2", cubin.ptxas_arguments)
    target = re.search(r"(?:^|\s)-arch (\w+)", words)
    if target is not None:
        words = f"{words[: target.start()]} {words[target.end() :]} --gpu-name={target[1]}"
    return Assembler(None, version, tuple(words.split()))
