"""Forward attention for Hopper (sm_90a) in Gluon: wgmma and TMA, one load partition, two or three consumers.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). This kernel was measured on an H100.

A CTA is persistent. A tile has 64 query rows for each consumer; a consumer is one warpgroup. Scores, probabilities and
O stay in the consumer's registers: the layout of the scores is that of wgmma's left operand with 16-bit elements.
Key blocks are visited from the last to the first, so the masked blocks come first. With config.own_first a tile begins
with the block of its own keys, goes down to block 0 and continues with the last block. A consumer issues Q K(j) and
P(j - 1) V(j - 1), waits for the scores and for O, and computes P(j), while the tensor cores work for the other
consumers. With config.turns the consumers issue their MMAs in turn. Computing the scores one block ahead, so that no
softmax waits for them, was slower on an H100.

softmax.py computes maxima, exponentials and sums. With fp8 the scores come from 8-bit MMAs; the load partition widens V
to fp16, and P V is computed in fp16, for reasons in operands.py.

The consumers of a tile may need different numbers of key blocks (config.uneven): a mask hides the last blocks from the
first rows, and in the last tile of a head some consumers may have no rows. A consumer hands back blocks that it does
not need without reading them.

Barriers. `ready` barriers and q count one arrival. K and V slots are handed back with named barriers, at which a
consumer arrives without waiting. An mbarrier would cost more: one thread arrives at it, after a barrier of the whole
warpgroup. c: consumer; S: config.stages; n: key blocks of the tile.

    barrier          who arrives, when                            who waits, before                  per tile
    q.ready[c]       load: TMA bytes of Q(c) have landed          consumer c: its first scores       1
    q.empty[c]       consumer c: its last scores are done; with   load: Q(c) of the next tile        1
                     keep_q: Q is in registers, or own sums
                     are done; where O is staged in Q: O has
                     been stored
    k_ready[slot]    load: TMA bytes of K(j) have landed          each consumer: its scores of j     n
    v_ready[slot]    load: TMA bytes of V(j) have landed, or      each consumer: its P(j) V(j)       n
                     it has widened V(j)
    narrow_ready[s]  load: TMA bytes of 8-bit V(j) have landed    load: widening V(j)                n, with fp8
    5 + slot         each consumer: its scores of j are done      load: the slot's next K, or exit   n
    5 + S + slot     each consumer: its P(j) V(j) is done         load: the slot's next V, or exit   n
    13 + c           consumer c - 1: has issued its MMAs          consumer c: issuing its own        n, with turns
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..config import entry_name
from ..device.pipeline import Ring, counter, make_barriers, make_ring
from ..device.triton_compat import aggregate, tma_load, tma_store
from .barriers import (
    FIRST_EMPTY,
    await_empty,
    declare_flag,
    first_turn,
    hand_back,
    last_turn,
    named_barrier,
    pass_turn,
    take_turn,
)
from .config import NARROW_SLOTS as _NARROW_SLOTS
from .layouts import ROWS, left_layout, mma_layout
from .operands import widen
from .own_sums import with_own_sums
from .softmax import View, finite, first_softmax, next_softmax, scale_rows, visible, whole_blocks

LN_2 = gl.constexpr(0.6931471805599453)
# Slots for blocks of 8-bit V, before they are widened.
NARROW_SLOTS = gl.constexpr(_NARROW_SLOTS)


@aggregate
class PartitionArgs:
    """Everything that the partitions share. The kernel builds it once and passes it to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [batch, num_heads, seqlen_q], natural logarithms
    lse_rows: gl.tensor  # number of rows of each head whose lse is written: seqlen_q or 0
    scale: gl.tensor
    score_scale: gl.tensor  # scale * log2(e): exp(scale * score) = exp2(score_scale * score)
    out_scale: gl.tensor
    causal_offset: gl.tensor  # with `causal`, row i sees keys 0 .. i + causal_offset
    batch: gl.tensor
    num_heads: gl.tensor  # heads of Q
    qheads_per_kvhead: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    order: gl.tensor  # with `ordered`: pointer to int32, made by tile_order

    q_smem: gl.shared_memory_descriptor
    k_smem: gl.shared_memory_descriptor
    v_smem: gl.shared_memory_descriptor
    o_smem: gl.shared_memory_descriptor
    q: Ring
    k_ready: gl.shared_memory_descriptor
    v_ready: gl.shared_memory_descriptor
    narrow_smem: gl.shared_memory_descriptor
    narrow_ready: gl.shared_memory_descriptor

    options: gl.constexpr  # the Options of the config

    @gluon.jit
    def num_tiles(self):
        """Count the tiles that this CTA takes."""
        total = (
            (self.seqlen_q + self.options.consumers * ROWS - 1)
            // (self.options.consumers * ROWS)
            * self.batch
            * self.num_heads
        )
        programs = gl.num_programs(0)
        return (total - gl.program_id(0) + programs - 1) // programs

    @gluon.jit
    def tile_number(self, turn):
        """Return this CTA's tile number in round `turn`. Call it one tile ahead, as with `ordered` it reads memory."""
        index = turn * gl.num_programs(0) + gl.program_id(0)
        if self.options.ordered:
            return gl.load(self.order + index)
        else:
            return index

    @gluon.jit
    def tile(self, index):
        if self.options.ordered:
            m = index // (self.batch * self.num_heads)
            head = index % (self.batch * self.num_heads)
        else:
            tiles_m = (self.seqlen_q + self.options.consumers * ROWS - 1) // (self.options.consumers * ROWS)
            head = index // tiles_m
            m = index % tiles_m
        first_row = m * (self.options.consumers * ROWS)
        blocks = self.blocks_before(first_row + self.options.consumers * ROWS)
        kv_head = head % self.num_heads // self.qheads_per_kvhead
        own_block = gl.maximum(first_row + self.seqlen_k - self.seqlen_q, 0) // self.options.block_n
        own_block = gl.minimum(own_block, blocks - 1)
        return Tile(head // self.num_heads, head % self.num_heads, kv_head, first_row, blocks, own_block)

    @gluon.jit
    def block(self, tile, left):
        """Compute the number of the key block that a tile visits when `left` more blocks follow."""
        if self.options.own_first:
            block = tile.own_block + 1 - tile.blocks + left
            return gl.where(block < 0, block + tile.blocks, block)
        else:
            return left

    @gluon.jit
    def blocks_before(self, end_row):
        """Count the key blocks that the rows before end_row see, at least 1."""
        seen = self.seqlen_k
        if self.options.causal:
            seen = gl.minimum(seen, end_row + self.causal_offset)
        return gl.maximum((seen + self.options.block_n - 1) // self.options.block_n, 1)

    @gluon.jit
    def left_out(self, index, me: gl.constexpr):
        """Count the key blocks at the end of a tile that consumer `me` does not need."""
        if self.options.uneven:
            first_row = index // (self.batch * self.num_heads) * (self.options.consumers * ROWS)
            own = self.blocks_before(first_row + (me + 1) * ROWS)
            # A consumer without rows needs no block. It still takes one, as the code is simpler then.
            own = gl.where(first_row + me * ROWS < self.seqlen_q, own, 1)
            return self.blocks_before(first_row + self.options.consumers * ROWS) - own
        else:
            return gl.to_tensor(0)


@aggregate
class Tile:
    """One tile of the grid."""

    batch: gl.tensor
    head: gl.tensor
    kv_head: gl.tensor
    first_row: gl.tensor
    blocks: gl.tensor  # key blocks to visit, from the last to the first
    own_block: gl.tensor  # with own_first: the block to begin with; the last block follows block 0


@gluon.jit
def load_partition(p):
    phase = gl.to_tensor(0)
    k_at = counter(p.options.stages)
    v_at = counter(p.options.stages)
    narrow_at = counter(NARROW_SLOTS)
    filled = gl.to_tensor(0)
    for turn in range(p.num_tiles()):
        tile = p.tile(p.tile_number(turn))
        for i in gl.static_range(p.options.consumers):
            p.q.wait_empty(i, phase)
            row = tile.first_row + i * ROWS
            load_block(p.q_desc, tile.batch, tile.head, row, 0, p.q.ready.index(i), p.q_smem.index(i))
            if i == 0:
                load_k(p, tile, p.block(tile, tile.blocks - 1), k_at, filled)
                k_at = k_at.next()
        load_narrow(p, tile, p.block(tile, tile.blocks - 1), narrow_at)
        for i in range(1, tile.blocks):
            load_k(p, tile, p.block(tile, tile.blocks - 1 - i), k_at, filled + 1)
            k_at = k_at.next()
            load_narrow(p, tile, p.block(tile, tile.blocks - 1 - i), narrow_at.next())
            load_v(p, tile, p.block(tile, tile.blocks - i), v_at, filled, narrow_at)
            v_at = v_at.next()
            narrow_at = narrow_at.next()
            filled += 1
        load_v(p, tile, p.block(tile, 0), v_at, filled, narrow_at)
        v_at = v_at.next()
        narrow_at = narrow_at.next()
        filled += 1
        phase ^= 1
    for i in range(gl.minimum(filled, p.options.stages)):
        named_barrier("bar.sync", FIRST_EMPTY + i, p.options.consumers + 1)
        named_barrier("bar.sync", FIRST_EMPTY + p.options.stages + i, p.options.consumers + 1)


@gluon.jit
def load_k(p, tile, block, at, filled):
    await_empty(p, 0, at, filled)
    ready = p.k_ready.index(at.slot)
    load_block(p.k_desc, tile.batch, tile.kv_head, block * p.options.block_n, 0, ready, p.k_smem.index(at.slot))


@gluon.jit
def load_narrow(p, tile, block, narrow_at):
    """Load a block of 8-bit V; load_v widens it."""
    if p.options.widen_v:
        ready = p.narrow_ready.index(narrow_at.slot)
        smem = p.narrow_smem.index(narrow_at.slot)
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.options.block_n, 0, ready, smem)


@gluon.jit
def load_v(p, tile, block, at, filled, narrow_at):
    """Load a block of V, or widen the 8-bit block that load_narrow has loaded."""
    await_empty(p, p.options.stages, at, filled)
    ready = p.v_ready.index(at.slot)
    smem = p.v_smem.index(at.slot)
    if p.options.widen_v:
        mbarrier.wait(p.narrow_ready.index(narrow_at.slot), narrow_at.phase)
        shape: gl.constexpr = [p.options.block_n, p.options.head_dim]
        widen(p.narrow_smem.index(narrow_at.slot).reshape(shape), smem.reshape(shape))
        fence_async_shared()
        mbarrier.arrive(ready, count=1)
    else:
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.options.block_n, 0, ready, smem)


@gluon.jit
def load_block(desc, batch, head, row, column, ready, smem):
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma_load(desc, [batch, head, row, column], ready, smem)


@gluon.jit
def consumer0_partition(p):
    consume(p, 0)


@gluon.jit
def consumer1_partition(p):
    consume(p, 1)


@gluon.jit
def consumer2_partition(p):
    consume(p, 2)


@gluon.jit
def consume(p, me: gl.constexpr):
    row_layout: gl.constexpr = gl.SliceLayout(1, mma_layout(p.options.block_n, p.q_desc.dtype))
    phase = gl.to_tensor(0)
    k_at = counter(p.options.stages)
    v_at = counter(p.options.stages)
    first_turn(p, me)
    declare_flag(me)
    tiles = p.num_tiles()
    number = p.tile_number(0)
    left_out = p.left_out(number, me)
    for turn in range(tiles):
        p.q.wait_ready(me, phase)
        if p.options.uneven:
            k_at, v_at = leave_out(p, me, left_out, k_at, v_at)
        q = take_q(p, me)
        scores_token = first_scores(p, me, q, k_at)
        tile = p.tile(number)
        number = p.tile_number(gl.minimum(turn + 1, tiles - 1))
        first_row = tile.first_row + me * ROWS
        view = View(first_row + gl.arange(0, ROWS, row_layout), whole_blocks(p, first_row))
        acc_o = gl.zeros([ROWS, p.options.head_dim], gl.float32, mma_layout(p.options.head_dim, p.v_smem.dtype))
        scores = warpgroup_mma_wait(0, deps=(scores_token,))
        scores = with_own_sums(p, me, scores, k_at.slot)
        hand_back(p, 0, k_at)
        k_at = k_at.next()
        blocks = tile.blocks - left_out
        hand_back_q(p, me, blocks == 1)
        probs, row_max, row_sum = first_softmax(p, scores, view, p.block(tile, blocks - 1))
        await_k(p, k_at, blocks > 1)
        for i in range(1, blocks):
            scores_token, o_token = issue_mmas(p, me, q, probs, acc_o, k_at, v_at)
            scores = warpgroup_mma_wait(1, deps=(scores_token,))
            hand_back(p, 0, k_at)
            k_at = k_at.next()
            left = blocks - 1 - i
            hand_back_q(p, me, left == 0)
            acc_o, probs, row_max, row_sum = softmax_step(
                p, me, scores, o_token, view, tile, left, row_max, row_sum, k_at, v_at
            )
            v_at = v_at.next()

        if not (p.options.shared_out or p.options.q_early or p.options.keep_q):
            p.q.mark_empty(me)
        acc_o = last_values(p, probs, acc_o, v_at)
        v_at = v_at.next()

        left_out = p.left_out(number, me)
        finish(p, me, tile, view.row, row_max, row_sum, acc_o)
        phase ^= 1
    last_turn(p, me)
    tma.store_wait(0)


@gluon.jit
def take_q(p, me: gl.constexpr):
    """Return Q as the left operand of the MMAs: in registers with keep_q, else in shared memory."""
    q = p.q_smem.index(me).reshape([ROWS, p.options.head_dim])
    if p.options.keep_q:
        q = q.load(left_layout(p.options.block_n, p.q_desc.dtype))
        if p.options.own_sums == 1:
            p.q.mark_empty(me)
    return q


@gluon.jit
def hand_back_q(p, me: gl.constexpr, last):
    """With q_early, let the load partition replace Q. `last`: the tile's last scores are done."""
    if p.options.q_early and last:
        p.q.mark_empty(me)


@gluon.jit
def first_scores(p, me: gl.constexpr, q, k_at):
    """Issue Q K of the tile's first block."""
    mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase)
    take_turn(p, me)
    scores_token = scores_mma(p, q, k_at.slot)
    pass_turn(p, me)
    return scores_token


@gluon.jit
def issue_mmas(p, me: gl.constexpr, q, probs, acc_o, k_at, v_at):
    """Issue Q K of a block and P V of the block before; return their tokens."""
    take_turn(p, me)
    scores_token = scores_mma(p, q, k_at.slot)
    mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
    o_token = values_mma(p, probs, v_at.slot, acc_o)
    pass_turn(p, me)
    return scores_token, o_token


@gluon.jit
def softmax_step(p, me: gl.constexpr, scores, o_token, view, tile, left, row_max, row_sum, k_at, v_at):
    """Wait for P V of the previous block, then compute the softmax of a block. `left` more blocks follow.

    Returns acc_o, scaled to the new maxima, and the block's probs, row_max and row_sum.
    """
    await_k(p, k_at, left > 0)
    acc_o, scores = await_values(p, o_token, scores, v_at)
    return next_softmax(p, me, visible(p, scores, view, p.block(tile, left)), acc_o, row_max, row_sum)


@gluon.jit
def await_k(p, k_at, needed):
    """Wait for the next K. The loop of this wait ends a basic block, so ptxas moves no MMA wait above the softmax."""
    mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase, pred=needed)


@gluon.jit
def await_values(p, o_token, ready, v_at):
    """Wait for P V, hand back V, and return (acc_o, ready). The compiler must compute `ready` before the wait."""
    acc_o, ready = warpgroup_mma_wait(0, deps=(o_token, ready))
    hand_back(p, p.options.stages, v_at)
    return acc_o, ready


@gluon.jit
def last_values(p, probs, acc_o, v_at):
    """Add P V of the tile's last block to acc_o."""
    mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
    acc_o = warpgroup_mma_wait(0, deps=(values_mma(p, probs, v_at.slot, acc_o),))
    hand_back(p, p.options.stages, v_at)
    return acc_o


@gluon.jit
def leave_out(p, me: gl.constexpr, count, k_at, v_at):
    """Hand back the slots of `count` blocks without reading them. First wait until each slot is filled."""
    for _ in range(count):
        take_turn(p, me)
        pass_turn(p, me)
        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase)
        hand_back(p, 0, k_at)
        k_at = k_at.next()
        mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
        hand_back(p, p.options.stages, v_at)
        v_at = v_at.next()
    return k_at, v_at


@gluon.jit
def scores_mma(p, q, slot):
    k = p.k_smem.index(slot).reshape([p.options.block_n, p.options.head_dim]).permute((1, 0))
    layout: gl.constexpr = mma_layout(p.options.block_n, p.q_desc.dtype)
    zero = gl.zeros([ROWS, p.options.block_n], gl.float32, layout)
    return warpgroup_mma(q, k, zero, use_acc=False, is_async=True)


@gluon.jit
def values_mma(p, probs, slot, acc_o):
    v = p.v_smem.index(slot).reshape([p.options.block_n, p.options.head_dim])
    return warpgroup_mma(probs, v, acc_o, is_async=True)


@gluon.jit
def finish(p, me: gl.constexpr, tile, row, row_max, row_sum, acc_o):
    """Write O and lse of a tile."""
    # Each of the four lanes of a row has a part of its sum.
    total = gl.convert_layout(gl.sum(row_sum, 1), row.type.layout)
    write_lse(p, tile, row, row_max, total)
    inverse = gl.where(total == 0, 0.0, p.out_scale / total)
    write_output(p, me, tile, scale_rows(acc_o, inverse))


@gluon.jit
def write_lse(p, tile, row, row_max, total):
    # With scores of 10,000, rounding errors of score_scale and ln 2 would change lse by 0.001. So the large term is
    # multiplied by scale, and only the small difference by ln 2.
    largest = finite(row_max)
    subtracted = product_minus(largest, p.score_scale, largest * p.score_scale)
    lse = largest * p.scale + (gl.log2(total) - subtracted) * LN_2
    head = (tile.batch * p.num_heads + tile.head).to(gl.int64)
    gl.store(p.lse + head * p.seqlen_q + row, lse, mask=row < p.lse_rows)


@gluon.jit
def product_minus(a, b, c):
    """Compute a * b - c, rounded once."""
    return gl.inline_asm_elementwise(
        "{ .reg .f32 minus; neg.f32 minus, $3; fma.rn.f32 $0, $1, $2, minus; }", "=f,f,f,f", [a, b, c],
        dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def write_output(p, me: gl.constexpr, tile, o):
    tma.store_wait(0)
    smem = p.o_smem.index(me)
    smem.reshape([ROWS, p.options.head_dim]).store(o.to(p.o_desc.dtype))
    fence_async_shared()
    tma_store(p.o_desc, [tile.batch, tile.head, tile.first_row + me * ROWS, 0], smem)
    if p.options.shared_out:
        tma.store_wait(0)
        p.q.mark_empty(me)


@gluon.constexpr_function
def stacked(count, shape):
    return [count, *shape]


FLOATS = ["scale", "score_scale", "out_scale"]
SCALARS = ["lse_rows", *FLOATS, "causal_offset", "batch", "num_heads", "qheads_per_kvhead", "seqlen_q", "seqlen_k"]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc,
    lse, lse_rows, scale, score_scale, out_scale, causal_offset,
    batch, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k, order,
    NAME: gl.constexpr, OPTIONS: gl.constexpr,
):  # fmt: skip
    q_smem = gl.allocate_shared_memory(q_desc.dtype, stacked(OPTIONS.consumers, q_desc.block_shape), q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, stacked(OPTIONS.stages, k_desc.block_shape), k_desc.layout)
    if OPTIONS.shared_out:
        o_smem = q_smem
    else:
        o_smem = gl.allocate_shared_memory(o_desc.dtype, stacked(OPTIONS.consumers, o_desc.block_shape), o_desc.layout)
    if OPTIONS.widen_v:
        v_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(v_desc.block_shape, gl.float16)
        v_smem = gl.allocate_shared_memory(gl.float16, stacked(OPTIONS.stages, v_desc.block_shape), v_layout)
        narrow_smem = gl.allocate_shared_memory(v_desc.dtype, stacked(NARROW_SLOTS, v_desc.block_shape), v_desc.layout)
    else:
        v_smem = gl.allocate_shared_memory(v_desc.dtype, stacked(OPTIONS.stages, v_desc.block_shape), v_desc.layout)
        narrow_smem = v_smem
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, lse_rows, scale, score_scale, out_scale, causal_offset,
        batch, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k, order,
        q_smem, k_smem, v_smem, o_smem,
        make_ring(OPTIONS.consumers), make_barriers(OPTIONS.stages), make_barriers(OPTIONS.stages),
        narrow_smem, make_barriers(NARROW_SLOTS),
        OPTIONS,
    )  # fmt: skip
    registers: gl.constexpr = OPTIONS.registers
    if OPTIONS.consumers == 2:
        gl.warp_specialize(
            [(load_partition, (p,)), (consumer0_partition, (p,)), (consumer1_partition, (p,))],
            [4, 4],
            [registers, registers],
        )
    else:
        gl.warp_specialize(
            [
                (load_partition, (p,)),
                (consumer0_partition, (p,)),
                (consumer1_partition, (p,)),
                (consumer2_partition, (p,)),
            ],
            [4, 4, 4],
            [registers, registers, registers],
        )
