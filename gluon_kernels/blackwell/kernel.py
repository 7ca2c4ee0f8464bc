"""Forward attention for Blackwell (sm_100a, sm_103a) in Gluon: tcgen05 MMA, tensor memory, TMA, a partition per role.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). For a row that sees no key, O is 0 and
lse is -inf. This kernel was emulated on a CPU, never executed: there was no Blackwell GPU. The tests also run this
source in Python, to check the barrier protocol below and the sums; docs/explanation/gluon-blackwell.md explains why the
protocol is right.

A CTA is persistent and takes tiles of 256 query rows. A tile has two halves of 128 rows, with a TMEM lane for each row.
Each half has scores S (fp32, replaced in place by the probabilities P) and an accumulator of O in tensor memory.
While one half computes its softmax, the tensor cores work for the other half. For key block j the MMA partition issues

    P0(j) V(j)    Q0 K(j+1)    P1(j) V(j)    Q1 K(j+1)

MMAs of one thread execute in the order of issue, so S(j+1) overwrites P(j) only after P(j) V(j). For each block the
softmax partitions send the correction partition a scale per row, exp2(old max - new max), and after the last block
1 / sum.

With a causal mask, row i sees the keys up to i + causal_offset. Only the last blocks of a tile can hold a key that some
row does not see. They run in a second loop, which masks. TMA reads zeros for rows and keys past the end: such keys are
masked, and results of such rows are not stored. Every tile visits at least one block, so no partition has to treat
empty tiles as a special case.

Barriers. All count one arrival. For each barrier exactly one partition waits, once per completion.
h: half; n: key blocks of the tile. "per tile" counts all slots of kv, and for scales the slots of one half.

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

from ..config import entry_name
from ..device.layouts import (
    ROW_VECTOR,
    join_columns,
    matrix_layout,
    one_per_row,
    row_per_thread,
    split_columns,
    tma_box,
    tmem_layout,
)
from ..device.packed_f32x2 import add_pairs, exp2_by_fma, fma2, fma_pairs, mul2, pair, unpair
from ..device.pipeline import Ring, counter, make_barriers, make_ring
from ..device.triton_compat import aggregate, memory_view, tma_load, tma_store
from .config import ROLE_REGS as ONE_WARP_REGS
from .config import SCALE_SLOTS

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
SLOTS = gl.constexpr(SCALE_SLOTS)
ROLE_REGS = gl.constexpr(ONE_WARP_REGS)
# The maximum of a row that has seen no key, times score_scale. It is finite, so no difference of two maxima is NaN.
NO_KEY = gl.constexpr(-1e38)


@aggregate
class PartitionArgs:
    """Everything that the partitions share. The kernel builds it once and passes it to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [batch * num_heads, seqlen_q]
    score_scale: gl.tensor  # scale * log2(e): exp(scale * score) = exp2(score_scale * score)
    batch_heads: gl.tensor  # batch * num_heads
    num_heads: gl.tensor  # heads of Q
    qheads_per_kvhead: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor  # row i sees the keys up to i + causal_offset

    q_smem: gl.shared_memory_descriptor  # [2, 128, head_dim]
    kv_smem: gl.shared_memory_descriptor  # [stages, block_n, head_dim]: K and V blocks alternate
    out_smem: gl.shared_memory_descriptor  # [2 * out_parts, 128, head_dim / out_parts]
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
    ragged: gl.constexpr  # the last rows may not fill a tile, and the last keys may not fill a block
    packed_row_sum: gl.constexpr
    exp_parts: gl.constexpr
    fma_parts: gl.constexpr  # how many of exp_parts the FMA pipes compute in blocks without a mask
    fma_degree: gl.constexpr
    exp_turns: gl.constexpr
    exp_bits: gl.constexpr  # probabilities are stored 2 ** exp_bits times too large
    out_parts: gl.constexpr  # O is scaled and stored in column parts, as registers are few

    @gluon.jit
    def tiles_m(self):
        return (self.seqlen_q + self.block_m - 1) // self.block_m

    @gluon.jit
    def num_tiles(self):
        return self.batch_heads * self.tiles_m()

    @gluon.jit
    def tile(self, index):
        tiles_m = self.tiles_m()
        if self.causal:
            # Longest first: a persistent grid balances best when the short tiles come last.
            batch_head = index % self.batch_heads
            first_row = (tiles_m - 1 - index // self.batch_heads) * self.block_m
            end_row = gl.minimum(first_row + self.block_m, self.seqlen_q)
            end_key = gl.maximum(gl.minimum(end_row + self.causal_offset, self.seqlen_k), 1)
        else:
            batch_head = index // tiles_m
            first_row = index % tiles_m * self.block_m
            end_key = self.seqlen_k
        head = batch_head % self.num_heads
        blocks = (end_key + self.block_n - 1) // self.block_n
        kv_head = head // self.qheads_per_kvhead
        return Tile(batch_head // self.num_heads, head, kv_head, batch_head * self.seqlen_q, first_row, blocks)

    @gluon.jit
    def open_blocks(self, tile, first_row):
        """Count the leading key blocks of the tile that need no mask for the rows from first_row on."""
        if self.causal:
            keys = gl.minimum(first_row + self.causal_offset + 1, self.seqlen_k)
            return gl.minimum(gl.maximum(keys, 0) // self.block_n, tile.blocks)
        elif self.ragged:
            return self.seqlen_k // self.block_n
        else:
            return tile.blocks

    @gluon.jit
    def last_key(self, row):
        """Compute the last key that each row sees."""
        if self.causal and self.ragged:
            return gl.minimum(row + self.causal_offset, self.seqlen_k - 1)
        elif self.causal:
            return row + self.causal_offset
        else:
            return row * 0 + (self.seqlen_k - 1)

    @gluon.jit
    def probs(self, half: gl.constexpr):
        """View P of one half: the first columns of its S, read as the operand type."""
        dtype: gl.constexpr = self.v_desc.dtype
        columns: gl.constexpr = self.block_n * (32 // dtype.primitive_bitwidth)
        s = self.s_tmem.index(half)
        all_columns = memory_view(s, dtype, [self.block_m // 2, columns], tmem_layout(self.block_n))
        return all_columns.slice(0, self.block_n)


@aggregate
class Tile:
    """One tile of the grid."""

    batch: gl.tensor
    head: gl.tensor  # head of Q and O
    kv_head: gl.tensor
    lse_row: gl.tensor  # where this head's rows begin in lse
    first_row: gl.tensor  # the tile's first query
    blocks: gl.tensor  # key blocks to visit, at least one


@gluon.jit
def load_partition(p):
    phase = gl.to_tensor(0)
    at = counter(p.stages)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        for half in gl.static_range(2):
            p.q.wait_empty(half, phase)
            row = tile.first_row + half * (p.block_m // 2)
            load_block(p.q_desc, [tile.batch, tile.head, row, 0], p.q.ready.index(half), p.q_smem.index(half))
        phase ^= 1
        for block in range(tile.blocks):
            at_keys = [tile.batch, tile.kv_head, block * p.block_n, 0]
            p.kv.wait_empty(at.slot, at.phase)
            load_block(p.k_desc, at_keys, p.kv.ready.index(at.slot), p.kv_smem.index(at.slot))
            at = at.next()
            p.kv.wait_empty(at.slot, at.phase)
            load_block(p.v_desc, at_keys, p.kv.ready.index(at.slot), p.kv_smem.index(at.slot))
            at = at.next()


@gluon.jit
def load_block(desc, at, ready, smem):
    # TMA writes zeros for rows past the end. The barrier counts the bytes of these rows, too.
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma_load(desc, at, ready, tma_box(smem, desc))


@gluon.jit
def mma_partition(p):
    tile_phase = gl.to_tensor(0)
    phase = gl.to_tensor(0)  # phase of the key block
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
    """Compute S(half) = Q(half) K^T. The second half reads K last and releases it."""
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
    """Compute O(half) += P(half) V, from zero for the first block. The second half reads V last and releases it."""
    p.o.wait_empty(half, phase)
    mbarrier.wait(p.p_ready.index(half), phase)
    probs = p.probs(half)
    v = p.kv_smem.index(slot)
    acc_o = p.o_tmem.index(half)
    done = p.o.ready.index(half)
    if half == 0:
        tcgen05_mma(probs, v, acc_o, use_acc=block > 0, mbarriers=[done])
    else:
        tcgen05_mma(probs, v, acc_o, use_acc=block > 0, mbarriers=[done, p.kv.empty.index(slot)])


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
        first_row = tile.first_row + half * rows
        row = first_row + gl.arange(0, rows, row_layout)
        row_max = gl.full([rows], NO_KEY, gl.float32, row_layout)
        row_sum = no_sum(p)
        open_blocks = p.open_blocks(tile, first_row)
        for _ in range(open_blocks):
            scores = read_scores(p, half, phase)
            row_max, row_sum = softmax_block(p, half, scores, p.fma_parts, row_max, row_sum, phase, at)
            phase ^= 1
            at = at.next()
        if p.causal or p.ragged:
            last_key = p.last_key(row)
            for block in range(open_blocks, tile.blocks):
                scores = hide_keys(p, read_scores(p, half, phase), last_key - block * p.block_n)
                # fma_parts is 0 here: for a masked score the FMA pipes would compute 2^-126, not 0.
                row_max, row_sum = softmax_block(p, half, scores, 0, row_max, row_sum, phase, at)
                phase ^= 1
                at = at.next()
        total = sum_of(p, row_sum)
        send_scale(p, half, reciprocal(p, total), at)
        at = at.next()
        lse = (row_max - p.exp_bits + gl.log2(total)) * LN_2
        pointer = p.lse + tile.lse_row + row
        if p.ragged:
            gl.store(pointer, lse, mask=row < p.seqlen_q)
        else:
            gl.store(pointer, lse)


@gluon.jit
def read_scores(p, half: gl.constexpr, phase):
    mbarrier.wait(p.s_ready.index(half), phase)
    return p.s_tmem.index(half).load(row_per_thread(p.block_n, p.block_n))


@gluon.jit
def hide_keys(p, scores, last):
    """Replace the scores of one block by -inf in columns after each row's `last`."""
    # The columns are constants, so their numbers take no registers.
    column = gl.arange(0, p.block_n, gl.SliceLayout(0, scores.type.layout))
    return gl.where(column[None, :] <= last[:, None], scores, -float("inf"))


@gluon.jit
def softmax_block(p, half: gl.constexpr, scores, fma_parts: gl.constexpr, row_max, row_sum, phase, at):
    """Replace S(j) by P(j) and send the scale of O; return the new row_max and row_sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * p.score_scale)
    shrink = gl.exp2(row_max - new_max)
    send_scale(p, half, shrink, at)
    bits = fma2(scores, p.score_scale, anchor(p, new_max)[:, None])
    take_turn(p, half, phase)
    probs = store_exp2(p, half, bits, fma_parts)
    mbarrier.arrive(p.p_ready.index(half), count=1)
    pass_turn(p, half)
    return new_max, add_row_sum(p, row_sum, shrink, probs)


@gluon.jit
def anchor(p, new_max):
    """Compute the number that is added to score_scale * score before exp2."""
    if p.exp_bits == 0:
        return -new_max
    else:
        return p.exp_bits - new_max


@gluon.jit
def send_scale(p, half: gl.constexpr, scale, at):
    slot = half * SLOTS + at.slot
    p.scales.wait_empty(slot, at.phase)
    p.scale_smem.index(slot).store(scale)
    p.scales.mark_ready(slot)


@gluon.jit
def store_exp2(p, half: gl.constexpr, bits, fma_parts: gl.constexpr):
    """Write exp2(bits) to tensor memory. One part is converted while the next one is computed."""
    columns: gl.constexpr = p.block_n // p.exp_parts
    target = p.probs(half)
    parts = split_columns(bits, p.exp_parts)
    done = ()
    for i in gl.static_range(p.exp_parts):
        part = exp2_by_fma(parts[i], p.fma_degree) if i < fma_parts else gl.exp2(parts[i])
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
    """Compute row_sum * shrink + sum of the parts' columns."""
    if p.packed_row_sum:
        added = no_sum(p)
        for i in gl.static_range(p.exp_parts):
            left, right = split_columns(parts[i], 2)
            columns = gl.reduce(pair(left, right), 1, add_pairs)
            added = add_pairs(added, gl.convert_layout(columns, row_sum.type.layout, assert_trivial=True))
        return fma_pairs(row_sum, pair(shrink, shrink), added)
    else:
        # One sum over all parts, because LLVM would pack separate sums of the parts into add.f32x2.
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
def reciprocal(p, total):
    """Compute 1 / total, or 0 for a row that saw no key, which only a causal mask can cause. NaN stays NaN."""
    if p.causal:
        return gl.where(total == 0.0, 0.0, 1.0 / total)
    else:
        return 1.0 / total


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
            # O does not exist yet: the first block's scale is not used.
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
    """Receive fp32 [128, 1], one scale per row."""
    slot = half * SLOTS + at.slot
    p.scales.wait_ready(slot, at.phase)
    scale = p.scale_smem.index(slot).load(one_per_row(p.head_dim // p.out_parts, p.head_dim))
    p.scales.mark_empty(slot)
    return scale[:, None]


@gluon.jit
def shrink_accumulator(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // p.out_parts
    for part in gl.static_range(p.out_parts):
        acc_o = p.o_tmem.index(half).slice(part * columns, columns)
        acc_o.store(mul2(acc_o.load(row_per_thread(columns, p.head_dim)), scale))


@gluon.jit
def write_output(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // p.out_parts
    for part in gl.static_range(p.out_parts):
        acc_o = p.o_tmem.index(half).slice(part * columns, columns)
        rows = mul2(acc_o.load(row_per_thread(columns, p.head_dim)), scale)
        p.out_smem.index(half * p.out_parts + part).store(rows.to(p.o_desc.dtype))
    fence_async_shared()


@gluon.jit
def epilogue_partition(p):
    columns: gl.constexpr = p.head_dim // p.out_parts
    phase = gl.to_tensor(0)
    for index in range(gl.program_id(0), p.num_tiles(), gl.num_programs(0)):
        tile = p.tile(index)
        for half in gl.static_range(2):
            p.out.wait_ready(half, phase)
            row = tile.first_row + half * (p.block_m // 2)
            for part in gl.static_range(p.out_parts):
                smem = p.out_smem.index(half * p.out_parts + part)
                tma_store(p.o_desc, [tile.batch, tile.head, row, part * columns], tma_box(smem, p.o_desc))
        tma.store_wait(p.out_parts)
        p.out.mark_empty(0)
        tma.store_wait(0)
        p.out.mark_empty(1)
        phase ^= 1


SCALARS = ["scale", "batch_heads", "num_heads", "qheads_per_kvhead", "seqlen_q", "seqlen_k", "causal_offset"]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    scale, lse, batch_heads, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k, causal_offset,
    q_desc, k_desc, v_desc, o_desc,
    NAME: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, PACKED_ROW_SUM: gl.constexpr, EXP_PARTS: gl.constexpr,
    FMA_PARTS: gl.constexpr, FMA_DEGREE: gl.constexpr, EXP_TURNS: gl.constexpr, EXP_BITS: gl.constexpr,
    OUT_PARTS: gl.constexpr, SOFTMAX_REGS: gl.constexpr,
):  # fmt: skip
    half: gl.constexpr = BLOCK_M // 2
    out_columns: gl.constexpr = HEAD_DIM // OUT_PARTS
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, scale * LOG2_E, batch_heads, num_heads, qheads_per_kvhead, seqlen_q, seqlen_k, causal_offset,
        gl.allocate_shared_memory(q_desc.dtype, [2, half, HEAD_DIM], matrix_layout(q_desc)),
        gl.allocate_shared_memory(k_desc.dtype, [STAGES, BLOCK_N, HEAD_DIM], matrix_layout(k_desc)),
        gl.allocate_shared_memory(o_desc.dtype, [2 * OUT_PARTS, half, out_columns], matrix_layout(o_desc)),
        gl.allocate_shared_memory(gl.float32, [2 * SLOTS, half], ROW_VECTOR),
        allocate_tensor_memory(gl.float32, [2, half, BLOCK_N], tmem_layout(BLOCK_N)),
        allocate_tensor_memory(gl.float32, [2, half, HEAD_DIM], tmem_layout(HEAD_DIM)),
        make_ring(2), make_ring(STAGES), make_barriers(2), make_barriers(2),
        make_ring(2), make_ring(2 * SLOTS), make_ring(2), make_ring(1),
        BLOCK_M, BLOCK_N, HEAD_DIM, STAGES, CAUSAL, RAGGED, PACKED_ROW_SUM, EXP_PARTS, FMA_PARTS, FMA_DEGREE,
        EXP_TURNS, EXP_BITS, OUT_PARTS,
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
        [SOFTMAX_REGS, SOFTMAX_REGS, ROLE_REGS, ROLE_REGS, ROLE_REGS],
    )
