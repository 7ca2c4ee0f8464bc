"""Stage, Assembler and Capture: one kernel at every stage of the compile pipeline, with the ptxas and the options that
made its machine code. They only contain values; `store` writes them to disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from tritonhook._display import Brief, Notebook
from tritonhook.errors import CaptureError
from tritonhook.ptx.module import Ptx

# Keys that tritonhook adds to a capture's metadata.
META_LEVER = "tritonhook_lever"  # the lever that a policy applied to the kernel, e.g. "ptxas=13.5.37"
META_REWRITES = "tritonhook_rewrites"  # the rewrites that changed its PTX
META_DRY_RUN = "tritonhook_dry_run"  # true: the kernel was compiled in a dry run, and not launched
_FRONT_ENDS = {"cute": "CuTe DSL"}  # display name by front end, if it differs


def front_end_name(front_end: str) -> str:
    """Return a front end's display name."""
    return _FRONT_ENDS.get(front_end, front_end)


class Stage(str, Enum):
    """The stages of Triton's NVIDIA and AMD pipelines. The values are file extensions in Triton's cache."""

    TTIR = "ttir"
    GLIR = "glir"
    TTGIR = "ttgir"
    LLIR = "llir"
    PTX = "ptx"
    CUBIN = "cubin"
    AMDGCN = "amdgcn"
    HSACO = "hsaco"

    @property
    def is_binary(self) -> bool:
        return self in (Stage.CUBIN, Stage.HSACO)


def is_binary_only(stages: Collection[Stage]) -> bool:
    """Check whether only machine code is available, as in a cache written with TRITON_STORE_BINARY_ONLY."""
    return bool(stages) and all(stage.is_binary for stage in stages)


def dry_run_note(captures: Iterable[Capture]) -> list[str]:
    """Return a list with one note if any of the kernels come from a dry run, else an empty list."""
    dry = [capture.dry_run for capture in captures]
    some = "" if all(dry) else f"{sum(dry)} of {len(dry)} kernels: "
    return [f"{some}dry run: compiled, not launched"] if any(dry) else []


@dataclass(frozen=True, slots=True, repr=False)
class Assembler(Brief):
    """The ptxas that made a cubin, and its command line. Unknown fields are None.

    version: e.g. "12.8.93". arguments: options without input and output file, e.g. ("-lineinfo", "-v",
    "--gpu-name=sm_90a").
    """

    path: str | None = None
    version: str | None = None
    arguments: tuple[str, ...] | None = None

    @property
    def options(self) -> tuple[str, ...] | None:
        """The arguments without --gpu-name, because the PTX names its target; None if not known."""
        return None if self.arguments is None else tuple(a for a in self.arguments if not a.startswith("--gpu-name"))


@dataclass(frozen=True, slots=True, repr=False)
class Capture(Notebook):
    """One compiled kernel.

    kernel: the name of its entry point at the launch. hash: Triton's compile hash. arch: e.g. "sm_90a" or "gfx942".
    artifacts: text or bytes of each available stage; only the binary with TRITON_STORE_BINARY_ONLY. options: all inputs
    besides the source that change the code: constexprs (`constants`), `fp_fusion`, `line_info`, `num_warps`, `maxnreg`
    ... metadata: all of Triton's metadata of the kernel, as JSON values. cache_hit: True if it came from Triton's disk
    cache; None if not known. rewritten_from: the kernel's own name, if tritonhook renamed it. note: reason why an
    artifact is missing, or why a rewrite changed nothing. compile_us: microseconds of each compiler stage, if this
    process has just compiled the kernel. sources: text of each source file that the PTX names, as it was at compile
    time; files of unknown text are omitted.
    """

    _shown: ClassVar[tuple[str, ...]] = ("kernel", "arch", "hash", "artifacts", "cache_hit")

    kernel: str
    hash: str
    arch: str
    artifacts: Mapping[Stage, str | bytes]
    assembler: Assembler = field(default_factory=Assembler)
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cache_hit: bool | None = None
    rewritten_from: str | None = None
    note: str | None = None
    compile_us: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def binary_only(self) -> bool:
        """True if only machine code is available."""
        return is_binary_only(self.artifacts)

    @property
    def front_end(self) -> str:
        """The compiler of the kernel: "Triton", "cute", or the program that called ptxas, e.g. "nvcc"."""
        return str(self.metadata.get("front_end") or "Triton")

    @property
    def dry_run(self) -> bool:
        """True if the kernel was compiled in a dry run. It was not launched: recorded buffers hold no GPU results."""
        return bool(self.metadata.get(META_DRY_RUN))

    @property
    def lever(self) -> str | None:
        """The lever that a policy applied, e.g. "ptxas=13.5.37"; None if no policy changed the kernel."""
        lever = self.metadata.get(META_LEVER)
        return lever if isinstance(lever, str) else None

    @property
    def rewrites(self) -> str | None:
        """The rewrites, other than renames, that changed the PTX, e.g. "mma-throughput"; None if there are none."""
        rewrites = self.metadata.get(META_REWRITES)
        return rewrites if isinstance(rewrites, str) else None

    def text(self, stage: Stage) -> str | None:
        """Return the text of a stage; None if the capture has none. Raises CaptureError if it cannot be read from
        disk."""
        text = self.artifacts.get(stage)
        return text.rstrip("\0") if isinstance(text, str) else None

    @property
    def ptx(self) -> Ptx:
        """The PTX module. Raises CaptureError if the capture has none."""
        text = self.text(Stage.PTX)
        if text is None:
            raise CaptureError(f"{self.kernel}: no PTX in the capture; {self.note or 'it was not available'}")
        return Ptx(text)

    @property
    def cubin(self) -> bytes:
        """The cubin file. Raises CaptureError if the capture has none."""
        data = self.artifacts.get(Stage.CUBIN)
        if not isinstance(data, bytes):
            raise CaptureError(f"{self.kernel}: no cubin in the capture; {self.note or 'it was not available'}")
        return data
