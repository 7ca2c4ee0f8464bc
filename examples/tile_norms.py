"""A cuda.tile kernel with a loop, compiled without a GPU under a plain name and under one with "cutlass":

pip install 'cuda-tile[tileiras]'
CUDA_TILE_CACHE_DIR=off tritonhook run --out tile examples/tile_norms.py
tritonhook diff norms.cubin cutlass_norms.cubin                    # what the name does
tritonhook diff tile --entry norms --rewrite mma-throughput        # what the pragma does
"""

import sys
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    export_kernel,
)


@ct.kernel
def norms(matrix, out, TILES: ct.Constant[int], TILE: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.full((1, TILE), 0.0, ct.float32)
    for i in range(TILES):
        x = ct.load(matrix, index=(row, i), shape=(1, TILE))
        total = total + ct.exp(x) * x
    ct.store(out, index=(row, 0), tile=total)


def compile_as(name: str, folder: Path) -> Path:
    matrix = ArrayConstraint(
        ct.float32, 2, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False
    )
    parameters = [matrix, matrix, ConstantConstraint(64), ConstantConstraint(256)]
    signature = KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=name)
    path = folder / f"{name}.cubin"
    export_kernel(norms, [signature], str(path), gpu_code="sm_90", output_format="cubin")
    return path


if __name__ == "__main__":
    for name in ("norms", "cutlass_norms"):
        print(compile_as(name, Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
