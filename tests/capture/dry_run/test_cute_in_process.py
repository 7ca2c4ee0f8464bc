"""The CuTe DSL in a dry run, in this process: stand-ins for the DSL's modules, its runtime and torch's tensors."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tritonhook.capture.cute import runtime
from tritonhook.capture.dry_run import cute

ALL = {
    **{runtime.LOAD: 8, runtime.KERNEL: 3, runtime.LAUNCH: 3, runtime.PLAIN_LAUNCH: 10, "_cudaGetDevice": 1},
    **{"_cudaGetDeviceCount": 1, "_cudaSetDevice": 1, "_cudaDeviceGetAttribute": 3, "_cuKernelGetAttribute": 4},
    **{"_cudaKernelSetAttributeForDevice": 4, "_cudaFuncSetAttribute": 3, "_cudaLibraryUnload": 1},
    **{"_cudaOccupancyMaxActiveBlocksPerMultiprocessor": 4, "cuda_dialect_init_library_once": 4},
    "cuda_dialect_unload_library_once": 1,
}


class Library:
    """As the DSL's runtime, which has these functions: keeps what stands in for each."""

    def __init__(self, *names: str) -> None:
        self.table = {*names, "another"}
        self.functions: dict[str, Callable[..., int] | None] = {}
        self.counts: dict[str, int] = {}

    def stand_in(self, name: str, count: int, function: Callable[..., int] | None) -> Callable[[], None]:
        self.functions[name], self.counts[name] = function, count
        return lambda: self.functions.pop(name) and None


@pytest.fixture
def functions() -> dict[str, Any]:
    """The stand-ins of all functions of the runtime."""
    library: Any = Library(*ALL)
    cute._stand_ins(library)
    assert library.counts == ALL
    return library.functions  # type: ignore[no-any-return]


def test_only_functions_that_the_runtime_has_are_replaced() -> None:
    library: Any = Library(runtime.LAUNCH, "_cudaGetDevice")
    undo = cute._stand_ins(library)
    assert set(library.functions) == {runtime.LAUNCH, "_cudaGetDevice"}
    for one in undo:
        one()
    assert library.functions == {}


def test_questions_are_answered_and_nothing_else_is_done(functions) -> None:
    answers = {"_cudaGetDevice": 0, "_cudaGetDeviceCount": 1, "_cudaDeviceGetAttribute": 227 << 10}
    answers |= {"_cuKernelGetAttribute": 0, "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": 1}
    for name, answer in answers.items():
        place = (ctypes.c_int32 * 2)(-7, -7)
        assert functions[name](ctypes.addressof(place), 1, 2, 3) == 0
        assert list(place) == [answer, -7], name
    handles = []
    for name in (runtime.LOAD, runtime.KERNEL, runtime.LOAD):
        place64 = (ctypes.c_uint64 * 2)(1 << 60, 7)
        assert functions[name](ctypes.addressof(place64), 0) == 0
        handles.append(place64[0])
        assert place64[1] == 7
    assert all(handles) and [b - a for a, b in pairwise(handles)] == [16, 16]
    doing = {runtime.LOAD, runtime.KERNEL, "cuda_dialect_init_library_once", *answers}
    assert {name for name, function in functions.items() if function is None} == set(ALL) - doing


@pytest.mark.parametrize(
    ("loaded", "error", "calls", "result"), [(1, 0, [], 0), (0, 0, ["init", "load"], 9), (0, 5, ["init"], 5)]
)
def test_a_library_is_loaded_once_by_its_host_code(functions, loaded, error, calls, result) -> None:
    state, made = ctypes.c_uint64(loaded), list[Any]()

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64)
    def init(place: int) -> int:
        made.append(("init", place))
        return error

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32)
    def load(place: int, device: int) -> int:
        made.append(("load", place, device))
        return 9

    begin, then = (ctypes.cast(one, ctypes.c_void_p).value for one in (init, load))
    place = ctypes.addressof(state)
    assert functions["cuda_dialect_init_library_once"](place, begin, then, 3) == result
    assert made == [("init", place), ("load", place, 0)][: len(calls)]


# --- tensors -------------------------------------------------------------------------------------


class Tensor:
    """As a tensor of torch."""

    def __init__(self, is_cuda: bool = True) -> None:
        self.is_cuda = is_cuda
        self.kept: Any = None

    def untyped_storage(self) -> None: ...

    def detach(self) -> Tensor:
        return self

    def __dlpack__(self) -> Any:
        """A DLTensor, of which the address and the device are looked at."""
        self.kept = (ctypes.c_int32 * 8)(1, 2, 1, 7, 5, 5, 5, 5)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.kept), b"dltensor", None)


class Pair(NamedTuple):
    a: Any
    b: Any


def test_a_tensor_of_the_gpu_says_so_through_dlpack() -> None:
    tensor = Tensor()
    moved = cute._moved(tensor)
    assert moved.__dlpack_device__() == (2, 0)
    capsule = moved.__dlpack__(stream=1, max_version=(1, 0))
    assert type(capsule).__name__ == "PyCapsule"
    assert list(tensor.kept) == [1, 2, 2, 7, 5, 5, 5, 5], "the type of the device alone is another"
    for other in (Tensor(is_cuda=False), 5, SimpleNamespace(is_cuda=True)):
        assert cute._moved(other) is other


def test_tvm_ffi_gets_tensors_of_the_gpu_in_all_arguments(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm_ffi", SimpleNamespace(from_dlpack=lambda moved: ("ffi", moved._tensor)))  # type: ignore[arg-type]
    x, y, cpu, calls = Tensor(), Tensor(), Tensor(is_cuda=False), list[Any]()
    call = cute._given_on_the_gpu(lambda function, *given, **named: calls.append((function, given, named)) or "result")  # type: ignore[func-returns-value]
    assert call("f", x, (y, 5), [cpu], Pair(x, "b"), n=y, m=7) == "result"
    given = ("ffi", x), (("ffi", y), 5), [cpu], Pair(("ffi", x), "b")
    assert calls == [("f", given, {"n": ("ffi", y), "m": 7})]
    assert type(calls[0][1][3]) is Pair


# --- all together --------------------------------------------------------------------------------


@pytest.mark.parametrize("has_ffi", [True, False])
def test_nothing_is_launched_until_the_end(monkeypatch, has_ffi) -> None:
    calls: list[Any] = []

    class Function:
        num_devices = 8

        def __call__(self, *given: Any) -> None:
            calls.append(given)

    class OwnTensor:
        def __init__(self, tensor: Any, *given: Any, **options: Any) -> None:
            calls.append((tensor, given, options))

    executor = SimpleNamespace(CudaDialectJitCompiledFunction=Function)
    provider = SimpleNamespace(TVMFFIJitCompiledFunction=Function)
    modules = {"cutlass_dsl.cuda_jit_executor": executor, "cute.runtime": SimpleNamespace(_Tensor=OwnTensor)}
    for name in (*modules, "cutlass_dsl.tvm_ffi_provider"):
        monkeypatch.setitem(sys.modules, f"cutlass.{name}", None)  # type: ignore[arg-type]
        del sys.modules[f"cutlass.{name}"]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"cutlass.{name}", module)  # type: ignore[arg-type]
    library: Any = Library(runtime.LAUNCH)
    monkeypatch.setattr(runtime, "of_process", lambda: library)
    imported: list[str] = []

    def load(name: str) -> None:
        imported.append(name)
        if not has_ffi:
            raise ImportError
        sys.modules[name] = provider  # type: ignore[assignment]

    monkeypatch.setattr(cute, "import_module", load)
    before = dict(vars(Function)), dict(vars(OwnTensor))
    with cute.nothing_launched():
        assert imported == ["cutlass.cutlass_dsl.tvm_ffi_provider"] and set(library.functions) == {runtime.LAUNCH}
        assert Function().num_devices == 1
        tensor = Tensor()
        OwnTensor(tensor, 1, a=2)
        moved, *rest = calls.pop()
        assert moved._tensor is tensor and rest == [(1,), {"a": 2}]
        monkeypatch.setattr(cute, "_for_ffi", lambda value: ("ffi", value))
        Function()(7)
        assert calls.pop() == ((("ffi", 7),) if has_ffi else (7,))
    assert (dict(vars(Function)), dict(vars(OwnTensor)), library.functions) == (*before, {})
