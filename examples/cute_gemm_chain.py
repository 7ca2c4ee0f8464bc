"""A chain of one to three small GEMMs in one launch: Y = ((A B) C) D, batched, in bf16, with the CuTe DSL, for Hopper.

    pip install 'nvidia-cutlass-dsl[cu13]==4.8.1' apache-tvm-ffi torch
    python examples/cute_gemm_chain.py        # on an H100 or H200: checks it; elsewhere: compiles it for sm_90a

Each product is accumulated in fp32 and rounded to bf16, as three launches do; but A B and (A B) C never leave the
registers. The accumulator of one wgmma, rounded, has the layout that the next one wants for its A operand in registers,
so nothing is moved between threads. `chain(a, b)` is the unfused form: the same kernel with one GEMM.

One CTA computes tiles of 64 rows, of many batch entries, one after another. One warpgroup computes, and one warp loads:

    ring        a slot holds                              full when           empty when
    a_ring      64 columns of A, for the tile's rows      its bytes landed    every compute warp has read it
    b_ring      64 rows of B, C or D                      as a_ring           as a_ring

so that the next tile's matrices land while this one's are multiplied. Several such CTAs share an SM: while one waits or
stores, another multiplies. In shared memory sizes are multiples of 64: TMA fills what lies outside of a matrix with
zeros, and stores only what lies inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # before cutlass is imported: there is no GPU to ask

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

# --- config ---

ROWS = 64  # of a wgmma; also the columns of a panel: rows of 128 bytes, the widest swizzle of TMA and wgmma
PANEL_BYTES = ROWS * ROWS * 2
MMA_K = 16  # bf16 elements of K that one wgmma multiplies
MAX_SIZE = 256  # the widest wgmma
MAX_GEMMS = 3
FUSED_WIDTH = 128  # columns of a product inside a chain: for more, ptxas finds too few registers and serialises wgmma
SMEM_BYTES_SM = 228 * 1024
SMEM_BYTES_RESERVED = 1024  # of each CTA, for the system
THREADS = 128 + 32  # the warpgroup that computes, the warp that loads
COMPUTE_WARPS = 4


@dataclass(frozen=True)
class Plan:
    """How a chain is computed. depths: K of each GEMM. width: columns of Y."""

    depths: tuple[int, ...]
    width: int
    ctas_per_sm: int = 1
    b_slots: int = 4

    @property
    def a_slots(self) -> int:
        return _panels(self.depths[0])

    @property
    def tile_n(self) -> int:
        """Columns of every product in shared memory and registers."""
        return _panels(max((*self.depths[1:], self.width))) * ROWS

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """(GEMM, chunk of 64 of its K), in the order in which they are multiplied."""
        return tuple((gemm, chunk) for gemm, depth in enumerate(self.depths) for chunk in range(_panels(depth)))

    @property
    def smem_bytes(self) -> int:
        panels = self.a_slots + (self.b_slots + 1) * (self.tile_n // ROWS)  # one for Y
        barriers = 2 * 8 * (self.a_slots + self.b_slots)
        return panels * PANEL_BYTES + barriers

    @property
    def name(self) -> str:
        return "gemm_chain_" + "x".join(map(str, (*self.depths, self.width)))


def plan(depths: tuple[int, ...], width: int) -> Plan:
    """Choose as many CTAs per SM as have memory for four slots each, and then as many slots as fit."""
    for ctas_per_sm in range(4, 0, -1):
        for b_slots in range(12, 3, -1):
            found = Plan(depths, width, ctas_per_sm, b_slots)
            if found.smem_bytes <= SMEM_BYTES_SM // ctas_per_sm - SMEM_BYTES_RESERVED:
                return found
    raise AssertionError("one CTA with four slots always fits")


def why_not(a: Any, factors: Sequence[Any]) -> str | None:
    """Say why the kernel cannot multiply these, or None. It reads shape, dtype, strides and device of each tensor."""
    if not 1 <= len(factors) <= MAX_GEMMS:
        return f"{len(factors)} factors; the kernel takes 1 to {MAX_GEMMS}"
    if a.shape[0] < 1:
        return "A has no batch entries"
    inner = a.shape[-1]
    for name, tensor in zip("ABCD", (a, *factors), strict=False):
        if tensor.dim() != 3 or tensor.dtype != torch.bfloat16 or not tensor.is_contiguous():
            return f"{name} is {tensor.dtype} {tuple(tensor.shape)}; it must be contiguous bf16 of three dimensions"
        if tensor.shape[0] != a.shape[0] or tensor.device != a.device:
            return f"{name} has batch {tensor.shape[0]} on {tensor.device}; A has {a.shape[0]} on {a.device}"
        if name != "A" and tensor.shape[1] != inner:
            return f"{name} has {tensor.shape[1]} rows; the matrix before it has {inner} columns"
        inner = tensor.shape[2]
        if any(size % 8 or not 8 <= size <= MAX_SIZE for size in tensor.shape[1:]):
            return f"{name} is {tensor.shape[1]} x {inner}; sizes must be multiples of 8 from 8 to {MAX_SIZE}"
    return None


def _panels(size: int) -> int:
    return -(-size // ROWS)


# --- shared memory ---


@dataclass(frozen=True)
class Ring:
    """The barriers of a ring of slots. Both sides number what goes through it by `count`."""

    slots: int
    barriers: Any  # pointer to the full barriers of all slots, then the empty ones

    @classmethod
    def allocate(cls, smem: SmemAllocator, slots: int) -> Ring:
        return cls(slots, smem.allocate_array(cutlass.Int64, 2 * slots))

    def init(self, readers: int) -> None:
        for i in range(self.slots):
            cute.arch.mbarrier_init(self.barriers + i, 1)
            cute.arch.mbarrier_init(self.barriers + self.slots + i, readers)

    def slot(self, count: Int32) -> Int32:
        return count % self.slots

    def full(self, count: Int32) -> Any:
        return self.barriers + self.slot(count)

    def wait_full(self, count: Int32) -> None:
        cute.arch.mbarrier_wait(self.full(count), (count // self.slots) & 1)

    def fill(self, count: Int32, expected_bytes: int) -> None:
        """Wait until the slot is empty, and say what will land in it. Called by the load warp."""
        cute.arch.mbarrier_wait(self.full(count) + self.slots, ((count // self.slots) & 1) ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(self.full(count), expected_bytes)

    def release(self, count: Int32) -> None:
        """Called by each compute warp when the wgmma that read the slot have completed."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(self.full(count) + self.slots)


@dataclass(frozen=True)
class Cta:
    """What the warps of a CTA share."""

    a_smem: Any
    b_smem: Any
    y_smem: Any
    a_ring: Ring
    b_ring: Ring
    row_tiles: Any  # tiles of one batch entry
    tiles: Any
    first: Any  # tile; then every `step`-th
    step: Any

    @property
    def turns(self) -> Any:
        return cute.ceil_div(self.tiles - self.first, self.step)

    def tile(self, turn: Int32) -> tuple[Int32, Int32]:
        """Batch entry, and tile of its rows."""
        tile = self.first + turn * self.step
        entry = tile // self.row_tiles
        return entry, tile - entry * self.row_tiles


# --- kernel ---


class Chain:
    """The kernel of one Plan. Batch and rows of A are arguments; the other sizes are compiled in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @cute.jit
    def __call__(self, a: cute.Tensor, factors: tuple, y: cute.Tensor, ctas: Int32, stream):
        p = self.plan
        k_atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BFloat16)
        n_atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, BFloat16)
        a_layout = cute.tile_to_shape(k_atom, (ROWS, ROWS, p.a_slots), (0, 1, 2))
        b_layout = cute.tile_to_shape(n_atom, (p.tile_n, ROWS, p.b_slots), (1, 0, 2))  # each panel in one piece
        y_layout = cute.tile_to_shape(k_atom, (ROWS, p.tile_n, 1), (0, 1, 2))

        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        a_tma = self.tma(load, a, (1, 2, 0), a_layout)
        b_tmas = [self.tma(load, factor, (2, 1, 0), b_layout) for factor in factors]
        y_tma = self.tma(store, y, (1, 2, 0), y_layout)
        row_tiles = cute.ceil_div(a.shape[1], ROWS)
        tiles = row_tiles * a.shape[0]
        self.kernel.set_name_prefix(p.name)
        self.kernel(
            *a_tma, [atom for atom, _ in b_tmas], [view for _, view in b_tmas], *y_tma,
            a_layout, b_layout, y_layout, row_tiles, tiles,
        ).launch(
            grid=(cutlass.min(tiles, ctas), 1, 1), block=(THREADS, 1, 1), stream=stream,
            min_blocks_per_mp=p.ctas_per_sm, preferred_smem_carveout=100,
        )  # fmt: skip

    def tma(self, op, tensor, order: tuple[int, ...], layout):
        """TMA atom for one slot of `layout`, and the coordinates of the tensor with its dimensions in this order."""
        view = cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=list(order)))
        slot = cute.slice_(layout, (None, None, 0))
        return cpasync.make_tiled_tma_atom(op, view, slot, cute.product_each(slot.shape))

    @cute.kernel
    def kernel(
        self, a_atom: cute.CopyAtom, a: cute.Tensor, b_atoms: list, bs: list, y_atom: cute.CopyAtom, y: cute.Tensor,
        a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout, y_layout: cute.ComposedLayout,
        row_tiles: Int32, tiles: Int32,
    ):  # fmt: skip
        p = self.plan
        thread, _, _ = cute.arch.thread_idx()
        first, _, _ = cute.arch.block_idx()
        step, _, _ = cute.arch.grid_dim()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = SmemAllocator()
        layouts = (a_layout, b_layout, y_layout)
        tensors = [smem.allocate_tensor(BFloat16, layout.outer, 1024, layout.inner) for layout in layouts]
        a_ring, b_ring = Ring.allocate(smem, p.a_slots), Ring.allocate(smem, p.b_slots)
        if thread == 0:
            a_ring.init(COMPUTE_WARPS)
            b_ring.init(COMPUTE_WARPS)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        cta = Cta(*tensors, a_ring, b_ring, row_tiles, tiles, first, step)
        if warp_index == COMPUTE_WARPS:
            self.load(cta, a_atom, a, b_atoms, bs)
        else:
            self.compute(cta, y_atom, y, thread)

    # --- load ---

    @cute.jit
    def load(self, cta: cutlass.Constexpr, a_atom, a, b_atoms, bs):
        p = self.plan
        a_boxes, a_slots = self.boxes(a_atom, a, (ROWS, ROWS), cta.a_smem)
        loads = [self.boxes(atom, b, (p.tile_n, ROWS), cta.b_smem) for atom, b in zip(b_atoms, bs, strict=True)]
        for turn in cutlass.range(cta.turns, unroll=1):
            entry, row_tile = cta.tile(turn)
            for i, (gemm, chunk) in enumerate(p.chunks):
                if cutlass.const_expr(gemm == 0):
                    box = a_boxes[None, row_tile, chunk, entry]
                    self.load_slot(cta.a_ring, turn * p.a_slots + chunk, a_atom, box, a_slots)
                boxes, slots = loads[gemm]
                box = boxes[None, 0, chunk, entry]
                self.load_slot(cta.b_ring, turn * len(p.chunks) + i, b_atoms[gemm], box, slots)

    def boxes(self, atom, tensor, shape, smem):
        """The tensor in boxes of this shape, and the slots of shared memory, as TMA wants them."""
        tiled = cute.local_tile(tensor, shape, (None, None, None))
        slots, boxes = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(smem, 0, 2), cute.group_modes(tiled, 0, 2)
        )
        return boxes, slots

    def load_slot(self, ring: Ring, count: Int32, atom, box, slots) -> None:
        ring.fill(count, cute.size_in_bytes(BFloat16, slots[None, 0].layout))
        cute.copy(atom, box, slots[None, ring.slot(count)], tma_bar_ptr=ring.full(count))

    # --- compute ---

    @cute.jit
    def compute(self, cta: cutlass.Constexpr, y_atom, y, thread):
        p = self.plan
        from_smem, from_registers = self.mma(warpgroup.OperandSource.SMEM), self.mma(warpgroup.OperandSource.RMEM)
        mine = from_smem.get_slice(0)  # operands in shared memory are the same for all threads
        a_slots = from_smem.make_fragment_A(mine.partition_A(cta.a_smem))
        b_slots = from_smem.make_fragment_B(mine.partition_B(cta.b_smem))
        acc = cute.make_rmem_tensor(from_smem.partition_shape_C((ROWS, p.tile_n)), Float32)
        product = from_registers.make_fragment_A(from_registers.partition_shape_A((ROWS, p.tile_n)))
        boxes, slots = self.boxes(y_atom, y, (ROWS, p.tile_n), cta.y_smem)
        for turn in cutlass.range(cta.turns, unroll=1):
            entry, row_tile = cta.tile(turn)
            for gemm in cutlass.range_constexpr(len(p.depths)):
                if cutlass.const_expr(gemm == 0):
                    self.multiply(cta, gemm, turn, from_smem, a_slots, b_slots, acc)
                else:
                    self.multiply(cta, gemm, turn, from_registers, product, b_slots, acc)
                self.round(acc, product, (*p.depths, p.width)[gemm + 1])
            self.store(cta, y_atom, product, slots[None, 0], boxes[None, row_tile, 0, entry], from_smem, thread)
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    def mma(self, source):
        """wgmma of 64 rows and tile_n columns, with A from shared memory or registers."""
        shape = (ROWS, self.plan.tile_n, MMA_K)
        majors = (OperandMajorMode.K, OperandMajorMode.MN)
        return cute.make_tiled_mma(warpgroup.MmaF16BF16Op(BFloat16, Float32, shape, source, *majors))

    def multiply(self, cta: Cta, gemm: int, turn: Int32, mma, a, b_slots, acc) -> None:
        """acc = A B of one GEMM. A slot is released when the wgmma of the next chunk are under way."""
        p = self.plan
        steps, depth = ROWS // MMA_K, p.depths[gemm]
        pending: list[tuple[Ring, Int32]] = []  # slots that wgmma may still read
        for i, (_, chunk) in ((i, at) for i, at in enumerate(p.chunks) if at[0] == gemm):
            a_count, b_count = turn * p.a_slots + chunk, turn * len(p.chunks) + i
            reads = [(cta.b_ring, b_count)] + [(cta.a_ring, a_count)] * (gemm == 0)
            for ring, count in reads:
                ring.wait_full(count)
            warpgroup.fence()
            for step in range(min(steps, -(-(depth - chunk * ROWS) // MMA_K))):
                mma.set(warpgroup.Field.ACCUMULATE, chunk + step > 0)
                in_smem, in_registers = (None, None, step, cta.a_ring.slot(a_count)), (None, None, chunk * steps + step)
                b_part = b_slots[None, None, step, cta.b_ring.slot(b_count)]
                cute.gemm(mma, acc, a[in_registers if gemm else in_smem], b_part, acc)
            warpgroup.commit_group()
            if pending:
                warpgroup.wait_group(1)
                self.release(pending)
            pending = reads
        warpgroup.wait_group(0)
        self.release(pending)

    def release(self, reads: list[tuple[Ring, Int32]]) -> None:
        for ring, count in reads:
            ring.release(count)

    def round(self, acc, product, columns: int) -> None:
        """Round the accumulator to the next A operand. Both have their elements in the same order.

        Columns of padding become 0 again: infinity times 0 has left NaN there.
        """
        cute.make_tensor(product.iterator, acc.layout).store(acc.load().to(BFloat16))
        of_8_columns = 4  # elements of a thread
        for i in range(columns // 8 * of_8_columns, cute.size(product)):
            product[i] = BFloat16(0.0)

    @cute.jit
    def store(self, cta: cutlass.Constexpr, atom, product, slot, box, mma, thread):
        """Write a tile of Y through shared memory."""
        copy = cute.make_tiled_copy_C(cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), BFloat16), mma)
        mine = copy.get_slice(thread)
        if thread < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store of the last tile has read the slot
        cute.arch.barrier(barrier_id=1, number_of_threads=32 * COMPUTE_WARPS)
        as_acc = cute.make_layout(mma.partition_shape_C((ROWS, self.plan.tile_n)))
        source = mine.retile(cute.make_tensor(product.iterator, as_acc))
        cute.copy(copy, source, mine.partition_D(cta.y_smem)[None, None, None, 0])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1, number_of_threads=32 * COMPUTE_WARPS)
        if thread < 32:
            cute.copy(atom, slot, box)
            cute.arch.cp_async_bulk_commit_group()


# --- launcher ---


def compile_plan(p: Plan) -> Any:
    """Compile for sm_90a; needs no GPU. The function takes (a, factors, y, ctas) and launches on torch's stream."""
    batch, rows = cute.sym_int32(), cute.sym_int32(divisibility=8)
    sizes = (*p.depths, p.width)
    factors = tuple(_fake(batch, k, n) for k, n in pairwise(sizes))
    arguments = (_fake(batch, rows, sizes[0]), factors, _fake(batch, rows, p.width), Int32(1))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(Chain(p), *arguments, stream, options="--enable-tvm-ffi --gpu-arch sm_90a")


_compiled = cache(compile_plan)


def _fake(*shape: Any) -> Any:
    return make_fake_compact_tensor(BFloat16, shape, stride_order=(2, 1, 0), assumed_align=16)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of calls with equal shapes. launch: None where the factors are too wide for one launch."""

    launch: Callable[..., None] | None
    shape: tuple[int, ...]
    ctas: int


_prepared: dict[tuple[Any, ...], Prepared] = {}


def prepare(a: torch.Tensor, factors: Sequence[torch.Tensor]) -> Prepared:
    """Check shapes, plan and compile. Raises ValueError for what the kernel cannot multiply."""
    wrong = why_not(a, factors)
    if wrong:
        raise ValueError(f"chain: {wrong}")
    p = plan(tuple(factor.shape[1] for factor in factors), factors[-1].shape[2])
    if len(factors) > 1 and p.tile_n > FUSED_WIDTH:
        return Prepared(None, (), 0)
    if a.device.type != "cuda":
        raise ValueError(f"chain: A is on {a.device}; the kernel runs on a GPU")
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    return Prepared(_compiled(p), (*a.shape[:2], p.width), sms * p.ctas_per_sm)


def _chain(a: torch.Tensor, factors: list[torch.Tensor]) -> torch.Tensor:
    # What every call pays for. The compiled function checks dtypes, strides and devices of each call.
    key = (a.get_device(), a.shape, *[factor.shape for factor in factors])
    found = _prepared.get(key)
    if found is None:
        found = _prepared[key] = prepare(a, factors)
    if found.launch is None:
        return unfused(a, *factors)
    y = a.new_empty(found.shape)
    found.launch(a, tuple(factors), y, found.ctas)
    return y


# No device here, and `impl` below: else custom_op would wrap the launch in checks that cost 3.5 us per call.
_operator = torch.library.custom_op("gemm_chain::chain", _chain, mutates_args=(), device_types=())
torch.library.impl("gemm_chain::chain", "cuda", _chain)


@_operator.register_fake
def _(a: torch.Tensor, factors: list[torch.Tensor]) -> torch.Tensor:
    return a.new_empty((*a.shape[:2], factors[-1].shape[2]))


def chain(a: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """Multiply A [batch, M, K] by one to three factors [batch, K, N], [batch, N, ...], in one launch.

    bf16, contiguous; sizes are multiples of 8 up to 256. Factors of more than 128 columns get a launch each.
    Forward only. Under torch.compile it is one node of the graph.
    """
    if torch.compiler.is_compiling():
        return torch.ops.gemm_chain.chain(a, list(factors))
    return _chain(a, factors)


def unfused(a: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """The same product with one launch per GEMM."""
    for factor in factors:
        a = chain(a, factor)
    return a


def main() -> None:
    """Multiply one chain in each way and print the errors; without a GPU, only compile the kernel."""
    if not torch.cuda.is_available():
        p = plan((128, 128, 128), 128)
        compile_plan(p)
        print(f"no GPU: compiled {p.name} for sm_90a")
        return
    torch.manual_seed(0)
    a, b, c, d = (torch.randn(256, 128, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    exact = a.double() @ b.double() @ c.double() @ d.double()
    for name, y in (("fused", chain(a, b, c, d)), ("unfused", unfused(a, b, c, d)), ("torch", a @ b @ c @ d)):
        print(f"{name:8} relative error {(y.double() - exact).norm() / exact.norm():.2e}")


if __name__ == "__main__":
    main()
