"""Forward attention with mma.sync in Gluon: one source for sm_80, sm_90, sm_120 and sm_121.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). A CTA computes a tile of block_m
query rows of one head and visits the keys in blocks. K and V arrive with cp.async. Blocks that need no mask run in a
loop without comparisons; blocks at the causal limit and the last keys run in a second loop, which masks.

Synchronisation of a buffer. Each thread waits for its own copies (cp.async.wait_group); then bar.sync makes the copies
of all threads visible. After the same bar.sync every warp has finished reading the previous block, so the next load may
overwrite its buffer.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from ..config import entry_name
from ..device.other_scheduler import take_other_scheduler
from ..device.triton_compat import aggregate, cp_async, cta_barrier

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
# fp8 probabilities are stored times 2^8, to use e4m3's range: its normal numbers are 2^-6 to 448.
FP8_P_BITS = gl.constexpr(8.0)


# --- layouts


@gluon.constexpr_function
def mma_layout(warps):
    """Make the layout of fp32 accumulators. A row belongs to one warp."""
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[warps, 1], instr_shape=[16, 8])


@gluon.constexpr_function
def row_layout(warps):
    return gl.SliceLayout(1, mma_layout(warps))


@gluon.constexpr_function
def operand(index, warps, bits):
    return gl.DotOperandLayout(operand_index=index, parent=mma_layout(warps), k_width=32 // bits)


@gluon.constexpr_function
def copy_layout(columns, warps, bits):
    """Make a layout with 16 bytes per thread; a warp copies whole rows."""
    vector = 128 // bits
    across = min(32, columns // vector)
    return gl.BlockedLayout([1, vector], [32 // across, across], [warps, 1], [1, 0])


@gluon.constexpr_function
def shared_layout(bits):
    """Put 16-byte vectors of eight neighbouring rows into different banks: ldmatrix then has no bank conflicts."""
    return gl.SwizzledSharedLayout(vec=128 // bits, per_phase=1, max_phase=8, order=[1, 0])


# --- load


@aggregate
class Source:
    """The rows of one head in global memory, copied tile by tile by all threads of the CTA."""

    pointers: gl.tensor  # pointers into the head's first tile
    rows: gl.tensor  # row of each pointer, for the mask
    stride: gl.constexpr  # elements from row to row; a constant, so that a thread needs one address only

    @gluon.jit
    def load(self, first_row, smem, end_row, masked: gl.constexpr):
        """Start the copy of a tile, from first_row on. With `masked`, rows from end_row on become 0."""
        start = self.pointers + first_row.to(gl.int64) * self.stride
        if masked:
            cp_async(smem, start, mask=(self.rows < end_row - first_row)[:, None])
        else:
            cp_async(smem, start)


@gluon.jit
def source(base, stride: gl.constexpr, count: gl.constexpr, columns: gl.constexpr):
    warps: gl.constexpr = gl.num_warps()
    layout: gl.constexpr = copy_layout(columns, warps, base.dtype.element_ty.primitive_bitwidth)
    rows = gl.arange(0, count, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    return Source(base + rows[:, None] * stride + column[None, :], rows, stride)


# --- softmax


@aggregate
class RunningSoftmax:
    """The softmax of the tile's rows over the key blocks so far."""

    row_max: gl.tensor  # [block_m] largest score times score_scale
    row_sum: gl.tensor  # sum of exponentials in parts: see no_sum
    acc_o: gl.tensor  # [block_m, head_dim]


@gluon.jit
def new_maximum(scores, row_max, score_scale):
    """Compute the larger of row_max and score_scale times the maximum of all parts.

    First each thread compares its values in all parts, then the threads of a row compare theirs.
    """
    largest = scores[0]
    for i in gl.static_range(1, len(scores)):
        largest = gl.maximum(largest, scores[i])
    return gl.maximum(row_max, gl.max(largest, 1) * score_scale)


@gluon.jit
def hide(scores, first_column: gl.constexpr, limit):
    """Replace the scores by -inf where a row does not see the key."""
    # The columns are constants, so their numbers take no registers.
    column = first_column + gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout))
    return gl.where(column[None, :] < limit[:, None], scores, float("-inf"))


@gluon.jit
def no_sum(BLOCK_M: gl.constexpr, by_mma: gl.constexpr):
    """Make a row_sum of 0: with by_mma [block_m, 8], an accumulator; else [block_m, 4], one sum per thread of a row."""
    layout: gl.constexpr = mma_layout(gl.num_warps())
    zero = gl.zeros([BLOCK_M, 8], gl.float32, layout)
    if by_mma:
        return zero
    else:
        return thread_sums(zero)


@gluon.jit
def thread_sums(exponentials):
    """Compute [rows, 4]: each thread's sum of its own columns. The four threads of a row are added once, at the end."""
    rows: gl.constexpr = exponentials.shape[0]
    eights: gl.constexpr = exponentials.shape[1] // 8
    return gl.sum(gl.sum(exponentials.reshape([rows, eights, 4, 2]), 3), 1)


@gluon.jit
def scale_sum(row_sum, shrink):
    side: gl.constexpr = gl.SliceLayout(1, row_sum.type.layout)
    return row_sum * gl.convert_layout(shrink, side, assert_trivial=True)[:, None]


@gluon.jit
def add_to_sum(row_sum, exponentials, probs, by_mma: gl.constexpr):
    """Add the rounded `probs` to row_sum by mma.sync with ones; without by_mma, add the exact exponentials."""
    if by_mma:
        columns: gl.constexpr = exponentials.shape[1]
        layout: gl.constexpr = operand(1, gl.num_warps(), probs.dtype.primitive_bitwidth)
        return mma_v2(probs, gl.full([columns, 8], 1.0, gl.float32, layout).to(probs.dtype), row_sum)
    else:
        return row_sum + gl.convert_layout(thread_sums(exponentials), row_sum.type.layout, assert_trivial=True)


@gluon.jit
def total_of(row_sum, by_mma: gl.constexpr):
    """Compute [block_m]: the whole sum of each row. The eight columns that mma.sync makes are equal."""
    if by_mma:
        return gl.max(row_sum, 1)
    else:
        return gl.convert_layout(gl.sum(row_sum, 1), row_layout(gl.num_warps()), assert_trivial=True)


# --- mma


@aggregate
class Tile:
    """Values that the loops over the key blocks use."""

    q: gl.tensor  # Q as an operand in registers, used with keep_q
    q_smem: gl.shared_memory_descriptor
    k_smem: gl.shared_memory_descriptor  # [stages, block_n, head_dim]
    v_smem: gl.shared_memory_descriptor
    k: Source
    v: Source
    seqlen_k: gl.tensor
    score_scale: gl.tensor  # scale * log2(e): exp(scale * score) = exp2(score_scale * score)
    limit: gl.tensor  # [block_m] how many keys each row sees
    parts: gl.constexpr
    keep_q: gl.constexpr
    sum_by_mma: gl.constexpr
    p_bits: gl.constexpr

    @gluon.jit
    def scores(self, slot):
        """Compute Q K^T of a block, as a tuple of column parts."""
        warps: gl.constexpr = gl.num_warps()
        smem = self.k_smem.index(slot)
        bits: gl.constexpr = smem.dtype.primitive_bitwidth
        rows: gl.constexpr = self.q_smem.shape[0]
        columns: gl.constexpr = smem.shape[0] // self.parts
        q = self.q
        if not self.keep_q:
            q = self.q_smem.load(operand(0, warps, bits))
        parts = ()
        for i in gl.static_range(self.parts):
            k = smem.slice(i * columns, columns).permute((1, 0)).load(operand(1, warps, bits))
            zero = gl.zeros([rows, columns], gl.float32, mma_layout(warps))
            parts += (mma_v2(q, k, zero),)
        return parts

    @gluon.jit
    def softmax_values(self, scores, state, block, slot, masked: gl.constexpr):
        """Compute the new state. While the tensor cores multiply a part with V, compute the next exponentials."""
        warps: gl.constexpr = gl.num_warps()
        smem = self.v_smem.index(slot)
        dtype: gl.constexpr = smem.dtype
        bits: gl.constexpr = dtype.primitive_bitwidth
        columns: gl.constexpr = smem.shape[0] // self.parts
        if masked:
            limit = self.limit - block * smem.shape[0]
            seen = ()
            for i in gl.static_range(self.parts):
                seen += (hide(scores[i], i * columns, limit),)
            scores = seen
        row_max = new_maximum(scores, state.row_max, self.score_scale)
        finite_max = row_max
        if masked:
            # For a row that has seen no key, exp2(-inf - 0) is 0; exp2(-inf + inf) would be NaN.
            finite_max = gl.where(row_max == float("-inf"), 0.0, row_max)
        subtracted = finite_max
        if self.p_bits != 0.0:
            subtracted = finite_max - self.p_bits
        shrink = gl.exp2(state.row_max - finite_max)
        row_sum = scale_sum(state.row_sum, shrink)
        acc_o = state.acc_o * shrink[:, None]
        for i in gl.static_range(self.parts):
            exponentials = gl.exp2(scores[i] * self.score_scale - subtracted[:, None])
            probs = gl.convert_layout(exponentials.to(dtype), operand(0, warps, bits))
            row_sum = add_to_sum(row_sum, exponentials, probs, self.sum_by_mma)
            acc_o = mma_v2(probs, smem.slice(i * columns, columns).load(operand(1, warps, bits)), acc_o)
        return RunningSoftmax(row_max, row_sum, acc_o)

    @gluon.jit
    def load_k(self, block, slot, masked: gl.constexpr):
        smem = self.k_smem.index(slot)
        self.k.load(block * smem.shape[0], smem, self.seqlen_k, masked)

    @gluon.jit
    def load_v(self, block, slot, masked: gl.constexpr):
        smem = self.v_smem.index(slot)
        self.v.load(block * smem.shape[0], smem, self.seqlen_k, masked)


@gluon.jit
def block_in_turn(t, state, block, masked: gl.constexpr):
    """Process a block with one K and one V buffer: V arrives during Q K^T, the next K during softmax and P V."""
    async_copy.wait_group(0)
    cta_barrier()
    t.load_v(block, 0, masked)
    async_copy.commit_group()
    scores = t.scores(0)
    async_copy.wait_group(0)
    cta_barrier()
    t.load_k(block + 1, 0, masked)
    async_copy.commit_group()
    return t.softmax_values(scores, state, block, 0, masked)


@gluon.jit
def block_buffered(t, state, block, masked: gl.constexpr):
    """Process a block with two K and two V buffers: K and V of the next block arrive during this one."""
    async_copy.wait_group(0)
    cta_barrier()
    slot = block & 1
    t.load_k(block + 1, slot ^ 1, masked)
    t.load_v(block + 1, slot ^ 1, masked)
    async_copy.commit_group()
    scores = t.scores(slot)
    return t.softmax_values(scores, state, block, slot, masked)


@gluon.jit
def one_block(t, state, block, masked: gl.constexpr, STAGES: gl.constexpr):
    if STAGES == 1:
        return block_in_turn(t, state, block, masked)
    else:
        return block_buffered(t, state, block, masked)


@gluon.jit
def all_blocks(t, state, steady, blocks, STAGES: gl.constexpr):
    """Compute the state after all blocks. Blocks before `steady`, and the copies that they start, need no mask."""
    t.load_k(gl.to_tensor(0), 0, True)
    if STAGES == 2:
        t.load_v(gl.to_tensor(0), 0, True)
    async_copy.commit_group()
    for block in range(0, steady):
        state = one_block(t, state, block, False, STAGES)
    for block in range(steady, blocks):
        state = one_block(t, state, block, True, STAGES)
    return state


# --- epilogue


@gluon.jit
def write_output(state, o, lse, lse_row, first_row, seqlen_q, O_STRIDE: gl.constexpr, WITH_LSE: gl.constexpr,
                 P_BITS: gl.constexpr, SUM_BY_MMA: gl.constexpr):  # fmt: skip
    warps: gl.constexpr = gl.num_warps()
    block_m: gl.constexpr = state.acc_o.shape[0]
    columns: gl.constexpr = state.acc_o.shape[1]
    total = total_of(state.row_sum, SUM_BY_MMA)
    inverse = gl.where(total == 0.0, 0.0, 1.0 / total)
    if WITH_LSE:
        rows = first_row + gl.arange(0, block_m, row_layout(warps))
        value = gl.where(total == 0.0, float("-inf"), (state.row_max - P_BITS + gl.log2(total)) * LN_2)
        gl.store(lse + lse_row + rows, value, mask=rows < seqlen_q)
    dtype: gl.constexpr = o.dtype.element_ty
    bits: gl.constexpr = dtype.primitive_bitwidth
    layout: gl.constexpr = copy_layout(columns, warps, bits)
    values = gl.convert_layout((state.acc_o * inverse[:, None]).to(dtype), layout)
    rows = gl.arange(0, block_m, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    start = o + first_row.to(gl.int64) * O_STRIDE
    gl.store(start + rows[:, None] * O_STRIDE + column[None, :], values, mask=(rows < seqlen_q - first_row)[:, None])


# --- kernel


SCALARS = [
    *("scale", "seqlen_q", "seqlen_k", "causal_offset", "batch_heads", "num_heads", "qheads_per_kvhead", "section"),
    *("q_batch", "q_head", "k_batch", "k_head", "v_batch", "v_head", "o_batch", "o_head"),
]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    q, k, v, o, lse, scale,
    seqlen_q, seqlen_k,
    causal_offset,  # with CAUSAL, row i sees keys 0 .. i + causal_offset
    batch_heads, num_heads, qheads_per_kvhead,  # batch_heads: batch * num_heads
    section,  # heads of Q that run at the same time: their K and V fit into the L2 cache
    q_batch, q_head, k_batch, k_head, v_batch, v_head, o_batch, o_head,  # strides in units of 16 bytes
    NAME: gl.constexpr, HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, KEEP_Q: gl.constexpr,
    SUM_BY_MMA: gl.constexpr, WITH_LSE: gl.constexpr, PRAGMA: gl.constexpr,
    Q_STRIDE: gl.constexpr, K_STRIDE: gl.constexpr, V_STRIDE: gl.constexpr, O_STRIDE: gl.constexpr,
):  # fmt: skip
    if PRAGMA:
        take_other_scheduler()
    warps: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = q.dtype.element_ty
    bits: gl.constexpr = dtype.primitive_bitwidth
    vector: gl.constexpr = 128 // bits
    p_bits: gl.constexpr = FP8_P_BITS if bits == 8 else 0.0

    # Longest tiles first: the short ones then fill the gaps at the end.
    tiles = (seqlen_q + BLOCK_M - 1) // BLOCK_M
    first_head = gl.program_id(0) // (tiles * section) * section
    inside = gl.program_id(0) % (tiles * section)
    width = gl.minimum(section, batch_heads - first_head)
    head = first_head + inside % width
    first_row = (tiles - 1 - inside // width) * BLOCK_M
    batch = (head // num_heads).to(gl.int64)
    q_head_index = head % num_heads
    kv_head_index = q_head_index // qheads_per_kvhead

    visible = seqlen_k
    open_keys = seqlen_k
    rows = first_row + gl.arange(0, BLOCK_M, row_layout(warps))
    limit = gl.full([BLOCK_M], 0, gl.int32, row_layout(warps)) + seqlen_k
    if CAUSAL:
        visible = gl.maximum(gl.minimum(seqlen_k, gl.minimum(first_row + BLOCK_M, seqlen_q) + causal_offset), 0)
        open_keys = gl.maximum(gl.minimum(seqlen_k, first_row + 1 + causal_offset), 0)
        limit = gl.minimum(rows + causal_offset + 1, seqlen_k)
    blocks = (visible + BLOCK_N - 1) // BLOCK_N
    # The loop without a mask also copies the next block without a mask, so it must end before the last block of K.
    steady = gl.maximum(gl.minimum(open_keys // BLOCK_N, seqlen_k // BLOCK_N - 1), 0)

    q_smem = gl.allocate_shared_memory(dtype, [BLOCK_M, HEAD_DIM], shared_layout(bits))
    k_smem = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], shared_layout(bits))
    v_smem = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], shared_layout(bits))
    q_source = source(q + (batch * q_batch + q_head_index.to(gl.int64) * q_head) * vector, Q_STRIDE, BLOCK_M, HEAD_DIM)
    k_source = source(k + (batch * k_batch + kv_head_index.to(gl.int64) * k_head) * vector, K_STRIDE, BLOCK_N, HEAD_DIM)
    v_source = source(v + (batch * v_batch + kv_head_index.to(gl.int64) * v_head) * vector, V_STRIDE, BLOCK_N, HEAD_DIM)
    q_source.load(first_row, q_smem, seqlen_q, True)
    if KEEP_Q:
        async_copy.commit_group()
        async_copy.wait_group(0)
        cta_barrier()
    q_operand = q_smem.load(operand(0, warps, bits))
    t = Tile(
        q_operand,
        q_smem,
        k_smem,
        v_smem,
        k_source,
        v_source,
        seqlen_k,
        scale * LOG2_E,
        limit,
        PARTS,
        KEEP_Q,
        SUM_BY_MMA,
        p_bits,
    )

    layout: gl.constexpr = mma_layout(warps)
    state = RunningSoftmax(
        gl.full([BLOCK_M], float("-inf"), gl.float32, row_layout(warps)),
        no_sum(BLOCK_M, SUM_BY_MMA),
        gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, layout),
    )
    state = all_blocks(t, state, steady, blocks, STAGES)
    async_copy.wait_group(0)
    cta_barrier()
    o_vector: gl.constexpr = 128 // o.dtype.element_ty.primitive_bitwidth
    o_head_start = o + (batch * o_batch + q_head_index.to(gl.int64) * o_head) * o_vector
    write_output(state, o_head_start, lse, head.to(gl.int64) * seqlen_q, first_row, seqlen_q, O_STRIDE,
                 WITH_LSE, p_bits, SUM_BY_MMA)  # fmt: skip
