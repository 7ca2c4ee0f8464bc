"""One name for each part of Gluon that moved between Triton 3.6 and 3.9. Knows versions, no kernels."""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import tma
from triton.language.core import _aggregate

OLDEST = (3, 6)


def release(version: str = triton.__version__) -> tuple[int, int]:
    """Parse the major and the minor number of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def why_not_triton(version: str = triton.__version__) -> str | None:
    """Explain why this package cannot use that Triton, or None."""
    if release(version) < OLDEST:
        return f"Triton {version}: Gluon's warp_specialize takes aggregates from 3.6 on; install triton>=3.6"
    return None


if (_reason := why_not_triton()) is not None:
    raise ImportError(_reason)


def _fieldwise_init(cls):
    fields = tuple(cls.__annotations__)

    def init(self, *values):
        if len(values) != len(fields):
            raise TypeError(f"{cls.__name__} has {len(fields)} fields, got {len(values)} values")
        for field, value in zip(fields, values, strict=True):
            setattr(self, field, value)

    init.__triton_builtin__ = True
    return init


def aggregate(cls):
    """Apply `gluon.aggregate`, also in 3.6 and 3.7, which lack it: a device record, made from its fields in order."""
    if hasattr(gluon, "aggregate"):
        return gluon.aggregate(cls)
    cls.__init__ = _fieldwise_init(cls)
    return _aggregate(cls)


# Newer versions have new names. 3.9 still has the old ones, but they raise: so the new name is looked up first.
tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
tma_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global

_PUBLIC_REINTERPRET = gl.constexpr(hasattr(blackwell.tensor_memory_descriptor, "reinterpret"))


@gluon.jit
def memory_view(memory, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    """Read the same bytes of shared or tensor memory as another type."""
    if _PUBLIC_REINTERPRET:
        return memory.reinterpret(dtype, shape, layout)
    else:
        return memory._reinterpret(dtype, shape, layout)


@gluon.constexpr_function
def tmem_registers(dtype, shape, layout, alloc_shape, num_warps):
    """Register layout of a TMEM load in which a thread holds one row."""
    if hasattr(blackwell, "get_tmem_reg_layout"):
        return blackwell.get_tmem_reg_layout(dtype, shape, layout, num_warps)
    tmem = blackwell.tensor_memory_descriptor_type(dtype, shape, layout, alloc_shape)
    return tmem.get_reg_layout(num_warps=num_warps)


# Ampere's asynchronous copy of 16 bytes per thread, and the barrier of the CTA. 3.9 still has the old name of the copy,
# which raises when it is compiled.
cp_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
cta_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
