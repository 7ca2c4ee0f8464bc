"""torch.cuda in a dry run: it reports the GPU's figures and 0 bytes used; its streams, events and graphs do nothing."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.dry_run.streams import DryContext, DryEvent, DryStream, ExternalStream, StreamContext, order
from tritonhook.capture.dry_run.suppressions import found
from tritonhook.capture.dry_run.torch_random import DryGenerator
from tritonhook.capture.dry_run.torch_tensors import current, gpu, without_gpu
from tritonhook.capture.patching import always

_NOTHING = (
    *("empty_cache", "ipc_collect", "init", "_lazy_init"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
    *("reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode"),
    *("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "_sleep", "check_error"),
)
_ZERO = (
    *("memory_allocated", "memory_reserved", "memory_cached", "device_memory_used", "utilization"),
    *("max_memory_allocated", "max_memory_reserved", "max_memory_cached", "get_sync_debug_mode"),
    *("current_blas_handle", "clock_rate", "memory_usage", "power_draw", "temperature"),
)
_CUDA = "12.8"
_NCCL = (2, 27, 3)  # version of NCCL in torch builds for this CUDA version
_CUDART = ("ProfilerStart", "ProfilerStop", "HostRegister", "HostUnregister")
_MOST_GPUS = 8
_EXCHANGES = ("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")  # exist in torch._C only if torch has CUDA
_missing = object()


def _idle(name: str, **answers: Any) -> Any:
    """Make a class whose methods only return fixed values."""
    return type(name, (DryContext,), {method: always(answer) for method, answer in answers.items()})


# A CUDA graph captures nothing: work in its capture runs at once, and replay does nothing.
_graph = dict.fromkeys(("capture_begin", "capture_end", "reset", "instantiate", "enable_debug_mode", "debug_dump"))
DryGraph = _idle("CUDAGraph", pool=(0, 0), raw_cuda_graph=0, raw_cuda_graph_exec=0, **_graph)
DryGraph.replay = lambda *_: found.note(
    "replays of CUDA graphs are not executed: races between them and other launches are not found"
)
DryPool = _idle("MemPool", snapshot=[], use_count=1)
DryPool.id = (0, 0)
DryStream.device = property(lambda stream: gpu())  # type: ignore[attr-defined]


def _synchronize(*_: Any) -> None:
    order.synchronize()


class DryDevice(DryContext):
    """A GPU that a `with` block makes the current GPU."""

    def __init__(self, device: Any) -> None:
        self.idx, self.prev_idx = _index(device), -1

    def __enter__(self) -> DryDevice:
        self.prev_idx, current.device = current.device, self.idx
        return self

    def __exit__(self, *_: object) -> None:
        current.device = self.prev_idx


class DryProperties(SimpleNamespace):
    """The result of torch.cuda.get_device_properties: figures of the GPU."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"get_device_properties: a dry run has no value for {name}")


@contextmanager
def cuda_answers(dry: DryRun) -> Iterator[None]:
    """Replace functions and classes of torch.cuda by those of the dry run's GPU."""
    import torch
    import torch.cuda.nccl
    import torch.cuda.nvtx
    import torch.cuda.profiler

    replaced: list[tuple[Any, str, Any]] = []
    told: dict[Any, Mapping[str, Any]] = {
        torch.cuda: _answers(dry),
        torch.cuda.memory: {
            "_record_memory_history": always(None),
            "_snapshot": always({"segments": [], "device_traces": []}),
        },
        torch.backends.cuda: dict.fromkeys(("preferred_linalg_library", "preferred_blas_library"), always(None)),
        torch.cuda.nccl: {"version": always(_NCCL), "is_available": always(True)},
        torch.cuda.nvtx: dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), always(None)),
        torch.cuda.profiler: dict.fromkeys(("init", "start", "stop"), always(None)),
        torch.backends.cudnn: {"is_acceptable": always(False)},  # otherwise an RNN passes its weights to cuDNN
        torch.Tensor: {
            "record_stream": always(None)
        },  # patched, because torch checks the stream before it calls a TorchFunctionMode
        torch: {"Generator": _generator(torch.Generator), "Stream": DryStream, "Event": DryEvent},
        torch._C: {
            "_cuda_getCurrentRawStream": always(0),
            "_cuda_getDevice": lambda: current.device,
            **{name: lambda device: current.device for name in _EXCHANGES if hasattr(torch._C, name)},
            "__getattr__": _not_there,
        },
    }
    if torch.version.cuda is None:  # torch's CPU build; programs parse this version
        told[torch.version] = {"cuda": _CUDA}
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        same = {name: answer for name, answer in told[torch.cuda].items() if hasattr(module, name)}
        told[module] = {**same, **told.get(module, {})}
    told[torch.accelerator] = _accelerator(told[torch.cuda])
    try:
        for owner, answers in told.items():
            for name, answer in answers.items():
                replaced.append((owner, name, vars(owner).get(name, _missing)))
                setattr(owner, name, _own(owner, name, answer))
        yield
    finally:
        for owner, name, before in reversed(replaced):
            if before is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _values(dry: DryRun) -> Mapping[str, Any]:
    """Return the constant results of functions of torch.cuda, by function."""
    properties, memory = _properties(dry), dry.gpu.memory_bytes
    return {
        "is_available": True,
        "is_initialized": True,
        "device_count": int(os.environ.get("LOCAL_WORLD_SIZE") or 1),  # torchrun: one GPU per process
        "default_stream": order.default,
        "get_device_name": dry.gpu.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "get_arch_list": [dry.arch],
        "is_bf16_supported": dry.capability >= 80,
        "is_tf32_supported": dry.capability >= 80,
        "is_current_stream_capturing": False,
        "can_device_access_peer": False,
        "graph_pool_handle": (0, 0),
        "use_mem_pool": DryContext(),
        "mem_get_info": (memory, memory),
        "get_allocator_backend": "native",
        "get_per_process_memory_fraction": 1.0,
        "cudart": SimpleNamespace(
            cudaMemGetInfo=always((memory, memory)),
            **dict.fromkeys((f"cuda{name}" for name in _CUDART), always(0)),
            **dict.fromkeys(("cudaDeviceSynchronize", "cudaStreamSynchronize"), lambda *_: order.synchronize()),
        ),
        "get_stream_from_external": order.default,
        "list_gpu_processes": "",
        "memory_summary": "",
        "memory_snapshot": [],
        **dict.fromkeys(_NOTHING, None),
        **dict.fromkeys(_ZERO, 0),
    }


def _answers(dry: DryRun) -> Mapping[str, Any]:
    import torch

    return {
        **{name: always(value) for name, value in _values(dry).items()},
        **dict.fromkeys(("stream", "StreamContext"), StreamContext),
        "graph": DryContext,
        "current_stream": lambda *_: order.stream,
        "set_stream": lambda stream: order.set(stream) if stream is not None else None,
        "synchronize": _synchronize,
        **{name: kind for name, kind in vars(torch).items() if name.endswith("Tensor") and hasattr(torch.cuda, name)},
        "make_graphed_callables": lambda callables, *_, **__: callables,
        "device": DryDevice,
        "device_of": lambda tensor: DryDevice(tensor.device if tensor.is_cuda else None),
        "default_generators": (DryGenerator(torch.default_generator),) * _MOST_GPUS,
        "current_device": lambda: current.device,
        "_exchange_device": lambda device: current.device,
        "_maybe_exchange_device": lambda device: current.device,
        "set_device": _set_device,
        "memory_stats": lambda *_: defaultdict(int),
        "Stream": DryStream,
        "ExternalStream": ExternalStream,
        "Event": DryEvent,
        "CUDAGraph": DryGraph,
        "MemPool": DryPool,
        "memory_stats_as_nested_dict": always({}),
        "host_memory_stats": lambda: defaultdict(int),
    }


def _index(device: Any) -> int:
    """Return the index of a GPU. If the device has no index, return the index of the current GPU."""
    import torch

    index = device if device is None or type(device) is int else torch.device(device).index
    return current.device if index is None or index < 0 else int(index)


def _set_device(device: Any) -> None:
    current.device = _index(device)


def _not_there(name: str) -> Any:
    raise AttributeError(f"torch._C.{name}: this torch is built without CUDA, and a dry run has no GPU for it")


def _accelerator(cuda: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return replacements for functions of torch.accelerator. They are the replacements for torch.cuda; some have other
    names."""
    import torch

    others = ("get_device_capability",)  # returns a different type in torch.accelerator
    return {
        **{name: answer for name, answer in cuda.items() if hasattr(torch.accelerator, name) and name not in others},
        "get_memory_info": cuda["mem_get_info"],
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": cuda["current_device"],
        "current_device_idx": cuda["current_device"],
        "set_device_index": _set_device,
        "set_device_idx": _set_device,
        "device_index": DryDevice,
    }


def _own(owner: Any, name: str, answer: Any) -> Any:
    """Wrap a replacement function in a new function for each name, because torch.compile tells functions apart by
    identity."""
    if not isinstance(answer, FunctionType):
        return answer

    def answering(*arguments: Any, **named: Any) -> Any:
        return answer(*arguments, **named)

    answering.__name__ = answering.__qualname__ = name
    answering.__module__ = owner.__name__
    answering.__wrapped__ = answer  # type: ignore[attr-defined]  # Dynamo reads it on torch's context managers
    return answering


def _generator(original: Any) -> Any:
    """Make a replacement class for torch.Generator. It makes generators on the CPU, and isinstance accepts them."""

    class Meta(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __call__(cls, device: Any = "cpu") -> Any:
            place = without_gpu(device, None, True)
            return DryGenerator(original()) if place is None else original(device=place)

    return Meta("Generator", (), {})


def _properties(dry: DryRun) -> Any:
    """Return the result of torch.cuda.get_device_properties."""
    gpu = dry.gpu
    major, minor = divmod(dry.capability, 10)
    return DryProperties(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.multiprocessors,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=gpu.threads,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=gpu.shared_bytes,
        shared_memory_per_multiprocessor=gpu.shared_bytes + 1024,
        L2_cache_size=gpu.l2_bytes,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName=gpu.name,  # torch sets it for NVIDIA GPUs too
        uuid=uuid.UUID(int=0),
        **dict.fromkeys(("pci_bus_id", "pci_device_id", "pci_domain_id"), 0),
    )
