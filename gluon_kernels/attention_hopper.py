"""Forward attention for Hopper (sm_90a) in Gluon: wgmma and TMA, a loading partition and two or three consumers.

O = softmax(scale * Q K^T) V, and for each row the natural logarithm of its sum of exponentials. Executed and measured
on an H100.

A CTA is persistent. A tile is 64 query rows for each consumer, one warpgroup. Scores, probabilities and O stay in
its registers: the scores' layout is, pairs of fp8 apart, that of wgmma's left operand. Key blocks are visited from the
last to the first, so that the masked ones come first. A consumer issues Q K(j) and P(j - 1) V(j - 1), waits for the
scores, may search them for maxima, waits for O and computes P(j), while the tensor cores work for other consumers. With
config.overlap it computes P(j) before it waits for O. With config.turns the consumers issue their MMAs in turns.
Computing scores a block ahead, so that no softmax waits for them, was slower on an H100.

wgmma reads fp8 along K only, so V must be transposed. With config.transpose_v the loading partition does it, block by
block, in shared memory; its four warps have nothing else to do. Else a kernel does it before.

O and the sum are scaled only when a row's maximum has grown by more than config.lazy_bits, per warp: after the first
block hardly ever. With config.guess no other block is searched for a maximum, until some sum grows too large: then the
warp does the block's softmax once more, with the true maximum. What few keys are longest is a bad guess, so that a
causal row that sees few keys of its first block guesses more. Sums are kept per thread and added up across the four
lanes of a row at the end of the tile.

With config.int_max the blocks that are searched are so as integers, three scores at a time: see block_max.

With config.codes a probability is a rounded score, see codes.py. No thread has it as a number: the row's sum is
another MMA, of the probabilities with ones, and a bit of each byte shows that the guess was too small.

Consumers of a tile may see unequal numbers of key blocks (config.uneven): a mask hides the last ones from the first
rows, and of a head's last tile some consumers may have no rows. What one does not need it hands back as it comes.

Barriers. `ready` and q count one arrival. K and V slots are handed back by named barriers, which a consumer passes
without waiting: an arrival at an mbarrier is one thread's, and costs a barrier among all of its warpgroup.
c: consumer; S: config.stages; n: key blocks of the tile.

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

import math
from dataclasses import replace
from functools import cache, lru_cache

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .codes import CODES
from .config import entry_name
from .config_hopper import (
    CONSUMER_ROWS,
    MMA_COLUMNS,
    TRANSPOSE_SLOTS,
    WARPGROUP_THREADS,
    HopperConfig,
    default_config,
    shift,
    tile_order,
)
from .exp2 import STEPS, softmax_exp2_asm
from .gluon_api import aggregate, memory_view, release, tma_load, tma_store
from .layouts import box_layout, descriptor
from .pipeline import Ring, counter, make_barriers, make_ring
from .tensors import common_dtype, is_empty, tma_strides, write_blind

LOG2_E = 1.4426950408889634
LN_2 = gl.constexpr(0.6931471805599453)
ROWS = gl.constexpr(CONSUMER_ROWS)
# V's blocks as rows, before they are transposed; how many keys are transposed at once: registers are few there.
ROW_SLOTS = gl.constexpr(TRANSPOSE_SLOTS)
PART_KEYS = gl.constexpr(32)
# Of how few keys the maximum is no good guess.
FEW_KEYS = gl.constexpr(32)
# Named barriers: Triton takes 0, 1 and one for each consumer. There are 16.
FIRST_EMPTY = gl.constexpr(5)
FIRST_TURN = gl.constexpr(13)
# Scores whose exponentials are made together.
EXP2_PACK = gl.constexpr(16)
PER_STEP = gl.constexpr(1 / STEPS)
# Columns of the ones that sum up probabilities, the fewest that wgmma has.
SUM_COLUMNS = gl.constexpr(MMA_COLUMNS)


@gluon.constexpr_function
def stacked(count, shape):
    return [count, *shape]


@gluon.constexpr_function
def is_fp8(p):
    return p.q_desc.dtype.primitive_bitwidth == 8


@gluon.constexpr_function
def mma_layout(columns, dtype):
    """fp32 [64, columns] as wgmma leaves it. K of one wgmma is 32 bytes."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 256 // dtype.primitive_bitwidth])


@gluon.constexpr_function
def left_layout(columns, dtype):
    """The left operand, in registers, of an MMA whose result has `columns`."""
    return gl.DotOperandLayout(0, mma_layout(columns, dtype), 32 // dtype.primitive_bitwidth)


@aggregate
class PartitionArgs:
    """Everything the partitions share. Built once by the kernel and passed whole to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [batch, heads, rows], natural logarithms
    scale: gl.tensor
    score_scale: gl.tensor  # scale * log2(e): turns a score into bits
    out_scale: gl.tensor
    shift: gl.tensor  # causal: row i sees keys 0 .. i + shift
    batch: gl.tensor
    heads: gl.tensor  # of Q
    heads_per_kv: gl.tensor
    rows: gl.tensor
    keys: gl.tensor
    order: gl.tensor  # with `ordered`: pointer to int32, see tile_order

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
        total = (self.rows + self.consumers * ROWS - 1) // (self.consumers * ROWS) * self.batch * self.heads
        programs = gl.num_programs(0)
        return (total - gl.program_id(0) + programs - 1) // programs

    @gluon.jit
    def number(self, turn):
        """Of this CTA's tile. Asked for a tile ahead: with `ordered` it is read from memory."""
        index = turn * gl.num_programs(0) + gl.program_id(0)
        if self.ordered:
            return gl.load(self.order + index)
        else:
            return index

    @gluon.jit
    def tile(self, index):
        if self.ordered:
            m = index // (self.batch * self.heads)
            head = index % (self.batch * self.heads)
        else:
            tiles_m = (self.rows + self.consumers * ROWS - 1) // (self.consumers * ROWS)
            head = index // tiles_m
            m = index % tiles_m
        first_row = m * (self.consumers * ROWS)
        blocks = self.blocks_before(first_row + self.consumers * ROWS)
        return Tile(head // self.heads, head % self.heads, head % self.heads // self.heads_per_kv, first_row, blocks)

    @gluon.jit
    def blocks_before(self, end_row):
        """How many key blocks the rows up to end_row see, at least 1."""
        seen = self.keys
        if self.causal:
            seen = gl.minimum(seen, end_row + self.shift)
        return gl.maximum((seen + self.block_n - 1) // self.block_n, 1)

    @gluon.jit
    def left_out(self, index, me: gl.constexpr):
        """Of a tile's key blocks, how many of the last ones consumer `me` has no row for."""
        if self.uneven:
            first_row = index // (self.batch * self.heads) * (self.consumers * ROWS)
            own = self.blocks_before(first_row + (me + 1) * ROWS)
            # Without rows it would need none, but one is simpler.
            own = gl.where(first_row + me * ROWS < self.rows, own, 1)
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
        tile = p.tile(p.number(turn))
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
def named_barrier(instruction: gl.constexpr, number, warpgroups: gl.constexpr):
    asm: gl.constexpr = barrier_asm(instruction, warpgroups)
    gl.inline_asm_elementwise(asm, "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def barrier_asm(instruction, warpgroups):
    return f"{instruction} $1, {warpgroups * WARPGROUP_THREADS}; mov.u32 $0, 0;"


@gluon.jit
def await_empty(p, first: gl.constexpr, at, filled):
    if filled >= p.stages:
        named_barrier("bar.sync", FIRST_EMPTY + first + at.slot, p.consumers + 1)


@gluon.jit
def hand_back(p, first: gl.constexpr, at):
    named_barrier("bar.arrive", FIRST_EMPTY + first + at.slot, p.consumers + 1)


@gluon.jit
def load_k(p, tile, block, at, filled):
    await_empty(p, 0, at, filled)
    ready = p.k_ready.index(at.slot)
    load_block(p.k_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, p.k_smem.index(at.slot))


@gluon.jit
def load_rows(p, tile, block, rows_at):
    """A block of V as it is, for load_v to transpose."""
    if p.transpose_v:
        ready = p.rows_ready.index(rows_at.slot)
        smem = p.rows_smem.index(rows_at.slot)
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, smem)


@gluon.jit
def load_v(p, tile, block, at, filled, rows_at):
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
def transpose(rows, columns):
    """Bytes [keys, head_dim] -> [head_dim, keys], both as pairs, 16 keys at a time in the order of key_of_column."""
    for i in gl.static_range(rows.shape[0] // PART_KEYS):
        part = rows.slice(i * PART_KEYS, PART_KEYS, 0)
        transpose_part(part, columns.slice(i * PART_KEYS // 2, PART_KEYS // 2, 1))


@gluon.jit
def transpose_part(rows, columns):
    pairs = rows.load(rows_layout(rows.shape))
    by_half = pairs.reshape([rows.shape[0] // 16, 2, 8, rows.shape[1]]).permute(0, 2, 3, 1)
    first, second = by_half.split()
    even, odd = gl.inline_asm_elementwise(
        "prmt.b32 $0, $2, $3, 0x6420; prmt.b32 $1, $2, $3, 0x7531;", "=r,=r,r,r", [first, second],
        dtype=[gl.int16, gl.int16], is_pure=True, pack=2,
    )  # fmt: skip
    both = gl.join(even, odd).reshape([rows.shape[0] // 16, 8, rows.shape[1] // 8, 8, 2])
    turned = both.permute(2, 4, 3, 0, 1).reshape(columns.shape)
    columns.store(gl.convert_layout(turned, columns_layout(columns.shape), assert_trivial=True))


@gluon.constexpr_function
def rows_layout(shape):
    """16-bit pairs [keys, columns / 2] as ldmatrix.trans leaves them; a thread has keys 2t, 2t + 1, 8 + 2t, 9 + 2t."""
    keys, pairs = shape
    rest = [[0, bit] for bit in bits_from(8, pairs)] + [[bit, 0] for bit in bits_from(16, keys)]
    lanes = [[2, 0], [4, 0], [0, 1], [0, 2], [0, 4]]
    return gl.DistributedLinearLayout([[1, 0], [8, 0], *rest[2:]], lanes, rest[:2], [], [keys, pairs])


@gluon.constexpr_function
def columns_layout(shape):
    """What rows_layout becomes, [columns, keys / 2]: as stmatrix takes it."""
    columns, pairs = shape
    rest = [[bit, 0] for bit in bits_from(16, columns)] + [[0, bit] for bit in bits_from(8, pairs)]
    lanes = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout([[0, 1], [8, 0], *rest[2:]], lanes, rest[:2], [], [columns, pairs])


@gluon.constexpr_function
def bits_from(first, size):
    """Powers of two from `first` below `size`."""
    return [1 << bit for bit in range(first.bit_length() - 1, (size - 1).bit_length())]


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
    number = p.number(0)
    left_out = p.left_out(number, me)
    for turn in range(tiles):
        p.q.wait_ready(me, phase)
        if p.uneven:
            k_at, v_at = leave_out(p, me, left_out, k_at, v_at)
        q = p.q_smem.index(me).reshape([ROWS, p.head_dim])
        if p.keep_q:
            q = q.load(left_layout(p.block_n, p.q_desc.dtype))
            p.q.mark_empty(me)
        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase)
        take_turn(p, me)
        scores_token = scores_mma(p, q, k_at.slot)
        pass_turn(p, me)
        tile = p.tile(number)
        number = p.number(gl.minimum(turn + 1, tiles - 1))
        row = tile.first_row + me * ROWS + gl.arange(0, ROWS, row_layout)
        open_blocks = whole_blocks(p, tile.first_row + me * ROWS)
        o = gl.zeros([ROWS, p.head_dim], gl.float32, mma_layout(p.head_dim, p.q_desc.dtype))
        scores = warpgroup_mma_wait(0, deps=(scores_token,))
        hand_back(p, 0, k_at)
        k_at = k_at.next()
        blocks = tile.blocks - left_out
        block = blocks - 1
        if p.q_early and block == 0:
            p.q.mark_empty(me)
        weights, row_max, row_sum = first_softmax(p, scores, row, block, open_blocks)
        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase, pred=blocks > 1)
        for i in range(1, blocks):
            take_turn(p, me)
            scores_token = scores_mma(p, q, k_at.slot)
            mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
            operand = mma_operand(p, weights)
            o_token = values_mma(p, operand, v_at.slot, o)
            if p.codes:
                sums_token = sums_mma(p, operand)
            pass_turn(p, me)
            scores = warpgroup_mma_wait(2 if p.codes else 1, deps=(scores_token,))
            hand_back(p, 0, k_at)
            k_at = k_at.next()
            block = blocks - 1 - i
            if p.q_early and block == 0:
                p.q.mark_empty(me)
            if p.overlap:
                softmax = guessed_softmax(p, me, scores, row, block, open_blocks, row_max, row_sum)
                next_weights, row_max, row_sum, shrink = softmax
            elif not p.guess:
                scores = visible(p, scores, row, block, open_blocks)
                largest = block_max(p, me, scores, row_max)
            # A spin-wait ends the basic block here: ptxas would hoist the wgmma wait above the softmax.
            mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase, pred=i + 1 < blocks)
            if p.overlap:
                if p.codes:
                    o, sums, next_weights = warpgroup_mma_wait(0, deps=(o_token, sums_token, next_weights))
                else:
                    o, next_weights = warpgroup_mma_wait(0, deps=(o_token, next_weights))
                    next_weights = moved(p, next_weights)
                hand_back(p, p.stages, v_at)
                weights = next_weights
            else:
                if p.codes:
                    o, sums, scores = warpgroup_mma_wait(0, deps=(o_token, sums_token, scores))
                else:
                    o, scores = warpgroup_mma_wait(0, deps=(o_token, scores))
                hand_back(p, p.stages, v_at)
                if p.guess:
                    softmax = guessed_softmax(p, me, scores, row, block, open_blocks, row_max, row_sum)
                else:
                    softmax = searched_softmax(p, scores, largest, row_max, row_sum)
                weights, row_max, row_sum, shrink = softmax
            if p.codes:
                weights = without_guards(p, weights)
                row_sum = shrunk(plus(row_sum, sums), shrink)
            v_at = v_at.next()
            o = rescale(p, o, shrink)

        if not (p.shared_out or p.q_early or p.keep_q):
            p.q.mark_empty(me)
        mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)
        operand = mma_operand(p, weights)
        o_token = values_mma(p, operand, v_at.slot, o)
        if p.codes:
            sums_token = sums_mma(p, operand)
            o, sums = warpgroup_mma_wait(0, deps=(o_token, sums_token))
            row_sum = plus(row_sum, sums)
        else:
            o = warpgroup_mma_wait(0, deps=(o_token,))
        hand_back(p, p.stages, v_at)
        v_at = v_at.next()

        left_out = p.left_out(number, me)
        finish(p, me, tile, row, row_max, row_sum, o)
        phase ^= 1
    last_turn(p, me)
    tma.store_wait(0)


@gluon.jit
def leave_out(p, me: gl.constexpr, count, k_at, v_at):
    """Hand back `count` blocks unread. Each is waited for: a slot is handed back once for each time it is filled."""
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
def searched_softmax(p, scores, largest, row_max, row_sum):
    """The block's probabilities as to_weights makes them, the new maximum and sum, by what the old sum and O shrink.

    With codes each byte is more by `guard`, and row_sum as it was.
    """
    if p.codes:
        row_max, shrink = raise_max(p, row_max, largest, p.lazy_bits)
        return codes(p, scores, row_max), row_max, row_sum, shrink
    else:
        probabilities, row_max, shrink = exact_softmax(p, scores, largest, row_max, p.lazy_bits)
        row_sum = shrunk(row_sum, shrink) + lane_sums(probabilities)
        return to_weights(p, probabilities), row_max, row_sum, shrink


@gluon.jit
def block_max(p, me: gl.constexpr, scores, row_max):
    """The largest score of each row; with int_max a smaller number where that does no harm.

    As integers, floats are in order from 0 on, and any negative one is below; -inf is the last of these. So the
    largest integer is the largest score unless all of the row are negative, and then it is too small. The row's
    maximum stays what it was, and if that is -lazy_bits or more, no probability exceeds 2 ** lazy_bits. A warp with
    a smaller one compares its scores as floats.
    """
    if p.int_max:
        flag_sums(me, gl.full([ROWS], -p.lazy_bits, gl.float32, row_max.type.layout), row_max * p.score_scale)
        largest = int_max(scores.to(gl.int32, bitcast=True)).to(gl.float32, bitcast=True)
        largest = gl.convert_layout(largest, row_max.type.layout, assert_trivial=True)
        if get_flag(me) != 0:
            largest = gl.max(scores, 1)
        return largest
    else:
        return gl.max(scores, 1)


@gluon.jit
def int_max(x):
    """The largest of each row. A chain of two more each time: VIMNMX3 takes one of three."""
    parts = columns_apart(by_lane(x))
    most = parts[0]
    for i in gl.static_range(1, len(parts)):
        most = larger(most, parts[i])
    return gl.reduce(most.reshape([ROWS, 4]), 1, larger)


@gluon.jit
def columns_apart(x):
    """[rows, columns / 8, 4, 2] of by_lane -> a tuple of [rows, 1, 4]: of each, a thread has one number of a row."""
    even, odd = x.split()
    return groups_apart(even) + groups_apart(odd)


@gluon.jit
def groups_apart(x):
    if x.shape[1] == 1:
        return (x,)
    else:
        even, odd = x.reshape([ROWS, x.shape[1] // 2, 2, 4]).permute(0, 1, 3, 2).split()
        return groups_apart(even) + groups_apart(odd)


@gluon.jit
def larger(a, b):
    """As PTX, which LLVM leaves in its order."""
    return gl.inline_asm_elementwise("max.s32 $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def first_softmax(p, scores, row, block, open_blocks):
    """A tile's first block: its probabilities as to_weights makes them, maximum and sum.

    With guess, the maximum of few keys is taken for larger than it is. Half of all keys are longer than the only one
    that a row sees, and a wrong guess costs as much as a block.
    """
    scores = visible(p, scores, row, block, open_blocks)
    row_max = gl.max(scores, 1)
    if p.guess and p.causal and p.margin_bits > 0:
        seen = row + (p.shift + 1 - block * p.block_n)
        row_max += gl.where(seen < FEW_KEYS, p.margin_bits / p.score_scale, 0.0)
    if p.codes:
        return without_guards(p, codes(p, scores, row_max)), row_max, no_sums(p)
    else:
        probabilities = gl.exp2(scores * p.score_scale - bits_offset(p, row_max)[:, None])
        return to_weights(p, probabilities), row_max, lane_sums(probabilities)


@gluon.jit
def exact_softmax(p, scores, largest, row_max, lazy_bits: gl.constexpr):
    row_max, shrink = raise_max(p, row_max, largest, lazy_bits)
    probabilities = gl.exp2(scores * p.score_scale - bits_offset(p, row_max)[:, None])
    return probabilities, row_max, shrink


@gluon.jit
def guessed_softmax(p, me: gl.constexpr, scores, row, block, open_blocks, row_max, row_sum):
    """searched_softmax. Looks for no maximum as long as the old one will do.

    That is so while no thread's sum of a row's probabilities shows that one of them may be too large for its type.
    With codes, while all are numbers of their type.
    """
    scores = visible(p, scores, row, block, open_blocks)
    if p.codes:
        weights = codes(p, scores, row_max)
        new_sum = row_sum
        flag_codes(me, weights, row_max)
    else:
        probabilities = exponentials(p, scores, bits_offset(p, row_max))
        added = lane_sums(probabilities)
        weights = to_weights(p, probabilities)
        new_sum = row_sum + added
        most = gl.where(row_max == -float("inf"), -1.0, p.most_lane_sum)
        flag_sums(me, added, beside(most, added))
    shrink = gl.full([ROWS], 1.0, gl.float32, row_max.type.layout)
    if get_flag(me) != 0:
        largest = gl.max(scores, 1)
        if p.codes:
            row_max, shrink = raise_max(p, row_max, largest, 0)
            weights = codes(p, scores, row_max)
        else:
            probabilities, row_max, shrink = exact_softmax(p, scores, largest, row_max, 0)
            weights = to_weights(p, probabilities)
            new_sum = shrunk(row_sum, shrink) + lane_sums(probabilities)
    return weights, row_max, new_sum, shrink


@gluon.jit
def codes(p, scores, row_max):
    """Guessed probabilities, four in an int32 as to_weights has them, each byte more by `guard`: see codes.py."""
    a, b, c, d = by_fours(p, scores)
    start = (p.code_start - bits_offset(p, row_max)) * p.code_scale
    return gl.inline_asm_elementwise(
        p.codes_asm, "=r,r,r,r,r,r,r", [a, b, c, d, p.score_scale * p.code_scale, beside(start, a)],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def either(a, b):
    return a | b


@gluon.jit
def sums_mma(p, weights):
    """A block's sums of probabilities, once for each column. Not added to those before: wgmma keeps too few bits."""
    ones = p.ones_smem.index(0).permute((1, 0))
    return warpgroup_mma(weights, ones, no_sums(p), use_acc=False, is_async=True)


@gluon.jit
def no_sums(p):
    return gl.zeros([ROWS, SUM_COLUMNS], gl.float32, mma_layout(SUM_COLUMNS, p.q_desc.dtype))


@gluon.jit
def plus(a, b):
    """By a name, which the host's model of the protocol can give another meaning; as shrunk."""
    return a + b


@gluon.jit
def shrunk(row_sum, shrink):
    return row_sum * beside(shrink, row_sum)


@gluon.jit
def exponentials(p, scores, offset):
    """exp2 of scores in bits less offset; some of them without the exp2 unit."""
    if p.exp2_asm == "":
        return gl.exp2(scores * p.score_scale - offset[:, None])
    else:
        small_scale = p.score_scale * PER_STEP
        small_offset = (126.0 - offset) * PER_STEP
        return gl.inline_asm_elementwise(
            p.exp2_asm, exp2_constraints(),
            [scores, p.score_scale, offset[:, None], small_scale, small_offset[:, None]],
            dtype=gl.float32, is_pure=True, pack=EXP2_PACK,
        )  # fmt: skip


@gluon.constexpr_function
def exp2_constraints():
    return ",".join(["=r"] * 16 + ["r"] * 80)


@gluon.jit
def declare_flag(me: gl.constexpr):
    """A predicate of PTX, for branches that a warp takes or not: Gluon's conditions are those of all warps."""
    asm: gl.constexpr = flag_asm(me, "declare")
    gl.inline_asm_elementwise(asm, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def flag_sums(me: gl.constexpr, x, most):
    """Whether any of the warp's two x per thread is larger than its `most`."""
    asm: gl.constexpr = flag_asm(me, "sums")
    gl.inline_asm_elementwise(asm, "=r,=r,r,r,r,r", [x, most], dtype=gl.int32, is_pure=False, pack=2)


@gluon.jit
def flag_codes(me: gl.constexpr, words, row_max):
    """Whether any of the warp's bytes has its highest bit set, or any of its rows has no maximum yet."""
    asm: gl.constexpr = flag_asm(me, "codes")
    bits = gl.reduce(words.reshape([ROWS, words.shape[1] // 4, 4]), 1, either)
    gl.inline_asm_elementwise(
        asm, "=r,=r,r,r,r,r", [bits, beside(row_max, bits)], dtype=gl.int32, is_pure=False, pack=2
    )


@gluon.jit
def get_flag(me: gl.constexpr):
    asm: gl.constexpr = flag_asm(me, "get")
    return gl.inline_asm_elementwise(asm, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def flag_asm(me, action):
    flag = f"flag_{me}"
    if action == "declare":
        return f".reg .pred {flag}; mov.b32 $0, $1;"
    if action == "get":
        return f"selp.b32 $0, 1, 0, {flag}; // $1"
    if action == "sums":
        test = "setp.gt.f32 p, $2, $4; setp.gt.or.f32 p, $3, $5, p;"
    else:
        minus_inf = "0fFF800000"
        test = (
            "or.b32 w, $2, $3; and.b32 w, w, 0x80808080; setp.ne.u32 p, w, 0;"
            f" setp.eq.or.f32 p, $4, {minus_inf}, p; setp.eq.or.f32 p, $5, {minus_inf}, p;"
        )
    vote = f"vote.sync.any.pred {flag}, p, 0xffffffff;"
    return f"{{ .reg .pred p; .reg .b32 w; {test} {vote} mov.b32 $0, 0; mov.b32 $1, 0; }}"


@gluon.jit
def moved(p, weights):
    """weights, in other registers: those that an MMA still reads must not be written. ptxas knows no zero here."""
    zero = p.rows >> 31
    if is_fp8(p):
        return weights + zero
    else:
        return gl.inline_asm_elementwise(
            "add.s32 $0, $1, $2; // $3", "=r,r,r,r", [weights, zero], dtype=p.q_desc.dtype, is_pure=True, pack=2
        )


@gluon.jit
def without_guards(p, weights):
    """guessed_softmax's weights as codes, in other registers: see moved."""
    return weights - p.guards


@gluon.jit
def whole_blocks(p, first_row):
    """Of a tile's key blocks, how many leading ones need no mask for rows from `first_row` on."""
    seen = p.keys
    if p.causal:
        seen = gl.minimum(seen, first_row + 1 + p.shift)
    return seen // p.block_n  # negative stays negative or 0: then no block is whole


@gluon.jit
def scores_mma(p, q, slot):
    k = p.k_smem.index(slot).reshape([p.block_n, p.head_dim]).permute((1, 0))
    layout: gl.constexpr = mma_layout(p.block_n, p.q_desc.dtype)
    zero = gl.zeros([ROWS, p.block_n], gl.float32, layout)
    return warpgroup_mma(q, k, zero, use_acc=False, is_async=True)


@gluon.jit
def values_mma(p, weights, slot, o):
    if is_fp8(p):
        v = p.v_smem.index(slot)
        if p.transpose_v:
            v = as_bytes(v, p.q_desc.dtype)
        v = v.reshape([p.head_dim, p.block_n]).permute((1, 0))
        return warpgroup_mma(weights, v, o, is_async=True)
    else:
        v = p.v_smem.index(slot).reshape([p.block_n, p.head_dim])
        return warpgroup_mma(weights, v, o, is_async=True)


@gluon.jit
def as_bytes(pairs, dtype: gl.constexpr):
    layout: gl.constexpr = gl.NVMMASharedLayout(pairs.layout.swizzle_byte_width, 8, rank=2)
    shape: gl.constexpr = [pairs.shape[0], 2 * pairs.shape[1]]
    return memory_view(pairs, dtype, shape, layout)


@gluon.jit
def rescale(p, o, factor):
    """o * factor, row by row; a warp with nothing but ones skips it."""
    factor = gl.convert_layout(factor, gl.SliceLayout(1, o.type.layout))[:, None]
    count: gl.constexpr = min(64, p.head_dim // 2)
    return gl.inline_asm_elementwise(
        rescale_asm(count), rescale_constraints(count), [o, factor], dtype=gl.float32, is_pure=False, pack=count
    )


@gluon.constexpr_function
def rescale_asm(count):
    # A thread holds two neighbours of a row, then two of the row eight below, and so on.
    ones = f"setp.neu.f32 p, ${2 * count}, 0f3F800000; setp.neu.or.f32 p, ${2 * count + 2}, 0f3F800000, p;"
    products = " ".join(f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count))
    return f"{{ .reg .pred p; {ones} vote.sync.any.pred p, p, 0xffffffff; @!p bra.uni DONE; {products} DONE: }}"


@gluon.constexpr_function
def rescale_constraints(count):
    return ",".join(["=r"] * count + [str(i) for i in range(count)] + ["r"] * count)


@gluon.jit
def scale_rows(o, factor):
    return o * gl.convert_layout(factor, gl.SliceLayout(1, o.type.layout))[:, None]


@gluon.jit
def visible(p, scores, row, block, open_blocks):
    """scores, -inf for unseen keys; only blocks from open_blocks on have any."""
    if block >= open_blocks:
        scores = mask(p, scores, row, block)
    return scores


@gluon.jit
def mask(p, scores, row, block):
    """Scores of unseen keys become -inf.

    A column is 8 * group + 2 * lane + i. Group and i are constants of a register, so that only the row's limit
    takes registers, two per thread.
    """
    x = by_lane(scores)
    layout: gl.constexpr = x.type.layout
    group_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    lane_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
    i_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    group = gl.arange(0, p.block_n // 8, group_layout)[None, :][:, :, None][:, :, :, None]
    lane = gl.arange(0, 4, lane_layout)[None, :][:, None, :][:, :, :, None]
    i = gl.arange(0, 2, i_layout)[None, :][:, None, :][:, :, None, :]
    limit = p.keys - block * p.block_n - 2 * lane
    if p.causal:
        row_layout: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
        last = gl.convert_layout(row, row_layout, assert_trivial=True) + (p.shift + 1 - block * p.block_n)
        limit = gl.minimum(limit, last[:, None][:, :, None][:, :, :, None] - 2 * lane)
    x = gl.where(8 * group + i < limit, x, -float("inf"))
    return gl.convert_layout(x.reshape(scores.shape), scores.type.layout, assert_trivial=True)


@gluon.jit
def by_lane(x):
    """[rows, columns] -> [rows, columns / 8, lanes that share a row, 2]; moves no data between threads."""
    return x.reshape([ROWS, x.shape[1] // 8, 4, 2])


@gluon.jit
def raise_max(p, row_max, block_max, lazy_bits: gl.constexpr):
    """The new maximum, or the old one where it is at most lazy_bits too small: then O needs no scaling. And by what.

    Probabilities may then exceed 1, up to 2 ** lazy_bits, which O and the sum do not mind: what is subtracted from
    the scores of a row is the same for all blocks in the end.
    """
    new_max = gl.maximum(row_max, block_max)
    new_max = gl.where((new_max - row_max) * p.score_scale > lazy_bits, new_max, row_max)
    return new_max, gl.exp2((row_max - finite(new_max)) * p.score_scale)


@gluon.jit
def bits_offset(p, row_max):
    """What to subtract from a row's scores in bits."""
    return finite(row_max) * p.score_scale - p.head_bits


@gluon.jit
def finite(row_max):
    """A row that has seen no key yet has no maximum; anything will do."""
    return gl.where(row_max == -float("inf"), 0.0, row_max)


@gluon.jit
def lane_sums(x):
    """Row sums of each of the four lanes that share a row; moves no data between threads."""
    return gl.sum(gl.sum(by_lane(x), 3), 1)


@gluon.jit
def beside(rows, sums):
    return gl.convert_layout(rows, gl.SliceLayout(1, sums.type.layout), assert_trivial=True)[:, None]


@gluon.jit
def to_weights(p, probabilities):
    """The probabilities in V's type, as they are carried to the MMA of the next iteration: see mma_operand.

    fp8: int32 [rows, block_n / 4]. Triton carries fp8 as single bytes, and would pack them again each time.
    """
    asm: gl.constexpr = convert_asm(p.q_desc.dtype)
    if is_fp8(p):
        # Lane t of a row holds keys 2t, 2t + 1, 8 + 2t, 9 + 2t, the MMA wants four neighbours of it: V has that order.
        a, b, c, d = by_fours(p, probabilities)
        return gl.inline_asm_elementwise(asm, "=r,r,r,r,r", [a, b, c, d], dtype=gl.int32, is_pure=False, pack=1)
    else:
        x = gl.convert_layout(probabilities, left_layout(p.head_dim, p.q_desc.dtype), assert_trivial=True)
        return gl.inline_asm_elementwise(asm, "=r,r,r", [x], dtype=p.q_desc.dtype, is_pure=False, pack=2)


@gluon.jit
def by_fours(p, x):
    """[rows, block_n] -> four of [rows, block_n / 4]: what a register of fp8 weights holds."""
    x = x.reshape([ROWS, p.block_n // 16, 2, 4, 2]).permute(0, 1, 3, 2, 4)
    even, odd = x.reshape([ROWS, p.block_n // 4, 2, 2]).split()
    a, c = even.split()
    b, d = odd.split()
    return a, b, c, d


@gluon.constexpr_function
def convert_asm(dtype):
    """Packs neighbours into a register. Volatile, so that LLVM leaves it where it is."""
    if dtype.primitive_bitwidth == 8:
        to = "cvt.rn.satfinite." + ("e4m3x2" if dtype.name == "fp8e4nv" else "e5m2x2") + ".f32"
        return f"{{ .reg .b16 a, b; {to} a, $2, $1; {to} b, $4, $3; mov.b32 $0, {{a, b}}; }}"
    return f"cvt.rn.{'bf16x2' if dtype.name == 'bf16' else 'f16x2'}.f32 $0, $2, $1;"


@gluon.jit
def mma_operand(p, weights):
    """What to_weights made, as the left operand of an MMA. LLVM sees that the bytes are those of the register."""
    if is_fp8(p):
        a, b = weights.to(gl.int8), (weights >> 8).to(gl.int8)
        c, d = (weights >> 16).to(gl.int8), (weights >> 24).to(gl.int8)
        x = gl.join(gl.join(a, c), gl.join(b, d)).reshape([ROWS, p.block_n])
        x = gl.convert_layout(x, left_layout(p.head_dim, p.q_desc.dtype), assert_trivial=True)
        return x.to(p.q_desc.dtype, bitcast=True)
    else:
        return weights


@gluon.jit
def finish(p, me: gl.constexpr, tile, row, row_max, row_sum, o):
    # All columns of sums_mma are the same; else a row's four lanes have a part each.
    total = gl.convert_layout(gl.max(row_sum, 1) if p.codes else gl.sum(row_sum, 1), row.type.layout)
    if p.codes:  # The code of a NaN is 0, and so are all of a row with an infinite score.
        total = gl.where((total == 0) & sees(p, row), float("nan"), total)
    write_lse(p, tile, row, row_max, total)
    inverse = gl.where(total == 0, 0.0, p.out_scale / total)
    write_output(p, me, tile, in_order(p, scale_rows(o, inverse)))


@gluon.jit
def sees(p, row):
    """Whether a row sees any key."""
    if p.causal:
        return row + p.shift >= 0
    else:
        return row >= 0


@gluon.jit
def in_order(p, o):
    """O as V's columns were: transpose takes 16 at a time, the even ones before the odd ones."""
    if p.transpose_v:
        return o.reshape([ROWS, p.head_dim // 16, 2, 8]).permute(0, 1, 3, 2).reshape([ROWS, p.head_dim])
    else:
        return o


@gluon.jit
def write_lse(p, tile, row, row_max, total):
    # At scores of 10,000 the roundings of score_scale and ln 2 are a thousandth: only what is small is in bits.
    largest = finite(row_max)
    subtracted = left_of_product(largest, p.score_scale, bits_offset(p, row_max))
    lse = largest * p.scale + (gl.log2(total) - subtracted) * LN_2
    head = (tile.batch * p.heads + tile.head).to(gl.int64)
    gl.store(p.lse + head * p.rows + row, lse, mask=row < p.rows)


@gluon.jit
def left_of_product(a, b, c):
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


@gluon.jit
def first_turn(p, me: gl.constexpr):
    if p.turns and me == p.consumers - 1:
        named_barrier("bar.arrive", FIRST_TURN, 2)


@gluon.jit
def take_turn(p, me: gl.constexpr):
    if p.turns:
        named_barrier("bar.sync", FIRST_TURN + me, 2)


@gluon.jit
def pass_turn(p, me: gl.constexpr):
    if p.turns:
        named_barrier("bar.arrive", FIRST_TURN + (me + 1) % p.consumers, 2)


@gluon.jit
def last_turn(p, me: gl.constexpr):
    if p.turns and me == 0:
        named_barrier("bar.sync", FIRST_TURN, 2)


FLOATS = ["scale", "score_scale", "out_scale"]
SCALARS = [*FLOATS, "shift", "batch", "heads", "heads_per_kv", "rows", "keys"]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc,
    lse, scale, score_scale, out_scale, shift, batch, heads, heads_per_kv, rows, keys, order,
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
        lse, scale, score_scale, out_scale, shift, batch, heads, heads_per_kv, rows, keys, order,
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


@gluon.jit
def fill(smem, byte: gl.constexpr):
    """Of one-byte elements. As int8: ptxas 12.6 to 12.9 read a wrong register for a pair of equal fp8 constants."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    smem.store(gl.full(smem.shape, byte, gl.int8, layout).to(smem.dtype, bitcast=True))


def constexprs(config: HopperConfig) -> dict[str, object]:
    """The kernel's compile-time arguments."""
    code = CODES.get(config.dtype) if config.codes else None
    return {
        "NAME": config.name,
        "CONSUMERS": config.consumers,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal is not None,
        "ORDERED": config.ordered,
        "UNEVEN": config.uneven,
        "TRANSPOSE_V": config.transpose_v,
        "TURNS": config.turns,
        "KEEP_Q": config.keep_q,
        "Q_EARLY": config.q_early,
        "OVERLAP": config.overlap,
        "GUESS": config.guess,
        "INT_MAX": config.int_max,
        "EXP2_ASM": softmax_exp2_asm(EXP2_PACK.value, config.by_fma),
        "CODES": config.codes,
        "CODES_ASM": code.asm(config.guess) if code else "",
        "CODE_SCALE": code.scale if code else 0.0,
        "CODE_START": code.start if code else 0.0,
        "GUARDS": code.guards if code and config.guess else 0,
        "ONE": code.one if code else 0,
        "SHARED_OUT": config.shared_out,
        "REGISTERS": config.consumer_registers,
        "LAZY_BITS": config.lazy_bits,
        "MARGIN_BITS": config.margin_bits,
        "MOST_LANE_SUM": config.most_lane_sum,
        "HEAD_BITS": config.head_bits,
    }


def compile_options(config: HopperConfig) -> dict[str, object]:
    """Four warps in the default partition (loading); fusion is named because its default changes with Triton."""
    return {"num_warps": 4, "maxnreg": config.entry_registers, "enable_fp_fusion": True}


def attention(q, k, v, *, causal=None, scale=None, return_lse=False, config=None, name=None, descale=(1.0, 1.0, 1.0)):
    """Forward attention on an sm_90 GPU: softmax(scale * Q K^T) V.

    q: [batch, heads, rows, head_dim], k and v: [batch, kv_heads, keys, head_dim], of one dtype (float16, bfloat16,
    float8_e4m3fn or float8_e5m2), any strides that TMA takes: columns next to each other, all else on multiples of
    16 bytes. Each head of K and V serves heads / kv_heads heads of Q. causal: None; "top-left": row i sees keys
    0 .. i; "bottom-right": the last row sees all keys. scale defaults to head_dim ** -0.5.
    descale: what values of fp8 q, k and v are to be multiplied with. config: a HopperConfig instead of the default
    one; name: the kernel's entry.

    Returns o, like q but bfloat16 for fp8; with return_lse (o, lse): fp32 [batch, heads, rows], the natural logarithm
    of each row's sum of exponentials. A row that sees no key gets 0 and -inf.
    fp8: without return_lse exponentials are rough, as e4m3 itself is, and a score of NaN counts as a key not seen, but
    for a row of nothing else: see HopperConfig.codes; config=default_config(..., lse=True) makes them exact. And
    Hopper's tensor cores add up fp8 products with few bits.
    Scores are off by up to head_dim * 2 ** -17 of the largest of their sums, so lse too; with scores in the thousands o
    is meaningless. See docs/gluon-hopper.md.
    Raises ValueError or TypeError for what the kernel cannot take, before it touches the GPU.
    """
    import torch

    dtype = check_tensors(q, k, v)
    batch, heads, rows, head_dim = q.shape
    keys = k.shape[2]

    major, minor = torch.cuda.get_device_capability(q.device)
    arch = 10 * major + minor
    if config is None:
        config = default_config(arch, dtype, head_dim, causal, rows, lse=return_lse or not codes_fit(head_dim))
    codes = config.codes and not return_lse
    config = replace(config, dtype=dtype, head_dim=head_dim, causal=causal, name=name or config.name, codes=codes)
    config.require(arch)
    q_scale, k_scale, v_scale = descale
    scale = (head_dim**-0.5 if scale is None else scale) * q_scale * k_scale
    if not 0 < scale < math.inf:
        raise ValueError(f"scale {scale}: must be positive and finite, the maximum is taken before scaling")
    check_sizes(batch, heads, rows, keys)

    o = torch.empty_like(q, dtype=torch.bfloat16 if config.fp8 else None)
    lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    if is_empty(q, k):
        write_blind(o, lse)
    else:
        with torch.cuda.device(q.device):
            if config.fp8 and not config.transpose_v:
                v = transposed_values(v)
            launch(config, q, k, v, o, lse, scale, v_scale, sm_count(q.device))
    return (o, lse) if return_lse else o


def codes_fit(head_dim: int) -> bool:
    """As Triton 3.9 writes the form with codes for 256, ptxas has too few registers for it and serializes its MMAs."""
    return head_dim < 256 or release() < (3, 9)


def launch(config: HopperConfig, q, k, v, o, lse, scale: float, out_scale: float, sms: int) -> None:
    """Run the kernel, at most one CTA for each of `sms`. V of fp8 is transposed unless config.transpose_v; nothing is
    checked."""
    batch, heads, rows, _ = q.shape
    kv_heads, keys = k.shape[1:3]
    if config.transpose_v:
        v = byte_pairs(v)
    tensors = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}
    dtypes, boxes = config.dtypes, config.boxes
    descriptors = {name: descriptor(x, dtypes[name], boxes[name]) for name, x in tensors.items()}
    programs = min(sms, batch * heads * -(-rows // config.block_m))
    order = lse
    if config.ordered:
        order = order_on_gpu(config, batch * heads, heads // kv_heads, rows, keys, programs, q.device)
    attention_kernel[(programs,)](
        **descriptors,
        lse=lse,
        scale=scale,
        score_scale=scale * LOG2_E,
        out_scale=float(out_scale),
        shift=shift(config.causal, rows, keys),
        batch=batch,
        heads=heads,
        heads_per_kv=heads // kv_heads,
        rows=rows,
        keys=keys,
        order=order,
        **constexprs(config),
        **compile_options(config),
    )


@lru_cache(maxsize=256)
def order_on_gpu(config: HopperConfig, heads, heads_per_kv, rows, keys, programs, device):
    """tile_order as a tensor. Kept: a shape comes again and again, and the order takes a millisecond to make."""
    import torch

    order = tile_order(config, heads, heads_per_kv, rows, keys, programs)
    return torch.tensor(order, dtype=torch.int32, device=device)


@cache
def sm_count(device) -> int:
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count


DTYPES = ("fp8e5", "fp8e4nv", "fp16", "bf16")


def check_tensors(q, k, v) -> str:
    """The config's dtype for these tensors; raises ValueError or TypeError if they cannot be attended to."""
    dtype = common_dtype(q, k, v, DTYPES)
    if tuple(k.shape) != tuple(v.shape):
        raise ValueError(f"k has shape {tuple(k.shape)}, v {tuple(v.shape)}: they must be equal")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: batch and head_dim must be equal")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads, k {k.shape[1]}: the first must be a multiple of the second")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.numel():
            check_strides(name, x)
    return dtype


def check_sizes(batch: int, heads: int, rows: int, keys: int) -> None:
    if max(batch * heads * rows, keys + rows) >= 2**31:
        raise ValueError(f"{batch * heads} heads of {rows} rows, {keys} keys: rows and keys are numbered in 32 bits")


def check_strides(name: str, x) -> None:
    if x.data_ptr() % 16:
        raise ValueError(f"{name} starts at {x.data_ptr():#x}: TMA reads from 16-byte aligned addresses")
    if x.stride(3) != 1:
        raise ValueError(f"{name} has column stride {x.stride(3)}: TMA wants 1, call {name}.contiguous()")
    for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True):
        if size > 1 and stride * x.element_size() % 16:
            raise ValueError(
                f"{name} has strides {tuple(x.stride())}: TMA wants multiples of 16 bytes, call {name}.contiguous()"
            )


def byte_pairs(x):
    """Two columns of 8 bits as one of 16. Torch would refuse an odd stride, though nothing is stepped over."""
    import torch

    return x.as_strided(x.shape, tma_strides(x.shape, x.stride())).view(torch.int16)


def transposed_values(v):
    """fp8 V as [batch, heads, head_dim, keys]: wgmma reads 8-bit operands along K only.

    Sixteen keys at a time are in the order in which a thread holds its probabilities; see key_of_column.
    """
    import torch

    batch, heads, keys, head_dim = v.shape
    columns = -(-keys // 16) * 16
    out = torch.empty((batch, heads, head_dim, columns), dtype=v.dtype, device=v.device)
    block = 128
    transpose_kernel[(-(-keys // block), heads, batch)](
        v.view(torch.int8), out.view(torch.int8), keys, columns, *v.stride()[:3], *out.stride()[:3], head_dim, block
    )
    return out


@triton.jit
def transpose_kernel(v, out, keys, columns, sb, sh, sk, ob, oh, od, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD_DIM)
    key = key_of_column(column)
    block = tl.load(
        v + batch * sb + head * sh + key.to(tl.int64)[:, None] * sk + d[None, :], mask=key[:, None] < keys, other=0
    )
    tl.store(
        out + batch * ob + head * oh + d.to(tl.int64)[:, None] * od + column[None, :],
        tl.trans(block),
        mask=column[None, :] < columns,
    )


@triton.jit
def key_of_column(column):
    """Lane t of a row holds the scores of keys 2t, 2t+1, 8+2t, 9+2t; the MMA wants four neighbours of it."""
    return column // 16 * 16 + column // 2 % 2 * 8 + column // 4 % 4 * 2 + column % 2


def compile_offline(config: HopperConfig, arch: int = 90, options: dict | None = None):
    """Compile the kernel for compute capability `arch` (90 -> sm_90a), with no GPU and no torch.

    The result is Triton's kernel: .asm["ptx"], .asm["cubin"], .hash, .metadata. `options` are compile options of
    Triton's NVIDIA backend. Raises ValueError if the config cannot run on `arch`.
    """
    config.require(arch)
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", arch, 32)
    return triton.compile(offline_source(config), target=target, options=compile_options(config) | (options or {}))


def offline_source(config: HopperConfig):
    """The GluonASTSource that a launch with 16-byte aligned tensors would make."""
    from triton.experimental.gluon._runtime import GluonASTSource

    names = attention_kernel.arg_names
    consts = constexprs(config)
    types = dict.fromkeys(SCALARS, "i32") | dict.fromkeys(FLOATS, "fp32") | {"lse": "*fp32"}
    types["order"] = "*i32" if config.ordered else "*fp32"  # not read: lse once more
    for name, box in config.boxes.items():
        dtype = config.dtypes[name]
        types[name] = f"tensordesc<{dtype}{box},{box_layout(dtype, box)!r}>"
    return GluonASTSource(
        fn=attention_kernel,
        signature={name: "constexpr" if name in consts else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in consts.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in ("lse", "order")},
    )
