"""Forward attention for Hopper (sm_90a) in Gluon: wgmma, TMA, a loading partition and two or three consumers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .config_hopper import CONSUMER_ROWS, WARPGROUP_THREADS, HopperConfig
from .gluon_api import aggregate, tma_load, tma_store
from .layouts import box_layout
from .pipeline import Counter, Ring, counter, make_ring

LOG2_E = gl.constexpr(1.4426950408889634)
ROWS = gl.constexpr(CONSUMER_ROWS)
# fp8 probabilities are scaled by 2 ** 8 = 256, below e4m3's 448, so that small ones keep their bits.
FP8_SHIFT = gl.constexpr(8.0)
# Named barriers: Triton takes 0, 1 and one for each partition.
FIRST_TURN = gl.constexpr(8)


@aggregate
class PartitionArgs:
    """Everything the partitions share. Built once by the kernel and passed whole to each of them."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    lse: gl.tensor  # pointer to fp32 [batch, heads, rows]
    score_scale: gl.tensor  # scale * log2(e): turns a score into bits
    out_scale: gl.tensor
    shift: gl.tensor  # causal: row i sees keys 0 .. i + shift
    batch: gl.tensor
    heads: gl.tensor  # of Q
    heads_per_kv: gl.tensor
    rows: gl.tensor
    keys: gl.tensor
    section: gl.tensor  # heads whose tiles are taken together, since their K and V fit the L2 cache

    q_smem: gl.shared_memory_descriptor
    k_smem: gl.shared_memory_descriptor
    v_smem: gl.shared_memory_descriptor
    o_smem: gl.shared_memory_descriptor
    q: Ring
    k: Ring
    v: Ring

    consumers: gl.constexpr
    block_n: gl.constexpr
    head_dim: gl.constexpr
    stages: gl.constexpr
    causal: gl.constexpr
    turns: gl.constexpr
    shared_out: gl.constexpr

    @gluon.jit
    def tiles_m(self):
        return (self.rows + self.consumers * ROWS - 1) // (self.consumers * ROWS)

    @gluon.jit
    def rounds(self):
        """How many tiles this CTA takes. Each round is dealt in the opposite direction of the one before."""
        total = self.tiles_m() * self.batch * self.heads
        programs = gl.num_programs(0)
        full = total // programs
        return full + gl.where(self.seat(full) < total - full * programs, 1, 0)

    @gluon.jit
    def seat(self, turn):
        pid = gl.program_id(0)
        return gl.where(turn % 2 == 0, pid, gl.num_programs(0) - 1 - pid)

    @gluon.jit
    def tile(self, turn):
        index = turn * gl.num_programs(0) + self.seat(turn)
        tiles_m = self.tiles_m()
        first = index // (tiles_m * self.section) * self.section
        rest = index - first * tiles_m
        size = gl.minimum(self.section, self.batch * self.heads - first)
        m = rest // size
        head = first + rest - m * size
        if self.causal:
            m = tiles_m - 1 - m
        first_row = m * (self.consumers * ROWS)
        seen = self.keys
        if self.causal:
            seen = gl.minimum(seen, first_row + self.consumers * ROWS + self.shift)
        blocks = gl.maximum((seen + self.block_n - 1) // self.block_n, 1)
        return Tile(head // self.heads, head % self.heads, head % self.heads // self.heads_per_kv, first_row, blocks)


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
    for turn in range(p.rounds()):
        tile = p.tile(turn)
        for i in gl.static_range(p.consumers):
            p.q.wait_empty(i, phase)
            row = tile.first_row + i * ROWS
            load_block(p.q_desc, tile.batch, tile.head, row, 0, p.q.ready.index(i), p.q_smem.index(i))
            if i == 0:
                load_k(p, tile, tile.blocks - 1, k_at)
                k_at = k_at.next()
        for i in range(1, tile.blocks):
            load_k(p, tile, tile.blocks - 1 - i, k_at)
            k_at = k_at.next()
            load_v(p, tile, tile.blocks - i, v_at)
            v_at = v_at.next()
        load_v(p, tile, 0, v_at)
        v_at = v_at.next()
        phase ^= 1


@gluon.jit
def load_k(p, tile, block, at):
    p.k.wait_empty(at.slot, at.phase)
    ready = p.k.ready.index(at.slot)
    load_block(p.k_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, p.k_smem.index(at.slot))


@gluon.jit
def load_v(p, tile, block, at):
    p.v.wait_empty(at.slot, at.phase)
    ready = p.v.ready.index(at.slot)
    if is_fp8(p):
        load_block(p.v_desc, tile.batch, tile.kv_head, 0, block * p.block_n, ready, p.v_smem.index(at.slot))
    else:
        load_block(p.v_desc, tile.batch, tile.kv_head, block * p.block_n, 0, ready, p.v_smem.index(at.slot))


@gluon.jit
def load_block(desc, batch, head, row, column, ready, smem):
    mbarrier.expect(ready, desc.block_type.nbytes)
    tma_load(desc, [batch, head, row, column], ready, smem)


@gluon.constexpr_function
def is_fp8(p):
    return p.q_desc.dtype.primitive_bitwidth == 8


@gluon.constexpr_function
def mma_layout(columns, dtype):
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 256 // dtype.primitive_bitwidth])


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
    s_layout: gl.constexpr = mma_layout(p.block_n, p.q_desc.dtype)
    o_layout: gl.constexpr = mma_layout(p.head_dim, p.q_desc.dtype)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    phase = gl.to_tensor(0)
    k_at = counter(p.stages)
    v_at = counter(p.stages)
    first_turn(p, me)
    for turn in range(p.rounds()):
        tile = p.tile(turn)
        row = tile.first_row + me * ROWS + gl.arange(0, ROWS, row_layout)
        open_blocks = whole_blocks(p, tile.first_row + me * ROWS)
        o = gl.zeros([ROWS, p.head_dim], gl.float32, o_layout)

        p.q.wait_ready(me, phase)
        p.k.wait_ready(k_at.slot, k_at.phase)
        take_turn(p, me)
        scores = scores_mma(p, me, k_at.slot)
        pass_turn(p, me)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        p.k.mark_empty(k_at.slot)
        k_at = k_at.next()
        block = tile.blocks - 1
        if block >= open_blocks:
            scores = mask(p, scores, row, block)
        row_max = gl.max(scores, 1)
        probabilities = gl.exp2(scores * p.score_scale - bits_offset(p, row_max)[:, None])
        row_sum = lane_sums(probabilities)

        p.k.wait_ready(k_at.slot, k_at.phase, pred=tile.blocks > 1)
        for i in range(1, tile.blocks):
            block = tile.blocks - 1 - i
            weights = operand(p, probabilities)
            p.v.wait_ready(v_at.slot, v_at.phase)
            take_turn(p, me)
            scores_token = scores_mma(p, me, k_at.slot)
            o_token = values_mma(p, weights, v_at.slot, o)
            pass_turn(p, me)
            scores = warpgroup_mma_wait(1, deps=(scores_token,))
            p.k.mark_empty(k_at.slot)
            k_at = k_at.next()
            if block >= open_blocks:
                scores = mask(p, scores, row, block)
            new_max = gl.maximum(row_max, gl.max(scores, 1))
            offset = bits_offset(p, new_max)
            shrink = gl.exp2(row_max * p.score_scale - offset)
            row_max = new_max
            probabilities = gl.exp2(scores * p.score_scale - offset[:, None])
            row_sum = row_sum * beside(shrink, row_sum) + lane_sums(probabilities)
            # A spin-wait ends the basic block here: ptxas would hoist the wgmma wait above the softmax.
            p.k.wait_ready(k_at.slot, k_at.phase, pred=i + 1 < tile.blocks)
            o, probabilities = warpgroup_mma_wait(0, deps=(o_token, probabilities))
            p.v.mark_empty(v_at.slot)
            v_at = v_at.next()
            o = o * gl.convert_layout(shrink, gl.SliceLayout(1, o_layout))[:, None]

        if not p.shared_out:
            p.q.mark_empty(me)
        weights = operand(p, probabilities)
        p.v.wait_ready(v_at.slot, v_at.phase)
        o_token = values_mma(p, weights, v_at.slot, o)
        o = warpgroup_mma_wait(0, deps=(o_token,))
        p.v.mark_empty(v_at.slot)
        v_at = v_at.next()

        total = gl.convert_layout(gl.sum(row_sum, 1), row_layout)
        write_lse(p, tile, row, row_max, total)
        inverse = gl.where(total > 0, p.out_scale / total, 0.0)
        o = o * gl.convert_layout(inverse, gl.SliceLayout(1, o_layout))[:, None]
        write_output(p, me, tile, o)
        phase ^= 1
    last_turn(p, me)
    tma.store_wait(0)


@gluon.jit
def whole_blocks(p, first_row):
    """Of a tile's key blocks, how many leading ones need no mask for rows from `first_row` on."""
    seen = p.keys
    if p.causal:
        seen = gl.minimum(seen, first_row + 1 + p.shift)
    return seen // p.block_n  # negative stays negative or 0: then no block is whole


@gluon.jit
def scores_mma(p, me: gl.constexpr, slot):
    q = p.q_smem.index(me).reshape([ROWS, p.head_dim])
    k = p.k_smem.index(slot).reshape([p.block_n, p.head_dim]).permute((1, 0))
    layout: gl.constexpr = mma_layout(p.block_n, p.q_desc.dtype)
    zero = gl.zeros([ROWS, p.block_n], gl.float32, layout)
    return warpgroup_mma(q, k, zero, use_acc=False, is_async=True)


@gluon.jit
def values_mma(p, weights, slot, o):
    if is_fp8(p):
        v = p.v_smem.index(slot).reshape([p.head_dim, p.block_n]).permute((1, 0))
        return warpgroup_mma(weights, v, o, is_async=True)
    else:
        v = p.v_smem.index(slot).reshape([p.block_n, p.head_dim])
        return warpgroup_mma(weights, v, o, is_async=True)


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
def bits_offset(p, row_max):
    """What to subtract from a row's scores in bits. A row that has seen no key yet has no maximum."""
    offset = gl.where(row_max == -float("inf"), 0.0, row_max * p.score_scale)
    if is_fp8(p):
        offset -= FP8_SHIFT
    return offset


@gluon.jit
def lane_sums(x):
    """Row sums of each of the four lanes that share a row; moves no data between threads."""
    return gl.sum(gl.sum(by_lane(x), 3), 1)


@gluon.jit
def beside(rows, sums):
    return gl.convert_layout(rows, gl.SliceLayout(1, sums.type.layout), assert_trivial=True)[:, None]


@gluon.jit
def operand(p, probabilities):
    """The probabilities as the left operand of an MMA; moves no data between threads."""
    dtype: gl.constexpr = p.v_desc.dtype
    o_layout: gl.constexpr = mma_layout(p.head_dim, dtype)
    layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 32 // dtype.primitive_bitwidth)
    x = probabilities.to(dtype)
    if is_fp8(p):
        x = x.reshape([ROWS, p.block_n // 16, 2, 4, 2]).permute(0, 1, 3, 2, 4).reshape([ROWS, p.block_n])
    return gl.convert_layout(x, layout, assert_trivial=True)


@gluon.jit
def write_lse(p, tile, row, row_max, total):
    lse = bits_offset(p, row_max) + gl.log2(total)
    head = (tile.batch * p.heads + tile.head).to(gl.int64)
    gl.store(p.lse + head * p.rows + row, lse, mask=row < p.rows)


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
        named_barrier("bar.arrive", FIRST_TURN)


@gluon.jit
def take_turn(p, me: gl.constexpr):
    if p.turns:
        named_barrier("bar.sync", FIRST_TURN + me)


@gluon.jit
def pass_turn(p, me: gl.constexpr):
    if p.turns:
        named_barrier("bar.arrive", FIRST_TURN + (me + 1) % p.consumers)


@gluon.jit
def last_turn(p, me: gl.constexpr):
    if p.turns and me == 0:
        named_barrier("bar.sync", FIRST_TURN)


@gluon.jit
def named_barrier(instruction: gl.constexpr, number: gl.constexpr):
    asm: gl.constexpr = barrier_asm(instruction, number)
    gl.inline_asm_elementwise(asm, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def barrier_asm(instruction, number):
    return f"{instruction} {number}, {2 * WARPGROUP_THREADS}; mov.u32 $0, 0;"


def entry_name(specialization) -> str:
    """The entry's name is the NAME constexpr: Triton's compile hash covers constexprs, but not `repr`."""
    return specialization.constants["NAME"]


SCALARS = ["score_scale", "out_scale", "shift", "batch", "heads", "heads_per_kv", "rows", "keys", "section"]


@gluon.jit(repr=entry_name, do_not_specialize=SCALARS)
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc,
    lse, score_scale, out_scale, shift, batch, heads, heads_per_kv, rows, keys, section,
    NAME: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, TURNS: gl.constexpr, SHARED_OUT: gl.constexpr,
    REGISTERS: gl.constexpr,
):  # fmt: skip
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [CONSUMERS] + q_desc.block_type.shape, q_desc.layout)
    if SHARED_OUT:
        o_smem = q_smem
    else:
        o_smem = gl.allocate_shared_memory(o_desc.dtype, [CONSUMERS] + o_desc.block_type.shape, o_desc.layout)
    p = PartitionArgs(
        q_desc, k_desc, v_desc, o_desc,
        lse, score_scale, out_scale, shift, batch, heads, heads_per_kv, rows, keys, section,
        q_smem,
        gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_type.shape, k_desc.layout),
        gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_type.shape, v_desc.layout),
        o_smem,
        make_ring(CONSUMERS), make_ring(STAGES, CONSUMERS), make_ring(STAGES, CONSUMERS),
        CONSUMERS, BLOCK_N, HEAD_DIM, STAGES, CAUSAL, TURNS, SHARED_OUT,
    )  # fmt: skip
    if CONSUMERS == 1:
        gl.warp_specialize([(load_partition, (p,)), (consumer0_partition, (p,))], [4], [REGISTERS])
    elif CONSUMERS == 2:
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


def constexprs(config: HopperConfig) -> dict[str, object]:
    """The kernel's compile-time arguments."""
    return {
        "NAME": config.name,
        "CONSUMERS": config.consumers,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal,
        "TURNS": config.turns,
        "SHARED_OUT": config.shared_out,
        "REGISTERS": config.consumer_registers,
    }


def compile_options(config: HopperConfig) -> dict[str, object]:
    """Four warps in the default partition (loading); fusion is named because its default changes with Triton."""
    return {"num_warps": 4, "maxnreg": config.entry_registers, "enable_fp_fusion": True}


def compile_offline(config: HopperConfig, arch: int = 90, options: dict | None = None):
    config.require(arch)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    fn = attention_kernel
    consts = constexprs(config)
    types = dict.fromkeys(SCALARS, "i32") | {"score_scale": "fp32", "out_scale": "fp32", "lse": "*fp32"}
    for name, box in config.boxes.items():
        dtype = config.out_dtype if name == "o_desc" else config.dtype
        types[name] = f"tensordesc<{dtype}{box},{box_layout(dtype, box)!r}>"
    source = GluonASTSource(
        fn=fn,
        signature={name: "constexpr" if name in consts else types[name] for name in fn.arg_names},
        constexprs={(fn.arg_names.index(name),): value for name, value in consts.items()},
        attrs={(fn.arg_names.index("lse"),): [["tt.divisibility", 16]]},
    )
    return triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options=compile_options(config) | (options or {})
    )
