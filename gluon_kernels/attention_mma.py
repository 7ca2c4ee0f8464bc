"""Forward attention with mma.sync in Gluon: sm_80, sm_90, sm_120 and sm_121, single source.

O = softmax(scale * Q K^T) V, and for each row lse = ln(sum(exp(scale * Q K^T))). A CTA computes a tile of block_m
query rows of one head and walks over its keys in blocks. K and V arrive by cp.async. Blocks that every row sees
whole run in a loop without any comparison; the diagonal and the last keys run in a second, masked loop.

Hand-over. Each thread waits for its own copies (cp.async.wait_group), then bar.sync makes all of them visible;
the same bar.sync says that every warp has finished with the block before, whose buffer is loaded next.
"""

from dataclasses import replace

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from .config import entry_name
from .config_mma import MmaConfig, default_config
from .gluon_api import aggregate, cp_async, cta_barrier
from .tensors import common_dtype, is_empty, write_blind

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
# A row of 16-byte vectors is copied by neighbouring threads; strides come in units of this many bytes.
VECTOR_BYTES = 16
# fp8 probabilities are stored 2^8 times too large: e4m3 ends at 448 and its normal numbers begin at 2^-6.
FP8_P_BITS = gl.constexpr(8.0)


# --- layouts


@gluon.constexpr_function
def mma_layout(warps):
    """fp32 accumulators: the warps stand below each other, so a row belongs to one warp."""
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[warps, 1], instr_shape=[16, 8])


@gluon.constexpr_function
def row_layout(warps):
    return gl.SliceLayout(1, mma_layout(warps))


@gluon.constexpr_function
def operand(index, warps, bits):
    return gl.DotOperandLayout(operand_index=index, parent=mma_layout(warps), k_width=32 // bits)


@gluon.constexpr_function
def copy_layout(columns, warps, bits):
    """16 bytes per thread; a warp copies whole rows."""
    vector = 128 // bits
    across = min(32, columns // vector)
    return gl.BlockedLayout([1, vector], [32 // across, across], [warps, 1], [1, 0])


@gluon.constexpr_function
def shared_layout(bits):
    """16-byte vectors of eight neighbouring rows lie in different banks: ldmatrix reads without conflicts."""
    return gl.SwizzledSharedLayout(vec=128 // bits, per_phase=1, max_phase=8, order=[1, 0])


# --- load


@aggregate
class Source:
    """A tile of one head's rows in global memory, as the CTA's threads copy it."""

    pointers: gl.tensor  # of the head's first tile
    rows: gl.tensor  # row of each pointer, for the mask
    stride: gl.constexpr  # elements from row to row; known to the compiler, so that a thread keeps one address

    @gluon.jit
    def load(self, first_row, smem, end_row, masked: gl.constexpr):
        """Start to copy the rows from first_row on; rows from end_row on become 0 if `masked`."""
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
class Row:
    """The running state of the tile's rows."""

    top: gl.tensor  # [block_m] maximum so far, in bits: scaled by scale * log2(e)
    total: gl.tensor  # sum of exponentials: see no_sum
    out: gl.tensor  # [block_m, head_dim]


@gluon.jit
def new_maximum(scores, top, scale):
    """Of the rows, over all parts; the parts' columns are compared before the threads of a row are."""
    widest = scores[0]
    for i in gl.static_range(1, len(scores)):
        widest = gl.maximum(widest, scores[i])
    return gl.maximum(top, gl.max(widest, 1) * scale)


@gluon.jit
def hide(scores, first_column: gl.constexpr, limit):
    """-inf where a row does not see the key; compared with constants, so that no register holds a key's number."""
    column = first_column + gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout))
    return gl.where(column[None, :] < limit[:, None], scores, float("-inf"))


@gluon.jit
def no_sum(BLOCK_M: gl.constexpr, by_mma: gl.constexpr):
    """Nothing added up yet: [block_m, 8], an accumulator of mma.sync, or [block_m, 4], one for each thread of a row."""
    layout: gl.constexpr = mma_layout(gl.num_warps())
    zero = gl.zeros([BLOCK_M, 8], gl.float32, layout)
    if by_mma:
        return zero
    else:
        return thread_sums(zero)


@gluon.jit
def thread_sums(p):
    """[rows, 4]: each thread adds its own columns; the four threads of a row are added once, at the end."""
    rows: gl.constexpr = p.shape[0]
    eights: gl.constexpr = p.shape[1] // 8
    return gl.sum(gl.sum(p.reshape([rows, eights, 4, 2]), 3), 1)


@gluon.jit
def scale_sum(total, shrink):
    side: gl.constexpr = gl.SliceLayout(1, total.type.layout)
    return total * gl.convert_layout(shrink, side, assert_trivial=True)[:, None]


@gluon.jit
def add_to_sum(total, p, weights, by_mma: gl.constexpr):
    """By mma.sync with ones, on the tensor cores: of the probabilities as they are rounded. Else of the exact ones."""
    if by_mma:
        columns: gl.constexpr = p.shape[1]
        layout: gl.constexpr = operand(1, gl.num_warps(), weights.dtype.primitive_bitwidth)
        return mma_v2(weights, gl.full([columns, 8], 1.0, gl.float32, layout).to(weights.dtype), total)
    else:
        return total + gl.convert_layout(thread_sums(p), total.type.layout, assert_trivial=True)


@gluon.jit
def row_sum(total, by_mma: gl.constexpr):
    """[block_m]; the eight columns of the accumulator are equal."""
    if by_mma:
        return gl.max(total, 1)
    else:
        return gl.convert_layout(gl.sum(total, 1), row_layout(gl.num_warps()), assert_trivial=True)


# --- mma


@aggregate
class Tile:
    """What the loop over the blocks needs."""

    q: gl.tensor  # operand in registers (KEEP_Q)
    q_smem: gl.shared_memory_descriptor
    k_smem: gl.shared_memory_descriptor  # [stages, block_n, head_dim]
    v_smem: gl.shared_memory_descriptor
    k: Source
    v: Source
    keys: gl.tensor
    scale: gl.tensor  # scale * log2(e)
    limit: gl.tensor  # [block_m] keys that each row sees
    parts: gl.constexpr
    keep_q: gl.constexpr
    sum_by_mma: gl.constexpr
    p_bits: gl.constexpr

    @gluon.jit
    def scores(self, slot):
        """Q K^T of a block, as a tuple of parts of its columns."""
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
    def softmax_values(self, scores, row, block, slot, masked: gl.constexpr):
        """The new state. A part's exponentials are taken while the part before is multiplied with V."""
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
        top = new_maximum(scores, row.top, self.scale)
        safe = top
        if masked:
            # A row that has seen no key: exp2(-inf - 0) is 0, where exp2(-inf + inf) would be NaN.
            safe = gl.where(top == float("-inf"), 0.0, top)
        shift = safe
        if self.p_bits != 0.0:
            shift = safe - self.p_bits
        shrink = gl.exp2(row.top - safe)
        total = scale_sum(row.total, shrink)
        out = row.out * shrink[:, None]
        for i in gl.static_range(self.parts):
            p = gl.exp2(scores[i] * self.scale - shift[:, None])
            weights = gl.convert_layout(p.to(dtype), operand(0, warps, bits))
            total = add_to_sum(total, p, weights, self.sum_by_mma)
            out = mma_v2(weights, smem.slice(i * columns, columns).load(operand(1, warps, bits)), out)
        return Row(top, total, out)

    @gluon.jit
    def load_k(self, block, slot, masked: gl.constexpr):
        smem = self.k_smem.index(slot)
        self.k.load(block * smem.shape[0], smem, self.keys, masked)

    @gluon.jit
    def load_v(self, block, slot, masked: gl.constexpr):
        smem = self.v_smem.index(slot)
        self.v.load(block * smem.shape[0], smem, self.keys, masked)


@gluon.jit
def block_in_turn(t, row, block, masked: gl.constexpr):
    """One K and one V buffer: V arrives during Q K^T, the next K during softmax and P V."""
    async_copy.wait_group(0)
    cta_barrier()
    t.load_v(block, 0, masked)
    async_copy.commit_group()
    scores = t.scores(0)
    async_copy.wait_group(0)
    cta_barrier()
    t.load_k(block + 1, 0, masked)
    async_copy.commit_group()
    return t.softmax_values(scores, row, block, 0, masked)


@gluon.jit
def block_buffered(t, row, block, masked: gl.constexpr):
    """Two buffers each: K and V of the next block arrive during this one."""
    async_copy.wait_group(0)
    cta_barrier()
    slot = block & 1
    t.load_k(block + 1, slot ^ 1, masked)
    t.load_v(block + 1, slot ^ 1, masked)
    async_copy.commit_group()
    scores = t.scores(slot)
    return t.softmax_values(scores, row, block, slot, masked)


@gluon.jit
def block_here(t, row, block, masked: gl.constexpr, STAGES: gl.constexpr):
    if STAGES == 1:
        return block_in_turn(t, row, block, masked)
    else:
        return block_buffered(t, row, block, masked)


@gluon.jit
def walk(t, row, steady, blocks, STAGES: gl.constexpr):
    """All blocks of the tile; those before `steady` and the copies they start need no mask."""
    t.load_k(gl.to_tensor(0), 0, True)
    if STAGES == 2:
        t.load_v(gl.to_tensor(0), 0, True)
    async_copy.commit_group()
    for block in range(0, steady):
        row = block_here(t, row, block, False, STAGES)
    for block in range(steady, blocks):
        row = block_here(t, row, block, True, STAGES)
    return row


# --- epilogue


@gluon.jit
def write_output(row, o, lse, lse_row, first_row, queries, O_STRIDE: gl.constexpr, WITH_LSE: gl.constexpr,
                 P_BITS: gl.constexpr, SUM_BY_MMA: gl.constexpr):  # fmt: skip
    warps: gl.constexpr = gl.num_warps()
    block_m: gl.constexpr = row.out.shape[0]
    columns: gl.constexpr = row.out.shape[1]
    total = row_sum(row.total, SUM_BY_MMA)
    inverse = gl.where(total == 0.0, 0.0, 1.0 / total)
    if WITH_LSE:
        rows = first_row + gl.arange(0, block_m, row_layout(warps))
        value = gl.where(total == 0.0, float("-inf"), (row.top - P_BITS + gl.log2(total)) * LN_2)
        gl.store(lse + lse_row + rows, value, mask=rows < queries)
    dtype: gl.constexpr = o.dtype.element_ty
    bits: gl.constexpr = dtype.primitive_bitwidth
    layout: gl.constexpr = copy_layout(columns, warps, bits)
    values = gl.convert_layout((row.out * inverse[:, None]).to(dtype), layout)
    rows = gl.arange(0, block_m, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    start = o + first_row.to(gl.int64) * O_STRIDE
    gl.store(start + rows[:, None] * O_STRIDE + column[None, :], values, mask=(rows < queries - first_row)[:, None])


# --- kernel


NUMBERS = [
    *("scale", "queries", "keys", "diagonal", "batch_heads", "heads", "group", "section"),
    *("q_batch", "q_head", "k_batch", "k_head", "v_batch", "v_head", "o_batch", "o_head"),
]


@gluon.jit(repr=entry_name, do_not_specialize=NUMBERS)
def attention_kernel(
    q, k, v, o, lse, scale,
    queries, keys,
    diagonal,  # causal: row i sees keys 0 .. i + diagonal
    batch_heads, heads, group,  # query heads in all and per batch entry; query heads per K/V head
    section,  # heads that run side by side: their K and V share the L2 cache
    q_batch, q_head, k_batch, k_head, v_batch, v_head, o_batch, o_head,  # strides in units of 16 bytes
    NAME: gl.constexpr, HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, PARTS: gl.constexpr, KEEP_Q: gl.constexpr,
    SUM_BY_MMA: gl.constexpr, WITH_LSE: gl.constexpr,
    Q_STRIDE: gl.constexpr, K_STRIDE: gl.constexpr, V_STRIDE: gl.constexpr, O_STRIDE: gl.constexpr,
):  # fmt: skip
    warps: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = q.dtype.element_ty
    bits: gl.constexpr = dtype.primitive_bitwidth
    vector: gl.constexpr = 128 // bits
    p_bits: gl.constexpr = FP8_P_BITS if bits == 8 else 0.0

    # Longest tiles first: the short ones then fill the gaps at the end.
    tiles = (queries + BLOCK_M - 1) // BLOCK_M
    first_head = gl.program_id(0) // (tiles * section) * section
    inside = gl.program_id(0) % (tiles * section)
    width = gl.minimum(section, batch_heads - first_head)
    head = first_head + inside % width
    first_row = (tiles - 1 - inside // width) * BLOCK_M
    batch = (head // heads).to(gl.int64)
    own = head % heads
    shared = own // group

    visible = keys
    open_keys = keys
    rows = first_row + gl.arange(0, BLOCK_M, row_layout(warps))
    limit = gl.full([BLOCK_M], 0, gl.int32, row_layout(warps)) + keys
    if CAUSAL:
        visible = gl.maximum(gl.minimum(keys, gl.minimum(first_row + BLOCK_M, queries) + diagonal), 0)
        open_keys = gl.maximum(gl.minimum(keys, first_row + 1 + diagonal), 0)
        limit = gl.minimum(rows + diagonal + 1, keys)
    blocks = (visible + BLOCK_N - 1) // BLOCK_N
    # The steady loop copies ahead without a mask: it ends where the next block may not be whole.
    steady = gl.maximum(gl.minimum(open_keys // BLOCK_N, keys // BLOCK_N - 1), 0)

    q_smem = gl.allocate_shared_memory(dtype, [BLOCK_M, HEAD_DIM], shared_layout(bits))
    k_smem = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], shared_layout(bits))
    v_smem = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], shared_layout(bits))
    q_source = source(q + (batch * q_batch + own.to(gl.int64) * q_head) * vector, Q_STRIDE, BLOCK_M, HEAD_DIM)
    k_source = source(k + (batch * k_batch + shared.to(gl.int64) * k_head) * vector, K_STRIDE, BLOCK_N, HEAD_DIM)
    v_source = source(v + (batch * v_batch + shared.to(gl.int64) * v_head) * vector, V_STRIDE, BLOCK_N, HEAD_DIM)
    q_source.load(first_row, q_smem, queries, True)
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
        keys,
        scale * LOG2_E,
        limit,
        PARTS,
        KEEP_Q,
        SUM_BY_MMA,
        p_bits,
    )

    layout: gl.constexpr = mma_layout(warps)
    row = Row(
        gl.full([BLOCK_M], float("-inf"), gl.float32, row_layout(warps)),
        no_sum(BLOCK_M, SUM_BY_MMA),
        gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, layout),
    )
    row = walk(t, row, steady, blocks, STAGES)
    async_copy.wait_group(0)
    cta_barrier()
    o_head_start = o + (batch * o_batch + own.to(gl.int64) * o_head) * (128 // o.dtype.element_ty.primitive_bitwidth)
    write_output(row, o_head_start, lse, head.to(gl.int64) * queries, first_row, queries, O_STRIDE,
                 WITH_LSE, p_bits, SUM_BY_MMA)  # fmt: skip


# --- launcher

DTYPES = ("fp16", "bf16", "fp8e4nv")
# K and V of the heads that run side by side should stay in the L2 cache; it has 40 MiB or more on sm_80 to sm_120.
L2_BYTES = 24 * 1024 * 1024


def attention(q, k, v, *, causal: str | None = None, scale: float | None = None, return_lse: bool = False,
              config: MmaConfig | None = None, name: str | None = None):  # fmt: skip
    """Forward attention with mma.sync: softmax(scale * q k^T) v.

    q: [batch, heads, queries, head_dim]; k, v: [batch, kv_heads, keys, head_dim]; heads a multiple of kv_heads;
    head_dim 64, 128 or 256. One dtype for all: float16, bfloat16, or float8_e4m3fn (not on sm_80). The last
    dimension is contiguous; all other strides are multiples of 16 bytes, and the tensors 16-byte aligned. There may be
    no keys, or no queries.
    causal: None; "top-left": query i sees keys 0..i; "bottom-right": query i sees keys 0..i + keys - queries.
    scale: positive, head_dim ** -0.5 by default. config: how to compute it, by default `default_config(...)` for
    this GPU; name: the entry's name, by default the config's.

    Returns o, like q ([batch, heads, queries, head_dim]; bfloat16 for fp8 inputs), and with return_lse (o, lse):
    lse is fp32 [batch, heads, queries], the natural logarithm of each row's sum of exponentials. A query that sees
    no key gets 0 and -inf.

    Raises TypeError or ValueError for what the kernel cannot take, before it touches the GPU.
    """
    import torch

    dtype = check_tensors(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    if not 0 < scale < float("inf"):
        raise ValueError(f"scale {scale}: must be positive and finite, the maximum is taken before scaling")
    major, minor = torch.cuda.get_device_capability(q.device)
    arch = 10 * major + minor
    if config is None:
        config = default_config(arch, dtype, q.shape[-1], causal, q.shape[2])
    if (config.dtype, config.head_dim, config.causal) != (dtype, q.shape[-1], causal):
        raise ValueError(f"{config}: made for another dtype, head_dim or causal than {dtype}, {q.shape[-1]}, {causal}")
    if name is not None:
        config = replace(config, name=name)
    config.require(arch)
    out = torch.empty_like(q, dtype=torch.bfloat16 if dtype == "fp8e4nv" else q.dtype)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if return_lse else None
    if is_empty(q, k):
        write_blind(out, lse)
    else:
        with torch.cuda.device(q.device):
            launch(config, q, k, v, out, lse, scale)
    return (out, lse) if return_lse else out


def check_tensors(q, k, v) -> str:
    """The config's dtype for these tensors; raises TypeError or ValueError if they cannot be attended to."""
    dtype = common_dtype(q, k, v, DTYPES)
    for label, x in (("q", q), ("k", k), ("v", v)):
        if 0 in x.shape:
            continue
        if x.stride(-1) != 1:
            raise ValueError(f"{label}'s last dimension has stride {x.stride(-1)}: call {label}.contiguous()")
        vector = VECTOR_BYTES // x.element_size()
        if any(stride % vector for stride, size in zip(x.stride()[:3], x.shape[:3], strict=True) if size > 1):
            raise ValueError(
                f"{label} has strides {x.stride()}: multiples of {vector} are copied; call {label}.clone()"
            )
        if x.data_ptr() % VECTOR_BYTES:
            raise ValueError(f"{label} starts at {x.data_ptr():#x}: not 16-byte aligned; call {label}.clone()")
    if tuple(k.shape) != tuple(v.shape):
        raise ValueError(f"k has shape {tuple(k.shape)}, v {tuple(v.shape)}: they must be equal")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: batch and head_dim must be equal")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads for {k.shape[1]} K/V heads: must be a multiple")
    return dtype


def _vectors(x, dimension: int) -> int:
    """The stride in units of 16 bytes; of one entry any stride will do."""
    return x.stride(dimension) * x.element_size() // VECTOR_BYTES if x.shape[dimension] > 1 else 0


def _row_stride(x):
    """In elements; of one row any stride will do, but the kernel's copies must be aligned."""
    stride = x.stride(2)
    return stride if stride * x.element_size() % VECTOR_BYTES == 0 else x.shape[3]


def launch(config: MmaConfig, q, k, v, out, lse, scale: float) -> None:
    """Start the kernel on checked tensors; `lse` may be None."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    diagonal = keys - queries if config.causal == "bottom-right" else 0
    group = heads // kv_heads
    kv_bytes = 2 * keys * head_dim * k.element_size()
    section = min(batch * heads, max(1, L2_BYTES // kv_bytes) * group)
    tiles = -(-queries // config.block_m)
    strides = [_vectors(x, i) for x in (q, k, v, out) for i in (0, 1)]
    attention_kernel[(tiles * batch * heads,)](
        q, k, v, out, out if lse is None else lse, scale,
        queries, keys, diagonal, batch * heads, heads, group, section, *strides,
        **constexprs(config, lse is not None, *(_row_stride(x) for x in (q, k, v, out))),
        **compile_options(config),
    )  # fmt: skip


def constexprs(config: MmaConfig, with_lse: bool, *row_strides: int) -> dict[str, object]:
    """The kernel's compile-time arguments; row strides of Q, K, V and O, in elements."""
    strides = dict(zip(("Q_STRIDE", "K_STRIDE", "V_STRIDE", "O_STRIDE"), row_strides, strict=True))
    return {
        "NAME": config.name,
        "HEAD_DIM": config.head_dim,
        "CAUSAL": config.causal is not None,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "STAGES": config.stages,
        "PARTS": config.parts,
        "KEEP_Q": config.keep_q,
        # Rounded probabilities are right for O, which is made of them; lse to 1e-3 wants the exact ones.
        "SUM_BY_MMA": config.sum_by_mma and not with_lse,
        "WITH_LSE": with_lse,
        **strides,
    }


def compile_offline(
    config: MmaConfig | None = None, arch: int = 90, options: dict | None = None, with_lse=False, **fields
):
    """Compile the kernel for compute capability `arch` with no GPU and no torch; Triton's kernel, with .asm.

    As for contiguous tensors. `fields` replace fields of the config: `compile_offline(head_dim=64)`.
    `options` are compile options of Triton's NVIDIA backend. Raises ValueError if the config cannot run on `arch`.
    """
    config = replace(config or MmaConfig(), **fields)
    config.require(arch)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    names = attention_kernel.arg_names
    constants = constexprs(config, with_lse, *[config.head_dim] * 4)
    out = "bf16" if config.element_bytes == 1 else config.dtype
    types = dict.fromkeys(names, "i32") | dict.fromkeys("qkv", f"*{config.dtype}")
    types |= {"o": f"*{out}", "lse": "*fp32", "scale": "fp32"}
    source = GluonASTSource(
        fn=attention_kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in ("q", "k", "v", "o", "lse")},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=compile_options(config) | (options or {}))


def compile_options(config: MmaConfig) -> dict[str, object]:
    # Fusion is named because its default changes with the Triton version.
    return {"num_warps": config.warps, "enable_fp_fusion": True}
