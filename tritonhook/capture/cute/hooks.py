"""Capture and rename kernels in a CuTe DSL program (nvidia-cutlass-dsl 4.6 to 4.8).

The DSL has no hooks. Instead, six of its methods are patched while a session is attached, after the program has
imported cutlass:

    Compiler.compile                rename kernels before the DSL's passes; read PTX and cubin after them. Both
                                    cute.compile and @cute.jit call it
    BaseDSL.compile_and_cache       read which Python function is being compiled, and its key in the DSL's caches
    BaseDSL.generate_original_ir    time the tracing of the Python function
    BaseDSL.get_module_hash         add the renames to the DSL's cache keys, if a session renames
    JitCacheDict.get                capture kernels from the DSL's caches, in memory and on disk
    ExternalBinaryModule.__init__   capture kernels from exported objects (cute.runtime.load_module)

rename.py renames a kernel in the DSL's MLIR module, in its definition and in the host code that refers to it, as the
DSL's own naming API does. The ptxas wrapper cannot capture these kernels, because ptxas is part of the DSL's library.
state.py imports this module after the program has imported cutlass.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonhook.capture.cute import launches, modules, state
from tritonhook.capture.cute.modules import Dump, Keeping
from tritonhook.capture.cute.rename import Renaming, changes_cute, new_name, wanted_names
from tritonhook.capture.cute.state import Around, CompiledFunction, contained, note
from tritonhook.cubin.image import Cubin


def install() -> None:
    """Patch the DSL's methods, if sessions are attached and the DSL is imported. Add a note for each method that this
    release of the DSL does not have."""
    version = state.dsl_version()
    if not state.attached or version is None:
        return
    contained("launches of CuTe kernels are not recorded", launches.changed)
    if state.patches:
        return
    for module, owner, name, around in _POINTS:
        try:
            state.patch(getattr(sys.modules[f"cutlass.{module}"], owner), name, around)
        except (KeyError, AttributeError):
            note(f"CuTe DSL {version} has no {owner}.{name}: kernels compiled through it are not captured")


def left() -> None:
    """Stop recording launches for a session that was detached. If it was the last session, restore the DSL's
    methods."""
    launches.changed()
    while state.patches and not state.attached:
        state.patches.pop().undo()


# --- the patched methods -------------------------------------------------------------------------


def _around_compile_and_cache(original: Any, dsl: Any, *arguments: Any, **options: Any) -> Any:
    given = dict(zip(("module", "module_hash"), arguments, strict=False)) | options
    functions = state.thread.__dict__.setdefault("functions", [])
    functions.append(CompiledFunction(dsl, options.get("funcBody"), given.get("module_hash")))
    try:
        return original(dsl, *arguments, **options)
    finally:
        functions.pop()


def _around_trace(original: Any, dsl: Any, *arguments: Any, **options: Any) -> Any:
    began = time.perf_counter_ns()
    try:
        return original(dsl, *arguments, **options)
    finally:
        state.thread.trace_us = (time.perf_counter_ns() - began) // 1000


def _around_get_module_hash(original: Any, dsl: Any, module: Any, *arguments: Any, **options: Any) -> Any:
    """Add the sessions' changes to the DSL's cache key, so that renamed and plain kernels have different keys."""
    plain = original(dsl, module, *arguments, **options)
    settings = [attachment.session.settings for attachment in state.attached]
    keys = [each.key for each in settings if changes_cute(each)]
    if not keys:
        return plain
    state.thread.own_names = contained("a CuTe kernel's names could not be read", lambda: wanted_names(module)) or {}
    return hashlib.sha256("|".join((plain, *keys)).encode()).hexdigest()


# --- compiling -----------------------------------------------------------------------------------


def _around_compile(original: Any, compiler: Any, module: Any, pipeline: str, *arguments: Any, **options: Any) -> Any:
    trace_us = state.thread.__dict__.pop("trace_us", None)
    took = {} if trace_us is None else {"trace": trace_us}  # microseconds by step; "pipeline" is the last attempt's

    def compile_it(chosen: Any) -> Any:
        began = time.perf_counter_ns()
        try:
            return original(compiler, chosen, dump.pipeline, *arguments, **options)
        finally:
            took["pipeline"] = (time.perf_counter_ns() - began) // 1000

    with contextlib.ExitStack() as stack:
        folder = contained("CuTe kernels are not captured", lambda: stack.enter_context(_folder()))
        dump = Dump.of(pipeline, folder)
        places = contained("a CuTe kernel's source is not known", lambda: modules.places(module)) or {}
        renaming = contained("a CuTe kernel is not renamed", lambda: Renaming.begin(module))
        try:
            result = compile_it(module)
            problem = None if renaming is None else renaming.problem(dump.texts())
        except Exception as error:
            if renaming is None:
                raise
            problem = f"the DSL does not compile it under that name ({type(error).__name__})"
        if renaming is not None and problem is not None:
            renaming.undo(problem)
            result = renaming.compile_plain(compiler, compile_it)
            renaming = None
        own_names, pragmas = ({}, {}) if renaming is None else (renaming.own_names, renaming.pragmas)
        if folder is not None:
            keep = Keeping(Path(folder), state.compiled_function(), places, own_names, dump, pragmas, took)
            contained("not all CuTe kernels are captured", lambda: keep.compiled(module))
    return result


def _folder() -> contextlib.AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="tritonhook-", ignore_cleanup_errors=True)


# --- kernels that were compiled before -----------------------------------------------------------


def _around_cache_get(original: Any, cache: Any, key: Any, *arguments: Any, **options: Any) -> Any:
    value = original(cache, key, *arguments, **options)
    if value is not None and any(key not in attachment.met for attachment in state.attached):
        contained("not all CuTe kernels from the DSL's cache are captured", lambda: _met_in_cache(key, value))
    return value


def _met_in_cache(key: Any, function: Any) -> None:
    for attachment in state.attached:
        attachment.met.add(key)
    module = getattr(function, "ir_module", None)
    if module is None:
        return
    rewriting = any(attachment.session.settings.key for attachment in state.attached)
    own_names = getattr(state.thread, "own_names", {}) if rewriting else {}
    _keep_from(modules.cubins(modules.strings(module)), own_names, "from the CuTe DSL's cache, which keeps no PTX")


def _around_load(original: Any, loaded: Any, file_path: Any, *arguments: Any, **options: Any) -> Any:
    result = original(loaded, file_path, *arguments, **options)
    contained("kernels of an exported object could not be captured", lambda: _met_in_object(Path(file_path)))
    return result


def _met_in_object(path: Path) -> None:
    if not path.is_file():
        return
    cubins = modules.cubins([path.read_bytes()])
    _keep_from(cubins, {}, f"from the exported object {path}, which holds no PTX")
    for kernel in (kernel for cubin in cubins for kernel in cubin.kernels):
        if any(new_name(kernel, kernel, attachment.session) != kernel for attachment in state.attached):
            note(f"{kernel} came from the exported object {path} and keeps its name")


def _keep_from(cubins: Sequence[Cubin], own_names: Mapping[str, str], note: str) -> None:
    with _folder() as folder:
        keeping = Keeping(Path(folder), None, own_names=own_names)
        for number, cubin in enumerate(cubins):
            keeping.keep(cubin, number, None, cache_hit=True, note=note)


_POINTS: tuple[tuple[str, str, str, Around], ...] = (
    ("base_dsl.compiler", "Compiler", "compile", _around_compile),
    ("base_dsl.dsl", "BaseDSL", "compile_and_cache", _around_compile_and_cache),
    ("base_dsl.dsl", "BaseDSL", "generate_original_ir", _around_trace),
    ("base_dsl.dsl", "BaseDSL", "get_module_hash", _around_get_module_hash),
    ("base_dsl.cache_helpers", "JitCacheDict", "get", _around_cache_get),
    ("base_dsl.export.external_binary_module", "ExternalBinaryModule", "__init__", _around_load),
)
