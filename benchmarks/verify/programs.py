"""Programs whose kernels are verified and tuned, a group a process.

    tritonhook run --launches -m benchmarks programs GROUP

For verification small shapes, as an unoptimised build of a kernel takes a hundred times as long, and of a kernel's
autotuned configurations the first that fits: it wants many kernels, not fast ones. For tuning (--real) the shapes of
a training step, and the best of a few configurations. A program that fails is told, and the others go on. Groups:
tutorials (folder TRITON_TUTORIALS), targets, liger, fla-1 to fla-4, block, steps, gluon, cute.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

with suppress(ImportError):  # `--help` and the names of the groups do not need it
    import torch

from benchmarks.common import REPOSITORY

RESULT = None
GPU = "cuda"
CONFIGURATIONS = 8  # of a kernel that tunes itself, spread over its list, where shapes are real
T = TypeVar("T")
_real = False


def sized(small: T, real: T) -> T:
    """small: for verification. real: for tuning."""
    return real if _real else small


def randn(*shape: int, dtype: torch.dtype | None = None, grad: bool = False) -> torch.Tensor:
    made = torch.randn(*shape, device=GPU, dtype=torch.float32).to(dtype or torch.float16)
    return made.requires_grad_(grad)


def backward(outputs: Any) -> None:
    """The gradients of everything that a program returned."""
    if isinstance(outputs, (tuple, list)):
        for one in outputs:
            backward(one)
    elif isinstance(outputs, torch.Tensor) and outputs.requires_grad and outputs.is_floating_point():
        outputs.backward(torch.randn_like(outputs), retain_graph=True)


def take_real_shapes() -> None:
    """Use the shapes of a training step from now on."""
    global _real
    _real = True


def take_first_configurations() -> None:
    """Let Triton's autotuner take the first configuration that the GPU has room for, without measuring."""
    from triton.runtime.autotuner import Autotuner, OutOfResources

    run = Autotuner.run

    def first(self: Any, *arguments: Any, **options: Any) -> Any:
        every = self.configs
        for config in every:
            self.configs = [config]
            try:
                return run(self, *arguments, **options)
            except OutOfResources:
                continue
        self.configs = every
        return run(self, *arguments, **options)

    Autotuner.run = first


def try_few_configurations() -> None:
    """Let Triton's autotuner choose among a few configurations, by a short measurement. `tune` races them again."""
    import triton
    from triton.runtime.autotuner import Autotuner

    prune = Autotuner.prune_configs

    def few(self: Any, *arguments: Any, **options: Any) -> Any:
        every = list(prune(self, *arguments, **options))
        return every[:: max(1, -(-len(every) // CONFIGURATIONS))]

    def measured(launch: Callable[[], Any], quantiles: Any) -> Any:
        launch()  # compiles, while others measure
        with _measuring():
            return triton.testing.do_bench(launch, warmup=2, rep=8, quantiles=quantiles)

    Autotuner.prune_configs, Autotuner.do_bench = few, staticmethod(measured)


@contextmanager
def _measuring() -> Iterator[None]:
    """Wait for the autotuners of other programs: one measures at a time."""
    import fcntl

    with (Path(tempfile.gettempdir()) / "tritonhook-benchmarks-autotune.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


# --- groups --------------------------------------------------------------------------------------


def tutorials() -> dict[str, Callable[[], Any]]:
    import ab_tutorial_targets as t

    rows, columns = sized((256, 1024), (4096, 8192))
    size, elements = sized(512, 4096), sized(98432, 1 << 25)

    def matmul(dtype: torch.dtype) -> Callable[[], Any]:
        return lambda: t._matmul(dtype, size)(t.tutorial("03-matrix-multiplication"))()

    def layer_norm() -> Any:
        module = t.tutorial("05-layer-norm")
        x, w, b = randn(rows, columns, grad=True), randn(columns, grad=True), randn(columns, grad=True)
        backward(module.LayerNorm.apply(x, (columns,), w, b, 1e-5))

    def attention(depth: int, causal: bool) -> None:
        q, k, v = (randn(*sized((1, 2, 512), (4, 16, 2048)), depth, grad=True) for _ in range(3))
        backward(t.tutorial("06-fused-attention")._attention.apply(q, k, v, causal, 0.5, False))

    def persistent(name: str, *special: bool) -> Any:
        t._scratch()
        a, b = randn(size, size), randn(size, size)
        return getattr(t.tutorial("09-persistent-matmul"), name)(a, b if special else b.T, *special)

    def dropout() -> None:
        module = t.tutorial("04-low-memory-dropout")
        x = randn(sized(10_000, elements), dtype=torch.float32)
        module.dropout(x, x_keep=(torch.rand(x.numel(), device=GPU) > 0.5).to(torch.int32), p=0.5)

    return {
        "add": lambda: t.tutorial("01-vector-add").add(
            randn(elements, dtype=torch.float32), randn(elements, dtype=torch.float32)
        ),
        "softmax": lambda: t.tutorial("02-fused-softmax").softmax(
            randn(*sized((823, 781), (rows, columns)), dtype=torch.float32)
        ),
        "matmul": matmul(torch.float16),
        "matmul_fp8": matmul(torch.float8_e5m2),
        "dropout": dropout,
        "layer_norm": layer_norm,
        "attention_64": partial(attention, 64, False),
        "attention_128_causal": partial(attention, 128, True),
        "matmul_naive": partial(persistent, "matmul"),
        "matmul_persistent": partial(persistent, "matmul_persistent"),
        "matmul_tma": partial(persistent, "matmul_tma", False),
        "matmul_descriptor": partial(persistent, "matmul_descriptor_persistent", False),
    }


def targets() -> dict[str, Callable[[], Any]]:
    import ab_targets as t

    return {
        "add": lambda: t.add(sized(1 << 18, 1 << 25))(),
        "softmax": lambda: t.softmax(*sized((256, 1000), (4096, 8192)))(),
        "layer_norm": lambda: t.layer_norm(*sized((256, 1000), (4096, 8192)))(),
        "row_sum": lambda: t.row_sum(*sized((256, 1000), (4096, 8192)))(),
        "polynomial": lambda: t.polynomial(sized(1 << 16, 1 << 22), 100)(),
        "matmul": lambda: t.matmul(sized(512, 4096))(),
        "matmul_fp8": lambda: t.matmul_fp8()(),
        "attention": lambda: t.attention(*sized((2, 512), (64, 2048)))(),
    }


def liger() -> dict[str, Callable[[], Any]]:
    from liger_kernel.transformers import functional as f

    rows, width, vocabulary = sized((128, 512, 4096), (2048, 4096, 32768))
    x = lambda *shape: randn(*shape, dtype=torch.bfloat16, grad=True)  # noqa: E731
    labels = torch.randint(0, vocabulary, (rows,), device=GPU)
    log = lambda: torch.log_softmax(torch.randn(rows, vocabulary, device=GPU), -1).requires_grad_()  # noqa: E731
    probabilities = torch.softmax(torch.randn(rows, vocabulary, device=GPU), -1)
    batch, length, depth = sized((2, 64, 64), (4, 2048, 128))
    cos, sin = (randn(1, length, depth, dtype=torch.float32) for _ in range(2))
    groups, channels = sized((8, 32), (32, 512))
    norms = sized(1, 4) * rows
    return {
        "cross_entropy": lambda: backward(f.liger_cross_entropy(x(rows, vocabulary), labels)),
        "fused_linear_cross_entropy": lambda: backward(
            f.liger_fused_linear_cross_entropy(x(rows, width), x(vocabulary, width), labels)
        ),
        "geglu": lambda: backward(f.liger_geglu(x(norms, width), x(norms, width))),
        "swiglu": lambda: backward(f.liger_swiglu(x(norms, width), x(norms, width))),
        "relu_squared": lambda: backward(f.liger_relu_squared(x(norms, width))),
        "group_norm": lambda: backward(
            f.liger_group_norm(
                randn(*sized((4, 32, 64), (16, 512, 4096)), dtype=torch.float32, grad=True),
                *(randn(channels, dtype=torch.float32, grad=True) for _ in range(2)),
                channels,
                groups,
                1e-5,
            )
        ),
        "jsd": lambda: backward(f.liger_jsd(log(), log().detach())),
        "kl_div": lambda: backward(f.liger_kl_div(log(), probabilities)),
        "tvd": lambda: backward(f.liger_tvd(probabilities.clone().requires_grad_(), probabilities.flip(0))),
        "sparsemax": lambda: backward(
            f.liger_sparsemax(randn(rows, sized(1000, 4096), dtype=torch.float32, grad=True))
        ),
        "softmax": lambda: backward(f.liger_softmax(x(norms, width))),
        "layer_norm": lambda: backward(f.liger_layer_norm(x(norms, width), x(width), x(width), 1e-5)),
        "rms_norm": lambda: backward(f.liger_rms_norm(x(norms, width), x(width), 1e-5)),
        "fused_add_rms_norm": lambda: backward(
            f.liger_fused_add_rms_norm(x(norms, width), x(norms, width), x(width), 1e-5)
        ),
        "poly_norm": lambda: backward(
            f.liger_poly_norm(x(norms, width), x(3), torch.randn((), device=GPU).requires_grad_())
        ),
        "rope": lambda: backward(f.liger_rope(x(batch, 8, length, depth), x(batch, 4, length, depth), cos, sin)),
        "dyt": lambda: backward(f.liger_dyt(x(norms, width), x(1), x(width), x(width))),
        "multi_token_attention": lambda: backward(
            f.liger_multi_token_attention(x(*sized((1, 4, 64, 64), (4, 4, 1024, 1024))), x(4, 4, 3, 3), padding=1)
        ),
    }


def _fla(names: tuple[str, ...]) -> dict[str, Callable[[], Any]]:
    from importlib import import_module

    batch, length, heads, depth = sized((1, 256, 2, 64), (2, 4096, 8, 128))

    def made(letters: str) -> list[torch.Tensor]:
        """q, k, v, r, p, o: numbers; g, w, f: logarithms of gates; b: in 0 to 1; 1: g of a head; u: heads x depth."""
        found = []
        for letter in letters:
            full = (batch, length, heads, depth)
            wide = letter.isupper()  # in float32
            letter = letter.lower()
            if letter in "gwf":
                one = torch.nn.functional.logsigmoid(torch.randn(full, device=GPU)).to(torch.bfloat16)
            elif letter == "1":
                one = torch.nn.functional.logsigmoid(torch.randn(full[:3], device=GPU))
            elif letter == "b":
                one = torch.rand(full[:3], device=GPU).to(torch.bfloat16)
            elif letter == "u":
                one = torch.randn(full[2:], device=GPU).to(torch.bfloat16)
            else:
                one = torch.nn.functional.normalize(torch.randn(full, device=GPU), dim=-1).to(torch.bfloat16)
            found.append((one.float() if wide else one).detach().requires_grad_())
        return found

    programs: dict[str, tuple[str, dict[str, str]]] = {
        "gla.chunk_gla": ("qkvg", {}),
        "gla.fused_recurrent_gla": ("qkvg", {}),
        "retention.chunk_retention": ("qkv", {}),
        "retention.parallel_retention": ("qkv", {}),
        "simple_gla.chunk_simple_gla": ("qkv1", {}),
        "simple_gla.fused_chunk_simple_gla": ("qkv1", {}),
        "delta_rule.chunk_delta_rule": ("qkvb", {}),
        "delta_rule.fused_recurrent_delta_rule": ("qkvb", {}),
        "gated_delta_rule.chunk_gated_delta_rule": ("qkv1b", {}),
        "gated_delta_rule.fused_recurrent_gated_delta_rule": ("qkv1", {"beta": "b"}),
        "rwkv6.chunk_rwkv6": ("qkvwu", {}),
        "rwkv7.chunk_rwkv7": ("qwkvpo", {}),
        "kda.chunk_kda": ("qkvgb", {}),
        "attn.parallel_attn": ("qkv", {}),
        "forgetting_attn.parallel_forgetting_attn": ("qkv1", {}),
        "linear_attn.chunk_linear_attn": ("qkv", {}),
        "path_attn.parallel_path_attn": ("qkvPB", {}),
        "comba.chunk_comba": ("qkpv1", {"beta": "b"}),
        "gsa.chunk_gsa": ("qkvg", {}),
    }

    def launch(name: str) -> Callable[[], None]:
        def run() -> None:
            module, function = name.split(".")
            letters, named = programs[name]
            given = {key: made(letter)[0] for key, letter in named.items()}
            outputs = getattr(import_module(f"fla.ops.{module}"), function)(*made(letters), **given)
            if not function.startswith("fused_recurrent"):
                backward(outputs[0] if isinstance(outputs, tuple) else outputs)

        return run

    return {name: launch(name) for name in programs if name.split(".")[0] in names}


def block_shape() -> dict[str, int]:
    """Return the shape of the transformer block in examples/torch_compile.py."""
    return sized({}, {"width": 1024, "heads": 16, "batch": 8, "tokens": 1024})


def block() -> dict[str, Callable[[], Any]]:
    """A transformer block under torch.compile: forward in half precision, and a training step."""
    from torch_compile import make

    shape = block_shape()

    def inference() -> None:
        model, x = make(**shape)
        with torch.no_grad():
            torch.compile(model)(x)

    def training() -> None:
        model, x = make(**shape)
        torch.compile(model.train())(x).float().square().mean().backward()

    return {"inference": inference, "training": training}


def steps() -> dict[str, Callable[[], Any]]:
    """Training steps as wholes."""
    from benchmarks.tuning.whole_steps import STEPS

    return {name: lambda make=make: make()() for name, make in STEPS.items()}  # type: ignore[misc]


def gluon() -> dict[str, Callable[[], Any]]:
    from importlib import import_module

    shape = sized((1, 2, 512), (4, 16, 4096))

    def attention(kernel: str, depth: int, causal: bool, dtype: torch.dtype = torch.bfloat16, **options: Any) -> Any:
        q, k, v = (randn(*shape, depth, dtype=dtype) for _ in range(3))
        attend = import_module(f"gluon_kernels.attention_{kernel}").attention
        return attend(q, k, v, causal="top-left" if causal else None, **options)

    eight = torch.float8_e4m3fn
    made = {"64": (64, False), "128": (128, False), "128_causal": (128, True), "128_fp8": (128, False, eight)}
    kernels = "mma", "hopper"
    return {f"{kernel}_{name}": partial(attention, kernel, *how) for name, how in made.items() for kernel in kernels}


def cute() -> dict[str, Callable[[], Any]]:
    """Kernels of the CuTe DSL: the chain of GEMMs, sm120_attn compiled for this GPU, FlashAttention 4."""
    batch, tokens, heads = sized((2, 256, 2), (4, 4096, 16))
    keys, page = sized((8, 512), (64, 8192)), 16

    def chain(gemms: int) -> Any:
        from cute_gemm_chain import chain

        size = sized(64, 128)
        return chain(*(randn(sized(16, 2048), size, size, dtype=torch.bfloat16) for _ in range(1 + gemms)))

    def attention(depth: int, causal: bool, peer: bool = False) -> Any:
        q, k, v = (randn(batch, tokens, heads, depth, dtype=torch.bfloat16) for _ in range(3))
        if peer:
            from flash_attn.cute.interface import flash_attn_func

            return flash_attn_func(q, k, v, causal=causal)
        from sm120_attn import attention

        return attention(q, k, v, causal=causal)

    def decode(dtype: torch.dtype) -> Any:
        from sm120_attn import attention_with_kv_cache

        rows, length = keys
        pages = rows * length // page
        k, v = (randn(pages, page, 8, 128, dtype=torch.bfloat16).to(dtype) for _ in range(2))
        table = torch.randperm(pages, device=GPU).int().view(rows, -1)
        lengths = torch.full((rows,), length, dtype=torch.int32, device=GPU)
        q = randn(rows, 1, 32, 128, dtype=torch.bfloat16)
        return attention_with_kv_cache(q, k, v, cache_seqlens=lengths, block_table=table)

    return {
        "gemm_chain": partial(chain, 3),
        "gemm": partial(chain, 1),
        "attention_64": partial(attention, 64, False),
        "attention_128_causal": partial(attention, 128, True),
        "decode": partial(decode, torch.bfloat16),
        "decode_e4m3": partial(decode, torch.float8_e4m3fn),
        **{f"fa4_{depth}": partial(attention, depth, False, peer=True) for depth in (64, 128)},
        "fa4_128_causal": partial(attention, 128, True, peer=True),
    }


GROUPS: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {
    "tutorials": tutorials,
    "targets": targets,
    "liger": liger,
    "fla-1": lambda: _fla(("gla", "retention", "simple_gla")),
    "fla-2": lambda: _fla(("delta_rule", "gated_delta_rule", "linear_attn")),
    "fla-3": lambda: _fla(("rwkv6", "rwkv7", "kda")),
    "fla-4": lambda: _fla(("attn", "forgetting_attn", "path_attn", "comba", "gsa")),
    "block": block,
    "steps": steps,
    "gluon": gluon,
    "cute": cute,
}


def record(
    group: str,
    only: Sequence[str],
    work: Path,
    real: bool = False,
    out: str | None = None,
    gpu: int | None = None,
    policy: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Run programs of a group in a process of their own, with a policy or none. Their launches are recorded in
    `work`/`out`, by default the group's name."""
    options = ["--launches", *(["--policy", str(policy)] if policy else [])]
    words = ["run", *options, "--out", str(work / (out or group)), "-m", "benchmarks", "programs", group, *only]
    name = "-".join((group, *only[:1]))
    own = {"TRITON_CACHE_DIR": str(work / f"cache-{name}"), "TORCHINDUCTOR_CACHE_DIR": str(work / f"inductor-{name}")}
    own |= {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
    log = (work / f"{name}.log").open("wb")
    command = [sys.executable, "-m", "tritonhook", *words, *(["--real"] if real else [])]
    return subprocess.Popen(
        command, env=os.environ | own, stdout=log, stderr=log, cwd=REPOSITORY, start_new_session=True
    )


def stop(recording: subprocess.Popen[bytes]) -> None:
    """End what `record` started, with all its children: one that goes on would add to the folder."""
    with suppress(ProcessLookupError):
        os.killpg(recording.pid, signal.SIGKILL)
    recording.wait()


NEEDS = ("gpu", "torch", "triton")
QUICK = ("targets",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", choices=list(GROUPS))
    parser.add_argument("only", nargs="*", help="programs of the group")
    parser.add_argument("--real", action="store_true", help="shapes of a training step, a few configurations")
    parser.add_argument("--first", action="store_true", help="the first configuration only, with real shapes too")


def run(arguments: argparse.Namespace) -> None:
    group, only = arguments.group, arguments.only
    torch.manual_seed(0)
    if arguments.real:
        take_real_shapes()
    if group != "block":
        (take_first_configurations if arguments.first else sized(take_first_configurations, try_few_configurations))()
    for name, launch in GROUPS[group]().items():
        if only and name not in only:
            continue
        try:
            launch()
            torch.cuda.synchronize()
            print(f"{group} {name}: ran", file=sys.stderr)
        except Exception as error:
            traceback.print_exc(limit=-3)
            print(f"{group} {name}: failed: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
