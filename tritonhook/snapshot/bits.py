"""Hash the bits that kernels store, for the lock. A few CTAs of a kernel's most frequent launch are executed on the CPU
from machine code, each time with the same seeded inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tritonhook.capture.launches.record import Launch
from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.counted import launch_at
from tritonhook.snapshot.facts import Identity, KernelFacts
from tritonhook.verify.cpu import how_far, stored_by
from tritonhook.verify.differential import Case, case_of

_HASH_DIGITS = 16


def bits_of(capture: Capture, launch: Launch) -> str:
    """Return the hash of the bytes that a kernel stores. Raises CaptureError if the capture has no machine code, and
    the errors of stored_by."""
    return _hash(_stored(capture, launch))


def _case(capture: Capture, launch: Launch) -> Case:
    text = capture.text(Stage.PTX)
    return case_of(capture.kernel, launch, None, Ptx(text) if text else None)


def _stored(capture: Capture, launch: Launch) -> tuple[bytes, ...]:
    return stored_by(Cubin.from_bytes(capture.cubin, capture.kernel), _case(capture, launch))


def _hash(stored: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in stored)).hexdigest()[:_HASH_DIGITS]


def told_bits(
    changes: Sequence[Change], captures: Mapping[Identity, Capture], text: Callable[[KernelFacts], str | None]
) -> Iterator[str]:
    """Yield a note on each kernel whose bits changed, with the size of the difference if the locked PTX can be
    assembled again. captures: the new captures. text: returns the PTX of a locked kernel."""
    for change in changes:
        if not change.bits_changed or change.old is None or change.new is None:
            continue
        note = (
            f"{change.identity.text}: stores other bits, changed by "
            f"{change.blame or 'other inputs, as its code is the same'}"
        )
        try:
            yield f"{note}: {_how_far(change.old, change.new, captures[change.identity], text)}"
        except (TritonHookError, OSError, KeyError) as error:
            yield f"{note}; the size of the difference is not known: {error}"


def _how_far(old: KernelFacts, new: KernelFacts, capture: Capture, text: Callable[[KernelFacts], str | None]) -> str:
    ptx, launch = text(old), launch_at(new.place, new.launch).launch
    case = _case(capture, launch)
    if ptx is None or old.ptxas is None:
        raise UsageError("the locked PTX or its ptxas is not known")
    cubin = toolchain_of(find_ptxas(old.ptxas)).assemble_or_raise(Ptx(ptx), old.options or ()).cubin
    before = stored_by(cubin, replace(case, kernel=old.entry, launch=replace(launch, kernel=old.entry)))
    if _hash(before) != old.bits:
        raise UsageError("the launch differs from the locked one")
    return how_far(launch, before, _stored(capture, launch))
