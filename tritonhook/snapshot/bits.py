"""What locked kernels store: their machine code is executed on the CPU, a few CTAs of each kernel's most frequent
launch, on the same seeded inputs each time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import Selected, selected
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError, listed
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.facts import Identity, KernelFacts
from tritonhook.verify.cpu import how_far, stored_by
from tritonhook.verify.differential import Case, case_of
from tritonhook.verify.judgement import Latitude

_HASH_DIGITS = 16
Launches = Mapping[str, Path]  # the record of a kernel's most frequent launch, by the capture's hash


def launches_in(folder: CaptureFolder) -> Launches:
    """Find the most frequent launch of each kernel."""
    kernels = (one for one in selected(folder, dry=True) if isinstance(one, Selected) and one.launches)
    return {one.capture.hash: one.launches[0].path for one in kernels}


def with_bits(
    captured: Sequence[tuple[Capture, KernelFacts]], launches: Launches
) -> tuple[list[tuple[Capture, KernelFacts]], list[str]]:
    """Add the hash of what each kernel stores. Also return notes on those of which it is not known."""
    made, unknown = [], dict[str, list[str]]()
    for capture, facts in captured:
        bits = None
        try:
            bits = _hash(_stored(capture, launches))
        except (TritonHookError, MemoryError) as error:
            unknown.setdefault(str(error) or type(error).__name__, []).append(facts.identity.kernel)
        made.append((capture, replace(facts, bits=bits)))
    return made, [f"bits not known of {listed(names)}: {why}" for why, names in unknown.items()]


def _case(capture: Capture, launches: Launches) -> Case:
    if (path := launches.get(capture.hash)) is None:
        raise UsageError("no launch of it was recorded")
    text = capture.text(Stage.PTX)
    return case_of(capture.kernel, read_launch(path), None, Ptx(text) if text else None, Latitude())


def _stored(capture: Capture, launches: Launches) -> tuple[bytes, ...]:
    image = capture.artifacts.get(Stage.CUBIN)
    if not isinstance(image, bytes):
        raise UsageError("there is no machine code of it")
    return stored_by(Cubin.from_bytes(image), _case(capture, launches))


def _hash(stored: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in stored)).hexdigest()[:_HASH_DIGITS]


def told_bits(
    changes: Sequence[Change], captures: Mapping[Identity, Capture], launches: Launches,
    text: Callable[[KernelFacts], str | None],
) -> Iterator[str]:  # fmt: skip
    """Write a note on each kernel whose bits changed: by how much, where the locked PTX can be assembled as it was.
    text: returns the PTX of a locked kernel."""
    for change in changes:
        if not change.bits_changed or change.old is None or change.new is None:
            continue
        told = f"{change.identity.text}: other bits, changed by {change.blame or 'other inputs: its code is the same'}"
        try:
            yield f"{told}: {_how_far(change.old, captures[change.identity], launches, text)}"
        except (TritonHookError, OSError, KeyError) as error:
            yield f"{told}: by how much is not known: {error}"


def _how_far(old: KernelFacts, capture: Capture, launches: Launches, text: Callable[[KernelFacts], str | None]) -> str:
    ptx, case = text(old), _case(capture, launches)
    if ptx is None or old.ptxas is None:
        raise UsageError("its PTX or its ptxas is not known")
    cubin = toolchain_of(find_ptxas(old.ptxas)).assemble_or_raise(Ptx(ptx), old.options or ()).cubin
    before = stored_by(cubin, replace(case, kernel=old.entry, launch=replace(case.launch, kernel=old.entry)))
    if _hash(before) != old.bits:
        raise UsageError("the launch is another one than was locked")
    return how_far(case.launch, before, _stored(capture, launches))
