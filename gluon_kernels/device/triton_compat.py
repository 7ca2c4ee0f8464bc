"""One name for each part of Gluon that was renamed between Triton 3.6 and 3.9."""

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
    """Return the reason why this package cannot use this version of Triton, or None."""
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
    """Make a class usable in kernels as a record, built from its fields in order.

    This is `gluon.aggregate`, also for Triton 3.6 and 3.7, which lack it.
    """
    if hasattr(gluon, "aggregate"):
        return gluon.aggregate(cls)
    cls.__init__ = _fieldwise_init(cls)
    return _aggregate(cls)


# The newer name is looked up first: Triton 3.9 still has the older names, but they raise.
tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
tma_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global

_PUBLIC_REINTERPRET = gl.constexpr(hasattr(blackwell.tensor_memory_descriptor, "reinterpret"))


@gluon.jit
def memory_view(memory, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    """View shared or tensor memory with another dtype, shape and layout."""
    if _PUBLIC_REINTERPRET:
        return memory.reinterpret(dtype, shape, layout)
    else:
        return memory._reinterpret(dtype, shape, layout)


@gluon.constexpr_function
def tmem_registers(dtype, shape, layout, alloc_shape, num_warps):
    """Make the register layout of a TMEM load in which each thread holds one row."""
    if hasattr(blackwell, "get_tmem_reg_layout"):
        return blackwell.get_tmem_reg_layout(dtype, shape, layout, num_warps)
    tmem = blackwell.tensor_memory_descriptor_type(dtype, shape, layout, alloc_shape)
    return tmem.get_reg_layout(num_warps=num_warps)


# The copy by cp.async and the CTA barrier. Triton 3.9 still has the older name of the copy, but compiling it raises.
cp_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
cta_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
