"""Facts of one compiled kernel: its figures, and the identity by which another compile of it is recognised.

Facts of kernels in built libraries come from their cubins alone, without a disassembler, ptxas or PTX. Budgets are
limits of registers and spills for kernels, by globs of their names; they do not depend on a lock.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import Capture, Stage
from tritonhook.cubin.elf import kernel_names, read_elf
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import Image, loaded_of, loaded_parts
from tritonhook.cubin.resources import dynamic_shared, launch_shared, proven_spills, stackless_in
from tritonhook.cubin.sass import Sass, class_counts
from tritonhook.cubin.shipped import ShippedFile, shipped_files
from tritonhook.cubin.summary import ImageSummary, summarise_image
from tritonhook.errors import CubinError, UsageError, listed
from tritonhook.ptx.normal_form import lasting_name, normal_form, source_file, without_hashes, without_positions

# The figures, most important first.
COUNTED = ("spill_stores", "spill_loads", "stack", "registers", "shared", "instructions", "loop_instructions")
# Counters of a launch executed on the CPU: executed warp instructions, requested sectors, excess wavefronts.
COUNTERS = ("executed", "sectors", "conflicts")
# Built libraries have these two figures instead of instruction counts. local_bytes: bytes of local memory that the load
# and store instructions of the code access, per thread. code_bytes: size of the code.
FIGURES = (*COUNTED, "local_bytes", "code_bytes", *COUNTERS)
BUILT = "built"  # front end of kernels that are read from a built library
T = TypeVar("T")
_SPECIALISES = ("num_warps", "num_ctas", "num_stages", "maxnreg")
_SIGNATURE = re.compile(r"tt\.func public @[\w$]+\(([^{]*?(?:\{[^}]*\}[^{]*?)*)\) attributes")
_ARGUMENT = re.compile(r"%[\w$.-]+: (!?[\w.]+(?:<[^>%]*>+)?(?: \{[^}%]*\})?)")
_HASH_DIGITS = 16  # hex digits

Disassemble = Callable[[Sequence[tuple[Cubin, str]]], Sequence[Sass]]  # takes many kernels at a time


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Identity of a kernel, which stays the same when the kernel is compiled again.

    kernel: its original name, without the parts that compilers change from build to build. arch: e.g. "sm_90a".
    specialisation: constexprs, argument types, warps, stages, each as "name=value", sorted. number: 1, 2 ... for
    kernels of a folder that are otherwise equal.
    """

    kernel: str
    arch: str
    front_end: str
    specialisation: tuple[str, ...] = ()
    number: int = 1

    @property
    def lasting(self) -> tuple[str, str, str]:
        """The part of the identity that does not depend on the configuration."""
        return self.kernel, self.arch, self.front_end

    @property
    def text(self) -> str:
        further = () if self.number == 1 else (f"#{self.number}",)
        return " ".join((self.kernel, self.arch, *self.specialisation, *further))


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One compiled kernel.

    entry: its name in the PTX, which a rewrite may have changed. stages: hash of the compiler's output at each stage,
    in order. ptx_sha256: hash of the PTX without source positions; None without PTX. ptxas, options: version and
    options of the ptxas that assembled it; None if not known. codes: hashes of the machine code; several if ptxas is
    not deterministic for it. figures: values by names in FIGURES; None if not known. classes: instructions by class of
    work. threads: threads per block; None if not known. launch_bounds: see cubin.resources.Resources. loaded: hashes of
    the other data that the driver loads, see cubin.loaded; empty: not known. dynamic_shared: bytes of dynamic shared
    memory per launch; included in the figure `shared`. failure: why ptxas made no code; "" if it did. ran_again: True
    if the spills come from one more run of its ptxas, which made the same code. rewrites: the change of its PTX, by a
    policy or by rewrites; None if it was not changed. compile_us: compile time in microseconds; None if not known, as
    in a lock. dry_run: True if it was compiled without a GPU and not launched. configuration: the configuration of an
    autotuner that tried several, as Triton prints it. commands: the scripts, modules or programs that compiled it;
    empty: not known. bits: hash of the bytes that it stores for seeded inputs, see bits.py; None: not known. launch:
    shape of the launch that was executed for `bits` and for the figures in COUNTERS; "": none. place: its folder in a
    capture folder; "": not known.
    """

    identity: Identity
    entry: str
    stages: Mapping[str, str]
    ptx_sha256: str | None
    ptxas: str | None
    options: tuple[str, ...] | None
    codes: tuple[str, ...]
    figures: Mapping[str, int | None]
    classes: Mapping[str, int] = field(default_factory=dict)
    threads: int | None = None
    launch_bounds: tuple[str, ...] = ()
    loaded: Mapping[str, str] = field(default_factory=dict)
    dynamic_shared: int = 0
    failure: str = ""
    ran_again: bool = False
    rewrites: str | None = None
    compile_us: int | None = None
    dry_run: bool = False
    configuration: str | None = None
    commands: tuple[str, ...] = ()
    bits: str | None = None
    launch: str = ""
    place: str = ""

    @property
    def is_counted(self) -> bool:
        return self.figures.get(COUNTERS[0]) is not None


def identity_of(capture: Capture) -> Identity:
    constants = capture.options.get("constants") or {}
    texts = [f"{name}={_shown(value)}" for name, value in constants.items()]
    texts += [f"{name}={value}" for name in _SPECIALISES if (value := capture.options.get(name)) is not None]
    if types := _argument_types(capture):
        texts.append(f"({', '.join(types)})")
    name = capture.rewritten_from or capture.kernel
    if (file := source_file(name)) is not None:
        texts.append(f"file={file}")
    return Identity(lasting_name(name), capture.arch, capture.front_end, tuple(sorted(map(str, texts))))


def _shown(value: Any) -> str:
    return str(value["cls"]) if isinstance(value, Mapping) and "cls" in value else str(value)


def _argument_types(capture: Capture) -> tuple[str, ...]:
    """Return the types of a Triton kernel's arguments, with properties of their values such as divisibility."""
    text = capture.text(Stage.TTIR) or capture.text(Stage.TTGIR) or ""
    text = re.sub(r' loc\("[^"]*"\(#\w+\)\)', "", text)
    match = _SIGNATURE.match(text, max(text.find("tt.func public @"), 0))  # search() would take quadratic time
    return tuple(map(_short_type, _ARGUMENT.findall(match[1]))) if match else ()


def _short_type(text: str) -> str:
    """Shorten a type: "!tt.ptr<f16> {tt.divisibility = 16 : i32}" becomes "*f16:16"."""
    text = re.sub(r"!tt\.ptr<([\w.]+)>", r"*\1", text)
    text = re.sub(r"\A!tt\.tensordesc<tensor<(.*)>>", r"!tt.tensordesc<\1>", text)  # as Triton before 3.8 wrote it
    return re.sub(r" \{tt\.divisibility = (\d+) : i32\}", r":\1", text)


def without_stages(capture: Capture) -> KernelFacts:
    """Read a capture's facts, without stages and instruction counts. Raises CaptureError or CubinError if the capture
    is damaged."""
    text = capture.text(Stage.PTX)
    facts = KernelFacts(
        identity=identity_of(capture),
        entry=capture.kernel,
        stages={},
        ptx_sha256=None if text is None else sha256(without_positions(text)),
        ptxas=capture.assembler.version,
        options=capture.assembler.options,
        codes=(),
        figures=dict.fromkeys(FIGURES),
        dynamic_shared=dynamic_shared(capture.metadata.get("shared"), text) or 0,
        rewrites=capture.lever or capture.rewrites,
        dry_run=capture.dry_run,
    )
    if isinstance(other := capture.artifacts.get(Stage.HSACO), bytes):  # of AMD's code, only the hash is compared
        return replace(facts, codes=(hashlib.sha256(other).hexdigest()[:_HASH_DIGITS],))
    if Stage.CUBIN not in capture.artifacts:
        return facts
    return with_image(facts, summarise_image(capture.cubin, {}), capture.cubin, capture.kernel, text)


def with_image(
    facts: KernelFacts, image: ImageSummary, cubin: bytes | None, kernel: str, ptx: str | None
) -> KernelFacts:
    """Add the code hash and figures of an image to the facts; instructions are not counted. cubin: the image's bytes,
    or None. ptx: the image's PTX, or None."""
    resources = image.kernel(kernel)
    stores, loads = proven_spills(kernel, resources, stackless_in(ptx))
    shared = launch_shared(resources.shared, facts.dynamic_shared)
    known = {"registers": resources.registers, "stack": resources.stack, "shared": shared}
    known |= {"spill_stores": stores, "spill_loads": loads}
    return replace(
        facts,
        codes=(image.code_hash(kernel),),
        figures=dict.fromkeys(FIGURES) | known,
        classes={},
        loaded={} if cubin is None else loaded_of(cubin, kernel),
    )


def with_code(facts: Sequence[KernelFacts], cubin: Cubin, kernel: str, sass: Sass) -> list[KernelFacts]:
    """Add instruction counts to the facts of kernels that have this code."""
    loops = sum(len(loop.instructions) for loop in sass.innermost_loops)
    counted = {"instructions": len(sass.instructions), "loop_instructions": loops}
    classes, resources = class_counts(sass.opcode_counts()), cubin.resources[kernel]
    return [
        replace(
            fact,
            figures={**fact.figures, **counted},
            classes=classes,
            threads=resources.threads,
            launch_bounds=resources.launch_bounds,
        )
        for fact in facts
    ]


def numbered(kernels: Sequence[tuple[T, KernelFacts]]) -> list[tuple[T, KernelFacts]]:
    """Sort kernels by identity, and number kernels with equal identities. Kernels that also have equal PTX and code
    count as one kernel, compiled twice."""
    counts: dict[Identity, int] = {}
    seen: dict[tuple[Identity, str | None, tuple[str, ...]], tuple[T, KernelFacts]] = {}
    for capture, facts in sorted(kernels, key=lambda it: (it[1].identity, it[1].ptx_sha256 or "", it[1].codes)):
        key = facts.identity, facts.ptx_sha256, facts.codes
        if key not in seen:
            number = counts[facts.identity] = counts.get(facts.identity, 0) + 1
            seen[key] = capture, replace(facts, identity=replace(facts.identity, number=number))
    return list(seen.values())


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- hashes of the stages -------------------------------------------------------------------------


ORDER = (Stage.TTIR, Stage.GLIR, Stage.TTGIR, Stage.LLIR, Stage.PTX)
# The tool that makes each stage of Triton's pipeline from the previous stage.
MAKERS = {
    "ttir": "the source, or Triton's front end",
    "glir": "the source, or Gluon's front end",
    "ttgir": "Triton's passes",
    "llir": "Triton's lowering to LLVM",
    "ptx": "LLVM",
}
_LOCATION = re.compile(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*"|\((?:[^()"]|"(?:[^"\\]|\\.)*"|\([^()]*\))*\))*\)')
_NAMED_LOCATION = re.compile(r" loc\(#\w+\)")  # matches nearly all locations
_VALUE = re.compile(r"(%[\w$.-]+)", re.ASCII)
_DEBUG_USE = re.compile(r", !(?:dbg|tbaa|noalias|alias\.scope) ![\w.]+")
_DEBUG_OF_FUNCTION = re.compile(r" !dbg ![\w.]+")


def stage_hashes(capture: Capture) -> dict[str, str]:
    """Compute the hash of each stage's text in the capture, in the order of the pipeline."""
    hashes = {}
    for stage in ORDER:
        if (text := capture.text(stage)) is not None:
            normal = without_hashes(normalised(stage, text).replace(capture.kernel, "{kernel}"))
            hashes[stage.value] = hashlib.sha256(normal.encode()).hexdigest()[:_HASH_DIGITS]
    return hashes


def normalised(stage: Stage, text: str) -> str:
    """Remove source positions and comments from the text of a stage, and renumber its values."""
    if stage is Stage.PTX:
        return normal_form(text)
    return _llvm(text) if stage is Stage.LLIR else _mlir(text)


def _mlir(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(("#loc", "//"))]
    text = _NAMED_LOCATION.sub("", "\n".join(lines))
    return _numbered(_LOCATION.sub("", text) if " loc(" in text else text)


def _llvm(text: str) -> str:
    dropped = ("!", ";", "source_filename", "    #dbg")
    lines = [line for line in text.splitlines() if line and not line.startswith(dropped)]
    return _numbered(_DEBUG_OF_FUNCTION.sub("", _DEBUG_USE.sub("", "\n".join(lines))))


def _numbered(text: str) -> str:
    """Renumber the values (%name) in a text in order of appearance."""
    parts = _VALUE.split(text)  # values are at odd indices
    numbers = {value: f"%{number}" for number, value in enumerate(dict.fromkeys(parts[1::2]))}
    parts[1::2] = [numbers[value] for value in parts[1::2]]
    return "".join(parts)


# --- budgets --------------------------------------------------------------------------------------


_ALL = "*"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits for kernels. max_registers: limit by glob; the first glob that matches a kernel's name counts.
    allow_spills: globs of the kernels that may spill; None: spills have no budget. A glob matches the mangled or the
    demangled name."""

    max_registers: Mapping[str, int] = field(default_factory=dict)
    allow_spills: tuple[str, ...] | None = None

    @classmethod
    def of(cls, max_registers: int | Mapping[str, int] | None, allow_spills: list[str] | None) -> Budgets:
        """Make budgets from the fields in TOML; a single number is the limit for all kernels."""
        registers = {_ALL: max_registers} if isinstance(max_registers, int) else dict(max_registers or {})
        return cls(registers, None if allow_spills is None else tuple(allow_spills))

    def before(self, other: Budgets) -> Budgets:
        """Merge two budgets; these limits take precedence over the other's."""
        spills = other.allow_spills if self.allow_spills is None else self.allow_spills
        return Budgets({**self.max_registers, **other.max_registers, **self.max_registers}, spills)

    @property
    def values(self) -> dict[str, Any]:
        """Return the budgets as fields for TOML; unset fields are omitted."""
        registers = self.max_registers.get(_ALL) if list(self.max_registers) == [_ALL] else dict(self.max_registers)
        values: dict[str, Any] = {"max_registers": registers or None}
        values["allow_spills"] = None if self.allow_spills is None else list(self.allow_spills)
        return {name: value for name, value in values.items() if value is not None}

    def registers_of(self, kernel: KernelFacts) -> int | None:
        """Return the register limit of a kernel; None without a budget."""
        return next((most for glob, most in self.max_registers.items() if _fits(glob, kernel)), None)

    def is_over(self, what: str, kernel: KernelFacts) -> bool | None:
        """Return True if a kernel exceeds its budget of registers or spills; None without a budget. An unknown value
        exceeds the budget. what: "registers" or "spills"; other figures have no budget."""
        if what == "registers" and (most := self.registers_of(kernel)) is not None:
            registers = kernel.figures.get("registers")
            return registers is None or registers > most
        if what == "spills" and self.allow_spills is not None:
            spills = [kernel.figures.get(name) for name in ("spill_stores", "spill_loads")]
            return spills != [0, 0] and not any(_fits(glob, kernel) for glob in self.allow_spills)
        return None


def _fits(glob: str, kernel: KernelFacts) -> bool:
    name = kernel.identity.kernel
    return any(fnmatchcase(candidate, glob) for candidate in (name, function_name(name)))


# --- kernels of built libraries -------------------------------------------------------------------


_RELOCATABLE = b"\1\0"  # ELF type of a file that is not linked yet
_TARGET = re.compile(r"-arch[ =]+sm_\d+([af])\b")


def built_kernels(paths: Sequence[str]) -> tuple[list[KernelFacts], list[str]]:
    """Read the kernels in files, wheels and folders, sorted by identity. Also return notes on unreadable images. A
    kernel with the same code in several images of a file counts once. Raises UsageError if a path cannot be read or no
    kernel is found."""
    built: list[KernelFacts] = []
    notes: list[str] = []
    for path in paths:
        try:
            for file in shipped_files(Path(path)):
                notes += (f"{file.name}: {note}" for note in file.notes)
                built += _in_file(file, notes)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if not built:
        why = f": {listed(notes, '; ')}" if notes else ""
        raise UsageError(f"{' '.join(paths)}: contains no machine code for GPUs{why}")
    built.sort(key=lambda facts: sorted(facts.loaded.items()))  # `numbered` keeps the first kernel with a code
    kernels = [facts for _, facts in numbered([(None, facts) for facts in built])]
    same = Counter(replace(facts.identity, number=1) for facts in kernels)
    if twice := [identity.text for identity, times in same.items() if times > 1]:
        notes.append(f"several kernels have the same name and therefore get numbers: {listed(twice)}")
    return kernels, notes


def _in_file(file: ShippedFile, notes: list[str]) -> Iterator[KernelFacts]:
    """Yield the kernels of a file. A kernel of a relocatable image counts only if no linked image has it."""
    linked: dict[tuple[Identity, str], None] = {}
    for number, (data, suffix) in sorted(enumerate(file.images, 1), key=lambda it: it[1][0][16:18] == _RELOCATABLE):
        try:
            for facts in _in_image(data, suffix, file.name):
                key = facts.identity, facts.entry
                if data[16:18] != _RELOCATABLE:
                    linked[key] = None
                elif key in linked:
                    continue
                yield facts
        except CubinError as error:
            notes.append(f"{file.name}: cubin {number}: {error}")


def _in_image(data: bytes, suffix: str, name: str) -> Iterator[KernelFacts]:
    cubin, summary, elf = Cubin.from_bytes(data), summarise_image(data, {}), read_elf(data)
    image = Image(elf, elf.symbols(), frozenset(kernel_names(elf)))
    told = _TARGET.search(cubin.ptxas_arguments or "")
    arch = f"sm_{cubin.arch}{told[1] if told else suffix}"
    for kernel, resources in cubin.resources.items():
        places = [f"file={source}"] if (source := source_file(kernel)) is not None else []
        facts = KernelFacts(
            identity=Identity(lasting_name(kernel), arch, BUILT, (*places, f"in={name}")),
            entry=kernel,
            stages={},
            ptx_sha256=None,
            ptxas=cubin.ptxas_version,
            options=None,
            codes=(),
            figures={},
            threads=resources.threads,
            launch_bounds=resources.launch_bounds,
        )
        facts, local = with_image(facts, summary, None, kernel, None), resources.local_traffic
        sizes = {"code_bytes": summary.kernel(kernel).code_bytes, "local_bytes": None if local is None else sum(local)}
        loaded = {part: code for part, code in loaded_parts(image, kernel).items() if code}
        codes = (summary.own_code_hash(kernel),)
        yield replace(facts, codes=codes, figures={**facts.figures, **sizes}, loaded=loaded)
