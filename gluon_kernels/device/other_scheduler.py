"""ptxas's other scheduler for a kernel: by the pragma `mma_throughput`, or by "cutlass" in the entry's name.

Both give the same machine code. The pragma needs ptxas 13.3, and the name works with every ptxas.
"""

from triton.backends.nvidia.compiler import get_ptxas
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

PRAGMA_SINCE = (13, 3)  # the first ptxas that knows the pragma


def best_trigger(arch: int) -> str:
    """Return "pragma" if the ptxas that Triton uses for compute capability `arch` knows it, else "name"."""
    version = get_ptxas(arch).version  # Triton 3.6 and 3.9 differ in which of its two they use
    return "pragma" if tuple(map(int, version.split("."))) >= PRAGMA_SINCE else "name"


@gluon.jit
def take_other_scheduler():
    """Write the pragma into the entry. ptxas removes the instruction, which is there because Triton wants a result."""
    gl.inline_asm_elementwise(
        '.pragma "mma_throughput"; mov.b32 $0, 0;', "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
