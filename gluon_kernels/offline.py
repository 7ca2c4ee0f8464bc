"""Compile the kernels with no GPU and no torch. Launching is the operator files' business."""

from dataclasses import replace

from .config import AttentionConfig


def compile_offline(config: AttentionConfig | None = None, arch: int = 100, options: dict | None = None, **fields):
    """Compile the attention kernel for compute capability `arch` (100 -> sm_100a) and return Triton's kernel.

    `config` defaults to fp8e5, head_dim 64, non-causal, scalar row sum. `fields` replace fields of it:
    `compile_offline(name="cutlass_attention_fwd")`. `options` are compile options of Triton's NVIDIA backend,
    for example {"ptx_version": 87}. The result has .asm["ptx"], .asm["cubin"], .hash and .metadata.

    Raises ValueError if the config cannot run on `arch`, ImportError if Triton is too old.
    """
    config = replace(config or AttentionConfig(), **fields)
    config.require(arch)

    import triton
    from triton.backends.compiler import GPUTarget

    from . import attention_blackwell as kernel

    return triton.compile(
        attention_source(config),
        target=GPUTarget("cuda", arch, 32),
        options=kernel.COMPILE_OPTIONS | (options or {}),
    )


def attention_source(config: AttentionConfig):
    """The GluonASTSource that a launch with 16-byte aligned tensors would make."""
    from triton.experimental.gluon._runtime import GluonASTSource

    from . import attention_blackwell as kernel
    from .layouts import box_layout

    fn = kernel.attention_kernel
    consts = kernel.constexprs(config)
    types = dict.fromkeys(kernel.RUNTIME, "i32") | {"scale": "fp32", "lse": "*fp32"}
    for name, box in config.boxes.items():
        dtype = config.dtypes[name]
        types[name] = f"tensordesc<{dtype}{box},{box_layout(dtype, box)!r}>"
    return GluonASTSource(
        fn=fn,
        signature={name: "constexpr" if name in consts else types[name] for name in fn.arg_names},
        constexprs={(fn.arg_names.index(name),): value for name, value in consts.items()},
        attrs={(fn.arg_names.index("lse"),): [["tt.divisibility", 16]]},
    )
