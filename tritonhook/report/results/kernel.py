"""What results say of every captured kernel, and reading it from captures, each module once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tritonhook._util.schema import Count, Fields, like
from tritonhook.capture.figures import KernelResources, resources_of
from tritonhook.capture.model import Capture, Stage, front_end_name
from tritonhook.capture.store import by_module
from tritonhook.capture.store.schema import KernelRecord, Ptxas
from tritonhook.cubin.occupancy import WARP, Occupancy, occupancy
from tritonhook.errors import CaptureError, TritonHookError
from tritonhook.ptx.triggers import Trigger, triggers_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.report.format import UNKNOWN, flat, number, short, size, spills


class ResourceFields(Fields):
    """What a kernel needs; null: not known.

    registers: per thread. stack: bytes per thread. spill_stores, spill_loads: bytes, as `ptxas -v` prints them.
    local_stores, local_loads: bytes of all instructions that access local memory; spills are among them. shared: static
    bytes per block. dynamic_shared: bytes that a launch adds. instructions, code_bytes: with the padding at the end.
    threads: of a block. arch: that occupancy is of.
    """

    registers: Count | None
    stack: Count | None
    spill_stores: Count | None
    spill_loads: Count | None
    local_stores: Count | None
    local_loads: Count | None
    shared: Count | None
    dynamic_shared: Count | None
    instructions: Count | None
    code_bytes: Count
    threads: Count | UnsetType = UNSET
    arch: str | UnsetType = UNSET

    @property
    def spills(self) -> str:
        return spills(self.spill_stores, self.spill_loads)

    @property
    def shared_memory(self) -> str:
        """Bytes of shared memory; "1,024+" where the launch may add some that is not known here."""
        if self.shared is None:
            return UNKNOWN
        if self.dynamic_shared is None:
            return f"{number(self.shared)}+"
        return number(self.shared + self.dynamic_shared)

    @property
    def occupancy(self) -> Occupancy | None:
        """What an SM holds of it at a time."""
        if self.shared is None or self.dynamic_shared is None:
            return None
        return occupancy(self.arch or "", self.registers, self.threads or None, self.shared + self.dynamic_shared)

    @property
    def rows(self) -> Iterator[tuple[str, str]]:
        """In words, one by one."""
        yield "registers", number(self.registers)
        yield "stack", number(self.stack, "bytes")
        yield "spill stores", number(self.spill_stores, "bytes")
        yield "spill loads", number(self.spill_loads, "bytes")
        if self.spill_stores is None and self.local_stores is not None:
            stores, loads = number(self.local_stores), number(self.local_loads)
            yield "local memory", f"{stores} bytes stored, {loads} loaded: spills, or variables of the kernel"
        yield "shared memory", f"{self.shared_memory} bytes"
        if held := self.occupancy:
            yield "occupancy", f"{held.text}, on {self.arch}"
        yield "instructions", f"{number(self.instructions)} ({size(self.code_bytes)})"


class KernelFields(KernelRecord, kw_only=True):
    """What the documents of captures say of a kernel. stages: what was kept. trigger: what makes ptxas take its other
    scheduler. resources: null without a cubin."""

    stages: tuple[str, ...]
    trigger: Trigger
    resources: ResourceFields | None

    @property
    def front_end(self) -> str:
        """The compiler's name: Triton, or what called ptxas."""
        return front_end_name(str(self.metadata.get("front_end") or "Triton"))

    @property
    def kept(self) -> str:
        """What was kept of it, from source to machine code."""
        return "binary only" if self.stages == (Stage.CUBIN.value,) else " ".join(self.stages)

    @property
    def option_rows(self) -> Iterator[tuple[str, str]]:
        """What decides the code besides the source."""
        for name, value in flat(self.options):
            yield name if "." in name else name.replace("_", " "), short(value, 400)


@dataclass
class KernelsRead:
    """Kernels as documents tell of them, by record; an error, if its PTX cannot be read from disk.

    unread: by the error of a cubin that cannot be read, its records. modules: for each kernel the text of its PTX, and
    the version of its ptxas and its level.
    """

    kernels: dict[str, KernelFields | CaptureError] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)
    modules: list[tuple[str | None, str | None, str]] = field(default_factory=list)

    @classmethod
    def of(cls, captures: Mapping[str, Capture]) -> KernelsRead:
        read = cls()
        for module in by_module(captures):
            read.add(module)
        return cls({record: read.kernels[record] for record in captures}, read.unread, read.modules)

    def add(self, module: Mapping[str, Capture]) -> None:
        """Read kernels that share their files."""
        first = next(iter(module.values()))
        version = first.assembler.version
        try:
            ptx = first.text(Stage.PTX)
        except CaptureError as error:
            self.kernels |= dict.fromkeys(module, error)
            return
        self.modules += [(ptx, version, level_of(first.assembler.options))] * len(module)
        triggers = triggers_of([capture.kernel for capture in module.values()], ptx, version)
        resources = resources_of(module, ptx)
        for record, capture in module.items():
            own = resources[record]
            if isinstance(own, TritonHookError):
                self.unread.setdefault(str(own), []).append(record)
            known = like(own, ResourceFields) if isinstance(own, KernelResources) else None
            if known is not None:
                known = replace(known, threads=_threads(capture), arch=capture.arch)
            self.kernels[record] = _fields(capture, triggers[capture.kernel], known)


def _threads(capture: Capture) -> int | UnsetType:
    """Of a block of one of Triton's kernels; the launch decides it elsewhere."""
    warps = capture.options.get("num_warps")
    return warps * WARP if isinstance(warps, int) and warps > 0 else UNSET


def _fields(capture: Capture, trigger: Trigger, resources: ResourceFields | None) -> KernelFields:
    assembler = capture.assembler
    arguments = None if assembler.arguments is None else list(assembler.arguments)
    return like(
        capture,
        KernelFields,
        ptxas=Ptxas(assembler.path, assembler.version, arguments),
        stages=tuple(stage.value for stage in capture.artifacts),
        trigger=trigger,
        resources=resources,
    )


def kernel_fields(capture: Capture) -> KernelFields:
    """What documents say of one kernel. Raises CaptureError if its PTX cannot be read."""
    return only(KernelsRead.of({capture.kernel: capture}))


def only(read: KernelsRead) -> KernelFields:
    (kernel,) = read.kernels.values()
    if isinstance(kernel, CaptureError):
        raise kernel
    return kernel
