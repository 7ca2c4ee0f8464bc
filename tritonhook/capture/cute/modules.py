"""Read the DSL's MLIR modules, before and after its passes: find their kernels, PTX and cubins, and make a Capture of
each kernel. This module also finds which bytes of its parameters a kernel reads, and compares a kernel's code with a
policy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.cute import state
from tritonhook.capture.cute.state import FRONT_END, CompiledFunction
from tritonhook.capture.model import META_LEVER, META_REWRITES, Assembler, Capture, Stage
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.shipped import embedded_cubins
from tritonhook.cubin.summary import summarise_image
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptx.throughput_pragma import DIRECTIVE

if TYPE_CHECKING:
    from tritonhook.capture.policy.model import Entry, Policy


_LOAD = re.compile(r"^\s*(?:@\S+\s+)?ld\.param(?:::entry)?(?:\.v([248]))?\.\w?(\d+)\s")
_WORD = 8  # bytes of a pointer


@dataclass(slots=True)
class Read:
    """The bytes of one parameter that a kernel reads. mask: 0xff for each byte read; -1 for all. words: offsets of the
    64-bit numbers that the kernel loads; None if it takes the parameter's address and may read a number at any
    offset."""

    mask: int = 0
    words: set[int] | None = field(default_factory=set)

    def load(self, at: int, count: int, size: int) -> None:
        """Add a load of `count` numbers at offset `at`. size: bytes of one number."""
        self.mask |= ((1 << 8 * count * size) - 1) << 8 * at
        if self.words is not None and size == _WORD:
            self.words |= {at + number * size for number in range(count)}


@cache
def reads_of(text: str, kernel: str) -> Mapping[int, Read]:
    """Find which bytes of each parameter a kernel reads. The result is by parameter number; parameters that the kernel
    never reads are omitted. text: PTX."""
    name = re.compile(rf"(?<![\w$]){re.escape(kernel)}_param_(\d+)(?![\w$])(?:\+(\d+))?")
    found: dict[int, Read] = {}
    for line in text.splitlines():
        if "_param_" not in line or line.lstrip().startswith(".param"):
            continue
        load = _LOAD.match(line)
        for number, at in name.findall(line):
            read = found.setdefault(int(number), Read())
            if load is None:
                read.mask, read.words = -1, None
            else:
                read.load(int(at or 0), int(load[1] or 1), int(load[2]) // 8)
    return found


known_ptx: dict[str, Ptx] = {}  # by "HASH NAME" of the kernel, as in Session.record_of


def remember(cubin: Cubin, ptx: Ptx) -> None:
    """Store the PTX of a cubin's kernels in `known_ptx`, if a session records launches."""
    if any(attached.session.settings.launches for attached in state.attached):
        known_ptx.update(dict.fromkeys((f"{cubin.sha256} {name}" for name in cubin.kernels), ptx))


_RELEASE = re.compile(r"^// Cuda compilation tools, release .*V(\d+\.\d+\.\d+)", re.MULTILINE)


def entries_of(policy: Policy, own: str) -> tuple[Entry, ...]:
    """Return a policy's entries for CuTe kernels of this name."""
    return tuple(entry for entry in policy.of_kernel(own).entries if entry.front_end == FRONT_END)


def entry_of_code(policy: Policy, own: str, kernel: str, cubin: Cubin) -> Entry | None:
    """Find the policy entry with the same machine code as the kernel, else None. own: the kernel's own name. kernel:
    its name in the cubin."""
    entries = entries_of(policy, own)
    if not entries:
        return None
    code = summarise_image(cubin.data, {}).code_hash(kernel)
    return next((entry for entry in entries if entry.code == code), None)


def why_uncertified(policy: Policy, own: str, kernel: str, texts: Sequence[str], cubins: Sequence[Cubin]) -> str | None:
    """Return why a kernel must be compiled again without the lever (a change of its code) that a policy has for it.
    None if the kernel may stay as it is, or if the policy has no entry for its name.

    own: the kernel's own name. kernel: its name in the output. texts: the DSL's PTX modules. cubins: the DSL's cubins.
    """
    entries = entries_of(policy, own)
    if not entries:
        return None
    text = next((text for text in texts if kernel in Ptx(text).entries), None)
    cubin = next((cubin for cubin in cubins if kernel in cubin.kernels), None)
    if text is None or cubin is None:
        return f"it cannot be compared with {policy.path}: the DSL wrote no PTX of it"
    ptx = normal_sha256(text.replace(DIRECTIVE, ""), kernel)
    same = [entry for entry in entries if entry.ptx == ptx]
    if not same:
        return f"its PTX differs from the PTX in {policy.path}"
    version = assembler_of(cubin, Ptx(text)).version
    if not any(entry.ptxas == version for entry in same):
        return (
            f"{policy.path} was certified against ptxas {same[0].ptxas}, but the DSL has {version or 'an unknown one'}"
        )
    if entry_of_code(policy, own, kernel, cubin) not in same:
        return f"its machine code differs from the code in {policy.path}"
    return None


def assembler_of(cubin: Cubin, ptx: Ptx | None) -> Assembler:
    """Return version and arguments of the ptxas in the DSL's library. They are read from the note that ptxas writes
    into the cubin. If the note has no version, the version is read from the PTX."""
    version = cubin.ptxas_version
    if version is None and ptx is not None and (release := _RELEASE.search(ptx.text)):
        version = release[1]
    if cubin.ptxas_arguments is None:
        return Assembler(None, version, None)
    # The note has "-O 3". ptxas accepts only "-O3".
    words = re.sub(r"(^|\s)-O (\d)", r"\1-O\2", cubin.ptxas_arguments)
    target = re.search(r"(?:^|\s)-arch (\w+)", words)
    if target is not None:
        words = f"{words[: target.start()]} {words[target.end() :]} --gpu-name={target[1]}"
    return Assembler(None, version, tuple(words.split()))


_OPTION = re.compile(r"(?<![\w-])([\w-]+)=('[^']*'|[^\s}]+)")
_OUTPUT = "cubin-format=bin"  # in every pipeline that makes a cubin; our option is inserted before it
_PLACE = re.compile(r'"([^"]+)":(\d+):')


# --- before the passes ---------------------------------------------------------------------------


def kernel_ops(module: Any) -> Iterator[Any]:
    """Yield the kernels defined in a module, before the DSL's passes."""
    for outer in module.body.operations:
        if outer.operation.name == "gpu.module":
            for inner in outer.operation.regions[0].blocks[0].operations:
                if "gpu.kernel" in inner.operation.attributes:
                    yield inner.operation


def name_of(operation: Any) -> str:
    """Return the name of a kernel from its operation."""
    return str(operation.attributes["sym_name"].value)


def places(module: Any) -> dict[str, str]:
    """Return "file:line" of each kernel's Python function, if the DSL has recorded it."""
    located = ((name_of(operation), _PLACE.search(str(operation.location))) for operation in kernel_ops(module))
    return {name: f"{place[1]}:{place[2]}" for name, place in located if place is not None}


def attribute_names(attributes: Any) -> list[str]:
    """List the names of an operation's attributes. Depending on the DSL's release, iterating over `attributes` yields
    names or attributes."""
    return [item if isinstance(item, str) else item.name for item in attributes]


def operations(module: Any) -> list[Any]:
    """List all operations of a module. Callers loop over the list, because MLIR prints a page of text if an exception
    is raised inside its `walk`."""
    from cutlass._mlir import ir

    operations_met: list[Any] = []

    def visit(operation: Any) -> Any:
        operations_met.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return operations_met


def is_a(attribute: Any, kind: Any) -> bool:
    """Check the type of an attribute. Before release 4.8 attributes are objects of a base class, and only
    `kind.isinstance` can check them."""
    return isinstance(attribute, kind) or (hasattr(kind, "isinstance") and bool(kind.isinstance(attribute)))


# --- after the passes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dump:
    """The place where the DSL's passes write PTX: the program's own path if it sets one, else a temporary folder.

    asked: the program's pass pipeline. pipeline: the pipeline to use instead. stem: the files' paths without
    ".<arch>.ptx"; None if no PTX is written.
    """

    asked: str
    pipeline: str
    stem: str | None

    @classmethod
    def of(cls, pipeline: str, folder: str | None) -> Dump:
        theirs = dict(_OPTION.findall(pipeline)).get("dump-ptx-path")
        if theirs is not None:
            return cls(pipeline, pipeline, theirs.strip("'"))
        if folder is None or _OUTPUT not in pipeline or set("'{}") & set(folder):
            return cls(pipeline, pipeline, None)
        stem = f"{folder}/kernel"
        return cls(pipeline, pipeline.replace(_OUTPUT, f"dump-ptx-path='{stem}' {_OUTPUT}", 1), stem)

    def texts(self) -> list[str]:
        """Read the PTX modules that the DSL wrote. Returns an empty list if the DSL could not write to the folder,
        because it reports no error for that."""
        if self.stem is None:
            return []
        folder, name = os.path.split(self.stem)
        paths = [p for p in Path(folder or ".").glob("*.ptx") if p.name.startswith(f"{name}.")]
        return [path.read_text("utf-8", "replace").rstrip("\0") for path in sorted(paths)]


def strings(module: Any, kind: str = "llvm.mlir.global") -> list[bytes]:
    """Collect the strings in a compiled module's host code. kind: the operation that defines them: "llvm.mlir.global"
    for fat binaries, "llvm.mlir.constant" for the names of kernels to load."""
    from cutlass._mlir import ir

    outermost = (operation.operation for operation in module.body.operations)
    texts: list[bytes] = []
    for operation in outermost if kind == "llvm.mlir.global" else operations(module):
        if operation.name == kind and "value" in operation.attributes:
            value = operation.attributes["value"]
            if is_a(value, ir.StringAttr):
                texts.append(ir.StringAttr(value).value_bytes)
    return texts


def cubins(strings: Sequence[bytes]) -> list[Cubin]:
    """Extract the cubins in a module's strings, without duplicates."""
    images: dict[bytes, None] = {}
    for text in strings:
        embedded = embedded_cubins(text)
        images |= dict.fromkeys(embedded.cubins)
        if embedded.packed:
            state.note(f"{embedded.packed} compressed CuTe cubins are not captured")
    return [Cubin.from_bytes(image, "the CuTe DSL's fat binary") for image in images]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Passes kernels to the sessions: the kernels of one compile, or kernels compiled earlier.

    folder: temporary folder for their files, which the sessions copy. function: the compiled function. places:
    "file:line" by kernel. own_names: own name by new name. dump: location of the PTX. pragmas: name of the rewrite that
    added the pragma, by the kernel's own name. compile_us: microseconds of the DSL's steps for the whole module.
    """

    folder: Path
    function: CompiledFunction | None
    places: Mapping[str, str] = field(default_factory=dict)
    own_names: Mapping[str, str] = field(default_factory=dict)
    dump: Dump | None = None
    pragmas: Mapping[str, str] = field(default_factory=dict)
    compile_us: Mapping[str, int] = field(default_factory=dict)

    def compiled(self, module: Any) -> None:
        """Keep all kernels of a compiled module."""
        texts = [] if self.dump is None else self.dump.texts()
        sources = [Ptx(text) for text in texts]
        if self.function is not None and self.function.module_hash is not None:
            for attachment in state.attached:
                attachment.met.add(self.function.module_hash)
        for number, cubin in enumerate(cubins(strings(module))):
            fitting = next((ptx for ptx in sources if set(cubin.kernels) <= set(ptx.entries)), None)
            why = None if fitting is not None else "the DSL wrote no matching PTX, e.g. because the disk was full"
            self.keep(cubin, number, fitting, cache_hit=False, note=why)

    def keep(self, cubin: Cubin, number: int, ptx: Ptx | None, cache_hit: bool, note: str | None) -> None:
        """Pass each kernel of a cubin to each session that captures it. number: used in file names. note: why an
        artifact is missing."""
        files = {Stage.CUBIN: str(self.folder / f"{number}.cubin")}
        Path(files[Stage.CUBIN]).write_bytes(cubin.data)
        if ptx is not None:
            files = {Stage.PTX: str(self.folder / f"{number}.ptx"), **files}
            Path(files[Stage.PTX]).write_text(ptx.text, "utf-8")
            remember(cubin, ptx)
        for kernel in cubin.kernels:
            capture = self.capture(kernel, cubin, ptx, files, cache_hit, note)
            for attachment in state.attached:
                if attachment.session.settings.wants(capture.rewritten_from or kernel):
                    record = attachment.session.keep(capture, files)
                    if ptx is None and not attachment.session.has_ptx(record):
                        attachment.without_ptx.add(record)

    def capture(
        self, kernel: str, cubin: Cubin, ptx: Ptx | None, files: Mapping[Stage, str], cache_hit: bool, note: str | None
    ) -> Capture:
        """Make a Capture of one kernel of a cubin, without its artifacts."""
        own = self.own_names.get(kernel)
        asked = {} if self.dump is None else dict(_OPTION.findall(self.dump.asked))
        return Capture(
            kernel=kernel,
            hash=cubin.sha256,
            arch=ptx.target if ptx is not None else f"sm_{cubin.arch}",
            artifacts=dict.fromkeys(files, ""),
            assembler=assembler_of(cubin, ptx),
            options=self._options(asked),
            metadata={
                "front_end": FRONT_END,
                "function": getattr(self.function and self.function.function, "__qualname__", None),
                "function_at": _defined_at(self.function and self.function.function),
                "kernel_at": self.places.get(own or kernel),
                "kernels": list(cubin.kernels),
                "pipeline": None if self.dump is None else self.dump.asked,
                **self._lever(own or kernel, kernel, cubin),
                **({META_REWRITES: rewrite} if (rewrite := self.pragmas.get(own or kernel)) is not None else {}),
            },
            cache_hit=cache_hit,
            rewritten_from=own,
            note=note,
            compile_us=self.compile_us,
        )

    def _lever(self, own: str, kernel: str, cubin: Cubin) -> dict[str, str]:
        """Return metadata that names the policy's lever, if the kernel has the machine code of a policy's entry.
        Otherwise the result is empty."""
        for attachment in state.attached:
            policy = attachment.session.settings.policy
            if policy is not None and (entry := entry_of_code(policy, own, kernel, cubin)) is not None:
                return {META_LEVER: entry.lever.text}
        return {}

    def _options(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return the compiler options that change the code, from the pipeline's options. Unknown values are None."""
        level = asked.get("opt-level")
        flags = {"line_info": "preserve-line-info", "assertions": "enable-assertions", "relocatable": "rdc"}
        return {
            "cute_dsl": state.dsl_version(),
            "opt_level": int(level) if level is not None and level.isdecimal() else level,
            "ptxas_options": asked.get("ptx-options", "").strip("'") or None,
            **{name: asked[option] == "true" for name, option in flags.items() if option in asked},
        }


def _defined_at(function: Any) -> str | None:
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
