"""torch.compile in a dry run: Inductor makes its kernels for the GPU that is not there.

Dynamo and AOTAutograd see the tensors where they are, on the CPU: torch's CPU build cannot differentiate tensors of
CUDA. Each graph that they make is moved to the GPU before Inductor compiles it. What Inductor's code allocates lies in
the CPU's memory again, and operators that are no kernels of Triton's run there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

from tritonhook._util.import_hook import AfterImport
from tritonhook.capture.dry_run.gpu import PINNED
from tritonhook.capture.dry_run.notes import notes
from tritonhook.capture.dry_run.torch_cuda import DryContext
from tritonhook.capture.patching import Patch

_COMPILER, _HEURISTICS = "torch._inductor.compile_fx", "torch._inductor.runtime.triton_heuristics"
_SELECTING = "torch._inductor.select_algorithm"
_HELPERS = "torch._inductor.runtime.triton_helpers"
_FAKES = "torch._subclasses.meta_utils"
_MEASURING = ("benchmark_epilogue_fusion", "pipeline_max_autotune_gemm")  # with these a choice stays open for long
_STATIC = ("use_static_cuda_launcher", "use_static_triton_launcher")  # Inductor's own launcher, which calls CUDA


def await_inductor(stack: ExitStack, autotune: str) -> None:
    """Replace what Inductor needs of a GPU, once the program has loaded it, until the stack is closed. autotune: FIRST,
    ALL or PINNED."""
    import sys

    changes: dict[str, Callable[[Any, ExitStack], None]] = {
        _SELECTING: partial(_change_selecting, autotune),
        _COMPILER: _change_compiler,
        _HEURISTICS: _change_heuristics,
        _HELPERS: _change_helpers,
        _FAKES: _change_fakes,
    }
    for name, change in changes.items():

        def changed(name: str = name, change: Callable[[Any, ExitStack], None] = change) -> None:
            change(sys.modules[name], stack)

        if name in sys.modules:
            changed()
        else:
            waiting = AfterImport(name, changed)
            waiting.begin()
            stack.callback(waiting.end)


def _change_compiler(compiler: Any, stack: ExitStack) -> None:
    import torch._inductor.config
    from torch._subclasses.fake_tensor import FakeTensor

    # Tensor.copy_ asks for the GPU before any operator is called.
    FakeTensor.copy_ = lambda own, *given, **named: torch.ops.aten.copy_(own, *given, **named)
    stack.callback(delattr, FakeTensor, "copy_")

    known = torch._inductor.config.get_config_copy()
    patches = [
        Patch(compiler, "compile_fx", _traced),
        Patch(compiler, "_compile_fx_inner", _for_the_gpu),
        Patch(torch._C._dynamo.guards, "_empty_strided_cuda", lambda _: _zeros),
        Patch(torch.cuda, "_DeviceGuard", lambda _: lambda *_: DryContext()),
        Patch(torch._inductor.config, "force_disable_caches", lambda _: True),
        *(Patch(torch._inductor.config, name, lambda _: False) for name in _MEASURING if name in known),
        *(Patch(torch._inductor.config, name, lambda _: False) for name in _STATIC if name in known),
    ]
    for patch in patches:
        stack.callback(patch.undo)


def _change_heuristics(heuristics: Any, stack: ExitStack) -> None:
    """Take the first configuration: nothing can be measured. Inductor has compiled them all by then."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def first(tuner: Any, *arguments: Any, **named: Any) -> None:
            tuner.launchers = tuner.launchers[:1]

        return first

    tuner = heuristics.CachingAutotuner
    stack.callback(Patch(tuner, "autotune_to_one_config", wrap).undo)
    stack.callback(Patch(tuner, "coordinate_descent_tuning", lambda _: lambda tuner, launcher, *_, **__: launcher).undo)


def _change_selecting(autotune: str, selecting: Any, stack: ExitStack) -> None:
    """Take the first template for a matrix product: nothing can be measured, and a library's kernel is not captured. A
    policy's pin comes before (inductor_templates.py)."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def first(
            cache: Any, name: str, nodes: Any, layout: Any, inputs: Any, key: Any, choices: Any, *_: Any, **__: Any
        ) -> Any:
            taken = next((choice for choice in choices if hasattr(choice, "get_make_kernel_render")), choices[0])
            if autotune == PINNED:
                notes.add(f"{name}: the policy pins no template for this call; the first is compiled")
            return {choice: 0.0 if choice is taken else 1.0 for choice in choices}

        return first

    cache = selecting.AlgorithmSelectorCache
    stack.callback(Patch(cache, "do_autotuning", wrap).undo)
    stack.callback(Patch(cache, "make_precompile_fn", lambda _: lambda *_, **__: dict).undo)


def _change_helpers(helpers: Any, stack: ExitStack) -> None:
    """Let Triton's driver be the one of the dry run."""
    stack.callback(Patch(helpers, "set_driver_to_gpu", lambda _: lambda: None).undo)


def _change_fakes(fakes: Any, stack: ExitStack) -> None:
    stack.callback(Patch(fakes.MetaTensorDescriber, "describe_tensor", _as_it_is).undo)


def _as_it_is(original: Callable[..., Any]) -> Callable[..., Any]:
    """See tensors where they are, not where they say that they are."""
    import torch

    def describe(*arguments: Any, **named: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*arguments, **named)

    return describe


def _traced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a graph of Dynamo's. Attention becomes plain products: else it would be an operator of the CPU alone."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def trace(graph: Any, *rest: Any, **named: Any) -> Any:
        attends = any("scaled_dot_product" in str(node.target) for node in getattr(graph, "graph", graph).nodes)
        if attends:
            notes.add("torch.compile: attention is compiled as plain products; on a GPU torch has a kernel for it")
        with torch._C.DisableTorchFunction(), sdpa_kernel(SDPBackend.MATH) if attends else nullcontext():
            return original(graph, *rest, **named)

    return trace


def _zeros(size: Any, stride: Any, dtype: Any) -> Any:
    import torch

    return torch.empty_strided(size, stride, dtype=dtype, device="cpu").zero_()


def _for_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a graph for the GPU."""
    import torch

    def compile_inner(graph: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        if (cudagraphs := named.get("cudagraphs")) is not None:
            cudagraphs.value = False  # they would be captured of a GPU's stream
        with torch._C.DisableTorchFunction():
            return original(graph, _moved(graph, inputs), *rest, **named)

    return compile_inner


def _moved(graph: Any, inputs: Any) -> list[Any]:
    """Move a graph from the CPU to the GPU. Returns its inputs there."""
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
