"""Compile the attention kernels without a GPU and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from .blackwell.config import AttentionConfig
from .config import KernelConfig
from .hopper.config import HopperConfig
from .mma.config import MmaConfig

CONFIGS = {"blackwell": AttentionConfig, "hopper": HopperConfig, "mma": MmaConfig}


def compile_offline(
    config: KernelConfig | None = None,
    arch: int | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    kernel: str = "blackwell",
    with_lse: bool = False,
    **fields: Any,
) -> Any:
    """Compile an attention kernel for compute capability `arch` (100 -> sm_100a) and return Triton's compiled kernel.

    `config`: an AttentionConfig, HopperConfig or MmaConfig; its class selects the kernel. None: the default values of
    the class for `kernel` (for Blackwell fp8e5, head_dim 64, no mask). `fields` replace fields of the configuration:
    `compile_offline(name="cutlass_attention_fwd")`. `arch`: None means the GPU that the kernel was written for.
    `options`: compile options of Triton's NVIDIA backend, for example {"ptx_version": 87}. `with_lse`: compile the
    variant that a call with return_lse launches. Arguments have the types and alignments of contiguous tensors.

    The result has .asm["ptx"], .asm["cubin"], .hash and .metadata. Raises ValueError if the configuration cannot run on
    `arch`, ImportError if Triton is too old.
    """
    if config is None:
        config = CONFIGS[kernel]()
    config = replace(config, **fields)  # type: ignore[type-var]  # every KernelConfig is a dataclass
    arch = config.ARCH if arch is None else arch
    config.require(arch)
    import triton
    from triton.backends.compiler import GPUTarget

    return triton.compile(
        kernel_source(config, with_lse),
        target=GPUTarget("cuda", arch, 32),
        options=_launcher(config).compile_options(config) | (options or {}),
    )


def kernel_source(config: KernelConfig, with_lse: bool = False) -> Any:
    """Make the GluonASTSource of a launch with 16-byte aligned tensors."""
    from triton.experimental.gluon._runtime import GluonASTSource

    launcher = _launcher(config)
    function = launcher.attention_kernel
    constants, types = launcher.offline_arguments(config, with_lse)
    position = {name: index for index, name in enumerate(function.arg_names)}
    return GluonASTSource(
        fn=function,
        signature={name: "constexpr" if name in constants else types.get(name, "i32") for name in position},
        constexprs={(position[name],): value for name, value in constants.items()},
        attrs={(position[name],): [["tt.divisibility", 16]] for name, kind in types.items() if kind.startswith("*")},
    )


def _launcher(config: KernelConfig) -> Any:
    return import_module(f".{config.KERNEL}.launch", __package__)
