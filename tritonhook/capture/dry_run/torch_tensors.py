"""torch's tensors in a dry run: they are in the CPU's memory, or have no memory, and report the GPU as their device.

A TorchFunctionMode replaces the GPU in the arguments of torch functions by the CPU, and reports the GPU as the device
of tensors. A mode gets only calls from Python in one thread; inside a torch function, tensors are on the CPU. Buffers
from torch.empty, which a kernel would fill, are set to zero. Without memory, GPU tensors are on torch's device "meta",
and CPU tensors are unchanged.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

from tritonhook.capture.dry_run.gpu import NONE, REAL, Emulation, line_of_program, notes
from tritonhook.capture.dry_run.streams import order
from tritonhook.capture.dry_run.suppressions import found
from tritonhook.capture.dry_run.torch_meta import READS, call_without_memory
from tritonhook.capture.dry_run.torch_random import DryGenerator
from tritonhook.capture.launches.live_tensors import cpu_bytes, memory_of
from tritonhook.capture.launches.record import POISON
from tritonhook.capture.launches.recorder import recorder
from tritonhook.capture.patching import patched

current = SimpleNamespace(device=0)  # index of the program's current GPU, which its tensors report
_GPU = re.compile(r"cuda(:\d+)?")


@contextmanager
def tensors_on_the_gpu(memory: str = REAL) -> Iterator[None]:
    """Make tensors report the GPU: in this thread, in threads that it starts, in backward passes, and in operators.
    memory: REAL or NONE."""
    import torch.utils._device
    import torch.utils._foreach_utils
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
    from torch.overrides import _get_current_function_mode

    place = torch.device("meta" if memory == NONE else "cpu")
    mode = _mode(place)

    def within(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            with nullcontext() if _get_current_function_mode() is mode else mode:
                return original(*arguments, **named)

        return run

    def hooking(original: Callable[..., None]) -> Callable[..., None]:
        return lambda hooks, pack, unpack: original(hooks, within(pack), within(unpack))

    changes = patched(
        # torch turns the mode off inside its functions, e.g. `loss.backward()`. Turn it on in the program's code that
        # they call.
        (torch.autograd, "_engine_run_backward", within),
        (torch.autograd.graph.saved_tensors_hooks, "__init__", hooking),
        (threading.Thread, "_bootstrap_inner", within),
        (torch, "load", partial(_load, place)),
        (torch.utils._device.DeviceContext, "__init__", partial(_placed, place)),
        (torch.Tensor, "_reduce_ex_internal", as_it_is),  # then saves the real device; no values for "meta"
        (torch.utils._foreach_utils, "_get_foreach_kernels_supported_devices", lambda of: lambda: [*of(), "meta"]),
        (torch.Tensor, "__cuda_array_interface__", lambda original: property(_as_array)),
        # Code that makes fake tensors gets the real device; the program gets the reported device.
        (FakeTensor, "__new__", as_it_is),
        (FakeTensor, "device", partial(_seeming, mode)),
        (FakeTensorMode, "__torch_dispatch__", as_it_is),
        (FakeTensorConverter, "from_real_tensor", as_it_is),
        (FakeTensorConverter, "from_meta_and_device", as_it_is),
        (torch.nested, "nested_tensor", partial(_nested, place)),
        (torch.nn.utils.rnn, "_packed_sequence_init_args", as_it_is),  # checks that batch sizes are on the CPU
        (torch.autograd.profiler.profile, "__init__", _profiled),
        (torch.autograd.profiler.emit_nvtx, "__init__", _unmarked),
        (torch.amp.autocast_mode.autocast, "__init__", _autocast),
        (torch, "is_autocast_enabled", _of_cpu),
        (torch, "get_autocast_dtype", _of_cpu),
    )
    with changes, operators_of_the_gpu(memory, within), mode:
        yield


def _placed(place: Any, original: Callable[..., None]) -> Callable[..., None]:
    """Redirect torch.set_default_device and `with torch.device("cuda")` to the dry-run device."""

    def init(context: Any, device: Any) -> None:
        original(context, without_gpu(device, place, True))

    return init


def _load(place: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Load tensors onto the dry-run device, including tensors saved on a GPU."""

    def load(file: Any, map_location: Any = None, *rest: Any, **named: Any) -> Any:
        where = place if map_location is None else without_gpu(map_location, place, True)
        return original(file, where, *rest, **named)

    return load


def _nested(place: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a nested tensor on the dry-run device. This function of torch does not call modes, so it is patched."""

    def nested_tensor(*given: Any, device: Any = None, **named: Any) -> Any:
        named["pin_memory"] = False
        return original(*given, device=without_gpu(device, place, True), **named)

    return nested_tensor


def as_it_is(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function get the real device of tensors instead of the reported device."""
    import torch

    def call(*given: Any, **named: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*given, **named)

    return call


def _profiled(original: Callable[..., None]) -> Callable[..., None]:
    """Profile only the CPU. Otherwise torch records CUDA events, and prints an error for each."""
    from torch.autograd import ProfilerActivity, ProfilerState

    def init(profile: Any, *given: Any, **named: Any) -> None:
        original(profile, *given, **named | {"use_cpu": True})
        if getattr(profile, "use_device", None) == "cuda":
            notes.add("torch's profiler recorded only the CPU, because kernels are not launched")
            profile.profiler_kind, profile.kineto_activities = ProfilerState.KINETO, {ProfilerActivity.CPU}

    return init


def _unmarked(original: Callable[..., None]) -> Callable[..., None]:
    return lambda context, enabled=True, *given, **named: original(context, False, *given, **named)


def _autocast(original: Callable[..., None]) -> Callable[..., None]:
    """Use the CPU's autocast instead of CUDA's. The default dtype is CUDA's, float16."""
    import torch

    def init(context: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(context, device_type, dtype, *rest, **named)

    return init


def _of_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the state of the CPU's autocast when the program reads the state of CUDA's autocast."""
    return lambda *device_type: original("cpu" if device_type in ((), ("cuda",)) else device_type[0])


def gpu() -> Any:
    """Return the device that GPU tensors report."""
    import torch

    return torch.device("cuda", current.device)


def without_gpu(value: Any, place: Any, is_device: bool = False) -> Any:
    """Replace a CUDA device by `place`, or a GPU's generator by its CPU generator; return any other value unchanged.
    is_device: True if a string or number means a device."""
    import torch

    if type(value) is DryGenerator:
        return value.own
    if isinstance(value, torch.device):
        return place if value.type == "cuda" else value
    if is_device and ((isinstance(value, str) and _GPU.fullmatch(value)) or type(value) is int):
        return place
    return value


def _mode(place: Any) -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor
    answers = _answers(place)
    reads = {getattr(tensor, name): name.strip("_") for name in READS}
    unset = {torch.empty, torch.empty_like, torch.empty_strided, tensor.new_empty, tensor.new_empty_strided}
    taking = {torch.tensor, torch.as_tensor, torch.asarray}
    without_memory = place.type == "meta"
    emulation = Emulation.from_environment(os.environ)
    poison = POISON if emulation is not None and emulation.sanitize else b""
    if emulation is not None:
        found.begin(emulation)  # here, because a program without launches can have findings too
    uses = {getattr(tensor, name) for name in _USES} | {torch.allclose, torch.equal, torch.isclose} if poison else set()

    class OnTheGpu(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.place = place

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            try:
                if (answer := answers.get(func)) is not None:
                    return answer(*args, **(kwargs or {}))
                return self.called(func, args, kwargs or {})
            except _ERRORS as error:
                raise _clear(func, error, without_memory) from error.__cause__

        def called(self, func: Any, args: Any, asked: dict[str, Any]) -> Any:
            is_to = func is tensor.to
            given = [without_gpu(value, place, is_to and n == 1) for n, value in enumerate(args)]
            named = {name: without_gpu(value, place, name == "device") for name, value in asked.items()}
            if pinned := bool(named.get("pin_memory")):
                named["pin_memory"] = False
            if func in reads and not recorder.is_busy and given[0].device.type == place.type:
                notes.count(reads[func])
            is_traced = torch.compiler.is_compiling()
            is_watched, is_copy = bool(poison) and not is_traced, not is_traced and _copies(func, args, asked)
            if is_watched and (func in uses or func in reads or is_copy):
                order.read()
            if is_copy and not without_memory:
                func, given, named = tensor.to, given if is_to else [*given, place], {**named, "copy": True}
            if func in uses:
                _check_written(given)
            if func in taking:
                given[:1] = [_array(value) for value in given[:1]]
            had = memory_of(given[0]) if poison and func is tensor.resize_ else None
            result = call_without_memory(func, given, named) if without_memory else func(*given, **named)
            if poison and func is tensor.resize_ and result.device.type == place.type:
                _set_unset(result, poison, had[1] - had[0] if had else 0)
            if is_watched and isinstance(result, torch.Tensor) and func not in unset:
                order.operations += 1
            if func in unset and not is_traced:
                _set_unset(result, poison)
            if pinned:
                setattr(result, _PINNED, True)
            return result

    return OnTheGpu()


def _copies(func: Any, args: Any, named: Any) -> bool:
    """Check whether a call copies a tensor to the CPU. In a dry run, the memory of a GPU tensor is on the CPU
    already."""
    import torch

    place = named.get("device", *args[1:2])
    if func is not torch.Tensor.to or not isinstance(place, (str, torch.device)):
        return bool(func is torch.Tensor.cpu)
    return bool(torch.device(place).type == "cpu")


_ERRORS = RuntimeError, ValueError, BufferError
_NO_GPU = ("not linked with support for cuda", "without ATen_cuda", "INTERNAL ASSERT FAILED", "on meta", "type meta")


def _clear(func: Any, error: Exception, without_memory: bool) -> Exception:
    """Return an error with a remedy if the cause is a missing GPU or missing memory; return other errors unchanged."""
    if not any(words in str(error) for words in _NO_GPU):
        return error
    name, first = getattr(func, "__name__", str(func)), str(error).splitlines()[0]
    missing, remedy = ("memory", "leave --memory none out") if without_memory else ("a GPU", "skip it in dry runs")
    return type(error)(f"torch's {name} needs {missing}, which this dry run does not have: {remedy} ({first})")


_PINNED = "_tritonhook_pinned"
_USES = ("item", "tolist", "__repr__", "__bool__", "__int__", "__float__", "__index__")


def _answers(place: Any) -> dict[Any, Callable[..., Any]]:
    """Return replacements for tensor methods and properties that depend on the device, by original function."""
    import torch

    tensor: Any = torch.Tensor

    def device(own: Any) -> Any:
        return gpu() if own.device.type == place.type else own.device

    def kind(own: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
        """Return the name of a tensor's type; with dtype, convert the tensor."""
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            return own.to(place, getattr(torch, dtype.removeprefix("torch.cuda.")).dtype)
        if dtype is not None:
            return own.type(dtype)
        name = own.type().replace("torch.meta.", "torch.") if place.type == "meta" else own.type()
        return name.replace("torch.", "torch.cuda.", 1) if device(own).type == "cuda" else name

    def pinned(own: Any, *_: Any, **__: Any) -> Any:
        if not hasattr(own, _PINNED):
            own = own.clone()
            setattr(own, _PINNED, True)
        return own

    return {
        tensor.device.__get__: lambda own, *_: device(own),
        tensor.is_cuda.__get__: lambda own, *_: device(own).type == "cuda",
        tensor.is_cpu.__get__: lambda own, *_: device(own).type == "cpu",
        tensor.is_meta.__get__: lambda own, *_: device(own).type == "meta",
        tensor.get_device: lambda own: current.device if device(own).type == "cuda" else -1,
        tensor.cuda: lambda own, *_, **__: own.to(place),
        tensor.type: kind,
        tensor.pin_memory: pinned,
        tensor.is_pinned: lambda own, *_, **__: hasattr(own, _PINNED),
        tensor.is_shared: lambda own: own.is_meta or own.is_shared(),
        tensor.share_memory_: lambda own: own if own.is_meta else own.share_memory_(),
        tensor.__dlpack__: lambda own, stream=None, **named: own.__dlpack__(**named),
    }


def _as_array(own: Any) -> dict[str, Any]:
    """Return the value of a tensor's __cuda_array_interface__. Raises the same errors as torch."""
    import torch

    if own.is_sparse or not own.is_cuda:
        raise AttributeError(f"Can't get __cuda_array_interface__ on {own.type()}; use to_dense() and cuda()")
    if own.requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad; use var.detach()")
    strides = None if own.is_contiguous() else tuple(step * own.element_size() for step in own.stride())
    kind = torch._tensor._dtype_to_typestr(own.dtype)
    data = own.data_ptr() if own.numel() else 0, False
    return {"typestr": kind, "shape": tuple(own.shape), "strides": strides, "data": data, "version": 2}


def _array(value: Any) -> Any:
    """Convert an object with __cuda_array_interface__ to a NumPy array, because its memory is on the CPU in a dry run;
    return other values unchanged."""
    import torch

    if isinstance(value, torch.Tensor) or not hasattr(value, "__cuda_array_interface__"):
        return value
    import numpy as np

    described = {**value.__cuda_array_interface__, "version": 3}
    if not described["data"][0]:
        return np.zeros(described["shape"], described["typestr"])
    return np.asarray(SimpleNamespace(__array_interface__=described))


def _set_unset(made: Any, poison: bytes, start: int = 0) -> None:
    """Fill a tensor's memory, if it has any, with zeros, or with `poison` if that is not empty. No operator of torch is
    called, because a library may have replaced the operator by a kernel. start: number of bytes at the beginning that
    are kept."""
    if (memory := memory_of(made)) is not None:
        begin, size = memory[0] + start, memory[1] - memory[0] - start
        if poison and size > 0:
            ctypes.memmove(begin, (poison * (size // len(poison) + 2))[begin % len(poison) :], size)
        elif size > 0:
            ctypes.memset(begin, 0, size)
    else:
        for part in _parts(made):
            _set_unset(part, poison)


def _check_written(given: Any) -> None:
    """Report elements that nothing has written, in tensors whose values the program uses."""
    import numpy as np
    import torch

    words = np.frombuffer(POISON, np.uint32)
    for one in given:
        if not isinstance(one, torch.Tensor) or memory_of(one) is None or not one.numel():
            continue
        size = one.element_size()
        if one.is_conj() or one.numel() * size % 4:
            continue
        span = 1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True))
        memory = np.frombuffer(cpu_bytes(one, one.storage_offset() * size, span * size) or b"", np.uint8)
        steps = (*(step * size for step in one.stride()), 1)
        data = np.ascontiguousarray(np.lib.stride_tricks.as_strided(memory, (*one.shape, size), steps))
        unset = 4 * int(np.isin(data.reshape(-1).view(np.uint32), words).sum()) // size
        if unset:
            line, what = line_of_program(), f"{unset:,} of {one.numel():,} elements"
            text = f"uninitialised: the program uses {what} of a tensor; nothing has written them since torch.empty"
            found.add("", "uninitialised", [line], f"{line}: {text}")


def _parts(made: Any) -> list[Any]:
    """Return the inner tensors of a wrapper tensor, which has no memory of its own; empty for other tensors."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if torch._C._functorch.is_functorch_wrapped_tensor(made):
        return [torch._C._functorch.get_unwrapped(made)]
    if is_traceable_wrapper_subclass(made):
        parts = [getattr(made, name) for name in made.__tensor_flatten__()[0]]
        return [part for part in parts if isinstance(part, torch.Tensor)]
    return []


def _seeming(mode: Any, original: Any) -> Any:
    """Make a fake tensor report the GPU while the mode is on, and its real device while it is off."""
    import torch
    from torch.overrides import _get_current_function_mode_stack

    def device(own: Any) -> Any:
        is_on = torch._C._is_torch_function_mode_enabled() and mode in _get_current_function_mode_stack()
        found = original.__get__(own)
        return gpu() if is_on and found.type == mode.place.type else found

    return property(device, original.fset)


# --- operators of libraries ---------------------------------------------------------------------- In a dry run,
# operators that libraries register for CUDA are registered for the real device of the dry run's tensors, CPU or meta.
# They run with the mode above turned on; torch turns it off inside of operators.

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
_FAKE, _ANY = "Meta", "CompositeExplicitAutograd"
_TORCH_S = ("aten", "prims")


@contextmanager
def operators_of_the_gpu(memory: str, within: Around) -> Iterator[None]:
    """Register operators for the real device of tensors if a library registers them for CUDA from now on. within: wraps
    a function so that it runs with the mode on."""
    import torch

    place = _FAKE if memory == NONE else "CPU"
    keys = {"CUDA": place, "AutogradCUDA": f"Autograd{place}", "AutocastCUDA": "AutocastCPU"}
    if memory == NONE:
        keys[_ANY] = place  # otherwise torch would call the operator's fake implementation
    taken: set[tuple[str, str, str]] = set()  # namespace, operator, key
    kept = getattr(torch.library, "fallthrough_kernel", None)
    others: dict[str, Any] = {}

    def library_for(library: Any, key: str) -> Any:
        """Return the library, or a new one if the library is bound to a different dispatch key."""
        if library.dispatch_key in ("", key):
            return library
        return others.setdefault(library.ns, torch.library.Library(library.ns, "IMPL"))

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
            asked = dispatch_key or library.dispatch_key
            key = asked if library.ns in _TORCH_S and asked == _ANY else keys.get(asked, asked)
            name = op_name if isinstance(op_name, str) else op_name._schema.name
            this = library.ns, name.rpartition("::")[2], key
            if key != asked:
                taken.add(this)
            elif this in taken:
                return  # the operator's CUDA function is registered for this key already
            is_fake = fn is kept or asked == _FAKE or not callable(fn)
            with warnings.catch_warnings():
                if key != asked:  # if the operator also has a CPU function, torch warns; 2.11 raises by default
                    warnings.simplefilter("ignore", UserWarning)
                    options["allow_override"] = True
                original(library_for(library, key), op_name, fn if is_fake else within(fn), key, **options)

        return impl

    with patched((torch.library.Library, "impl", wrap)):
        yield
