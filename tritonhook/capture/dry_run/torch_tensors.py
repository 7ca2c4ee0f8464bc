"""torch's tensors in a dry run: they lie in the CPU's memory, and say that they are on the GPU.

A TorchFunctionMode takes the GPU out of what programs ask of torch, and puts it into what they are told of tensors. It
sees calls of Python only, one thread's each; what torch itself does inside of a function is as on the CPU. Buffers that
a kernel would fill hold zeros.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from tritonhook.capture.patching import Patch

_GPU = re.compile(r"cuda(:\d+)?")


@contextmanager
def tensors_on_the_gpu() -> Iterator[None]:
    """Let tensors be on the GPU, as it seems: in this thread, in threads that it starts, and in backward passes."""
    import torch.utils._device
    from torch.overrides import _get_current_function_mode

    mode = _mode()

    def within(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            with nullcontext() if _get_current_function_mode() is mode else mode:
                return original(*arguments, **named)

        return run

    def hooking(original: Callable[..., None]) -> Callable[..., None]:
        return lambda hooks, pack, unpack: original(hooks, within(pack), within(unpack))

    with ExitStack() as stack:
        # In torch's functions, such as `loss.backward()`, the mode is off: but not in Python that they call back.
        for owner, name, wrap in (
            (torch.autograd, "_engine_run_backward", within),
            (torch.autograd.graph.saved_tensors_hooks, "__init__", hooking),
            (threading.Thread, "_bootstrap_inner", within),
            (torch, "load", _load),
            (torch.utils._device.DeviceContext, "__init__", _on_cpu),
            (torch.amp.autocast_mode.autocast, "__init__", _autocast),
            (torch, "is_autocast_enabled", _of_cpu),
            (torch, "get_autocast_dtype", _of_cpu),
        ):
            stack.callback(Patch(owner, name, wrap).undo)
        stack.enter_context(mode)
        yield


def _on_cpu(original: Callable[..., None]) -> Callable[..., None]:
    """Make torch.set_default_device and `with torch.device("cuda")` take the CPU."""

    def init(context: Any, device: Any) -> None:
        original(context, without_gpu(device, True))

    return init


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    """Load into the CPU's memory, also what was saved on a GPU."""

    def load(file: Any, map_location: Any = None, *rest: Any, **named: Any) -> Any:
        place = "cpu" if map_location is None else without_gpu(map_location, True)
        return original(file, place, *rest, **named)

    return load


def _autocast(original: Callable[..., None]) -> Callable[..., None]:
    """Start the CPU's autocast; where the type is left out, with that of the GPU's."""
    import torch

    def init(context: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(context, device_type, dtype, *rest, **named)

    return init


def _of_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer what is asked of the GPU's autocast with the CPU's."""
    return lambda *device_type: original("cpu" if device_type in ((), ("cuda",)) else device_type[0])


def without_gpu(value: Any, is_device: bool = False) -> Any:
    """The CPU in place of the GPU. is_device: text and numbers name devices here."""
    import torch

    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if is_device and ((isinstance(value, str) and _GPU.fullmatch(value)) or type(value) is int):
        return torch.device("cpu")
    return value


def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor
    gpu = torch.device("cuda", 0)

    def device(one: Any) -> Any:
        return gpu if one.device.type == "cpu" else one.device

    answers: dict[Any, Callable[..., Any]] = {
        tensor.device.__get__: lambda one, *_: device(one),
        tensor.is_cuda.__get__: lambda one, *_: device(one).type == "cuda",
        tensor.is_cpu.__get__: lambda one, *_: False,
        tensor.get_device: lambda one: 0 if device(one) is gpu else -1,
        tensor.cuda: lambda one, *_, **__: one,
        tensor.pin_memory: lambda one, *_, **__: one,
        tensor.is_pinned: lambda one, *_, **__: False,
        tensor.record_stream: lambda one, stream: None,
    }
    unset = {torch.empty, torch.empty_like, torch.empty_strided, tensor.new_empty, tensor.new_empty_strided}

    class OnTheGpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (answer := answers.get(func)) is not None:
                return answer(*args, **(kwargs or {}))
            is_to = func is tensor.to
            given = [without_gpu(value, is_to and n == 1) for n, value in enumerate(args)]
            named = {name: without_gpu(value, name == "device") for name, value in (kwargs or {}).items()}
            if named.get("pin_memory"):
                named["pin_memory"] = False
            result = func(*given, **named)
            if func in unset:
                result.detach().zero_()
            return result

    return OnTheGpu()
