"""fp32 arithmetic on pairs: PTX f32x2, from sm_100 on. A pair is two registers of one thread."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .exp2_polynomial import exp2_asm


@gluon.jit
def mul2(a, b):
    """Compute a * b elementwise for fp32 tensors, two elements per instruction."""
    return gl.inline_asm_elementwise(
        """
        {
            .reg .b64 x, y;
            mov.b64 x, {$2, $3};
            mov.b64 y, {$4, $5};
            mul.rn.f32x2 x, x, y;
            mov.b64 {$0, $1}, x;
        }
        """,
        "=r,=r,r,r,r,r",
        [a, b],
        dtype=gl.float32,
        is_pure=True,
        pack=2,
    )


@gluon.jit
def fma2(a, b, c):
    """Compute a * b + c elementwise for fp32 tensors, two elements per instruction."""
    return gl.inline_asm_elementwise(
        """
        {
            .reg .b64 x, y, z;
            mov.b64 x, {$2, $3};
            mov.b64 y, {$4, $5};
            mov.b64 z, {$6, $7};
            fma.rn.f32x2 x, x, y, z;
            mov.b64 {$0, $1}, x;
        }
        """,
        "=r,=r,r,r,r,r,r,r",
        [a, b, c],
        dtype=gl.float32,
        is_pure=True,
        pack=2,
    )


# Globals, so that Triton's cache key covers the text.
_EXP2_DEGREE_2 = gl.constexpr(exp2_asm(2))
_EXP2_DEGREE_3 = gl.constexpr(exp2_asm(3))


@gluon.jit
def exp2_by_fma(x, degree: gl.constexpr):
    """Compute exp2 elementwise without the exp2 unit; exp2_polynomial.py states the range and the error."""
    text: gl.constexpr = _EXP2_DEGREE_2 if degree == 2 else _EXP2_DEGREE_3
    return gl.inline_asm_elementwise(text, "=r,=r,r,r", [x], dtype=gl.float32, is_pure=True, pack=2)


@gluon.jit
def pair(a, b):
    """Pack two fp32 tensors into one int64 tensor."""
    return gl.inline_asm_elementwise("mov.b64 $0, {$1, $2};", "=l,r,r", [a, b], dtype=gl.int64, is_pure=True, pack=1)


@gluon.jit
def unpair(x):
    """Unpack the two fp32 tensors that `pair` packed."""
    return gl.inline_asm_elementwise(
        "mov.b64 {$0, $1}, $2;", "=r,=r,l", [x], dtype=[gl.float32, gl.float32], is_pure=True, pack=1
    )


@gluon.jit
def add_pairs(a, b):
    return gl.inline_asm_elementwise("add.rn.f32x2 $0, $1, $2;", "=l,l,l", [a, b], dtype=gl.int64, is_pure=True, pack=1)


@gluon.jit
def fma_pairs(a, b, c):
    return gl.inline_asm_elementwise(
        "fma.rn.f32x2 $0, $1, $2, $3;", "=l,l,l,l", [a, b, c], dtype=gl.int64, is_pure=True, pack=1
    )
