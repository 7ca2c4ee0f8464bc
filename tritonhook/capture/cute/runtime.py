"""Hooks in the CUDA runtime library of the CuTe DSL, whose functions the compiled host code calls.

The DSL's own engine, TVM FFI's and the loader of exported objects all link host code to this library by symbol name. So
the library's symbol table in memory is changed: a name gets the address of a gate. Host code linked afterwards calls
the gate. A gate is a short function compiled by the DSL's LLVM. It calls a Python hook, if one is set, and the original
function. Without a hook a gate costs a few loads and a branch, and no Python runs.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonhook.errors import CaptureError

LAUNCH, PLAIN_LAUNCH = "_cudaLaunchKernelEx", "_cudaLaunchKernel"
LOAD, KERNEL = "_cudaLibraryLoadData", "_cudaLibraryGetKernel"
# By function: number of arguments; True if the hook runs before the function, False if it runs after its success.
_GATED = {LAUNCH: (3, True), PLAIN_LAUNCH: (10, True), LOAD: (8, False), KERNEL: (3, False)}
_HASH, _STRINGS, _SYMBOLS, _LENGTH = _TAGS = 4, 5, 6, 10  # DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ
_ADDRESSES = 1 << 64
_READ, _WRITE, _EXECUTE = 1, 2, 4  # PROT_*
_Pointer = ctypes.c_void_p
Hook = Callable[..., None]

_GATE = """
  llvm.func @gate{number}({parameters}) -> i32 {{
    %place = llvm.mlir.constant({slots} : i64) : i64
    %slots = llvm.inttoptr %place : i64 to !llvm.ptr
    %second = llvm.getelementptr %slots[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %hook = llvm.load volatile %slots : !llvm.ptr -> !llvm.ptr
    %function = llvm.load volatile %second : !llvm.ptr -> !llvm.ptr
    %none = llvm.mlir.zero : !llvm.ptr
    %hooked = llvm.icmp "ne" %hook, %none : !llvm.ptr
{body}
  }}"""
_HOOK_FIRST = """    llvm.cond_br %hooked, ^hooked, ^go
  ^hooked:
    llvm.call %hook({given}) : !llvm.ptr, ({types}) -> ()
    llvm.br ^go
  ^go:
    %result = llvm.call %function({given}) : !llvm.ptr, ({types}) -> i32
    llvm.return %result : i32"""
_HOOK_LAST = """    %result = llvm.call %function({given}) : !llvm.ptr, ({types}) -> i32
    %success = llvm.mlir.constant(0 : i32) : i32
    %succeeded = llvm.icmp "eq" %result, %success : i32
    %both = llvm.and %hooked, %succeeded : i1
    llvm.cond_br %both, ^hooked, ^go
  ^hooked:
    llvm.call %hook({given}) : !llvm.ptr, ({types}) -> ()
    llvm.br ^go
  ^go:
    llvm.return %result : i32"""
_MODULE = """module {{{gates}
  llvm.func @nothing() -> i32 {{
    %success = llvm.mlir.constant(0 : i32) : i32
    llvm.return %success : i32
  }}
  llvm.func @addresses(%out: !llvm.ptr) {{
{stores}
    llvm.return
  }}
}}"""
_STORE = """    %f{number} = llvm.mlir.addressof @{name} : !llvm.ptr
    %p{number} = llvm.getelementptr %out[{number}] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %f{number}, %p{number} : !llvm.ptr, !llvm.ptr"""


class _LinkMap(ctypes.Structure):
    """struct link_map, the result of dlopen: a library's base address, its name, its dynamic section."""

    _fields_ = (("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_uint64))


class _Symbol(ctypes.Structure):
    """A symbol table entry, Elf64_Sym."""

    _fields_ = (
        *(("name", ctypes.c_uint32), ("info", ctypes.c_ubyte), ("other", ctypes.c_ubyte)),
        *(("section", ctypes.c_uint16), ("value", ctypes.c_uint64), ("size", ctypes.c_uint64)),
    )


class SymbolTable:
    """The symbol table of a loaded library in this process's memory. Raises CaptureError if the library has no symbol
    table of the expected format."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        found = _LinkMap.from_address(self._library._handle)
        self._base, tags, at = found.base, dict[int, int](), found.dynamic
        while (pair := tuple((ctypes.c_uint64 * 2).from_address(at)))[0]:
            tags.setdefault(*pair)
            at += 16
        if Path((found.name or b"").decode()).name != Path(path).name or not tags.keys() >= {*_TAGS}:
            raise CaptureError(f"{path}: unknown format of its symbol table")
        names = ctypes.string_at(tags[_STRINGS], tags[_LENGTH])
        count = ctypes.c_uint32.from_address(tags[_HASH] + 4).value
        self._symbols: dict[str, _Symbol] = {}
        for number in range(count):
            symbol = _Symbol.from_address(tags[_SYMBOLS] + ctypes.sizeof(_Symbol) * number)
            if symbol.section:
                self._symbols[names[symbol.name : names.index(b"\0", symbol.name)].decode()] = symbol

    def __contains__(self, name: str) -> bool:
        return name in self._symbols

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._base + self._symbols[name].value) % _ADDRESSES

    def replace(self, name: str, address: int) -> None:
        """Change the address of a name, for code linked from now on. Raises CaptureError if the memory cannot be made
        writable."""
        symbol = self._symbols[name]
        page = os.sysconf("SC_PAGESIZE")
        begin = ctypes.addressof(symbol) // page * page
        size = -(-(ctypes.addressof(symbol) + ctypes.sizeof(symbol) - begin) // page) * page
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (_Pointer, ctypes.c_size_t, ctypes.c_int)
        if protect(begin, size, _READ | _WRITE | _EXECUTE) and protect(begin, size, _READ | _WRITE):
            raise CaptureError(f"{self.path}: its symbol table cannot be changed: {os.strerror(ctypes.get_errno())}")
        symbol.value = (address - self._base) % _ADDRESSES
        protect(begin, size, _READ | _EXECUTE)


class Runtime:
    """The DSL's runtime library, with gates before the functions that load and launch kernels. `of_process` returns the
    only instance."""

    def __init__(self, path: str) -> None:
        self.table = SymbolTable(path)
        if missing := [name for name in _GATED if name not in self.table]:
            raise CaptureError(f"{path} has no {missing[0]}")
        self._slots = {name: (ctypes.c_uint64 * 2)(0, self.table.address(name)) for name in _GATED}
        *gates, self.nothing = self._compiled()
        self._gates = dict(zip(_GATED, gates, strict=True))
        self._callbacks: list[Any] = []  # never freed: linked code may use their addresses until the process ends
        for name, address in self._gates.items():
            self.table.replace(name, address)

    def _compiled(self) -> list[int]:
        """Compile the gates. Returns their addresses, and last the address of a function that does nothing."""
        from cutlass._mlir import ir
        from cutlass._mlir.execution_engine import ExecutionEngine

        names = [*(f"gate{number}" for number in range(len(_GATED))), "nothing"]
        gates = "".join(_gate(number, ctypes.addressof(self._slots[name])) for number, name in enumerate(_GATED))
        stores = "\n".join(_STORE.format(number=number, name=name) for number, name in enumerate(names))
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.parse(_MODULE.format(gates=gates, stores=stores))
            self._engine = ExecutionEngine(module, opt_level=2, shared_libs=[])
        found = (ctypes.c_uint64 * len(names))()
        place = _Pointer(ctypes.addressof(found))
        arguments = (_Pointer * 1)(ctypes.addressof(place))  # MLIR's packed calling convention: addresses of arguments
        ctypes.CFUNCTYPE(None, _Pointer)(self._engine.raw_lookup("addresses"))(arguments)
        return list(found)

    def hook(self, name: str, hook: Hook | None) -> None:
        """Set the Python function that a gate calls; it gets the arguments as integers. None removes the function."""
        address = 0
        if hook is not None:
            count, _ = _GATED[name]
            self._callbacks.append(ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * count)(hook))
            address = ctypes.cast(self._callbacks[-1], _Pointer).value or 0
        self._slots[name][0] = address

    def stand_in(self, name: str, count: int, function: Callable[..., int] | None) -> Callable[[], None]:
        """Replace a library function by a Python function, for host code linked from now on.

        function: takes `count` integers and returns a CUDA error code; None stands for a function that does nothing and
        returns success. Returns a function that undoes the change.
        """
        address = self.nothing
        if function is not None:
            self._callbacks.append(ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * count)(function))
            address = ctypes.cast(self._callbacks[-1], _Pointer).value or 0
        if name in _GATED:
            slot = self._slots[name]
            before, slot[1] = slot[1], address
            return lambda: slot.__setitem__(1, before)
        before = self.table.address(name)
        self.table.replace(name, address)
        return lambda: self.table.replace(name, before)


def _gate(number: int, slots: int) -> str:
    count, is_first = tuple(_GATED.values())[number]
    given, types = ", ".join(f"%a{n}" for n in range(count)), ", ".join(["i64"] * count)
    parameters = ", ".join(f"%a{n}: i64" for n in range(count))
    body = (_HOOK_FIRST if is_first else _HOOK_LAST).format(given=given, types=types)
    return _GATE.format(number=number, parameters=parameters, slots=slots, body=body)


_runtime: list[Runtime] = []


def of_process() -> Runtime:
    """Return the runtime of the DSL, which the process must have imported. Raises CaptureError if there is no library,
    or its format is unknown."""
    if not _runtime:
        from cutlass.runtime import find_runtime_libraries

        path = next(iter(find_runtime_libraries(enable_tvm_ffi=False)), None)
        if path is None:
            raise CaptureError("the CuTe DSL has no runtime library")
        _runtime.append(Runtime(path))
    return _runtime[0]
