"""Rename kernels in an MLIR module of the DSL, before its passes: their definitions and their uses in host code. Also
add the pragma of `mma-throughput` to kernels, as inline PTX."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonhook.capture.cute import modules, state
from tritonhook.capture.cute.modules import attribute_names, is_a, kernel_ops, name_of, operations
from tritonhook.capture.cute.state import note
from tritonhook.capture.settings import name_of_rewrite
from tritonhook.ptx.throughput_pragma import DIRECTIVE, PRAGMA, ThroughputPragma
from tritonhook.ptx.tokens import IDENTIFIER
from tritonhook.rename import Control, Rename, Rewrite

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer
    from tritonhook.capture.settings import Settings


def wanted_names(module: Any) -> dict[str, str]:
    """Collect the renames of all sessions. Returns the own name of each kernel by its new name. The outermost session
    renames first."""
    own_names = [name_of(operation) for operation in kernel_ops(module)]
    wanted: dict[str, str] = {}
    for own in own_names:
        new = own
        for attachment in state.attached:
            if attachment.session.settings.wants(own):
                new = new_name(own, new, attachment.session)
        if new == own:
            continue
        if new in wanted or new in own_names or not IDENTIFIER.fullmatch(new):
            note(f"{own} is not renamed: {new!r} is {'taken' if IDENTIFIER.fullmatch(new) else 'not a PTX name'}")
        else:
            wanted[new] = own
    return wanted


def new_name(own: str, name: str, session: Observer) -> str:
    """Apply a session's renames to a kernel's name. own: the kernel's original name. name: its name after the renames
    of outer sessions."""
    for step in steps_for(own, session):
        if isinstance(step, Control):
            name = step.new_name(name)
        elif isinstance(step, ThroughputPragma):
            continue
        elif not isinstance(step, Rename):
            session.note(f"{type(step).__name__} is not possible for CuTe kernels, only renames and mma-throughput")
        elif step.entry in (None, own, name):
            name = step.new_name(name)
    return name


def wanted_pragmas(module: Any) -> dict[str, str]:
    """Find the kernels to which sessions add the pragma of `mma-throughput`. Returns the rewrite's name by the kernel's
    own name."""
    return {
        own: name_of_rewrite(step)
        for own in map(name_of, kernel_ops(module))
        for attachment in reversed(state.attached)
        if attachment.session.settings.wants(own)
        for step in steps_for(own, attachment.session)
        if isinstance(step, ThroughputPragma) and (step.entries is None or own in step.entries)
    }


def steps_for(own: str, session: Observer) -> tuple[Rewrite, ...]:
    """Return a session's rewrites for a kernel. A policy's rewrites are tentative: only the PTX, which exists after the
    compile, shows whether the policy has an entry for this kernel (Renaming.problem)."""
    policy = session.settings.policy
    if policy is None:
        return session.settings.rewrites.steps
    lever = next((entry.lever for entry in modules.entries_of(policy, own)), None)
    return () if lever is None else lever.rewrites.steps


def changes_cute(settings: Settings) -> bool:
    """Check whether a session changes any CuTe kernel."""
    if settings.policy is not None:
        return any(entry.front_end == state.FRONT_END for entry in settings.policy.entries)
    return any(isinstance(step, (Rename, Control, ThroughputPragma)) for step in settings.rewrites.steps)


@dataclass(frozen=True, slots=True)
class Renaming:
    """The renames of the kernels in one module, and the `mma-throughput` pragmas added to them. They can be undone.

    plain: the module before the change, as MLIR bytecode. own_names: own name by new name. pragmas: the rewrite's name
    by own name, for each kernel with the pragma.
    """

    module: Any
    plain: bytes
    own_names: Mapping[str, str]
    pragmas: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, module: Any) -> Renaming | None:
        """Rename the kernels of a module and add pragmas. Returns None if no session changes any kernel."""
        if not any(attachment.session.settings.key for attachment in state.attached):
            return None
        own_names, pragmas = wanted_names(module), wanted_pragmas(module)
        if not own_names and not pragmas:
            return None
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
        renaming = cls(module, buffer.getvalue(), own_names, pragmas)
        try:
            add_pragmas(module, pragmas)
            substitute(module, {own: new for new, own in own_names.items()})
        except Exception:
            renaming._replace_by(renaming.plain)
            raise
        renaming._tell_dsl({own: new for new, own in own_names.items()})
        _renamed.update(own_names)
        _watch_exports()
        for own in pragmas:
            note(f'{own}: .pragma "{PRAGMA}" added')
        return renaming

    def problem(self, texts: Sequence[str]) -> str | None:
        """Return why the compiled module must not run, else None. Reasons: the host code looks up a kernel that the
        module does not contain; the policy has no entry for a kernel. texts: the module's PTX."""
        try:
            return self._problem() or self._uncertified(texts)
        except Exception as error:
            return f"the compiled module could not be checked ({type(error).__name__}: {error})"

    def _problem(self) -> str | None:
        asked = {
            text.rstrip(b"\0").decode("utf-8", "replace") for text in modules.strings(self.module, "llvm.mlir.constant")
        }
        if left := asked & set(self.own_names.values()):
            return f"the host code still looks up {min(left)}"
        kernels = {name for cubin in modules.cubins(modules.strings(self.module)) for name in cubin.kernels}
        missing = self.own_names.keys() - kernels
        return f"the compiled code has no kernel {min(missing)}" if missing else None

    def _uncertified(self, texts: Sequence[str]) -> str | None:
        new_names = {own: new for new, own in self.own_names.items()}
        changed = {own: new_names.get(own, own) for own in (*new_names, *self.pragmas)}
        cubins = modules.cubins(modules.strings(self.module))
        for attachment in state.attached:
            settings = attachment.session.settings
            if settings.policy is None:
                continue
            for own, new in changed.items():
                problem = modules.why_uncertified(settings.policy, own, new, texts, cubins)
                if problem is not None and settings.wants(own):
                    return problem
        return None

    def undo(self, problem: str) -> None:
        """Restore the kernels' names in the DSL's attributes, and note the problem. `compile_plain` restores the
        module."""
        self._tell_dsl(self.own_names)
        for new, own in self.own_names.items():
            note(f"{own} is not renamed to {new}: {problem}")
        for own in self.pragmas:
            note(f"{own} does not get the pragma: {problem}")

    def compile_plain(self, compiler: Any, compile_it: Callable[[Any], Any]) -> Any:
        """Compile the unchanged module, and replace the failed module by the result. compile_it: compiles a module.

        A new MLIR context is used: before 4.8 the DSL makes only one binary per context ("Binary already exists"). The
        DSL's last step, which adds the entry point for the TVM FFI, needs the program's context and runs at the end.
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
        """Replace the content of the program's module in place, because the program refers to the module object."""
        from cutlass._mlir import ir

        other = ir.Module.parse(bytecode, self.module.context)
        for operation in list(self.module.body.operations):
            operation.operation.erase()
        for operation in list(other.body.operations):
            self.module.body.append(operation)
        new, old = self.module.operation.attributes, other.operation.attributes
        for name in attribute_names(new):
            del new[name]
        for name in attribute_names(old):
            new[name] = old[name]

    def _tell_dsl(self, names: Mapping[str, str]) -> None:
        """Rename kernels in the DSL's `kernel_info`, which has launch attributes by kernel name. The DSL also exports
        it."""
        function = state.compiled_function()
        infos = None if function is None else getattr(function.dsl, "kernel_info", None)
        if isinstance(infos, dict):
            renamed = {names.get(name, name): info for name, info in infos.items()}
            infos.clear()
            infos.update(renamed)


def substitute(module: Any, names: Mapping[str, str]) -> None:
    """Rename kernels in their definitions and in all symbols that refer to them. names: new name by old name."""
    from cutlass._mlir import ir

    with module.context:
        for operation in list(kernel_ops(module)):
            if (new := names.get(name_of(operation))) is not None:
                operation.attributes["sym_name"] = ir.StringAttr.get(new)

        for operation in operations(module):
            for name in attribute_names(operation.attributes):
                if (renamed := _renamed_attribute(operation.attributes[name], names)) is not None:
                    operation.attributes[name] = renamed
    module.operation.verify()


def add_pragmas(module: Any, kernels: Collection[str]) -> None:
    """Add the pragma of `mma-throughput` at the beginning of these kernels, as inline PTX, which the DSL does not
    change."""
    from cutlass._mlir import ir
    from cutlass._mlir.dialects import llvm

    with module.context, ir.Location.unknown():
        for operation in kernel_ops(module):
            if name_of(operation) in kernels:
                with ir.InsertionPoint.at_block_begin(operation.regions[0].blocks[0]):
                    llvm.inline_asm(None, [], DIRECTIVE, "", has_side_effects=True)


def _renamed_attribute(attribute: Any, names: Mapping[str, str]) -> Any:
    """Return a copy of an attribute in which the symbols of these kernels are renamed; None if it has no such
    symbol."""
    from cutlass._mlir import ir

    if is_a(attribute, ir.FlatSymbolRefAttr):
        new = names.get(ir.FlatSymbolRefAttr(attribute).value)
        return None if new is None else ir.FlatSymbolRefAttr.get(new)
    if is_a(attribute, ir.SymbolRefAttr):
        path = list(ir.SymbolRefAttr(attribute).value)
        return ir.SymbolRefAttr.get([*path[:-1], names[path[-1]]]) if path[-1] in names else None
    if is_a(attribute, ir.ArrayAttr):
        items = list(ir.ArrayAttr(attribute))
        renamed = [_renamed_attribute(item, names) for item in items]
        if all(item is None for item in renamed):
            return None
        return ir.ArrayAttr.get([old if new is None else new for old, new in zip(items, renamed, strict=True)])
    return None


# --- exports -------------------------------------------------------------------------------------

_renamed: set[str] = set()  # new names used in this process; an exported object contains them


def _watch_exports() -> None:
    """Patch `export_to_c` in the DSL's classes that the program has imported by now."""
    for module, owner in (
        ("base_dsl.jit_executor", "JitCompiledFunction"),
        ("cutlass_dsl.tvm_ffi_provider", "TVMFFIJitCompiledFunctionBase"),
    ):
        exporter = getattr(sys.modules.get(f"cutlass.{module}"), owner, None)
        watched = any(patch.owner is exporter and patch.name == "export_to_c" for patch in state.patches)
        if exporter is not None and "export_to_c" in exporter.__dict__ and not watched:
            state.patch(exporter, "export_to_c", _around_export)


def _around_export(original: Any, function: Any, *arguments: Any, **options: Any) -> Any:
    if names := _renamed & set(getattr(function, "kernel_info", None) or ()):
        note(f"{min(names)} was exported under this name; a program that loads the object gets the renamed kernel")
    return original(function, *arguments, **options)
