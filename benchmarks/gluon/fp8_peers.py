"""Other attentions with fp8 inputs, which gluon_speed.py times beside ours: cuDNN's, and that of Triton's tutorial.

cuDNN's is called through nvidia-cudnn-frontend, as torch has no call for it. Its probabilities, V and O are e4m3.
The tutorial is the file 06-fused-attention.py as Triton publishes it, for e5m2: P and O are e5m2, too. Its own launch
gives V's descriptor too few columns, so that all heads but the first read zeros; here it gets all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.common import module_at
from gluon_kernels.verify.bench import Absent, Shape, in_dtype

CUDNN, TUTORIAL = "cudnn_fp8e4nv", "tutorial_fp8e5"
# Probabilities lie in [0, 1]; times 2^8 they use e4m3 up to 256 of 448.
P_SCALE = 256.0
E4M3_MOST = 448.0
# The tutorial's tiles have so many rows, and a mask for none.
TUTORIAL_ROWS = 128

Tensor = Any  # torch.Tensor


def peers(tutorial: Path | None, tutorial_shapes: list[Shape]) -> dict[str, Callable[..., Any]]:
    """Label -> a function of bf16 inputs and their Shape that returns a launch, or raises Absent.

    The tutorial's kernel is tuned for each length, so only `tutorial_shapes` have it.
    """
    found: dict[str, Callable[..., Any]] = {CUDNN: timed_cudnn}
    if tutorial is not None:
        module = module_at(tutorial, "fused_attention_tutorial")
        found[TUTORIAL] = functools.partial(timed_tutorial, module, tutorial_shapes)
    return found


# --- cuDNN


def timed_cudnn(inputs: tuple[Tensor, ...], shape: Shape) -> Callable[[], Tensor]:
    return CudnnGraph(*in_dtype(inputs, "fp8e4nv"), causal=shape.causal).launch


def cudnn_launch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Callable[[], Tensor]:
    """A launch whose O, in bf16, was scaled to use the range of e4m3: by a power of two, from a launch before."""
    import torch

    def launch() -> Tensor:
        graph = CudnnGraph(q, k, v, causal=causal)
        graph.launch()
        largest = float(graph.largest_o)
        scale = 2.0 ** math.floor(math.log2(E4M3_MOST / largest)) if largest else 1.0
        graph.numbers["scale_o"].fill_(scale)
        return graph.launch().to(torch.bfloat16) / scale

    return launch


class CudnnGraph:
    """cuDNN's fp8 attention of e4m3 [batch, heads, rows, head_dim]. O is e4m3: on Hopper cuDNN has no other for it.

    Raises Absent.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> None:
        import torch

        try:
            import cudnn
        except ImportError as error:
            raise Absent(f"nvidia-cudnn-frontend cannot be imported: {error}") from None
        self._cudnn, self._handle = cudnn, _handle()
        self._graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.FP8_E4M3,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self._handle,
        )
        values = {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0}
        values |= {"descale_s": 1 / P_SCALE, "scale_s": P_SCALE, "scale_o": 1.0}
        self.numbers = {name: torch.full((1, 1, 1, 1), value, device=q.device) for name, value in values.items()}
        self.largest_o = torch.zeros((1, 1, 1, 1), device=q.device)
        inputs = [self._tensor(x, cudnn.data_type.FP8_E4M3) for x in (q, k, v)]
        scales = {name: self._tensor(x, cudnn.data_type.FLOAT) for name, x in self.numbers.items()}
        mask = {"diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT, "right_bound": 0} if causal else {}
        o_out, _, p_out, largest_out = self._graph.sdpa_fp8(
            *inputs, **scales, **mask, attn_scale=q.shape[-1] ** -0.5, generate_stats=False
        )
        self._o = torch.empty_like(q)
        outputs = {o_out: self._o, p_out: torch.zeros_like(self.largest_o), largest_out: self.largest_o}
        for one, x in outputs.items():
            one.set_output(True).set_dim(list(x.shape)).set_stride(list(x.stride()))
            one.set_data_type(cudnn.data_type.FP8_E4M3 if x is self._o else cudnn.data_type.FLOAT)
        try:
            self._graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        except Exception as error:
            raise Absent(f"cuDNN {cudnn.backend_version()}: {error}") from None
        self._tensors = dict(zip(inputs, (q, k, v), strict=True)) | outputs
        self._tensors |= {scales[name]: x for name, x in self.numbers.items()}
        self._workspace = torch.empty(max(1, self._graph.get_workspace_size()), dtype=torch.uint8, device=q.device)

    def _tensor(self, x: Tensor, data_type: Any) -> Any:
        return self._graph.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=data_type)

    def launch(self) -> Tensor:
        import torch

        self._cudnn.set_stream(handle=self._handle, stream=torch.cuda.current_stream().cuda_stream)
        self._graph.execute(self._tensors, self._workspace, handle=self._handle)
        return self._o


@functools.cache
def _handle() -> Any:
    import cudnn

    return cudnn.create_handle()


# --- Triton's tutorial


def timed_tutorial(
    module: ModuleType, shapes: list[Shape], inputs: tuple[Tensor, ...], shape: Shape
) -> Callable[[], Tensor]:
    if shape not in shapes:
        raise Absent("only for the first shapes: it is tuned for each")
    return tutorial_launch(module, *in_dtype(inputs, "fp8e5"), causal=shape.causal)


def tutorial_launch(module: ModuleType, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Callable[[], Tensor]:
    """A launch of the tutorial's kernel for e5m2 [batch, heads, rows, head_dim], as many keys as queries."""
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    batch, heads, rows, head_dim = q.shape
    if k.shape != q.shape or rows % TUTORIAL_ROWS:
        raise Absent(f"as many keys as queries and heads, and a multiple of {TUTORIAL_ROWS}, only")
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, rows), device=q.device, dtype=torch.float32)
    across = v.transpose(2, 3).contiguous()  # fp8 MMAs of Hopper need V transposed
    lines, block = batch * heads * rows, [1, 1]  # the tutorial's hook sets the blocks
    desc_q, desc_k, desc_o = (TensorDescriptor(x, [lines, head_dim], [head_dim, 1], block) for x in (q, k, o))
    columns = across.numel() - (head_dim - 1) * rows  # up to the last row's end
    desc_v = TensorDescriptor(across, [head_dim, columns], [rows, 1], block)

    def launch() -> Tensor:
        module._attn_fwd[lambda tile: (-(-rows // tile["BLOCK_M"]), batch * heads, 1)](
            head_dim**-0.5, lse, batch, heads, desc_q, desc_k, desc_v, desc_o, N_CTX=rows, HEAD_DIM=head_dim,
            FP8_OUTPUT=True, STAGE=3 if causal else 1, warp_specialize=False, IS_HOPPER=True,
        )  # fmt: skip
        return o

    return launch


# --- how exact they are


def with_all_rows(launch: Callable[..., Callable[[], Tensor]]) -> Callable[..., Any]:
    """An attention as fp8_accuracy judges it, whose queries are the last of the keys, of one that needs them all."""

    def attention(
        q: Tensor, k: Tensor, v: Tensor, *, causal: str | None = None, return_lse: bool = False
    ) -> Tensor | tuple[Tensor, None]:
        import torch

        first = torch.zeros_like(k, dtype=torch.bfloat16)[:, :, q.shape[2] :].to(q.dtype)
        all_rows = torch.cat([x.view(torch.uint8) for x in (first, q)], 2).view(q.dtype)
        o = launch(all_rows, k, v, causal=causal is not None)()[:, :, -q.shape[2] :].to(torch.bfloat16)
        return (o, None) if return_lse else o

    return attention
