"""Forward attention for Blackwell (sm_100a) in Gluon: tcgen05 MMA, tensor memory, TMA, a partition per role.

O = softmax(sm_scale * Q K^T) V, and for each row lse = log2(sum(exp(sm_scale * Q K^T))). The unit of lse is
bits (base-2 logarithm): multiply by ln 2 for the natural one. Assembled, never executed: no Blackwell GPU was
at hand. tests/gluon_kernels/host_model.py runs this source on a CPU to check the protocol below and the sums.

A CTA is persistent and takes tiles of 256 query rows. A tile is two halves of 128 rows, a TMEM lane per row.
Each half has scores S (fp32, replaced in place by the probabilities P) and an accumulator O in tensor memory.
While one half is in softmax the tensor cores work for the other. For key block j the MMA partition issues

    P0(j) V(j)    Q0 K(j+1)    P1(j) V(j)    Q1 K(j+1)

so S(j+1) overwrites P(j) only after P(j) V(j): MMAs that one thread issues execute in order. The softmax
partitions send the correction partition a scale per row and block, exp2(old max - new max), at last 1 / sum.

Barriers. All count one arrival; each is waited for as often as it completes, always by one partition.
h: half; n: key blocks of the tile. "per tile" counts all slots of kv, and of scales those of one half.

    barrier         who arrives, when                         who waits, before                   per tile
    q.ready[h]      load: TMA bytes of Q(h) have landed       mma: Q(h) K(0)                      1
    q.empty[h]      mma: the tile's last Q(h) K is done       load: Q(h) of the next tile         1
    kv.ready[slot]  load: TMA bytes of K(j), V(j) landed      mma: Q K(j), P V(j)                 2n
    kv.empty[slot]  mma: Q1 K(j), P1 V(j) are done            load: the slot's next block         2n
    s_ready[h]      mma: Q(h) K(j) is done                    softmax h: reading S(j)             n
    p_ready[h]      softmax h: P(j) has replaced S(j)         mma: P(h) V(j)                      n
    o.ready[h]      mma: P(h) V(j) is done                    correction: scaling O(h)            n
    o.empty[h]      correction: O(h) is scaled or read out    mma: P(h) V(j+1), the next tile's   n
    scales.ready    softmax h: a scale is in shared memory    correction: reading it              n + 1
    scales.empty    correction: the scale has been read       softmax h: the slot's next scale    n + 1
    out.ready[h]    correction: O(h) is in shared memory      epilogue: TMA store of O(h)         1
    out.empty[h]    epilogue: the store has read it           correction: the next tile's O(h)    1
    turns.ready     softmax 0: its exp2 are done              softmax 1: its exp2                 n
    turns.empty     softmax 1: its exp2 are done              softmax 0: its next exp2            n
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
    tma,
)

from .config import OUT_PARTS, SCALE_SLOTS, AttentionConfig
from .gluon_api import aggregate, tma_load, tma_store, tmem_view
from .layouts import (
    ROW_VECTOR,
    box_layout,
    join_columns,
    one_per_row,
    row_per_thread,
    split_columns,
    tmem_layout,
)
from .offline import compile_offline as compile_offline
from .packed import add_pairs, fma2, fma_pairs, mul2, pair, unpair
from .pipeline import Ring, counter, make_barriers, make_ring

LOG2_E = gl.constexpr(1.4426950408889634)
SLOTS = gl.constexpr(SCALE_SLOTS)
# O is scaled and stored in column parts: a thread of the correction partition has registers for half a row.
O_PARTS = gl.constexpr(OUT_PARTS)

# Four warps in the default partition (correction); with the workers 16 warps share the registers, 128 each.
# Fusion is named because its default changes with the Triton version.
COMPILE_OPTIONS = {"num_warps": 4, "maxnreg": 128, "enable_fp_fusion": True}


@aggregate
class PartitionArgs:
    """Everything the partitions share. Built once by the kernel and passed whole to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [heads, n_ctx]
    score_scale: gl.tensor  # sm_scale * log2(e): turns a score into bits
    heads: gl.tensor  # batch * heads
    n_ctx: gl.tensor

    q_smem: gl.shared_memory_descriptor  # [2, 128, head_dim]
    kv_smem: gl.shared_memory_descriptor  # [stages, block_n, head_dim]: K and V blocks alternate
    out_smem: gl.shared_memory_descriptor  # [2 * O_PARTS, 128, head_dim / O_PARTS]
    scale_smem: gl.shared_memory_descriptor  # fp32 [2 * SLOTS, 128]
    s_tmem: tensor_memory_descriptor  # fp32 [2, 128, block_n]: S, then P in place
    o_tmem: tensor_memory_descriptor  # fp32 [2, 128, head_dim]

    q: Ring
    kv: Ring
    s_ready: gl.shared_memory_descriptor
    p_ready: gl.shared_memory_descriptor
    o: Ring
    scales: Ring
    out: Ring
    turns: Ring

    block_m: gl.constexpr
    block_n: gl.constexpr
    head_dim: gl.constexpr
    stages: gl.constexpr
    causal: gl.constexpr
    packed_row_sum: gl.constexpr
    exp_parts: gl.constexpr
    exp_turns: gl.constexpr

    @gluon.jit
    def num_tiles(self):
        return self.heads * (self.n_ctx // self.block_m)

    @gluon.jit
    def tile(self, index):
        tiles_m = self.n_ctx // self.block_m
        if self.causal:
            # Longest first: a persistent grid balances best when the short tiles come last.
            first_row = (tiles_m - 1 - index // self.heads) * self.block_m
            blocks = (first_row + self.block_m) // self.block_n
            return Tile(index % self.heads * self.n_ctx, first_row, blocks, first_row // self.block_n)
        else:
            blocks = self.n_ctx // self.block_n
            return Tile(index // tiles_m * self.n_ctx, index % tiles_m * self.block_m, blocks, blocks)

    @gluon.jit
    def probabilities(self, half: gl.constexpr):
        """P of one half: the first columns of its S, seen in the operand type."""
        dtype: gl.constexpr = self.v_desc.dtype
        columns: gl.constexpr = self.block_n * (32 // dtype.primitive_bitwidth)
        s = self.s_tmem.index(half)
        whole = tmem_view(s, dtype, [self.block_m // 2, columns], tmem_layout(self.block_n))
        return whole.slice(0, self.block_n)


@aggregate
class Tile:
    """One tile of the grid. Rows count in the flattened [heads * n_ctx, head_dim] tensors."""

    head_row: gl.tensor  # first row of this head
    first_row: gl.tensor  # first query row within the head
    blocks: gl.tensor  # key blocks to visit
    open_blocks: gl.tensor  # of these, the leading ones that need no causal mask


@gluon.jit
def load_partition(p):
    phase = gl.to_tensor(0)
    at = counter(p.stages)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        for half in gl.static_range(2):
            p.q.wait_empty(half, phase)
            row = tile.head_row + tile.first_row + half * (p.block_m // 2)
            load_block(p.q_desc, row, p.q.ready.index(half), p.q_smem.index(half))
        phase ^= 1
        for block in range(tile.blocks):
            row = tile.head_row + block * p.block_n
            p.kv.wait_empty(at.slot, at.phase)
            load_block(p.k_desc, row, p.kv.ready.index(at.slot), p.kv_smem.index(at.slot))
            at = at.next()
            p.kv.wait_empty(at.slot, at.phase)
            load_block(p.v_desc, row, p.kv.ready.index(at.slot), p.kv_smem.index(at.slot))
            at = at.next()


@gluon.jit
def load_block(desc, row, ready, smem):
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma_load(desc, [row, 0], ready, smem)


@gluon.jit
def mma_partition(p):
    tile_phase = gl.to_tensor(0)
    phase = gl.to_tensor(0)  # of the key block
    at = counter(p.stages)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        p.q.wait_ready(0, tile_phase)
        p.kv.wait_ready(at.slot, at.phase)
        scores_mma(p, 0, at.slot)
        p.q.wait_ready(1, tile_phase)
        scores_mma(p, 1, at.slot)
        tile_phase ^= 1
        at = at.next()

        for block in range(tile.blocks - 1):
            k_at = at.next()
            p.kv.wait_ready(at.slot, at.phase)
            values_mma(p, 0, at.slot, phase, block)
            p.kv.wait_ready(k_at.slot, k_at.phase)
            scores_mma(p, 0, k_at.slot)
            values_mma(p, 1, at.slot, phase, block)
            scores_mma(p, 1, k_at.slot)
            phase ^= 1
            at = k_at.next()

        tcgen05_commit(p.q.empty.index(0))
        tcgen05_commit(p.q.empty.index(1))
        p.kv.wait_ready(at.slot, at.phase)
        values_mma(p, 0, at.slot, phase, tile.blocks - 1)
        values_mma(p, 1, at.slot, phase, tile.blocks - 1)
        phase ^= 1
        at = at.next()


@gluon.jit
def scores_mma(p, half: gl.constexpr, slot):
    """S(half) = Q(half) K^T. The second half is the last reader of K."""
    q = p.q_smem.index(half)
    k = p.kv_smem.index(slot).permute((1, 0))
    s = p.s_tmem.index(half)
    done = p.s_ready.index(half)
    if half == 0:
        tcgen05_mma(q, k, s, use_acc=False, mbarriers=[done])
    else:
        tcgen05_mma(q, k, s, use_acc=False, mbarriers=[done, p.kv.empty.index(slot)])


@gluon.jit
def values_mma(p, half: gl.constexpr, slot, phase, block):
    """O(half) += P(half) V, from zero for the first block. The second half is the last reader of V."""
    p.o.wait_empty(half, phase)
    mbarrier.wait(p.p_ready.index(half), phase)
    weights = p.probabilities(half)
    v = p.kv_smem.index(slot)
    o = p.o_tmem.index(half)
    done = p.o.ready.index(half)
    if half == 0:
        tcgen05_mma(weights, v, o, use_acc=block > 0, mbarriers=[done])
    else:
        tcgen05_mma(weights, v, o, use_acc=block > 0, mbarriers=[done, p.kv.empty.index(slot)])


@gluon.jit
def softmax0_partition(p):
    softmax(p, 0)


@gluon.jit
def softmax1_partition(p):
    softmax(p, 1)


@gluon.jit
def softmax(p, half: gl.constexpr):
    rows: gl.constexpr = p.block_m // 2
    row_layout: gl.constexpr = one_per_row(p.block_n, p.block_n)
    phase = gl.to_tensor(0)
    at = counter(SLOTS)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        row = tile.first_row + half * rows + gl.arange(0, rows, row_layout)
        row_max = gl.full([rows], -float("inf"), gl.float32, row_layout)
        row_sum = no_sum(p)
        for _ in range(tile.open_blocks):
            scores = read_scores(p, half, phase)
            row_max, row_sum = softmax_block(p, half, scores, row_max, row_sum, phase, at)
            phase ^= 1
            at = at.next()
        if p.causal:
            for block in range(tile.open_blocks, tile.blocks):
                scores = mask_future(p, read_scores(p, half, phase), row, block)
                row_max, row_sum = softmax_block(p, half, scores, row_max, row_sum, phase, at)
                phase ^= 1
                at = at.next()
        total = sum_of(p, row_sum)
        send_scale(p, half, 1.0 / total, at)
        at = at.next()
        gl.store(p.lse + tile.head_row + row, row_max + gl.log2(total))


@gluon.jit
def read_scores(p, half: gl.constexpr, phase):
    mbarrier.wait(p.s_ready.index(half), phase)
    return p.s_tmem.index(half).load(row_per_thread(p.block_n, p.block_n))


@gluon.jit
def mask_future(p, scores, row, block):
    # Compared with constants, so that no register is spent on the key's number.
    last = row - block * p.block_n
    column = gl.arange(0, p.block_n, gl.SliceLayout(0, scores.type.layout))
    return gl.where(column[None, :] <= last[:, None], scores, -float("inf"))


@gluon.jit
def softmax_block(p, half: gl.constexpr, scores, row_max, row_sum, phase, at):
    """Turn S(j) into P(j) in place and send the scale of O; returns the new maximum and sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * p.score_scale)
    shrink = gl.exp2(row_max - new_max)
    send_scale(p, half, shrink, at)
    bits = fma2(scores, p.score_scale, -new_max[:, None])
    take_turn(p, half, phase)
    probabilities = store_exp2(p, half, bits)
    mbarrier.arrive(p.p_ready.index(half), count=1)
    pass_turn(p, half)
    return new_max, add_row_sum(p, row_sum, shrink, probabilities)


@gluon.jit
def send_scale(p, half: gl.constexpr, scale, at):
    slot = half * SLOTS + at.slot
    p.scales.wait_empty(slot, at.phase)
    p.scale_smem.index(slot).store(scale)
    p.scales.mark_ready(slot)


@gluon.jit
def store_exp2(p, half: gl.constexpr, bits):
    """exp2(bits) into tensor memory, part by part so that a part is converted while the next is computed."""
    columns: gl.constexpr = p.block_n // p.exp_parts
    target = p.probabilities(half)
    parts = split_columns(bits, p.exp_parts)
    done = ()
    for i in gl.static_range(p.exp_parts):
        part = gl.exp2(parts[i])
        target.slice(i * columns, columns).store(part.to(p.v_desc.dtype))
        done += (part,)
    return done


@gluon.jit
def no_sum(p):
    zero = gl.full([p.block_m // 2], 0.0, gl.float32, one_per_row(p.block_n, p.block_n))
    if p.packed_row_sum:
        return pair(zero, zero)
    else:
        return zero


@gluon.jit
def add_row_sum(p, row_sum, shrink, parts):
    """row_sum * shrink + sum of the parts' columns."""
    if p.packed_row_sum:
        added = no_sum(p)
        for i in gl.static_range(p.exp_parts):
            left, right = split_columns(parts[i], 2)
            columns = gl.reduce(pair(left, right), 1, add_pairs)
            added = add_pairs(added, gl.convert_layout(columns, row_sum.type.layout, assert_trivial=True))
        return fma_pairs(row_sum, pair(shrink, shrink), added)
    else:
        # Summed whole: a sum per part would be independent chains, and LLVM packs those into add.f32x2.
        columns = gl.sum(join_columns(parts), 1)
        return row_sum * shrink + gl.convert_layout(columns, row_sum.type.layout, assert_trivial=True)


@gluon.jit
def sum_of(p, row_sum):
    if p.packed_row_sum:
        left, right = unpair(row_sum)
        return left + right
    else:
        return row_sum


@gluon.jit
def take_turn(p, half: gl.constexpr, phase):
    if p.exp_turns:
        if half == 0:
            p.turns.wait_empty(0, phase)
        else:
            p.turns.wait_ready(0, phase)


@gluon.jit
def pass_turn(p, half: gl.constexpr):
    if p.exp_turns:
        if half == 0:
            p.turns.mark_ready(0)
        else:
            p.turns.mark_empty(0)


@gluon.jit
def correction_partition(p):
    tile_phase = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    at = counter(SLOTS)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        for half in gl.static_range(2):
            # The first block's scale is exp2(-inf - max) = 0 and O does not exist yet.
            skip_scale(p, half, at)
        at = at.next()
        for _ in range(tile.blocks - 1):
            for half in gl.static_range(2):
                scale = receive_scale(p, half, at)
                p.o.wait_ready(half, phase)
                shrink_accumulator(p, half, scale)
                p.o.mark_empty(half)
            phase ^= 1
            at = at.next()
        for half in gl.static_range(2):
            scale = receive_scale(p, half, at)
            p.o.wait_ready(half, phase)
            p.out.wait_empty(half, tile_phase)
            write_output(p, half, scale)
            p.out.mark_ready(half)
            p.o.mark_empty(half)
        phase ^= 1
        at = at.next()
        tile_phase ^= 1


@gluon.jit
def skip_scale(p, half: gl.constexpr, at):
    slot = half * SLOTS + at.slot
    p.scales.wait_ready(slot, at.phase)
    p.scales.mark_empty(slot)


@gluon.jit
def receive_scale(p, half: gl.constexpr, at):
    """fp32 [128, 1], one scale per row."""
    slot = half * SLOTS + at.slot
    p.scales.wait_ready(slot, at.phase)
    scale = p.scale_smem.index(slot).load(one_per_row(p.head_dim // O_PARTS, p.head_dim))
    p.scales.mark_empty(slot)
    return scale[:, None]


@gluon.jit
def shrink_accumulator(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // O_PARTS
    for part in gl.static_range(O_PARTS):
        o = p.o_tmem.index(half).slice(part * columns, columns)
        o.store(mul2(o.load(row_per_thread(columns, p.head_dim)), scale))


@gluon.jit
def write_output(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // O_PARTS
    for part in gl.static_range(O_PARTS):
        o = p.o_tmem.index(half).slice(part * columns, columns)
        rows = mul2(o.load(row_per_thread(columns, p.head_dim)), scale)
        p.out_smem.index(half * O_PARTS + part).store(rows.to(p.o_desc.dtype))
    fence_async_shared()


@gluon.jit
def epilogue_partition(p):
    columns: gl.constexpr = p.head_dim // O_PARTS
    phase = gl.to_tensor(0)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        for half in gl.static_range(2):
            p.out.wait_ready(half, phase)
            row = tile.head_row + tile.first_row + half * (p.block_m // 2)
            for part in gl.static_range(O_PARTS):
                tma_store(p.o_desc, [row, part * columns], p.out_smem.index(half * O_PARTS + part))
        tma.store_wait(O_PARTS)
        p.out.mark_empty(0)
        tma.store_wait(0)
        p.out.mark_empty(1)
        phase ^= 1


def entry_name(specialization) -> str:
    """The entry's name is the NAME constexpr: Triton's compile hash covers constexprs, but not `repr`."""
    return specialization.constants["NAME"]


@gluon.jit(repr=entry_name, do_not_specialize=["sm_scale", "heads", "n_ctx"])
def attention_kernel(
    sm_scale, lse, heads, n_ctx, q_desc, k_desc, v_desc, o_desc,
    NAME: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, PACKED_ROW_SUM: gl.constexpr, EXP_PARTS: gl.constexpr,
    EXP_TURNS: gl.constexpr,
):  # fmt: skip
    half: gl.constexpr = BLOCK_M // 2
    out_columns: gl.constexpr = HEAD_DIM // O_PARTS
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, sm_scale * LOG2_E, heads, n_ctx,
        gl.allocate_shared_memory(q_desc.dtype, [2, half, HEAD_DIM], q_desc.layout),
        gl.allocate_shared_memory(k_desc.dtype, [STAGES, BLOCK_N, HEAD_DIM], k_desc.layout),
        gl.allocate_shared_memory(o_desc.dtype, [2 * O_PARTS, half, out_columns], o_desc.layout),
        gl.allocate_shared_memory(gl.float32, [2 * SLOTS, half], ROW_VECTOR),
        allocate_tensor_memory(gl.float32, [2, half, BLOCK_N], tmem_layout(BLOCK_N)),
        allocate_tensor_memory(gl.float32, [2, half, HEAD_DIM], tmem_layout(HEAD_DIM)),
        make_ring(2), make_ring(STAGES), make_barriers(2), make_barriers(2),
        make_ring(2), make_ring(2 * SLOTS), make_ring(2), make_ring(1),
        BLOCK_M, BLOCK_N, HEAD_DIM, STAGES, CAUSAL, PACKED_ROW_SUM, EXP_PARTS, EXP_TURNS,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (correction_partition, (p,)),
            (softmax0_partition, (p,)),
            (softmax1_partition, (p,)),
            (mma_partition, (p,)),
            (load_partition, (p,)),
            (epilogue_partition, (p,)),
        ],
        [4, 4, 1, 1, 1],
        [192, 192, 24, 24, 24],
    )


def constexprs(config: AttentionConfig) -> dict[str, object]:
    """The kernel's compile-time arguments."""
    return {
        "NAME": config.name,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal,
        "PACKED_ROW_SUM": config.packed_row_sum,
        "EXP_PARTS": config.parts,
        "EXP_TURNS": config.turns,
    }


def attention(q, k, v, *, causal: bool = False, sm_scale: float | None = None, **fields):
    """Forward attention on an sm_100 GPU.

    q, k, v: contiguous torch tensors [batch, heads, n_ctx, head_dim] of one dtype (float8_e5m2,
    float8_e4m3fn, float16 or bfloat16), n_ctx a multiple of 256. sm_scale defaults to head_dim ** -0.5.
    `fields` go to AttentionConfig, for example name="cutlass_attention_fwd".

    Returns (o, lse): o like q; lse fp32 [batch, heads, n_ctx], log2 of each row's sum of exponentials.
    Raises ValueError or TypeError for what the kernel cannot take, before it touches the GPU.
    """
    config = AttentionConfig(dtype=check_tensors(q, k, v), head_dim=q.shape[-1], causal=causal, **fields)
    import torch

    major, minor = torch.cuda.get_device_capability(q.device)
    config.require(10 * major + minor)
    batch, heads, n_ctx, head_dim = q.shape
    check_size(batch * heads, n_ctx, config)
    sm_scale = head_dim**-0.5 if sm_scale is None else sm_scale
    if sm_scale <= 0:
        raise ValueError(f"sm_scale {sm_scale}: must be positive, the maximum is taken before scaling")

    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tiles = batch * heads * (n_ctx // config.block_m)
    programs = min(tiles, torch.cuda.get_device_properties(q.device).multi_processor_count)
    descriptors = {
        name: _descriptor(x, config.dtype, config.boxes[name])
        for name, x in {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}.items()
    }
    attention_kernel[(programs,)](
        sm_scale, lse, batch * heads, n_ctx, **descriptors, **constexprs(config), **COMPILE_OPTIONS
    )  # fmt: skip
    return o, lse


TORCH_DTYPES = {
    "torch.float8_e5m2": "fp8e5",
    "torch.float8_e4m3fn": "fp8e4nv",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
}


def check_tensors(q, k, v) -> str:
    """The config's dtype for these tensors; raises ValueError or TypeError if they cannot be attended to."""
    if str(q.dtype) not in TORCH_DTYPES:
        raise TypeError(f"q is {q.dtype}: the kernel takes {', '.join(TORCH_DTYPES)}")
    if len(q.shape) != 4:
        raise ValueError(f"q has shape {tuple(q.shape)}: pass [batch, heads, n_ctx, head_dim]")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if tuple(x.shape) != tuple(q.shape):
            raise ValueError(f"{name} has shape {tuple(x.shape)}, q {tuple(q.shape)}: they must be equal")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, q is {q.dtype}: they must be equal")
        if x.device != q.device or x.device.type != "cuda":
            raise ValueError(f"{name} is on {x.device}: q, k and v must be on one CUDA device")
        if not x.is_contiguous():
            raise ValueError(f"{name} is not contiguous: call {name}.contiguous()")
        if x.data_ptr() % 16:
            raise ValueError(f"{name} starts at {x.data_ptr():#x}: TMA reads from 16-byte aligned addresses")
    return TORCH_DTYPES[str(q.dtype)]


def check_size(heads: int, n_ctx: int, config: AttentionConfig) -> None:
    """Raise ValueError if `heads` (batch * heads) sequences of n_ctx rows cannot be cut into tiles."""
    if n_ctx == 0 or n_ctx % config.block_m:
        # TMA boxes do not stop at a head's last row: a partial tile would run into the next head.
        raise ValueError(f"n_ctx {n_ctx}: not a positive multiple of the {config.block_m} rows of a tile")
    if heads * n_ctx >= 2**31:
        raise ValueError(f"{heads} heads of {n_ctx} rows: row numbers are 32-bit")


def _descriptor(x, dtype: str, box: list[int]):
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    rows = x.view(-1, x.shape[-1])
    return TensorDescriptor(rows, list(rows.shape), list(rows.stride()), box, box_layout(dtype, box))
