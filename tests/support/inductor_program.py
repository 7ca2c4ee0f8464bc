"""A program that compiles kernels as torch.compile's Inductor does, without a GPU: Inductor's own AsyncCompile, worker
processes, CachingAutotuner, static launcher, TritonBundler and graph-cache key. Only the CUDA calls are fakes; loading
fails, as in the driver, if the name is no entry of the cubin.

    python inductor_program.py CACHE_FOLDER [THREADS [tuned [descent]]]

Prints JSON: whether the graph cache had it, the names loaded, those the objects keep, and the graph's key. `go` does
the same in a process that has imported torch, under a session.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
SOURCE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties

triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 4096},
    filename=__file__,
    triton_meta={
        'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
        'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9,
                                   regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32),
        'constants': {},
        'configs': [{(i,): [['tt.divisibility', 16]] for i in range(3)}],
    },
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'KERNEL', 'mutated_arg_names': [], 'backend_hash': 'X',
                   'autotune_local_cache': True, 'autotune_remote_cache': False, 'max_autotune': TUNED,
                   'max_autotune_pointwise': TUNED, 'num_load': 1, 'num_store': 1, 'num_reduction': 0},
    min_elem_per_thread=0,
)
@triton.jit
def KERNEL(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tl.store(out_ptr0 + xindex, tl.load(in_ptr0 + xindex, xmask) OPERATION, xmask)
"""


def stand_ins() -> list[str]:
    """Replace all that needs CUDA in this process, and the generators of code, which take half a second to import;
    returns a list, to which each loaded name is added."""
    import contextlib

    import fake_driver
    import torch._dynamo.device_interface as interfaces
    import torch._inductor.codecache as codecache
    from torch._inductor.runtime import static_triton_launcher, triton_helpers
    from triton.runtime import driver

    fake = fake_driver.FakeDriver()
    driver.set_active(fake)
    triton_helpers.set_driver_to_gpu = lambda: None
    codecache.init_backend_registration = lambda: None
    interfaces.DeviceGuard = lambda interface, index: contextlib.nullcontext()

    class Launcher:
        @staticmethod
        def _load_kernel(path: str, name: str, shared: int, device: int) -> tuple[int, int, int, int]:
            fake.utils.load_binary(name, Path(path).read_bytes(), shared, device)
            return 1, 1, 32, 0

        @staticmethod
        def _unload_kernel(module: int) -> None: ...

    static_triton_launcher.StaticallyLaunchedCudaKernel.C_impl = Launcher
    return fake.loaded


def compile_graph(cache: Path, kernels: dict[str, str], tuned: bool = False, descent: bool = False) -> dict:
    import torch
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import compiled_fx_graph_hash
    from torch._inductor.triton_bundler import TritonBundler

    key, _ = compiled_fx_graph_hash(torch.fx.symbolic_trace(lambda x: x + len(kernels)), [], {}, [])
    entry = cache / f"{key}.graph"
    warm = entry.exists()
    TritonBundler.begin_compile()
    if warm:
        TritonBundler.read_and_emit(pickle.loads(entry.read_bytes()))
    compiler = AsyncCompile()
    if os.environ["TORCHINDUCTOR_COMPILE_THREADS"] != "1":
        AsyncCompile.wait_pool_ready()
        assert AsyncCompile.use_process_pool() or os.environ.get("POOL_MAY_BE_OFF")
    scope = {}
    for name, operation in kernels.items():
        text = SOURCE.replace("KERNEL", name).replace("OPERATION", operation).replace("TUNED", str(tuned))
        scope[name] = compiler.triton(name, text)
    compiler.wait(scope)
    if not warm:
        bundle, _ = TritonBundler.collect()
        cache.mkdir(parents=True, exist_ok=True)
        entry.write_bytes(pickle.dumps(bundle))
    TritonBundler.end_compile()
    own = sorted({result.kernel.name for kernel in scope.values() for result in kernel.compile_results})
    static = all(kernel.is_statically_launchable() for kernel in scope.values())
    if tuned:
        for kernel in scope.values():
            order = iter(range(len(kernel.launchers), 0, -1))
            kernel.bench = lambda launcher, *a, order=order, **k: float(next(order))  # the last is the fastest
            kernel.autotune_to_one_config()
    if descent:
        for kernel in scope.values():
            kernel.bench = lambda launcher, *a, **k: launcher.config.num_warps / 100  # fewer are faster
            kernel.inductor_meta["coordinate_descent_tuning"] = True
            kernel.launchers = [kernel.coordinate_descent_tuning(kernel.launchers[0])]
    return {"warm": warm, "own": own, "static": static, "key": key}


def compiled(cache: Path, threads: str = "1", *words: str) -> dict:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = threads
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
    os.environ["TORCH_WARM_POOL"] = "0"
    loaded = stand_ins()
    kernels = {"triton_poi_fused_add_0": "+ 1.0", "triton_poi_fused_mul_1": "* 2.0"}
    document = compile_graph(cache / "graphs", kernels, "tuned" in words, "descent" in words)
    return document | {"loaded": sorted(set(loaded))}


def go(out: str | None = None, *words: str, cache: str = "torch", **settings: object) -> None:
    """Compile under a session with these settings; without `out` under none."""
    import tritonhook

    if out is None:
        document = compiled(Path(cache), "1", *words)
    else:
        with tritonhook.session(out, **settings) as session:
            document = compiled(Path(cache), "1", *words)
        document["notes"] = session.notes
    print(json.dumps(document), flush=True)


def main() -> None:
    print(json.dumps(compiled(Path(sys.argv[1]), *sys.argv[2:])), flush=True)


if __name__ == "__main__":
    main()
