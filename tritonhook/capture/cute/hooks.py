"""Capturing and renaming in a CuTe DSL program (nvidia-cutlass-dsl 4.6 to 4.8). The only file that touches cutlass.

The DSL offers no hook, so that five of its methods are wrapped, while a session wants it and never before the
program itself has imported cutlass:

    Compiler.compile                every compile, of cute.compile and of @cute.jit calls: PTX and cubin are read here,
                                    and kernels get their new names before the DSL's passes see them
    BaseDSL.compile_and_cache       which Python function is being compiled, and for which cache entry
    BaseDSL.get_module_hash         the renaming goes into the DSL's cache keys; only while a session renames
    JitCacheDict.get                kernels from the DSL's caches, in memory and on disk
    ExternalBinaryModule.__init__   kernels from exported objects (cute.runtime.load_module)

A kernel is renamed in the DSL's module, both where it is defined and where the host code asks for it, as the DSL's own
naming API has it; nothing global changes. ptxas is part of the DSL's library: no file or wrapper of it is involved.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tritonhook._util.import_hook import AfterImport
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.cubin.fatbin import embedded_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import IDENTIFIER, Ptx
from tritonhook.rename import Control, Rename, Rewrite, Rewrites

FRONT_END = "cute"
_T = TypeVar("_T")
_OPTION = re.compile(r"([\w-]+)=('[^']*'|[^\s}]+)")
_OUTPUT = "cubin-format=bin"  # stands in every pipeline that makes a cubin; our option goes in front of it
_RELEASE = re.compile(r"^// Cuda compilation tools, release .*V(\d+\.\d+\.\d+)", re.MULTILINE)
_PLACE = re.compile(r'"([^"]+)":(\d+):')


class Wishes(Protocol):
    """What a session wants done."""

    @property
    def key(self) -> str: ...
    @property
    def rewrites(self) -> Rewrites: ...
    def wants(self, kernel: str) -> bool: ...


class Owner(Protocol):
    """The session behind the hooks: what it is told, and what it is asked."""

    @property
    def settings(self) -> Wishes: ...
    def keep(self, capture: Capture, files: Mapping[Stage, str]) -> str: ...
    def has_ptx(self, record: str) -> bool: ...
    def note(self, sentence: str) -> None: ...
    def contain(self, doing: str, error: BaseException) -> None: ...


def is_installed() -> bool:
    """Whether this Python has a CuTe DSL, as far as one can tell without importing it."""
    if "cutlass" in sys.modules:
        return _dsl_version() is not None
    return any((Path(entry or ".") / "nvidia_cutlass_dsl").is_dir() for entry in sys.path)


def _dsl_version() -> str | None:
    """The version of the DSL that is imported; None if `cutlass` is the older package without one."""
    module = sys.modules.get("cutlass")
    return str(module.__version__) if module is not None and "cutlass.base_dsl.dsl" in sys.modules else None


# --- sessions ------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Attached:
    """A session, and what it met: keys of cache entries, objects, and records of which there is no PTX anywhere."""

    owner: Owner
    met: set[str] = field(default_factory=set)
    without_ptx: set[str] = field(default_factory=set)


_attached: tuple[_Attached, ...] = ()  # outermost first; replaced, never changed, as other threads walk it
_waiting: AfterImport | None = None
_lock = threading.RLock()


def attach(owner: Owner) -> None:
    """Capture for this session, from now on, or from when the program imports cutlass."""
    global _attached, _waiting
    with _lock:
        _attached = (*_attached, _Attached(owner))
        if "cutlass" in sys.modules:
            _contained("the CuTe DSL could not be hooked", _install)
        elif _waiting is None:
            _waiting = AfterImport("cutlass", lambda: _contained("the CuTe DSL could not be hooked", _install))
            _waiting.begin()


def detach(owner: Owner) -> None:
    """End what `attach` began; with the last session the DSL gets its methods back."""
    global _attached, _waiting
    with _lock:
        leaving = [one for one in _attached if one.owner is owner]
        _attached = tuple(one for one in _attached if one.owner is not owner)
        if not _attached:
            if _waiting is not None:
                _waiting.end()
            _waiting = None
            _uninstall()
    for one in leaving:
        if one.without_ptx:
            count = len(one.without_ptx)
            kernels = "1 CuTe kernel" if count == 1 else f"{count} CuTe kernels"
            owner.note(f"{kernels} ran from a cache or an exported object that kept no PTX: the cubin is all there is")


# --- hooks ---------------------------------------------------------------------------------------

_Around = Callable[..., Any]  # called with the original, then what the method is called with


@dataclass(frozen=True, slots=True)
class _Hook:
    """A wrapped method of a class of the DSL."""

    owner: type
    name: str
    original: Any
    wrapper: Any

    @classmethod
    def install(cls, owner: type, name: str, around: _Around) -> _Hook:
        original = owner.__dict__[name]

        def wrapper(*arguments: Any, **options: Any) -> Any:
            if not wrapper.alive:  # type: ignore[attr-defined]  # another tool may hold on to it after we left
                return original(*arguments, **options)
            return around(original, *arguments, **options)

        wrapper.__name__, wrapper.__qualname__ = name, f"{owner.__name__}.{name}"
        wrapper.__wrapped__, wrapper.alive = original, True  # type: ignore[attr-defined]
        setattr(owner, name, wrapper)
        return cls(owner, name, original, wrapper)

    def uninstall(self) -> None:
        """Ends the wrapper even where it stays: installed once more, the hook would rename twice, and the second time
        not know the kernel's own name."""
        self.wrapper.alive = False
        if self.owner.__dict__.get(self.name) is self.wrapper:
            setattr(self.owner, self.name, self.original)


_hooks: list[_Hook] = []


def _install() -> None:
    """Wrap the DSL's methods. What this release does not have is said once, and the rest still works."""
    global _waiting
    with _lock:
        _waiting = None
        version = _dsl_version()
        if _hooks or not _attached or version is None:
            return
        for module, owner, name, around in _POINTS:
            try:
                _hooks.append(_Hook.install(getattr(sys.modules[f"cutlass.{module}"], owner), name, around))
            except (KeyError, AttributeError):
                for one in _attached:
                    one.owner.note(
                        f"CuTe DSL {version} has no {owner}.{name}: kernels that pass there are not captured"
                    )


def _uninstall() -> None:
    while _hooks:
        _hooks.pop().uninstall()


def holders() -> dict[str, str]:
    """For `status`: which of the DSL's methods are wrapped by tritonhook in this process."""
    return {f"cute {hook.owner.__name__}.{hook.name}": "tritonhook" for hook in _hooks}


# --- what is being compiled ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Subject:
    """The Python function being compiled. module_hash: the DSL's key; None for cute.compile, which caches none."""

    dsl: Any
    function: Any
    module_hash: str | None


_thread = threading.local()  # .subjects: those being compiled, innermost last; .own_names: of the module hashed last


def _subject() -> _Subject | None:
    subjects = getattr(_thread, "subjects", None)
    return subjects[-1] if subjects else None


def _around_compile_and_cache(original: Any, dsl: Any, *arguments: Any, **options: Any) -> Any:
    given = dict(zip(("module", "module_hash"), arguments, strict=False)) | options
    subjects = _thread.__dict__.setdefault("subjects", [])
    subjects.append(_Subject(dsl, options.get("funcBody"), given.get("module_hash")))
    try:
        return original(dsl, *arguments, **options)
    finally:
        subjects.pop()


def _around_get_module_hash(original: Any, dsl: Any, module: Any, *arguments: Any, **options: Any) -> Any:
    """A renamed kernel must not be found under the plain kernel's key, nor the other way round."""
    plain = original(dsl, module, *arguments, **options)
    renaming = [one.owner for one in _attached if any(map(_is_rename, one.owner.settings.rewrites.steps))]
    keys = [owner.settings.key for owner in renaming]
    if not keys:
        return plain
    _thread.own_names = _contained("a CuTe kernel's names could not be read", lambda: _wanted_names(module)) or {}
    return hashlib.sha256("|".join((plain, *keys)).encode()).hexdigest()


def _contained(doing: str, function: Callable[[], _T]) -> _T | None:
    """Our own errors are reported, and the program goes on."""
    try:
        return function()
    except Exception as error:
        for one in _attached:
            one.owner.contain(doing, error)
        return None


# --- compiling -----------------------------------------------------------------------------------


def _around_compile(original: Any, compiler: Any, module: Any, pipeline: str, *arguments: Any, **options: Any) -> Any:
    def compile_it(chosen: Any) -> Any:
        return original(compiler, chosen, dump.pipeline, *arguments, **options)

    with contextlib.ExitStack() as stack:
        folder = _contained("CuTe kernels are not captured", lambda: stack.enter_context(_folder()))
        dump = _Dump.of(pipeline, folder)
        places = _contained("a CuTe kernel's source is not known", lambda: _places(module)) or {}
        renaming = _contained("a CuTe kernel keeps its name", lambda: _Renaming.begin(module))
        try:
            result = compile_it(module)
            problem = None if renaming is None else renaming.problem()
        except Exception as error:
            if renaming is None:
                raise
            problem = f"the DSL does not compile it under that name ({type(error).__name__})"
        if renaming is not None and problem is not None:
            renaming.undo(problem)
            result = renaming.compile_plain(compiler, compile_it)
            renaming = None
        own_names = {} if renaming is None else renaming.own_names
        if folder is not None:
            keep = _Keeping(Path(folder), _subject(), places, own_names, dump)
            _contained("a CuTe kernel could not be captured", lambda: keep.compiled(module))
    return result


def _folder() -> contextlib.AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="tritonhook-", ignore_cleanup_errors=True)


@dataclass(frozen=True, slots=True)
class _Dump:
    """Where the DSL's passes write the PTX: where the program wants it, else into a folder of ours.

    asked: the pipeline as the program asked for it. stem: the files' paths, without ".<arch>.ptx"; None if nowhere.
    """

    asked: str
    pipeline: str
    stem: str | None

    @classmethod
    def of(cls, pipeline: str, folder: str | None) -> _Dump:
        theirs = dict(_OPTION.findall(pipeline)).get("dump-ptx-path")
        if theirs is not None:
            return cls(pipeline, pipeline, theirs.strip("'"))
        if folder is None or _OUTPUT not in pipeline or set("'{}") & set(folder):
            return cls(pipeline, pipeline, None)
        stem = f"{folder}/kernel"
        return cls(pipeline, pipeline.replace(_OUTPUT, f"dump-ptx-path='{stem}' {_OUTPUT}", 1), stem)

    def texts(self) -> list[str]:
        """The PTX modules written; a place that cannot be written gives none, and the DSL says nothing."""
        if self.stem is None:
            return []
        folder, name = os.path.split(self.stem)
        paths = [p for p in Path(folder or ".").glob("*.ptx") if p.name.startswith(f"{name}.")]
        return [path.read_text("utf-8", "replace").rstrip("\0") for path in sorted(paths)]


def _kernel_ops(module: Any) -> Iterator[Any]:
    """The kernels defined in a module that the DSL's passes have not seen yet."""
    for outer in module.body.operations:
        if outer.operation.name == "gpu.module":
            for inner in outer.operation.regions[0].blocks[0].operations:
                if "gpu.kernel" in inner.operation.attributes:
                    yield inner.operation


def _name_of(operation: Any) -> str:
    return str(operation.attributes["sym_name"].value)


def _places(module: Any) -> dict[str, str]:
    """File and line of each kernel's Python function, where the DSL knows them."""
    found = ((_name_of(operation), _PLACE.search(str(operation.location))) for operation in _kernel_ops(module))
    return {name: f"{place[1]}:{place[2]}" for name, place in found if place is not None}


# --- renaming ------------------------------------------------------------------------------------


def _wanted_names(module: Any) -> dict[str, str]:
    """Own name by new name, for the kernels that sessions want renamed. The outermost session comes first."""
    own_names = [_name_of(operation) for operation in _kernel_ops(module)]
    wanted: dict[str, str] = {}
    for own in own_names:
        new = own
        for one in _attached:
            if one.owner.settings.wants(own):
                new = _new_name(own, new, one.owner)
        if new == own:
            continue
        if new in wanted or new in own_names or not IDENTIFIER.fullmatch(new):
            _note(f"{own} keeps its name: {new!r} is {'taken' if IDENTIFIER.fullmatch(new) else 'no PTX name'}")
        else:
            wanted[new] = own
    return wanted


def _new_name(own: str, name: str, owner: Owner) -> str:
    for step in owner.settings.rewrites.steps:
        if isinstance(step, Control):
            name = step.new_name(name)
        elif not isinstance(step, Rename):
            owner.note(f"{type(step).__name__}: CuTe kernels can be renamed, but not be rewritten in other ways")
        elif step.entry in (None, own, name):
            name = step.new_name(name)
    return name


def _is_rename(step: Rewrite) -> bool:
    return isinstance(step, (Rename, Control))


def _note(sentence: str) -> None:
    for one in _attached:
        one.owner.note(sentence)


@dataclass(frozen=True, slots=True)
class _Renaming:
    """Kernels that have new names in a module, and the module as it was.

    own_names: own name by new name. plain: the module before, in MLIR's bytecode.
    """

    module: Any
    plain: bytes
    own_names: Mapping[str, str]

    @classmethod
    def begin(cls, module: Any) -> _Renaming | None:
        """Give kernels their new names; None if there is nothing to rename."""
        if not any(one.owner.settings.key for one in _attached):
            return None
        own_names = _wanted_names(module)
        if not own_names:
            return None
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
        renaming = cls(module, buffer.getvalue(), own_names)
        try:
            _substitute(module, {own: new for new, own in own_names.items()})
        except Exception:
            renaming._replace_by(renaming.plain)
            raise
        renaming._tell_dsl({own: new for new, own in own_names.items()})
        _exported_names.update(own_names)
        _watch_exports()
        return renaming

    def problem(self) -> str | None:
        """Why the compiled module must not run: the host would ask for a kernel that is not there."""
        try:
            return self._problem()
        except Exception as error:
            return f"whether the host code finds it could not be checked ({type(error).__name__}: {error})"

    def _problem(self) -> str | None:
        asked = {text.rstrip(b"\0").decode("utf-8", "replace") for text in _strings(self.module, "llvm.mlir.constant")}
        if left := asked & set(self.own_names.values()):
            return f"the host code still asks for {min(left)}"
        kernels = {name for cubin in _cubins(_strings(self.module)) for name in cubin.kernels}
        missing = self.own_names.keys() - kernels
        return f"the compiled code has no kernel {min(missing)}" if missing else None

    def undo(self, problem: str) -> None:
        """Tell everybody that the kernels keep their own names."""
        self._tell_dsl(self.own_names)
        for new, own in self.own_names.items():
            _note(f"{own} keeps its name, not {new}: {problem}")

    def compile_plain(self, compiler: Any, compile_it: Callable[[Any], Any]) -> Any:
        """Compile the module as it was, into the place of the one that failed.

        In an MLIR context of its own: before 4.8 the DSL makes one binary per context ("Binary already exists").
        What the DSL does after its passes (the TVM FFI's entry) belongs to the program's context and waits.
        """
        from cutlass._mlir import ir

        after, compiler._post_compile_hook = compiler._post_compile_hook, None
        try:
            with ir.Context() as context:
                context.enable_multithreading(False)
                plain = ir.Module.parse(self.plain, context)
                result = compile_it(plain)
                buffer = io.BytesIO()
                plain.operation.write_bytecode(buffer)
        finally:
            compiler._post_compile_hook = after
        self._replace_by(buffer.getvalue())
        if after is not None:
            after(self.module)
        return self.module if result is plain else result

    def _replace_by(self, bytecode: bytes) -> None:
        """Give the program's module another content; the program holds on to the module itself."""
        from cutlass._mlir import ir

        other = ir.Module.parse(bytecode, self.module.context)
        for operation in list(self.module.body.operations):
            operation.operation.erase()
        for operation in list(other.body.operations):
            self.module.body.append(operation)
        new, old = self.module.operation.attributes, other.operation.attributes
        for name in _names(new):
            del new[name]
        for name in _names(old):
            new[name] = old[name]

    def _tell_dsl(self, names: Mapping[str, str]) -> None:
        """The DSL keeps launch attributes by kernel name, and hands them to what it exports."""
        subject = _subject()
        infos = getattr(subject.dsl, "kernel_info", None) if subject is not None else None
        if isinstance(infos, dict):
            renamed = {names.get(name, name): info for name, info in infos.items()}
            infos.clear()
            infos.update(renamed)


def _names(attributes: Any) -> list[str]:
    """The names in an operation's attributes; releases differ in what iterating over these gives."""
    return [item if isinstance(item, str) else item.name for item in attributes]


def _substitute(module: Any, names: Mapping[str, str]) -> None:
    """Rename kernels where they are defined and wherever a symbol refers to them."""
    from cutlass._mlir import ir

    with module.context:
        for operation in list(_kernel_ops(module)):
            if (new := names.get(_name_of(operation))) is not None:
                operation.attributes["sym_name"] = ir.StringAttr.get(new)

        for operation in _operations(module):
            for name in _names(operation.attributes):
                if (renamed := _renamed_attribute(operation.attributes[name], names)) is not None:
                    operation.attributes[name] = renamed
    module.operation.verify()


def _operations(module: Any) -> list[Any]:
    """All operations of a module. An exception within MLIR's own walk would come out as a page of text."""
    from cutlass._mlir import ir

    found: list[Any] = []

    def visit(operation: Any) -> Any:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _is(attribute: Any, kind: Any) -> bool:
    """isinstance, for releases (before 4.8) in which attributes arrive as their base class."""
    return isinstance(attribute, kind) or (hasattr(kind, "isinstance") and bool(kind.isinstance(attribute)))


def _renamed_attribute(attribute: Any, names: Mapping[str, str]) -> Any:
    """The attribute with kernels' symbols replaced; None if it refers to none."""
    from cutlass._mlir import ir

    if _is(attribute, ir.FlatSymbolRefAttr):
        new = names.get(ir.FlatSymbolRefAttr(attribute).value)
        return None if new is None else ir.FlatSymbolRefAttr.get(new)
    if _is(attribute, ir.SymbolRefAttr):
        path = list(ir.SymbolRefAttr(attribute).value)
        return ir.SymbolRefAttr.get([*path[:-1], names[path[-1]]]) if path[-1] in names else None
    if _is(attribute, ir.ArrayAttr):
        items = list(ir.ArrayAttr(attribute))
        renamed = [_renamed_attribute(item, names) for item in items]
        if all(item is None for item in renamed):
            return None
        return ir.ArrayAttr.get([old if new is None else new for old, new in zip(items, renamed, strict=True)])
    return None


_exported_names: set[str] = set()  # of kernels renamed in this process: an export takes the new name along


def _watch_exports() -> None:
    """The classes that export are imported late, if at all."""
    for module, owner in (
        ("base_dsl.jit_executor", "JitCompiledFunction"),
        ("cutlass_dsl.tvm_ffi_provider", "TVMFFIJitCompiledFunctionBase"),
    ):
        exporter = getattr(sys.modules.get(f"cutlass.{module}"), owner, None)
        watched = any(hook.owner is exporter and hook.name == "export_to_c" for hook in _hooks)
        if exporter is not None and "export_to_c" in exporter.__dict__ and not watched:
            _hooks.append(_Hook.install(exporter, "export_to_c", _around_export))


def _around_export(original: Any, function: Any, *arguments: Any, **options: Any) -> Any:
    if names := _exported_names & set(getattr(function, "kernel_info", None) or ()):
        _note(f"{min(names)} was exported under this name; whatever loads the object later gets the renamed kernel")
    return original(function, *arguments, **options)


# --- reading compiled modules --------------------------------------------------------------------


def _strings(module: Any, kind: str = "llvm.mlir.global") -> list[bytes]:
    """The text in a compiled module's host code: fat binaries are globals, names of kernels to load are constants."""
    from cutlass._mlir import ir

    outermost = (operation.operation for operation in module.body.operations)
    found: list[bytes] = []
    for operation in outermost if kind == "llvm.mlir.global" else _operations(module):
        if operation.name == kind and "value" in operation.attributes:
            value = operation.attributes["value"]
            if _is(value, ir.StringAttr):
                found.append(ir.StringAttr(value).value_bytes)
    return found


def _cubins(strings: Sequence[bytes]) -> list[Cubin]:
    images: dict[bytes, None] = {}
    for text in strings:
        embedded = embedded_cubins(text)
        images |= dict.fromkeys(embedded.cubins)
        if embedded.packed:
            _note(f"{embedded.packed} CuTe cubins are compressed: not captured")
    return [Cubin.from_bytes(image, "the CuTe DSL's fat binary") for image in images]


@dataclass(frozen=True, slots=True)
class _Keeping:
    """What is known of one compile, or of kernels that were compiled before, on their way to the sessions."""

    folder: Path
    subject: _Subject | None
    places: Mapping[str, str] = field(default_factory=dict)
    own_names: Mapping[str, str] = field(default_factory=dict)
    dump: _Dump | None = None

    def compiled(self, module: Any) -> None:
        texts = [] if self.dump is None else self.dump.texts()
        sources = [Ptx(text) for text in texts]
        if self.subject is not None and self.subject.module_hash is not None:
            for one in _attached:
                one.met.add(self.subject.module_hash)
        for number, cubin in enumerate(_cubins(_strings(module))):
            fitting = next((ptx for ptx in sources if set(cubin.kernels) <= set(ptx.entries)), None)
            why = None if fitting is not None else "the DSL wrote no PTX that fits, for instance because of a full disk"
            self.keep(cubin, number, fitting, cache_hit=False, note=why)

    def keep(self, cubin: Cubin, number: int, ptx: Ptx | None, cache_hit: bool, note: str | None) -> None:
        """Hand each kernel of a cubin to each session that wants it."""
        files = {Stage.CUBIN: str(self.folder / f"{number}.cubin")}
        Path(files[Stage.CUBIN]).write_bytes(cubin.data)
        if ptx is not None:
            files = {Stage.PTX: str(self.folder / f"{number}.ptx"), **files}
            Path(files[Stage.PTX]).write_text(ptx.text, "utf-8")
        for kernel in cubin.kernels:
            capture = self.capture(kernel, cubin, ptx, files, cache_hit, note)
            for one in _attached:
                if one.owner.settings.wants(capture.rewritten_from or kernel):
                    record = one.owner.keep(capture, files)
                    if ptx is None and not one.owner.has_ptx(record):
                        one.without_ptx.add(record)

    def capture(
        self, kernel: str, cubin: Cubin, ptx: Ptx | None, files: Mapping[Stage, str], cache_hit: bool, note: str | None
    ) -> Capture:
        own = self.own_names.get(kernel)
        asked = {} if self.dump is None else dict(_OPTION.findall(self.dump.asked))
        return Capture(
            kernel=kernel,
            hash=cubin.sha256,
            arch=ptx.target if ptx is not None else f"sm_{cubin.arch}",
            artifacts=dict.fromkeys(files, ""),
            assembler=_assembler(cubin, ptx),
            options=self._options(asked),
            metadata={
                "front_end": FRONT_END,
                "function": getattr(self.subject and self.subject.function, "__qualname__", None),
                "function_at": _defined_at(self.subject and self.subject.function),
                "kernel_at": self.places.get(own or kernel),
                "kernels": list(cubin.kernels),
                "pipeline": None if self.dump is None else self.dump.asked,
            },
            cache_hit=cache_hit,
            rewritten_from=own,
            note=note,
        )

    def _options(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """What decides the code besides the source, from the pipeline; None where that is not known."""
        level = asked.get("opt-level")
        flags = {"line_info": "preserve-line-info", "assertions": "enable-assertions", "relocatable": "rdc"}
        return {
            "cute_dsl": _dsl_version(),
            "opt_level": int(level) if level is not None and level.isdecimal() else level,
            "ptxas_options": asked.get("ptx-options", "").strip("'") or None,
            **{name: asked[option] == "true" for name, option in flags.items() if option in asked},
        }


def _defined_at(function: Any) -> str | None:
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _assembler(cubin: Cubin, ptx: Ptx | None) -> Assembler:
    """The ptxas inside the DSL's library, as its own note in the cubin has it; the PTX names the same release."""
    version = cubin.ptxas_version
    if version is None and ptx is not None and (release := _RELEASE.search(ptx.text)):
        version = release[1]
    if cubin.ptxas_arguments is None:
        return Assembler(None, version, None)
    # ptxas writes "-O 3 -arch sm_90a" but rejects a level that stands apart.
    words = re.sub(r"(^|\s)-O (\d)", r"\1-O\2", cubin.ptxas_arguments)
    target = re.search(r"(?:^|\s)-arch (\w+)", words)
    if target is not None:
        words = f"{words[: target.start()]} {words[target.end() :]} --gpu-name={target[1]}"
    return Assembler(None, version, tuple(words.split()))


# --- kernels that were compiled before -----------------------------------------------------------


def _around_cache_get(original: Any, cache: Any, key: Any, *arguments: Any, **options: Any) -> Any:
    value = original(cache, key, *arguments, **options)
    if value is not None and any(key not in one.met for one in _attached):
        _contained("a CuTe kernel from the DSL's cache could not be captured", lambda: _met_in_cache(key, value))
    return value


def _met_in_cache(key: Any, function: Any) -> None:
    for one in _attached:
        one.met.add(key)
    module = getattr(function, "ir_module", None)
    if module is None:
        return
    own_names = getattr(_thread, "own_names", {}) if any(one.owner.settings.key for one in _attached) else {}
    _keep_from(_cubins(_strings(module)), own_names, "from the CuTe DSL's cache, which keeps no PTX")


def _around_load(original: Any, loaded: Any, file_path: Any, *arguments: Any, **options: Any) -> Any:
    result = original(loaded, file_path, *arguments, **options)
    _contained("kernels of an exported object could not be captured", lambda: _met_in_object(Path(file_path)))
    return result


def _met_in_object(path: Path) -> None:
    if not path.is_file():
        return
    cubins = _cubins([path.read_bytes()])
    _keep_from(cubins, {}, f"from the exported object {path}, which holds no PTX")
    for kernel in (kernel for cubin in cubins for kernel in cubin.kernels):
        if any(_new_name(kernel, kernel, one.owner) != kernel for one in _attached):
            _note(f"{kernel} came from the exported object {path} and keeps its name")


def _keep_from(cubins: Sequence[Cubin], own_names: Mapping[str, str], note: str) -> None:
    with _folder() as folder:
        keeping = _Keeping(Path(folder), None, own_names=own_names)
        for number, cubin in enumerate(cubins):
            keeping.keep(cubin, number, None, cache_hit=True, note=note)


_POINTS: tuple[tuple[str, str, str, _Around], ...] = (
    ("base_dsl.compiler", "Compiler", "compile", _around_compile),
    ("base_dsl.dsl", "BaseDSL", "compile_and_cache", _around_compile_and_cache),
    ("base_dsl.dsl", "BaseDSL", "get_module_hash", _around_get_module_hash),
    ("base_dsl.cache_helpers", "JitCacheDict", "get", _around_cache_get),
    ("base_dsl.export.external_binary_module", "ExternalBinaryModule", "__init__", _around_load),
)
