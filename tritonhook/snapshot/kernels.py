"""Captured kernels as Python objects, with figures as properties; and lists of kernels, to look up a kernel, to make
tables, and to compare."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, overload

from tritonhook._display import Brief, Notebook
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import fits, settings_of, titles
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.ids import is_id
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Occupancy, occupancy
from tritonhook.errors import UsageError, listed
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.snapshot.changes import Change, compare
from tritonhook.snapshot.facts import Identity, KernelFacts, identity_of
from tritonhook.snapshot.folders import facts_of

if TYPE_CHECKING:
    from tritonhook.emulate.counters.metrics import Counted

_COLUMNS = (
    "id", "name", "title", "arch", "ptxas", "registers", "spill_stores", "spill_loads", "stack", "shared",
    "instructions", "loop_instructions", "compile_time",
)  # fmt: skip


class CapturedKernel(Brief):
    """One compiled kernel. Unknown figures are None, never 0.

    capture: its stages, metadata and ptxas. id: the short name that commands accept; "" outside a capture folder.
    compile_time: seconds of its latest compile; None if it came from a cache. place: its folder; "" outside a capture
    folder.
    """

    _shown = ("text",)

    def __init__(self, capture: Capture, id: str = "", compile_time: float | None = None, place: str = "") -> None:
        self.capture, self.id, self.compile_time, self.place = capture, id, compile_time, place

    @cached_property
    def identity(self) -> Identity:
        """Name, architecture, front end and specialisation, which distinguish it from other kernels."""
        return identity_of(self.capture)

    @cached_property
    def facts(self) -> KernelFacts:
        """The facts that a lock would contain. Raises CubinError if its cubin cannot be read, and ToolError without
        nvdisasm."""
        (facts,) = facts_of([self.capture])
        return facts

    @property
    def name(self) -> str:
        """The kernel's original name, without a prefix that tritonhook added."""
        return self.identity.kernel

    @property
    def arch(self) -> str:
        """Target architecture, e.g. "sm_90a"."""
        return self.identity.arch

    @property
    def specialisation(self) -> tuple[str, ...]:
        """Constexprs, argument types, warps and stages, e.g. "BLOCK=128" and "num_warps=4"."""
        return self.identity.specialisation

    @property
    def configuration(self) -> dict[str, str]:
        """The values that an autotuner varies, by name: constexprs, num_warps, num_stages, num_ctas, maxnreg."""
        return settings_of(self.capture.options)

    @property
    def text(self) -> str:
        """Name, architecture and specialisation."""
        return self.identity.text

    @property
    def spills(self) -> int | None:
        """Bytes of spill stores and spill loads per thread, added up."""
        stores, loads = self.spill_stores, self.spill_loads
        return None if stores is None or loads is None else stores + loads

    @property
    def spill_stores(self) -> int | None:
        """Bytes of spill stores per thread."""
        return self.facts.figures["spill_stores"]

    @property
    def spill_loads(self) -> int | None:
        """Bytes of spill loads per thread."""
        return self.facts.figures["spill_loads"]

    @property
    def stack(self) -> int | None:
        """Bytes of stack per thread."""
        return self.facts.figures["stack"]

    @property
    def registers(self) -> int | None:
        """Registers per thread."""
        return self.facts.figures["registers"]

    @property
    def shared(self) -> int | None:
        """Bytes of shared memory per block, including the launch's dynamic part."""
        return self.facts.figures["shared"]

    @property
    def instructions(self) -> int | None:
        """Number of instructions in the machine code."""
        return self.facts.figures["instructions"]

    @property
    def loop_instructions(self) -> int | None:
        """Number of instructions in innermost loops."""
        return self.facts.figures["loop_instructions"]

    @property
    def occupancy(self) -> Occupancy | None:
        """Blocks and warps that an SM can hold; None if not known."""
        return occupancy(self.arch, self.registers, self.facts.threads, self.shared, self.facts.dynamic_shared)

    @property
    def classes(self) -> dict[str, int]:
        """Number of instructions by class of work, e.g. "tensor"."""
        return dict(self.facts.classes)

    @cached_property
    def counters(self) -> Counted:
        """Nsight Compute's counters for its most frequent launch, which is executed on the CPU. Raises UsageError if no
        launch was recorded, and the errors of counted.count_launch."""
        from tritonhook.snapshot.counted import count_launch, launch_at

        if not self.place:
            raise UsageError(f"{self.name}: has no recorded launches, as it does not come from a capture folder")
        return count_launch(self.capture, launch_at(self.place))

    @property
    def ptxas(self) -> str | None:
        """Version of the ptxas that assembled it."""
        return self.facts.ptxas

    @property
    def ptx(self) -> str | None:
        """The text of its PTX."""
        return self.capture.text(Stage.PTX)

    @property
    def artifacts(self) -> Mapping[Stage, str | bytes]:
        """Text or bytes of each stage."""
        return self.capture.artifacts


class Kernels(Notebook, Sequence[CapturedKernel]):
    """A list of captured kernels; `kernels["matmul[BM=64]"]` looks one up by name and configuration."""

    def __init__(self, folder: CaptureFolder, captures: Mapping[str, Capture]) -> None:
        """Make the list, with ids and compile times from the folder. captures: record in the folder -> capture."""
        self._kernels = []
        for record, capture in captures.items():
            us = sum(folder.compile_us(record).values())
            place = f"{folder.path}/kernels/{record}"
            self._kernels.append(CapturedKernel(capture, folder.ids[record], us / 1e6 or None, place))

    @overload
    def __getitem__(self, wanted: int | str) -> CapturedKernel: ...
    @overload
    def __getitem__(self, wanted: slice) -> list[CapturedKernel]: ...
    def __getitem__(self, wanted: int | str | slice) -> CapturedKernel | list[CapturedKernel]:
        """Look up a kernel by index, by at least four digits of its id, or by name. Add the part of the configuration
        that makes the name unique. Raises KeyError, whose message lists the kernels."""
        if not isinstance(wanted, str):
            return self._kernels[wanted]
        fitting = [k for k in self._kernels if k.id and is_id(wanted) and k.id.startswith(wanted)]
        fitting = fitting or [k for k in self._kernels if fits(wanted, k.capture.kernel, k.capture.options)]
        if len(fitting) != 1:
            known = listed([f"{k.id}  {self.titles[k.id]}" for k in fitting or self._kernels], "\n  ")
            raise KeyError(f"{wanted}: {len(fitting) or 'no'} kernels; known are:\n  {known}")
        return fitting[0]

    def __len__(self) -> int:
        return len(self._kernels)

    def __repr__(self) -> str:
        return f"Kernels({listed(list(self.titles.values()))})"

    @property
    def titles(self) -> dict[str, str]:
        """Title of each kernel by id: the name, with the configuration if the name is not unique."""
        return titles({kernel.id: (kernel.name, kernel.arch, kernel.configuration) for kernel in self._kernels})

    @cached_property
    def facts(self) -> list[KernelFacts]:
        """The facts of all kernels, read together."""
        all_facts = facts_of([kernel.capture for kernel in self._kernels])
        for kernel, facts in zip(self._kernels, all_facts, strict=True):
            kernel.facts = facts
        return all_facts

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a dict for each kernel: id, title, identity, figures, and the values of the configuration. The names of
        these values begin with a dot."""
        called, _ = self.titles, self.facts
        for kernel in self._kernels:
            own = {name: called[kernel.id] if name == "title" else getattr(kernel, name) for name in _COLUMNS}
            yield own | {f".{name}": value for name, value in kernel.configuration.items()}

    def to_dataframe(self) -> Any:
        """Return the rows as a DataFrame of pandas, else of polars. Raises UsageError if neither is installed."""
        module = next((name for name in ("pandas", "polars") if find_spec(name)), None)
        if module is None:
            raise UsageError("to_dataframe needs pandas or polars; `pip install pandas`, or use rows()")
        from importlib import import_module

        return import_module(module).DataFrame(list(self.rows()))


def load(folder: str | os.PathLike[str]) -> Kernels:
    """Read the kernels of a capture folder: those of the latest run of each command, without losers of an autotuning.
    Raises CaptureError."""
    opened = CaptureFolder.open(folder).latest()
    return Kernels(opened, {record: opened.capture(record) for record in opened.running})


@overload
def diff(a: CapturedKernel, b: CapturedKernel) -> CubinDiff: ...
@overload
def diff(a: Kernels, b: Kernels) -> list[Change]: ...
def diff(a: CapturedKernel | Kernels, b: CapturedKernel | Kernels) -> CubinDiff | list[Change]:
    """Compare the machine code of two captured kernels; or compare the kernels of two folders, the worst change
    first."""
    if isinstance(a, CapturedKernel) and isinstance(b, CapturedKernel):
        images = [Cubin.from_bytes(kernel.capture.cubin, kernel.text) for kernel in (a, b)]
        return diff_cubins(images[0], images[1], reading_toolchain(), a.capture.kernel, b.capture.kernel)
    if isinstance(a, Kernels) and isinstance(b, Kernels):
        return compare(a.facts, b.facts)
    raise UsageError("diff: give two captured kernels, or two results of tritonhook.load()")
