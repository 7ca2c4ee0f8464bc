"""Select ptxas's other instruction scheduler for a kernel.

Either the pragma `mma_throughput` or "cutlass" in the entry's name selects it; the machine code is the same. The pragma
needs ptxas 13.3, and the name works with every ptxas.
"""

from triton.backends.nvidia.compiler import get_ptxas
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

PRAGMA_SINCE = (13, 3)  # the oldest ptxas that supports the pragma


def best_trigger(arch: int) -> str:
    """Return "pragma" if the ptxas that Triton uses for compute capability `arch` supports it, else "name"."""
    version = get_ptxas(arch).version  # Triton has two ptxas; 3.6 and 3.9 choose between them in different ways
    return "pragma" if tuple(map(int, version.split("."))) >= PRAGMA_SINCE else "name"


@gluon.jit
def take_other_scheduler():
    """Write the pragma into the entry. The mov makes a result, which Triton requires; ptxas removes the mov."""
    gl.inline_asm_elementwise(
        '.pragma "mma_throughput"; mov.b32 $0, 0;', "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
