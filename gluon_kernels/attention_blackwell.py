"""Forward attention for Blackwell (sm_100a, sm_103a) in Gluon: tcgen05 MMA, tensor memory, TMA, a partition per role.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). A row that sees no key gets 0 and
-inf. Assembled, never executed: no Blackwell GPU was at hand. tests/gluon_kernels/host_model.py runs this source on
a CPU to check the protocol below and the sums; docs/gluon-blackwell.md argues why the protocol is right.

A CTA is persistent and takes tiles of 256 query rows. A tile is two halves of 128 rows, a TMEM lane per row.
Each half has scores S (fp32, replaced in place by the probabilities P) and an accumulator O in tensor memory.
While one half is in softmax the tensor cores work for the other. For key block j the MMA partition issues

    P0(j) V(j)    Q0 K(j+1)    P1(j) V(j)    Q1 K(j+1)

so S(j+1) overwrites P(j) only after P(j) V(j): MMAs that one thread issues execute in order. The softmax
partitions send the correction partition a scale per row and block, exp2(old max - new max), at last 1 / sum.

Row i sees keys up to i + diagonal if causal. Only the last blocks of a tile can hold a key that some row does not
see; they run in a second, masked loop. Rows and keys past the end come as zeros from TMA: such a key is masked,
and such a row's results are not stored. Every tile visits at least one block, so that no partition needs to know
whether a tile is empty.

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

from dataclasses import replace

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

from .config import CAUSAL, SCALE_SLOTS, AttentionConfig, default_config, entry_name
from .config import ROLE_REGS as ONE_WARP_REGS
from .gluon_api import aggregate, memory_view, tma_load, tma_store
from .layouts import (
    ROW_VECTOR,
    descriptor,
    join_columns,
    matrix_layout,
    one_per_row,
    row_per_thread,
    split_columns,
    tma_box,
    tmem_layout,
)
from .offline import compile_offline as compile_offline
from .packed import add_pairs, exp2_by_fma, fma2, fma_pairs, mul2, pair, unpair
from .pipeline import Ring, counter, make_barriers, make_ring
from .reference import TORCH_NAMES
from .tensors import common_dtype, is_empty, write_blind

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
SLOTS = gl.constexpr(SCALE_SLOTS)
ROLE_REGS = gl.constexpr(ONE_WARP_REGS)
# The maximum of a row that has seen no key, in bits. It is finite, so that no difference of two maxima is NaN.
NO_KEY = gl.constexpr(-1e38)

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
    lse: gl.tensor  # pointer to fp32 [batch * heads, n_queries]
    score_scale: gl.tensor  # scale * log2(e): turns a score into bits
    batch_heads: gl.tensor  # batch * heads
    heads: gl.tensor  # of Q
    group: gl.tensor  # heads of Q that share a head of K and V
    n_queries: gl.tensor
    n_keys: gl.tensor
    diagonal: gl.tensor  # of the causal mask: row i sees the keys up to i + diagonal

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
    ragged: gl.constexpr  # there are rows or keys that do not fill a tile or a block
    packed_row_sum: gl.constexpr
    exp_parts: gl.constexpr
    fma_parts: gl.constexpr  # of these, how many the FMA pipes compute in blocks without a mask
    fma_degree: gl.constexpr
    exp_turns: gl.constexpr
    exp_bits: gl.constexpr  # probabilities are stored this many bits too large
    out_parts: gl.constexpr  # O is scaled and stored in column parts, for want of registers

    @gluon.jit
    def tiles_m(self):
        return (self.n_queries + self.block_m - 1) // self.block_m

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
            end_row = gl.minimum(first_row + self.block_m, self.n_queries)
            end_key = gl.maximum(gl.minimum(end_row + self.diagonal, self.n_keys), 1)
        else:
            batch_head = index // tiles_m
            first_row = index % tiles_m * self.block_m
            end_key = self.n_keys
        head = batch_head % self.heads
        blocks = (end_key + self.block_n - 1) // self.block_n
        return Tile(batch_head // self.heads, head, head // self.group, batch_head * self.n_queries, first_row, blocks)

    @gluon.jit
    def open_blocks(self, tile, first_row):
        """The tile's leading key blocks that the rows from first_row on see whole."""
        if self.causal:
            keys = gl.minimum(first_row + self.diagonal + 1, self.n_keys)
            return gl.minimum(gl.maximum(keys, 0) // self.block_n, tile.blocks)
        elif self.ragged:
            return self.n_keys // self.block_n
        else:
            return tile.blocks

    @gluon.jit
    def last_key(self, row):
        """The last key that each row sees."""
        if self.causal and self.ragged:
            return gl.minimum(row + self.diagonal, self.n_keys - 1)
        elif self.causal:
            return row + self.diagonal
        else:
            return row * 0 + (self.n_keys - 1)

    @gluon.jit
    def probabilities(self, half: gl.constexpr):
        """P of one half: the first columns of its S, seen in the operand type."""
        dtype: gl.constexpr = self.v_desc.dtype
        columns: gl.constexpr = self.block_n * (32 // dtype.primitive_bitwidth)
        s = self.s_tmem.index(half)
        whole = memory_view(s, dtype, [self.block_m // 2, columns], tmem_layout(self.block_n))
        return whole.slice(0, self.block_n)


@aggregate
class Tile:
    """One tile of the grid."""

    batch: gl.tensor
    head: gl.tensor  # of Q and O
    kv_head: gl.tensor
    lse_row: gl.tensor  # where this head's rows begin in lse
    first_row: gl.tensor  # first query row of the tile
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
    # What lies past the end is zero-filled, and its bytes count like the others.
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma_load(desc, at, ready, tma_box(smem, desc))


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
                # Without the FMA pipes: they would give a masked score 2^-126 and not 0.
                row_max, row_sum = softmax_block(p, half, scores, 0, row_max, row_sum, phase, at)
                phase ^= 1
                at = at.next()
        total = sum_of(p, row_sum)
        send_scale(p, half, reciprocal(p, total), at)
        at = at.next()
        lse = (row_max - p.exp_bits + gl.log2(total)) * LN_2
        pointer = p.lse + tile.lse_row + row
        if p.ragged:
            gl.store(pointer, lse, mask=row < p.n_queries)
        else:
            gl.store(pointer, lse)


@gluon.jit
def read_scores(p, half: gl.constexpr, phase):
    mbarrier.wait(p.s_ready.index(half), phase)
    return p.s_tmem.index(half).load(row_per_thread(p.block_n, p.block_n))


@gluon.jit
def hide_keys(p, scores, last):
    """Scores of one block; in each row only the columns up to `last` count."""
    # Compared with constants, so that no register is spent on the key's number.
    column = gl.arange(0, p.block_n, gl.SliceLayout(0, scores.type.layout))
    return gl.where(column[None, :] <= last[:, None], scores, -float("inf"))


@gluon.jit
def softmax_block(p, half: gl.constexpr, scores, fma_parts: gl.constexpr, row_max, row_sum, phase, at):
    """Turn S(j) into P(j) in place and send the scale of O; returns the new maximum and sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * p.score_scale)
    shrink = gl.exp2(row_max - new_max)
    send_scale(p, half, shrink, at)
    bits = fma2(scores, p.score_scale, anchor(p, new_max)[:, None])
    take_turn(p, half, phase)
    probabilities = store_exp2(p, half, bits, fma_parts)
    mbarrier.arrive(p.p_ready.index(half), count=1)
    pass_turn(p, half)
    return new_max, add_row_sum(p, row_sum, shrink, probabilities)


@gluon.jit
def anchor(p, new_max):
    """What is added to the scores in bits before exp2."""
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
    """exp2(bits) into tensor memory, part by part so that a part is converted while the next is computed."""
    columns: gl.constexpr = p.block_n // p.exp_parts
    target = p.probabilities(half)
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
def reciprocal(p, total):
    """1 / total, or 0 for a row that saw no key: only a causal mask makes such rows. NaN stays NaN."""
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
            # The first block's scale is of no use: O does not exist yet.
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
    scale = p.scale_smem.index(slot).load(one_per_row(p.head_dim // p.out_parts, p.head_dim))
    p.scales.mark_empty(slot)
    return scale[:, None]


@gluon.jit
def shrink_accumulator(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // p.out_parts
    for part in gl.static_range(p.out_parts):
        o = p.o_tmem.index(half).slice(part * columns, columns)
        o.store(mul2(o.load(row_per_thread(columns, p.head_dim)), scale))


@gluon.jit
def write_output(p, half: gl.constexpr, scale):
    columns: gl.constexpr = p.head_dim // p.out_parts
    for part in gl.static_range(p.out_parts):
        o = p.o_tmem.index(half).slice(part * columns, columns)
        rows = mul2(o.load(row_per_thread(columns, p.head_dim)), scale)
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


RUNTIME = ["scale", "batch_heads", "heads", "group", "n_queries", "n_keys", "diagonal"]


@gluon.jit(repr=entry_name, do_not_specialize=RUNTIME)
def attention_kernel(
    scale, lse, batch_heads, heads, group, n_queries, n_keys, diagonal, q_desc, k_desc, v_desc, o_desc,
    NAME: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, PACKED_ROW_SUM: gl.constexpr, EXP_PARTS: gl.constexpr,
    FMA_PARTS: gl.constexpr, FMA_DEGREE: gl.constexpr, EXP_TURNS: gl.constexpr, EXP_BITS: gl.constexpr,
    OUT_PARTS: gl.constexpr, SOFTMAX_REGS: gl.constexpr,
):  # fmt: skip
    half: gl.constexpr = BLOCK_M // 2
    out_columns: gl.constexpr = HEAD_DIM // OUT_PARTS
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, scale * LOG2_E, batch_heads, heads, group, n_queries, n_keys, diagonal,
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


def constexprs(config: AttentionConfig) -> dict[str, object]:
    """The kernel's compile-time arguments."""
    return {
        "NAME": config.name,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal,
        "RAGGED": config.ragged,
        "PACKED_ROW_SUM": config.packed_row_sum,
        "EXP_PARTS": config.parts,
        "FMA_PARTS": config.fma_parts,
        "FMA_DEGREE": config.fma_degree,
        "EXP_TURNS": config.turns,
        "EXP_BITS": config.exp_bits,
        "OUT_PARTS": config.out_parts,
        "SOFTMAX_REGS": config.softmax_regs,
    }


def attention(
    q, k, v, *,
    causal: str | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    config: AttentionConfig | None = None,
    name: str | None = None,
):  # fmt: skip
    """Forward attention on an sm_100 or sm_103 GPU: softmax(scale * q k^T) v.

    q: [batch, heads, n_queries, head_dim]; k, v: [batch, kv_heads, n_keys, head_dim]; heads a multiple of kv_heads,
    head_dim 64 or 128. One dtype for all: float8_e5m2, float8_e4m3fn, float16 or bfloat16. The last dimension is
    contiguous; all other strides are multiples of 16 bytes, and the tensors 16-byte aligned. There may be no keys, or
    no queries.
    causal: None; "top-left": query i sees keys 0..i; "bottom-right": query i sees keys 0..i + n_keys - n_queries.
    scale: positive, head_dim ** -0.5 by default. config: by default `default_config(...)`; name: the entry's name,
    by default the config's.

    Returns o, like q (bfloat16 for fp8 inputs unless the config says otherwise), and with return_lse (o, lse): lse is
    fp32 [batch, heads, n_queries], the natural logarithm of each row's sum of exponentials. A query that sees no key
    gets 0 and -inf.

    Raises TypeError or ValueError for what the kernel cannot take, before it touches the GPU.
    """
    dtype = check_tensors(q, k, v)
    (batch, heads, n_queries, head_dim), (kv_heads, n_keys) = q.shape, k.shape[1:3]
    if causal not in CAUSAL:
        raise ValueError(f"causal {causal!r}: None, 'top-left' or 'bottom-right'")
    scale = head_dim**-0.5 if scale is None else float(scale)
    if not 0 < scale < float("inf"):
        raise ValueError(f"scale {scale}: must be positive and finite, the maximum is taken before scaling")
    import torch

    major, minor = torch.cuda.get_device_capability(q.device)
    arch = 10 * major + minor
    made_for = {"dtype": dtype, "head_dim": head_dim, "causal": causal is not None}
    if config is None:
        config = default_config(arch, **made_for, n_queries=n_queries, n_keys=n_keys)
    for field, value in made_for.items():
        if getattr(config, field) != value:
            raise ValueError(f"config.{field} is {getattr(config, field)!r}: these arguments need {value!r}")
    if name is not None:
        config = replace(config, name=name)
    config.require(arch, n_queries, n_keys)
    o = torch.empty_like(q, dtype=getattr(torch, TORCH_NAMES[config.out_dtype]))
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if is_empty(q, k):
        write_blind(o, lse)
        return (o, lse) if return_lse else o
    tiles = batch * heads * -(-n_queries // config.block_m)
    programs = min(tiles, torch.cuda.get_device_properties(q.device).multi_processor_count)
    tensors = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}
    with torch.cuda.device(q.device):
        attention_kernel[(programs,)](
            scale, lse, batch * heads, heads, heads // kv_heads, n_queries, n_keys,
            n_keys - n_queries if causal == "bottom-right" else 0,
            **{desc: descriptor(x, config.dtypes[desc], config.boxes[desc]) for desc, x in tensors.items()},
            **constexprs(config), **COMPILE_OPTIONS,
        )  # fmt: skip
    return (o, lse) if return_lse else o


DTYPES = ("fp8e5", "fp8e4nv", "fp16", "bf16")


def check_tensors(q, k, v) -> str:
    """The config's dtype for these tensors; raises ValueError or TypeError if they cannot be attended to."""
    dtype = common_dtype(q, k, v, DTYPES)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if 0 not in x.shape:
            _check_memory(name, x)
    if k.shape != v.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}: they must be equal")
    if (k.shape[0], k.shape[3]) != (q.shape[0], q.shape[3]) or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"k has shape {tuple(k.shape)}, q {tuple(q.shape)}: batch and head_dim must be equal, and q's heads a "
            "multiple of k's"
        )
    if q.shape[0] * q.shape[1] * q.shape[2] >= 2**31:
        raise ValueError(f"q has shape {tuple(q.shape)}: rows are numbered in 32 bits")
    return dtype


def _check_memory(name: str, x) -> None:
    """Raise ValueError for what TMA cannot address."""
    if x.stride(-1) != 1:
        raise ValueError(f"{name}'s last dimension has stride {x.stride(-1)}: call {name}.contiguous()")
    strides = [stride for stride, size in zip(x.stride()[:3], x.shape[:3], strict=True) if size > 1]
    if any(stride <= 0 or stride * x.element_size() % 16 for stride in strides):
        raise ValueError(f"{name} has strides {tuple(x.stride())}: TMA steps 16 bytes; call {name}.contiguous()")
    if x.data_ptr() % 16:
        raise ValueError(f"{name} starts at {x.data_ptr():#x}: TMA reads from 16-byte aligned addresses")
