"""torch.compile in a dry run: Inductor generates kernels for a GPU that does not exist.

Dynamo and AOTAutograd get the real device of tensors, the CPU, because torch's CPU build cannot differentiate CUDA
tensors. Each graph is moved to the GPU before Inductor compiles it. The code that Inductor generates allocates in the
CPU's memory again, and runs operators other than Triton kernels on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from tritonhook._util.imports import AfterImport
from tritonhook.capture.dry_run.gpu import NONE, PINNED, DryRun, notes
from tritonhook.capture.dry_run.streams import DryContext
from tritonhook.capture.dry_run.torch_tensors import as_it_is
from tritonhook.capture.patching import patched

_Change = tuple[Any, str, Callable[[Any], Any]]  # arguments of Patch
_MEASURING = ("benchmark_epilogue_fusion", "pipeline_max_autotune_gemm")  # options that choose a kernel by its time
_SPILLED = 16  # registers; default of Inductor's spill_threshold
_STATIC = (
    "use_static_cuda_launcher",
    "use_static_triton_launcher",
)  # options for Inductor's launcher, which calls CUDA


@contextmanager
def awaited_inductor(dry: DryRun) -> Iterator[None]:
    """Replace the functions of Dynamo and Inductor that need a GPU, after the program has imported them."""
    import torch

    stack = ExitStack()
    if dry.memory == NONE:
        stack.enter_context(patched((torch, "compile", _left_out)))
    changes: dict[str, Callable[[Any], list[_Change]]] = {
        "torch._inductor.compile_fx": partial(_of_compiler, stack),
        "torch._inductor.runtime.triton_heuristics": _of_heuristics,
        "torch._inductor.select_algorithm": partial(_of_selecting, dry.autotune == PINNED),
        # Inductor must not set Triton's driver, which is the driver of the dry run.
        "torch._inductor.runtime.triton_helpers": lambda module: [
            (module, "set_driver_to_gpu", _instead(lambda: None))
        ],
        "torch._dynamo.device_interface": _of_interface,
        # FlexAttention refuses CPU tensors that need gradients.
        "torch.nn.attention.flex_attention": lambda module: [(module, "_validate_device", _instead(lambda *_: None))],
        # FakeTensor allocates on the GPU to initialise CUDA for the backward pass, and makes CUDA tensors if a GPU is
        # available.
        "torch._subclasses.fake_tensor": lambda module: [
            (module, "init_gpu_context", _instead(lambda *_: None)),
            (module.FakeTensorMode, "avoid_device_init", _instead(True)),
        ],
        "torch._subclasses.meta_utils": lambda module: [(module.MetaTensorDescriber, "describe_tensor", as_it_is)],
    }
    for name, change in changes.items():

        def changed(name: str = name, change: Callable[[Any], list[_Change]] = change) -> None:
            stack.enter_context(patched(*change(sys.modules[name])))

        waiting = AfterImport(name, changed)
        stack.callback(waiting.end)
        waiting.begin()
    with stack:
        yield


def _instead(value: Any) -> Callable[[Any], Any]:
    return lambda original: value


def _of_interface(interface: Any) -> list[_Change]:
    """Redirect the functions of torch.cuda that Dynamo's interface copied when it was imported before the dry run."""
    import torch

    def forwarded(module: Any, name: str) -> Callable[..., Any]:
        return lambda *given, **named: getattr(module, name)(*given, **named)

    def original(name: str, own: Any) -> tuple[Any, str]:
        public = next((it for it in (name, f"_{name}") if hasattr(torch.cuda, it)), None)
        return (torch._C, own.__name__) if public is None else (torch.cuda, public)

    cuda = interface.CudaInterface
    copied = {name: own.__func__ for name, own in vars(cuda).items() if isinstance(own, staticmethod)}
    return [
        (cuda, name, _instead(forwarded(*original(name, own))))
        for name, own in copied.items()
        if getattr(own, "__module__", "").startswith(("torch.cuda", "torch._C"))
    ]


def _of_compiler(stack: ExitStack, compiler: Any) -> list[_Change]:
    import torch
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensor

    # torch's own versions of these two methods need a GPU before they call an operator. Random seeds are read with an
    # integer index.
    FakeTensor.copy_ = lambda own, *given, **named: torch.ops.aten.copy_(own, *given, **named)
    FakeTensor.__getitem__ = lambda own, at: (
        torch.select(own, 0, at) if type(at) is int else torch.Tensor.__getitem__(own, at)
    )
    stack.callback(delattr, FakeTensor, "copy_")
    stack.callback(delattr, FakeTensor, "__getitem__")
    # For CPU tensors, Inductor does not decompose this operator, so that it would not be compiled for the GPU.
    table, bernoulli = torch._decomp.decompositions_for_rng.extra_random_decomps, torch.ops.aten.bernoulli.p
    stack.callback(table.__setitem__, bernoulli, table[bernoulli])
    table[bernoulli] = lambda own, p=0.5, **_: (torch.rand_like(own, dtype=torch.float32) < p).to(own.dtype)
    known = config.get_config_copy()
    return [
        (compiler, "compile_fx", _traced),
        (compiler, "_compile_fx_inner", _for_the_gpu),
        (torch._C._dynamo.guards, "_empty_strided_cuda", _instead(_zeros)),
        (torch.cuda, "_DeviceGuard", _instead(lambda *_: DryContext())),
        (config, "force_disable_caches", _instead(True)),
        *((config, name, _instead(False)) for name in (*_MEASURING, *_STATIC) if name in known),
    ]


def _of_heuristics(heuristics: Any) -> list[_Change]:
    """Choose the first configuration that Inductor would try, without measuring. Inductor has already compiled all
    configurations. Add a note for each configuration that Inductor rejects because it spills."""

    def first(tuner: Any, *arguments: Any, **named: Any) -> None:
        most = getattr(tuner, "inductor_meta", {}).get("spill_threshold", _SPILLED)
        is_users = getattr(tuner, "custom_kernel", False)  # Inductor rejects no configuration of the user's own kernels
        rejected = [] if is_users else [it for it in tuner.launchers if (getattr(it, "n_spills", 0) or 0) > most]
        for one in rejected:
            what = f"it spills {one.n_spills} registers; Inductor's limit is {most}"
            notes.add(f"{getattr(tuner.fn, '__name__', tuner.fn)}, {one.config}: rejected: {what}")
        tuner.launchers = ([it for it in tuner.launchers if it not in rejected] or tuner.launchers)[:1]

    tuner = heuristics.CachingAutotuner
    return [
        (tuner, "autotune_to_one_config", _instead(first)),
        (tuner, "coordinate_descent_tuning", _instead(lambda tuner, launcher, *_, **__: launcher)),
    ]


def _of_selecting(is_pinned: bool, selecting: Any) -> list[_Change]:
    """Choose the first Triton template for a matrix product, without measuring. A library's kernel is chosen only if
    there is no template, because it would not be captured."""

    def first(
        cache: Any, name: str, nodes: Any, layout: Any, inputs: Any, key: Any, choices: Any, *_: Any, **__: Any
    ) -> Any:
        taken = next((choice for choice in choices if hasattr(choice, "get_make_kernel_render")), choices[0])
        if is_pinned:
            notes.add(f"{name}: a policy cannot pin templates of torch.compile; the first one is compiled")
        return {choice: 0.0 if choice is taken else 1.0 for choice in choices}

    cache = selecting.AlgorithmSelectorCache
    return [(cache, "do_autotuning", _instead(first)), (cache, "make_precompile_fn", _instead(lambda *_, **__: dict))]


def _left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile(model: Any = None, **_: Any) -> Any:
        notes.add("--memory none: torch.compile compiled nothing; the functions ran uncompiled")
        return (lambda given: given) if model is None else model

    return compile


def _traced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a graph from Dynamo. Attention is decomposed into matrix products and softmax; otherwise tracing on the CPU
    would choose a CPU-only operator."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def trace(graph: Any, *rest: Any, **named: Any) -> Any:
        attends = any("scaled_dot_product" in str(node.target) for node in getattr(graph, "graph", graph).nodes)
        if attends:
            notes.add(
                "torch.compile: attention is compiled as matrix products; on a GPU, torch uses an attention kernel"
            )
        with torch._C.DisableTorchFunction(), sdpa_kernel(SDPBackend.MATH) if attends else nullcontext():
            return original(graph, *rest, **named)

    return trace


def _zeros(size: Any, stride: Any, dtype: Any) -> Any:
    import torch

    return torch.empty_strided(size, stride, dtype=dtype, device="cpu").zero_()


def _for_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a graph for the GPU, without CUDA graphs."""
    import torch

    def compile_inner(graph: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        if (cudagraphs := named.get("cudagraphs")) is not None:
            cudagraphs.value = False  # the capture of a CUDA graph needs a stream of a real GPU
        with torch._C.DisableTorchFunction():
            return original(graph, _moved(graph, inputs), *rest, **named)

    return compile_inner


def _moved(graph: Any, inputs: Any) -> list[Any]:
    """Change the device in a graph from the CPU to the GPU. Returns its inputs with the GPU as device."""
    import torch
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    fake, gpu = detect_fake_mode(inputs), torch.device("cuda", 0)

    def device(value: Any) -> Any:
        return gpu if isinstance(value, torch.device) and value.type in ("cpu", "cuda") else value

    def tensor(value: Any) -> Any:
        if not isinstance(value, FakeTensor) or value.device.type != "cpu":
            return value
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=gpu)

    for node in graph.graph.nodes:
        node.args = torch.utils._pytree.tree_map(device, node.args)
        node.kwargs = torch.utils._pytree.tree_map(device, node.kwargs)
    graph.recompile()
    if fake is None:
        return list(inputs)
    with fake:
        moved = [tensor(value) for value in inputs]
    FakeTensorProp(graph, mode=fake).propagate_dont_convert_inputs(*moved)
    return moved
