"""The CuTe DSL in a dry run: it compiles for the architecture that CUTE_DSL_ARCH names, and a call of what it compiled
launches nothing. What it would launch is recorded."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tritonhook.capture.cute import state
from tritonhook.capture.cute.host_code import HostCode, Tensor
from tritonhook.capture.launches.arguments import Unrecordable
from tritonhook.capture.patching import Patch

_MODULES = ("cutlass.base_dsl.jit_executor", "cutlass.cutlass_dsl.cuda_jit_executor")
_ON_CUDA = 2  # DLDeviceType
_HOST = "_tritonhook_host_code"
_seen = threading.local()  # .last: the pointers that the DSL made of a call's arguments, and the arguments


def nothing_launched() -> ExitStack:
    """Let nothing that the DSL compiled be launched, until the stack is closed. It is imported."""
    with ExitStack() as stack:
        for module in filter(None, map(sys.modules.get, _MODULES)):
            for owner in [var for var in vars(module).values() if isinstance(var, type)]:
                if owner.__module__ == module.__name__:
                    _change(owner, stack)
        for name, owner_name, method, wrap in (
            ("cutlass.base_dsl.dsl", "BaseDSL", "generate_mlir_function_types", _remembered_jit),
            ("cutlass.cute.runtime", "_Tensor", "__init__", _on_the_gpu),
        ):
            if method in vars(found := getattr(sys.modules.get(name), owner_name, object)):
                stack.callback(Patch(found, method, wrap).undo)
        return stack.pop_all()


def _change(owner: type, stack: ExitStack) -> None:
    runs = hasattr(owner, "run_compiled_program")
    for name, wrap in (("run_compiled_program", _recorded), ("to", _itself), ("generate_execution_args", _remembered)):
        if name in vars(owner) and runs == (name != "generate_execution_args"):
            stack.callback(Patch(owner, name, wrap).undo)


def _itself(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda function, device=None: function


def _remembered(original: Callable[..., Any]) -> Callable[..., Any]:
    def generate(of: Any, given: Sequence[Any], named: dict[str, Any]) -> Any:
        pointers, adapted = original(of, given, named)
        _seen.last = pointers, [*given, *named.values(), *adapted]
        return pointers, adapted

    return generate


def _remembered_jit(original: Callable[..., Any]) -> Callable[..., Any]:
    def generate(dsl: Any, *arguments: Any, **options: Any) -> Any:
        pointers, types, adapted = original(dsl, *arguments, **options)
        told = dict(zip(("func", "function_name", "args", "kwonlyargs"), arguments, strict=False)) | options
        _seen.last = pointers, [*told["args"], *told["kwonlyargs"].values(), *adapted]
        return pointers, types, adapted

    return generate


def _on_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the DSL take tensors for those of a GPU, as they say: their memory is global memory, not generic."""

    def begin(tensor: Any, *given: Any, **options: Any) -> None:
        original(tensor, *given, **options)
        capsule = ctypes.py_object(getattr(tensor, "_dlpack_data", None))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        if ctypes.pythonapi.PyCapsule_IsValid(capsule, b"dltensor"):
            place = pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)  # behind the address of the data
            ctypes.c_int32.from_address(place).value = _ON_CUDA

    return begin


# --- what would be launched ----------------------------------------------------------------------


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(function: Any, pointers: list[Any]) -> None:
        state.contained("a launch of the CuTe DSL could not be recorded", lambda: _record(function, pointers))

    return run


def _record(function: Any, pointers: list[Any]) -> None:
    sessions = [attached.session for attached in state.attached if attached.session.settings.launches]
    known, given = getattr(_seen, "last", (None, ()))
    if not sessions:
        return
    try:
        if (host := vars(function).get(_HOST)) is None:
            host = HostCode(function)
            setattr(function, _HOST, host)
        if known is not pointers:
            raise Unrecordable("its arguments were not seen")
        launches = host.launches(pointers, [*_tensors(given)])
    except Unrecordable as error:
        for session in sessions:
            session.note(f"a launch of the CuTe DSL was not recorded: {error}")
        return
    for cubin, launch in launches:
        for session in sessions:
            if (record := session.record_of(f"{cubin.sha256} {launch.kernel}")) is not None:
                session.keep_launch(record, launch, dict)


def _tensors(given: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among a call's arguments. Raises Unrecordable for one that may hold an address, and is no tensor."""
    from cutlass.base_dsl.typing import Numeric

    for number, value in enumerate(given):
        value = getattr(value, "_arg", value)  # of the DSL's adapter of torch's tensors
        if hasattr(value, "_dltensor_wrapper"):
            yield Tensor.of(value)
        elif hasattr(value, "untyped_storage") or isinstance(value, (int, float, Numeric, type(None))):
            continue  # torch's tensor, whose adapter is here too; a number
        elif type(value).__name__ != "CUstream":
            raise Unrecordable(f"argument {number} is a {type(value).__name__}, neither a tensor nor a number")
