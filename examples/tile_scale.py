"""A cuda.tile kernel, compiled for two GPUs without one, captured where tileiras calls ptxas:

pip install 'cuda-tile[tileiras]'
CUDA_TILE_CACHE_DIR=off tritonhook run examples/tile_scale.py
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
def scale(a, out, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, index=(i,), tile=ct.load(a, index=(i,), shape=(TILE,)) * 2.0)


def vector() -> ArrayConstraint:
    return ArrayConstraint(
        ct.float32, 1, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False
    )


def compile_for(target: str, folder: Path) -> Path:
    signature = KernelSignature(
        [vector(), vector(), ConstantConstraint(128)], calling_convention=CallingConvention.cutile_python_v1()
    )
    path = folder / f"scale.{target}.cubin"
    export_kernel(scale, [signature], str(path), gpu_code=target, output_format="cubin")
    return path


if __name__ == "__main__":
    for target in ("sm_90", "sm_100"):
        print(compile_for(target, Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
