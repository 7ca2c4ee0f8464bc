"""Forward attention for Hopper (sm_90a) in Gluon: wgmma and TMA, one load partition, two or three consumers.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). Executed and measured on an H100.

A CTA is persistent. A tile has 64 query rows for each consumer, which is one warpgroup. Scores, probabilities and O
stay in its registers: the layout of the scores is that of wgmma's left operand, except for the order of fp8 columns.
Key blocks are visited from the last to the first, so the masked ones come first. A consumer issues Q K(j) and
P(j - 1) V(j - 1), waits for the scores, may search them for maxima, waits for O and computes P(j), while the tensor
cores work for the other consumers. With config.overlap it computes P(j) before it waits for O. With config.turns the
consumers issue their MMAs in turn. Computing the scores one block ahead, so that no softmax waits for them, was slower
on an H100.

softmax.py says how maxima, exponentials and sums are computed; transpose.py, how fp8 gets V transposed.

The consumers of a tile may need different numbers of key blocks (config.uneven): a mask hides the last blocks from the
first rows, and in the last tile of a head some consumers may have no rows. A consumer hands back unread what it
does not need.

Barriers. `ready` barriers and q count one arrival. K and V slots are handed back with named barriers, at which a
consumer arrives without waiting. An mbarrier would cost more: one thread arrives at it, after a barrier of the whole
warpgroup. c: consumer; S: config.stages; n: key blocks of the tile.

    barrier          who arrives, when                            who waits, before                  per tile
    q.ready[c]       load: TMA bytes of Q(c) have landed          consumer c: its first scores       1
    q.empty[c]       consumer c: its last scores are done; with   load: Q(c) of the next tile        1
                     keep_q: Q is in registers; where O is
                     staged in Q: O has been stored
    k_ready[slot]    load: TMA bytes of K(j) have landed          each consumer: its scores of j     n
    v_ready[slot]    load: TMA bytes of V(j) have landed, or      each consumer: its P(j) V(j)       n
                     it has transposed V(j)
    rows_ready[slot] load: TMA bytes of V(j)'s rows have landed   load: transposing V(j)             n, with transpose_v
    5 + slot         each consumer: its scores of j are done      load: the slot's next K; the end   n
    5 + S + slot     each consumer: its P(j) V(j) is done         load: the slot's next V; the end   n
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
from .config import TRANSPOSE_SLOTS
from .layouts import ROWS, is_fp8, left_layout, mma_layout
from .operands import fill, mma_operand, moved, without_guards
from .softmax import (
    SUM_COLUMNS,
    bits_offset,
    block_max,
    finite,
    first_softmax,
    guessed_softmax,
    plus,
    rescale,
    scale_rows,
    searched_softmax,
    shrunk,
    sums_mma,
    visible,
    whole_blocks,
)
from .transpose import as_bytes, in_order, transpose

LN_2 = gl.constexpr(0.6931471805599453)
# Slots for blocks of V as rows, before they are transposed.
ROW_SLOTS = gl.constexpr(TRANSPOSE_SLOTS)


@aggregate
class PartitionArgs:
    """Everything that the partitions share. The kernel builds it once and passes it to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [batch, num_heads, seqlen_q], natural logarithms
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
    rows_smem: gl.shared_memory_descriptor
    rows_ready: gl.shared_memory_descriptor
    ones_smem: gl.shared_memory_descriptor

    consumers: gl.constexpr
    block_n: gl.constexpr
    head_dim: gl.constexpr
    stages: gl.constexpr
    causal: gl.constexpr
    ordered: gl.constexpr
    uneven: gl.constexpr
    transpose_v: gl.constexpr
    turns: gl.constexpr
    keep_q: gl.constexpr
    q_early: gl.constexpr
    overlap: gl.constexpr
    guess: gl.constexpr
    int_max: gl.constexpr
    exp2_asm: gl.constexpr
    codes: gl.constexpr
    codes_asm: gl.constexpr
    code_scale: gl.constexpr
    code_start: gl.constexpr
    guards: gl.constexpr
    shared_out: gl.constexpr
    lazy_bits: gl.constexpr
    margin_bits: gl.constexpr
    most_lane_sum: gl.constexpr
    head_bits: gl.constexpr

    @gluon.jit
    def num_tiles(self):
        """How many tiles this CTA takes."""
        total = (self.seqlen_q + self.consumers * ROWS - 1) // (self.consumers * ROWS) * self.batch * self.num_heads
        programs = gl.num_programs(0)
        return (total - gl.program_id(0) + programs - 1) // programs

    @gluon.jit
    def tile_number(self, turn):
        """The number of this CTA's next tile. Callers ask one tile ahead, as `ordered` reads it from memory."""
        index = turn * gl.num_programs(0) + gl.program_id(0)
        if self.ordered:
            return gl.load(self.order + index)
        else:
            return index

    @gluon.jit
    def tile(self, index):
        if self.ordered:
            m = index // (self.batch * self.num_heads)
            head = index % (self.batch * self.num_heads)
        else:
            tiles_m = (self.seqlen_q + self.consumers * ROWS - 1) // (self.consumers * ROWS)
            head = index // tiles_m
            m = index % tiles_m
        first_row = m * (self.consumers * ROWS)
        blocks = self.blocks_before(first_row + self.consumers * ROWS)
        kv_head = head % self.num_heads // self.qheads_per_kvhead
        return Tile(head // self.num_heads, head % self.num_heads, kv_head, first_row, blocks)

    @gluon.jit
    def blocks_before(self, end_row):
        """How many key blocks the rows before end_row see, at least 1."""
        seen = self.seqlen_k
        if self.causal:
            seen = gl.minimum(seen, end_row + self.causal_offset)
        return gl.maximum((seen + self.block_n - 1) // self.block_n, 1)

    @gluon.jit
    def left_out(self, index, me: gl.constexpr):
        """How many of a tile's last key blocks consumer `me` does not need."""
        if self.uneven:
            first_row = index // (self.batch * self.num_heads) * (self.consumers * ROWS)
            own = self.blocks_before(first_row + (me + 1) * ROWS)
            # A consumer without rows needs no block; it still takes one, which is simpler.
            own = gl.where(first_row + me * ROWS < self.seqlen_q, own, 1)
            return self.blocks_before(first_row + self.consumers * ROWS) - own
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


@gluon.jit
def load_partition(p):
    phase = gl.to_tensor(0)
    k_at = counter(p.stages)
    v_at = counter(p.stages)
    rows_at = counter(ROW_SLOTS)
    filled = gl.to_tensor(0)
    for turn in range(p.num_tiles()):
        tile = p.tile(p.tile_number(turn))
        for i in gl.static_range(p.consumers):
            p.q.wait_empty(i, phase)
            row = tile.first_row + i * ROWS
            load_block(p.q_desc, tile.batch, tile.head, row, 0, p.q.ready.index(i), p.q_smem.index(i))
            if i == 0:
                load_k(p, tile, tile.blocks - 1, k_at, filled)
                k_at = k_at.next()
        load_rows(p, tile, tile.blocks - 1, rows_at)
        for i in range(1, tile.blocks):
            load_k(p, tile, tile.blocks - 1 - i, k_at, filled + 1)
            k_at = k_at.next()
            load_rows(p, tile, tile.blocks - 1 - i, rows_at.next())
            load_v(p, tile, tile.blocks - i, v_at, filled, rows_at)
            v_at = v_at.next()
            rows_at = rows_at.next()
            filled += 1
        load_v(p, tile, 0, v_at, filled, rows_at)
        v_at = v_at.next()
        rows_at = rows_at.next()
        filled += 1
        phase ^= 1
    for i in range(gl.minimum(filled, p.stages)):
        named_barrier("bar.sync", FIRST_EMPTY + i, p.consumers + 1)
        named_barrier("bar.sync", FIRST_EMPTY + p.stages + i, p.consumers + 1)


@gluon.jit
def load_k(p, tile, block, at, filled):
    await_empty(p, 0, at, filled)
    ready = p.k_ready.index(at.slot)
    load_block(p.k_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, p.k_smem.index(at.slot))


@gluon.jit
def load_rows(p, tile, block, rows_at):
    """Load a block of V as it is; load_v transposes it."""
    if p.transpose_v:
        ready = p.rows_ready.index(rows_at.slot)
        smem = p.rows_smem.index(rows_at.slot)
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, smem)


@gluon.jit
def load_v(p, tile, block, at, filled, rows_at):
    """Load a block of V, or transpose the one that load_rows has loaded."""
    await_empty(p, p.stages, at, filled)
    ready = p.v_ready.index(at.slot)
    if p.transpose_v:
        mbarrier.wait(p.rows_ready.index(rows_at.slot), rows_at.phase)
        rows = p.rows_smem.index(rows_at.slot).reshape([p.block_n, p.head_dim // 2])
        transpose(rows, p.v_smem.index(at.slot))
        fence_async_shared()
        mbarrier.arrive(ready, count=1)
    elif is_fp8(p):
        load_block(p.v_desc, tile.batch, tile.kv_head, 0, block * p.block_n, ready, p.v_smem.index(at.slot))
    else:
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, p.v_smem.index(at.slot))


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
    row_layout: gl.constexpr = gl.SliceLayout(1, mma_layout(p.block_n, p.q_desc.dtype))
    phase = gl.to_tensor(0)
    k_at = counter(p.stages)
    v_at = counter(p.stages)
    first_turn(p, me)
    if p.guess or p.int_max:
        declare_flag(me)
    tiles = p.num_tiles()
    number = p.tile_number(0)
    left_out = p.left_out(number, me)
    for turn in range(tiles):
        p.q.wait_ready(me, phase)
        if p.uneven:
            k_at, v_at = leave_out(p, me, left_out, k_at, v_at)
        q = p.q_smem.index(me).reshape([ROWS, p.head_dim])
        if p.keep_q:
            q = q.load(left_layout(p.block_n, p.q_desc.dtype))
            p.q.mark_empty(me)
        scores_token = first_scores(p, me, q, k_at)
        tile = p.tile(number)
        number = p.tile_number(gl.minimum(turn + 1, tiles - 1))
        row = tile.first_row + me * ROWS + gl.arange(0, ROWS, row_layout)
        open_blocks = whole_blocks(p, tile.first_row + me * ROWS)
        acc_o = gl.zeros([ROWS, p.head_dim], gl.float32, mma_layout(p.head_dim, p.q_desc.dtype))
        scores = warpgroup_mma_wait(0, deps=(scores_token,))
        hand_back(p, 0, k_at)
        k_at = k_at.next()
        blocks = tile.blocks - left_out
        block = blocks - 1
        if p.q_early and block == 0:
            p.q.mark_empty(me)
        probs, row_max, row_sum = first_softmax(p, scores, row, block, open_blocks)
        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase, pred=blocks > 1)
        for i in range(1, blocks):
            scores_token, o_token, sums_token = issue_mmas(p, me, q, probs, acc_o, k_at, v_at)
            scores = warpgroup_mma_wait(2 if p.codes else 1, deps=(scores_token,))
            hand_back(p, 0, k_at)
            k_at = k_at.next()
            block = blocks - 1 - i
            if p.q_early and block == 0:
                p.q.mark_empty(me)
            # What is computed before P V of the block before is done, and used afterwards.
            if p.overlap:
                softmax = guessed_softmax(p, me, scores, row, block, open_blocks, row_max, row_sum)
                ready, row_max, row_sum, shrink = softmax
            elif p.guess:
                ready = scores
            else:
                ready = visible(p, scores, row, block, open_blocks)
                largest = block_max(p, me, ready, row_max)
            # A waiting loop ends the basic block here. Else ptxas would move the wait for wgmma above the softmax.
            mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase, pred=i + 1 < blocks)
            acc_o, sums, ready = await_values(p, o_token, sums_token, ready, v_at)
            if p.overlap:
                probs = ready
            elif p.guess:
                softmax = guessed_softmax(p, me, ready, row, block, open_blocks, row_max, row_sum)
                probs, row_max, row_sum, shrink = softmax
            else:
                probs, row_max, row_sum, shrink = searched_softmax(p, ready, largest, row_max, row_sum)
            if p.codes:
                probs = without_guards(p, probs)
                row_sum = shrunk(plus(row_sum, sums), shrink)
            v_at = v_at.next()
            acc_o = rescale(p, acc_o, shrink)

        if not (p.shared_out or p.q_early or p.keep_q):
            p.q.mark_empty(me)
        acc_o, row_sum = last_values(p, probs, acc_o, row_sum, v_at)
        v_at = v_at.next()

        left_out = p.left_out(number, me)
        finish(p, me, tile, row, row_max, row_sum, acc_o)
        phase ^= 1
    last_turn(p, me)
    tma.store_wait(0)


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
    """Issue Q K of a block and P V of the block before, with codes also the sums of P; return their tokens."""
    take_turn(p, me)
    scores_token = scores_mma(p, q, k_at.slot)
    mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
    operand = mma_operand(p, probs)
    o_token = values_mma(p, operand, v_at.slot, acc_o)
    sums_token = sums_mma(p, operand) if p.codes else o_token
    pass_turn(p, me)
    return scores_token, o_token, sums_token


@gluon.jit
def await_values(p, o_token, sums_token, ready, v_at):
    """Wait for P V and hand back V: (acc_o, sums of P with codes, ready). `ready` is not computed after the wait."""
    if p.codes:
        acc_o, sums, ready = warpgroup_mma_wait(0, deps=(o_token, sums_token, ready))
    else:
        acc_o, ready = warpgroup_mma_wait(0, deps=(o_token, ready))
        sums = acc_o
        if p.overlap:
            ready = moved(p, ready)
    hand_back(p, p.stages, v_at)
    return acc_o, sums, ready


@gluon.jit
def last_values(p, probs, acc_o, row_sum, v_at):
    """(acc_o, row_sum) with the tile's last block: P V, and with codes the sums of P."""
    mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
    operand = mma_operand(p, probs)
    o_token = values_mma(p, operand, v_at.slot, acc_o)
    if p.codes:
        sums_token = sums_mma(p, operand)
        acc_o, sums = warpgroup_mma_wait(0, deps=(o_token, sums_token))
        row_sum = plus(row_sum, sums)
    else:
        acc_o = warpgroup_mma_wait(0, deps=(o_token,))
    hand_back(p, p.stages, v_at)
    return acc_o, row_sum


@gluon.jit
def leave_out(p, me: gl.constexpr, count, k_at, v_at):
    """Hand back `count` blocks unread. Wait for each: a slot is handed back once for each time that it is filled."""
    for _ in range(count):
        take_turn(p, me)
        pass_turn(p, me)
        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase)
        hand_back(p, 0, k_at)
        k_at = k_at.next()
        mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
        hand_back(p, p.stages, v_at)
        v_at = v_at.next()
    return k_at, v_at


@gluon.jit
def scores_mma(p, q, slot):
    k = p.k_smem.index(slot).reshape([p.block_n, p.head_dim]).permute((1, 0))
    layout: gl.constexpr = mma_layout(p.block_n, p.q_desc.dtype)
    zero = gl.zeros([ROWS, p.block_n], gl.float32, layout)
    return warpgroup_mma(q, k, zero, use_acc=False, is_async=True)


@gluon.jit
def values_mma(p, probs, slot, acc_o):
    if is_fp8(p):
        v = p.v_smem.index(slot)
        if p.transpose_v:
            v = as_bytes(v, p.q_desc.dtype)
        v = v.reshape([p.head_dim, p.block_n]).permute((1, 0))
        return warpgroup_mma(probs, v, acc_o, is_async=True)
    else:
        v = p.v_smem.index(slot).reshape([p.block_n, p.head_dim])
        return warpgroup_mma(probs, v, acc_o, is_async=True)


@gluon.jit
def finish(p, me: gl.constexpr, tile, row, row_max, row_sum, acc_o):
    """Write O and lse of a tile."""
    # The columns that sums_mma makes are equal. Without codes each of the four lanes of a row has a part of its sum.
    total = gl.convert_layout(gl.max(row_sum, 1) if p.codes else gl.sum(row_sum, 1), row.type.layout)
    if p.codes:  # The code of NaN is 0. So are all codes of a row with an infinite score.
        total = gl.where((total == 0) & sees(p, row), float("nan"), total)
    write_lse(p, tile, row, row_max, total)
    inverse = gl.where(total == 0, 0.0, p.out_scale / total)
    write_output(p, me, tile, in_order(p, scale_rows(acc_o, inverse)))


@gluon.jit
def sees(p, row):
    """Whether each row sees a key."""
    if p.causal:
        return row + p.causal_offset >= 0
    else:
        return row >= 0


@gluon.jit
def write_lse(p, tile, row, row_max, total):
    # With scores of 10,000 the rounding of score_scale and of ln 2 would cost 0.001. So the large term is a product
    # with scale, and only the small difference is converted from bits.
    largest = finite(row_max)
    subtracted = product_minus(largest, p.score_scale, bits_offset(p, row_max))
    lse = largest * p.scale + (gl.log2(total) - subtracted) * LN_2
    head = (tile.batch * p.num_heads + tile.head).to(gl.int64)
    gl.store(p.lse + head * p.seqlen_q + row, lse, mask=row < p.seqlen_q)


@gluon.jit
def product_minus(a, b, c):
    """a * b - c, rounded once."""
    return gl.inline_asm_elementwise(
        "{ .reg .f32 minus; neg.f32 minus, $3; fma.rn.f32 $0, $1, $2, minus; }", "=f,f,f,f", [a, b, c],
        dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def write_output(p, me: gl.constexpr, tile, o):
    tma.store_wait(0)
    smem = p.o_smem.index(me)
    smem.reshape([ROWS, p.head_dim]).store(o.to(p.o_desc.dtype))
    fence_async_shared()
    tma_store(p.o_desc, [tile.batch, tile.head, tile.first_row + me * ROWS, 0], smem)
    if p.shared_out:
        tma.store_wait(0)
        p.q.mark_empty(me)


@gluon.constexpr_function
def stacked(count, shape):
    return [count, *shape]


FLOATS = ["scale", "score_scale", "out_scale"]
SCALARS = [*FLOATS, "causal_offset", "batch", "num_heads", "qheads_per_kvhead", "seqlen_q", "seqlen_k"]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc,
    lse, scale, score_scale, out_scale, causal_offset, batch, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k, order,
    NAME: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ORDERED: gl.constexpr, UNEVEN: gl.constexpr,
    TRANSPOSE_V: gl.constexpr, TURNS: gl.constexpr, KEEP_Q: gl.constexpr, Q_EARLY: gl.constexpr,
    OVERLAP: gl.constexpr, GUESS: gl.constexpr, INT_MAX: gl.constexpr, EXP2_ASM: gl.constexpr,
    CODES: gl.constexpr, CODES_ASM: gl.constexpr, CODE_SCALE: gl.constexpr, CODE_START: gl.constexpr,
    GUARDS: gl.constexpr, ONE: gl.constexpr, SHARED_OUT: gl.constexpr, REGISTERS: gl.constexpr,
    LAZY_BITS: gl.constexpr, MARGIN_BITS: gl.constexpr, MOST_LANE_SUM: gl.constexpr, HEAD_BITS: gl.constexpr,
):  # fmt: skip
    q_smem = gl.allocate_shared_memory(q_desc.dtype, stacked(CONSUMERS, q_desc.block_shape), q_desc.layout)
    if SHARED_OUT:
        o_smem = q_smem
    else:
        o_smem = gl.allocate_shared_memory(o_desc.dtype, stacked(CONSUMERS, o_desc.block_shape), o_desc.layout)
    if TRANSPOSE_V:
        v_shape: gl.constexpr = [HEAD_DIM, BLOCK_N // 2]
        v_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(v_shape, gl.int16)
        v_smem = gl.allocate_shared_memory(gl.int16, stacked(STAGES, v_shape), v_layout)
        rows_smem = gl.allocate_shared_memory(gl.int16, stacked(ROW_SLOTS, v_desc.block_shape), v_desc.layout)
    else:
        v_smem = gl.allocate_shared_memory(v_desc.dtype, stacked(STAGES, v_desc.block_shape), v_desc.layout)
        rows_smem = v_smem
    if CODES:
        ones_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([SUM_COLUMNS, BLOCK_N], q_desc.dtype)
        ones_smem = gl.allocate_shared_memory(q_desc.dtype, [1, SUM_COLUMNS, BLOCK_N], ones_layout)
        fill(ones_smem.index(0), ONE)
        fence_async_shared()
    else:
        ones_smem = q_smem
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, scale, score_scale, out_scale, causal_offset, batch, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k,
        order,
        q_smem,
        gl.allocate_shared_memory(k_desc.dtype, stacked(STAGES, k_desc.block_shape), k_desc.layout),
        v_smem,
        o_smem,
        make_ring(CONSUMERS), make_barriers(STAGES), make_barriers(STAGES),
        rows_smem, make_barriers(ROW_SLOTS), ones_smem,
        CONSUMERS, BLOCK_N, HEAD_DIM, STAGES, CAUSAL, ORDERED, UNEVEN, TRANSPOSE_V, TURNS, KEEP_Q, Q_EARLY,
        OVERLAP, GUESS, INT_MAX, EXP2_ASM,
        CODES, CODES_ASM, CODE_SCALE, CODE_START, GUARDS,
        SHARED_OUT, LAZY_BITS, MARGIN_BITS, MOST_LANE_SUM, HEAD_BITS,
    )  # fmt: skip
    if CONSUMERS == 2:
        gl.warp_specialize(
            [(load_partition, (p,)), (consumer0_partition, (p,)), (consumer1_partition, (p,))],
            [4, 4],
            [REGISTERS, REGISTERS],
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
            [REGISTERS, REGISTERS, REGISTERS],
        )
