"""The Blackwell attention kernel: what it accepts, that it assembles, that its protocol and sums are right.

The numbers come from the host model (host_model.py) and, where there is one, from an sm_100 GPU.
"""

import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from itertools import product
from operator import attrgetter

import pytest
from fake_torch import FakeTensor, FakeTorch
from host_model import SOURCE, Problem, ProtocolError, e4m3, run_attention

from gluon_kernels.config import (
    ROLE_REGS,
    SCALE_SLOTS,
    SHARED_BYTES,
    AttentionConfig,
    candidates,
    default_config,
)

CONFIGS = [
    AttentionConfig(),
    AttentionConfig(packed_row_sum=True),
    AttentionConfig(dtype="fp8e4nv", head_dim=128, ragged=True, out="bf16"),
    AttentionConfig(dtype="bf16", head_dim=64, causal=True),
    AttentionConfig(dtype="fp16", head_dim=128, packed_row_sum=True, causal=True, ragged=True),
]


def describe(config: AttentionConfig) -> str:
    causal = ("causal" if config.causal else "full") + ("-ragged" if config.ragged else "")
    return f"{config.dtype}-{config.head_dim}-{causal}-{'packed' if config.packed_row_sum else 'scalar'}"


# --- config


def test_importing_the_package_loads_neither_triton_nor_torch():
    code = "import sys, gluon_kernels as g; g.AttentionConfig().why_not(100); g.compile_offline; g.__all__; "
    code += "sys.exit('triton' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("config", CONFIGS, ids=describe)
def test_default_configs_fit_blackwell(config):
    assert config.why_not(100) is None
    assert config.why_not(103) is None
    config.require(100)


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 90, "arch 90: tcgen05"),
        ({}, 120, "arch 120: tcgen05"),
        ({"dtype": "fp32"}, 100, "dtype 'fp32': not one of fp8e5"),
        ({"head_dim": 96}, 100, "head_dim 96"),
        ({"head_dim": 256}, 100, "head_dim 256"),
        ({"block_m": 128}, 100, "block_m 128: a tile is two halves"),
        ({"block_n": 96}, 100, "block_n 96"),
        ({"kv_stages": 1}, 100, "kv_stages 1: the MMA holds V"),
        ({"dtype": "bf16", "head_dim": 128, "kv_stages": 4}, 100, "shared bytes for 4 kv_stages"),
        ({"exp_parts": 3}, 100, "exp_parts 3"),
        ({"fma_parts": 5}, 100, "fma_parts 5: of 4 exp_parts"),
        ({"out": "fp32"}, 100, "dtype 'fp32': not one of fp8e5"),
        ({"out_parts": 8}, 100, "out_parts 8"),
        ({"softmax_regs": 190}, 100, "softmax_regs 190: a multiple of 8"),
        ({"softmax_regs": 120}, 100, "softmax_regs 120: a multiple of 8, enough for 128 scores"),
        ({"softmax_regs": 240}, 100, "softmax_regs 240: a multiple of 8, enough for 128 scores, at most 232"),
        ({"name": "two words"}, 100, "name 'two words': Triton wants letters"),
        ({"name": "$dollar"}, 100, "name '$dollar': Triton wants letters"),
        ({"name": ""}, 100, "name '': Triton wants letters"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(AttentionConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_only_a_ragged_kernel_takes_any_length():
    config = AttentionConfig()
    assert config.why_not(100, 512, 384) is None
    assert config.why_not(100, 500, 384) == "n_queries 500: not a multiple of 256, and the kernel is not `ragged`"
    with pytest.raises(ValueError, match="n_keys 1: not a multiple of 128"):
        config.require(100, 512, 1)
    assert replace(config, ragged=True).why_not(100, 500, 1) is None


@pytest.mark.parametrize("dtype", ["fp8e5", "fp8e4nv", "fp16", "bf16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_the_default_config_fits_its_problem(dtype, head_dim, causal):
    for n_queries, n_keys in ((1, 1), (256, 128), (256, 129), (4096, 4096)):
        config = default_config(100, dtype, head_dim, causal=causal, n_queries=n_queries, n_keys=n_keys)
        assert config.why_not(100, n_queries, n_keys) is None
        assert config.ragged == (n_keys % 128 != 0 or n_queries == 1)
    others = list(candidates(config))
    assert others[0] == config and len(set(others)) == len(others) > 8
    for other in others:
        assert other.why_not(103, 4096, 4096) is None
        assert (other.dtype, other.head_dim, other.causal, other.out) == (dtype, head_dim, causal, config.out)


def test_registers_of_all_partitions_fit_an_sm():
    for config in CONFIGS:
        threads = 2 * 128 * config.softmax_regs + 128 * config.correction_regs + 128 * ROLE_REGS
        assert threads <= 65536


def test_stages_fill_shared_memory_but_no_more():
    config = AttentionConfig(dtype="fp16", head_dim=128)
    assert config.stages == 3
    assert config.shared_bytes <= SHARED_BYTES
    assert replace(config, kv_stages=4).shared_bytes > SHARED_BYTES


# --- protocol and sums, on the host model


def unchanged(file, source):
    return source


def random_tensor(values: random.Random, heads: int, rows: int, size: Problem, scale: float):
    def matrix():
        return [[values.gauss(0, scale) for _ in range(size.head_dim)] for _ in range(rows)]

    return [[matrix() for _ in range(heads)] for _ in range(size.batch)]


def by_definition(q, k, v, size: Problem) -> tuple[list[float], float]:
    """One row of O and its lse, for a query row, what it sees of K and of V; scores count in bits."""
    bits = [sum(x * y for x, y in zip(q, key, strict=True)) for key in k]
    if not bits:
        return [0.0] * size.head_dim, -math.inf
    weights = [2.0 ** (b - max(bits)) for b in bits]
    total = sum(weights)
    o = [sum(w * row[column] for w, row in zip(weights, v, strict=True)) / total for column in range(size.head_dim)]
    return o, (max(bits) + math.log2(total)) * math.log(2)


def worst_error(seed: int, size: Problem, edit=unchanged, spread: float = 3) -> float:
    """Largest difference to the definition of attention, in O and in lse; NaN counts as infinite."""
    values = random.Random(seed)
    q = random_tensor(values, size.heads, size.n_queries, size, spread)
    k = random_tensor(values, size.kv_heads, size.n_keys, size, spread)
    v = random_tensor(values, size.kv_heads, size.n_keys, size, 1)
    o, lse, _ = run_attention(q, k, v, size, seed, programs=1 + seed % 2, edit=edit)
    errors = [0.0]
    for batch, head, row in product(range(size.batch), range(size.heads), range(size.n_queries)):
        shared = head * size.kv_heads // size.heads
        seen = slice(size.keys_of(row))
        keys, values_seen = k[batch][shared][seen], v[batch][shared][seen]
        expected, expected_lse = by_definition(q[batch][head][row], keys, values_seen, size)
        got_lse = lse[batch * size.heads + head][row]
        errors.append(0.0 if got_lse == expected_lse else abs(got_lse - expected_lse))
        errors += [abs(x - y) for x, y in zip(o[batch][head][row], expected, strict=True)]
    return max(math.inf if math.isnan(error) else error for error in errors)


ALIGNMENTS = [None, "top-left", "bottom-right"]


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("packed", [False, True], ids=["scalar", "packed"])
@pytest.mark.parametrize("turns", [False, True], ids=["free", "turns"])
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_any_interleaving_gives_the_right_numbers(causal, packed, turns, stages):
    size = Problem(stages=stages, causal=causal, packed_row_sum=packed, exp_turns=turns)
    for seed in range(4):
        assert worst_error(seed, size) < 1e-9


# Of a tile's 8 rows and a block's 4 keys: one, all but one, all, one more; and a few tiles.
LENGTHS = [1, 3, 4, 5, 7, 8, 9, 19]


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("n_queries", LENGTHS)
def test_any_lengths_give_the_right_numbers(causal, n_queries):
    """Tails of rows and keys; rows that see nothing, where there are more of them than keys."""
    for n_keys in LENGTHS:
        size = Problem(heads=1, kv_heads=1, n_queries=n_queries, n_keys=n_keys, causal=causal)
        assert worst_error(n_keys, size) < 1e-9, n_keys


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
def test_heads_share_keys_within_their_batch_entry(causal, heads, kv_heads):
    size = Problem(batch=2, heads=heads, kv_heads=kv_heads, n_queries=9, n_keys=6, causal=causal)
    assert worst_error(0, size) < 1e-9


@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_lengths_that_fill_their_tiles_need_no_tail(causal):
    """A config that is not `ragged` compiles neither mask of the tails, with as many queries as keys or not."""
    for n_queries, n_keys in ((8, 16), (16, 8), (8, 4), (24, 12)):
        size = Problem(heads=1, kv_heads=1, n_queries=n_queries, n_keys=n_keys, causal=causal)
        assert not size.ragged
        assert worst_error(1, size) < 1e-9


def test_large_scores_are_as_good_as_small_ones():
    """Scores of some 10^4 either way: the maximum is taken off before exp2."""
    assert worst_error(1, Problem(n_queries=9, n_keys=7, causal="bottom-right", head_dim=2), spread=80) < 1e-9


def test_e4m3_keeps_small_probabilities_because_they_are_stored_larger():
    """One key weighs 1, 63 weigh 2^-8.5: two steps of e4m3, but well inside its range if stored 2^8 times larger."""
    q = [[[[1.0, 0, 0, 0]] * 8]]
    k = [[[[8.5, 0, 0, 0]] + [[0.0] * 4] * 63]]
    v = [[[[0.0] * 4] + [[1.0] * 4] * 63]]
    expected = 63 * 2**-8.5 / (1 + 63 * 2**-8.5)

    def error(exp_bits):
        size = Problem(heads=1, kv_heads=1, n_queries=8, n_keys=64, exp_bits=exp_bits, round=e4m3)
        o, lse, _ = run_attention(q, k, v, size, seed=0, programs=1)
        assert lse[0][0] == pytest.approx(math.log(2**8.5 + 63))
        return abs(o[0][0][0][0] / expected - 1)

    assert error(exp_bits=0) > 0.2
    assert error(exp_bits=8) < 2**-4
    assert worst_error(1, Problem(exp_bits=8)) < 1e-9


def protocol_table() -> list[list[str]]:
    """The rows of the table in the kernel's docstring: barrier, who arrives, who waits, how often per tile."""
    source = (SOURCE / "attention_blackwell.py").read_text()
    lines = source[: source.index('"""', 3)].splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["barrier"])
    columns = [lines[start].index(title) for title in ("barrier", "who arrives", "who waits", "per tile")]
    rows = [line for line in lines[start + 1 :] if line.strip()]
    return [[line[a:b].strip() for a, b in zip(columns, [*columns[1:], None], strict=True)] for line in rows]


@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_the_written_protocol_is_what_happens(causal):
    """Who arrives at each barrier, who waits for it and how often, as the table in the docstring says."""
    size = Problem(n_queries=20, n_keys=11, causal=causal, exp_turns=True)
    tensors = [random_tensor(random.Random(0), 2, n, size, 1) for n in (size.n_queries, size.n_keys, size.n_keys)]
    p = run_attention(*tensors, size, seed=0, programs=1)[2][0]
    first_rows = range(0, size.n_queries, size.block_m)
    last_rows = [min(row + size.block_m, size.n_queries) - 1 for row in first_rows]
    blocks = [max(-(-size.keys_of(row) // size.block_n), 1) for row in last_rows]
    assert len(set(blocks)) > 1 or causal is None

    table = protocol_table()
    assert len(table) == 14
    for barrier, arrives, waits, per_tile in table:
        ring, index = re.fullmatch(r"([\w.]+)(?:\[(\w+)\])?", barrier).groups()
        slots = attrgetter(ring)(p).slots
        # A row of the table stands for one half where it says h, and of the scales for one half's slots.
        per_half = {"h": 1, None: SCALE_SLOTS}.get(index) if index == "h" or "scales" in ring else None
        for half in range(2) if per_half else [None]:
            mine = slots if half is None else slots[half * per_half :][:per_half]
            expected = size.heads * sum(eval(per_tile.replace("2n", "2 * n"), {"n": n}) for n in blocks)
            assert sum(bar.completed for bar in mine) == expected, barrier
            assert sum(bar.waits for bar in mine) == expected, barrier
            assert {who for bar in mine for who in bar.arrived} == {partition(arrives, half)}, barrier
            assert {who for bar in mine for who in bar.waited} == {partition(waits, half)}, barrier


def partition(cell: str, half: int | None) -> str:
    """ "softmax h: its exp2 are done" -> the function of that partition."""
    role = cell.split(":")[0].split(",")[0].replace(" h", str(half)).replace(" ", "")
    return f"{role}_partition"


WAIT_Q = "            p.q.wait_empty(half, phase)\n"
WAIT_KV = "            p.kv.wait_empty(at.slot, at.phase)\n"
LOAD_K = "            load_block(p.k_desc"
WAIT_O = "            p.o.wait_ready(half, phase)\n"
SHRINK = "                shrink_accumulator"
WAIT_OUT = "            p.out.wait_empty(half, tile_phase)\n"
WAIT_SCALE = "    p.scales.wait_ready(slot, at.phase)\n"
S_DONE = "done = p.s_ready.index(half)\n    if half == "
O_DONE = "done = p.o.ready.index(half)\n    if half == "
LSE = "(row_max - p.exp_bits + gl.log2(total)) * LN_2"

MUTANTS = {
    "an empty slot is a full one": ("self.empty.index(slot), phase ^ 1", "self.empty.index(slot), phase"),
    "a counter never flips its phase": ("self.phase ^ 1, self.phase)", "self.phase, self.phase)"),
    "Q is replaced too early": (WAIT_Q, ""),
    "K is replaced too early": (WAIT_KV + LOAD_K, LOAD_K),
    "Q(1) is used before it came": ("        p.q.wait_ready(1, tile_phase)\n", ""),
    "K is released by the first half": (S_DONE + "0", S_DONE + "1"),
    "V is released by the first half": (O_DONE + "0", O_DONE + "1"),
    "Q is never released": ("        tcgen05_commit(p.q.empty.index(1))\n", ""),
    "S is taken for P": ("    mbarrier.wait(p.p_ready.index(half), phase)\n", ""),
    "O is added to before it is scaled": ("    p.o.wait_empty(half, phase)\n", ""),
    "O is never cleared": ("use_acc=block > 0", "use_acc=True"),
    "S is read before it is there": ("    mbarrier.wait(p.s_ready.index(half), phase)\n", ""),
    "a scale is overwritten": ("    p.scales.wait_empty(slot, at.phase)\n", ""),
    "a scale is read too early": (WAIT_SCALE + "    scale =", "    scale ="),
    "O is scaled too early": ("    " + WAIT_O + SHRINK, SHRINK),
    "O is read out too early": (WAIT_O + WAIT_OUT, WAIT_OUT),
    "the output buffer is overwritten": (WAIT_OUT, ""),
    "the output is stored too early": ("            p.out.wait_ready(half, phase)\n", ""),
    "the store is not waited for": ("        tma.store_wait(0)\n", ""),
    "lse of the second half goes to the first": ("tile.lse_row + row\n", "tile.lse_row + row + -half * rows\n"),
    "lse is the maximum": (LSE, "row_max * LN_2"),
    "lse is in bits": (LSE, LSE.removesuffix(" * LN_2")),
    "lse of the rows past the end is stored": ("mask=row < p.n_queries", "mask=row < p.n_queries + 1"),
    "a row does not see itself": ("column[None, :] <= last", "column[None, :] < last"),
    "the mask forgets where its block begins": ("last_key - block * p.block_n", "last_key - 0"),
    "keys past the end count": ("gl.minimum(row + self.diagonal, self.n_keys - 1)", "row + self.diagonal"),
    "all keys of the last block count": ("row * 0 + (self.n_keys - 1)", "row * 0 + self.n_keys"),
    "the mask begins a block late": ("return self.n_keys // self.block_n", "return tile.blocks"),
    "the diagonal begins a block late": (
        "gl.maximum(keys, 0) // self.block_n",
        "gl.maximum(keys + 3, 0) // self.block_n",
    ),
    "a half tile begins where the tile does": ("first_row + self.diagonal + 1", "tile.first_row + self.diagonal + 5"),
    "the last keys are left out": ("(end_key + self.block_n - 1)", "end_key"),
    "the last rows are left out": ("(self.n_queries + self.block_m - 1)", "self.n_queries"),
    "an empty tile visits no block": ("gl.minimum(end_row + self.diagonal, self.n_keys), 1)", "end_row * 0, 0)"),
    "the last tile is as long as a full one": (
        "gl.minimum(end_row + self.diagonal, self.n_keys)",
        "end_row + self.diagonal",
    ),
    "the diagonal is forgotten": ("gl.minimum(end_row + self.diagonal,", "gl.minimum(end_row,"),
    "a masked score is no zero": ("scores, 0, row_max", "scores, p.fma_parts, row_max"),
    "the maximum of no key is infinite": ("gl.constexpr(-1e38)", 'gl.constexpr(-float("inf"))'),
    "a row that saw nothing divides by zero": ("gl.where(total == 0.0, 0.0, 1.0 / total)", "1.0 / total"),
    "a query head takes the next key head": ("head // self.group", "(head + 1) % self.heads // self.group"),
    "heads are counted through the batch": ("batch_head % self.heads", "batch_head % (self.heads + 1)"),
    "K comes from the first batch entry": ("at_keys = [tile.batch,", "at_keys = [0,"),
    "O goes to the wrong head": ("[tile.batch, tile.head, row, part", "[tile.batch, tile.kv_head, row, part"),
    "the old sum is not scaled": ("return row_sum * shrink + gl", "return row_sum + gl"),
    "fewer bytes are announced": ("desc.block_type.nbytes)", "desc.block_type.nbytes // 2)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_host_model_finds_a_broken_kernel(name):
    """Mutation check: with one line of the kernel broken, some interleaving must fail."""
    old, new = MUTANTS[name]
    edited = set()

    def edit(file, source):
        if old in source:
            edited.add(file)
        return source.replace(old, new)

    def fails(seed):
        n_queries, n_keys = ((16, 16), (11, 5), (5, 11), (20, 9), (16, 8))[seed % 5]
        size = Problem(
            batch=2, heads=2, kv_heads=1 + seed % 2, n_queries=n_queries, n_keys=n_keys,
            causal=ALIGNMENTS[seed % 3], exp_turns=bool(seed & 2),
        )  # fmt: skip
        try:
            return not worst_error(seed, size, edit) < 1e-9
        except (ProtocolError, ValueError, IndexError, ZeroDivisionError, OverflowError):
            return True

    assert any(fails(seed) for seed in range(40))
    assert len(edited) == 1, "the mutant must change one file"


# --- assembled by Triton


@pytest.fixture(scope="module")
def compile_offline(tmp_path_factory):
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels import compile_offline

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))
        yield compile_offline


@pytest.mark.parametrize("config", CONFIGS, ids=describe)
def test_assembles_with_the_instructions_of_the_design(compile_offline, config, capfd):
    kernel = compile_offline(config)
    ptx = kernel.asm["ptx"]

    assert kernel.metadata.name == config.name
    assert re.findall(r"\.entry\s+([\w$]+)", ptx) == [config.name]
    assert re.search(r"^\.target sm_100a", ptx, re.M)
    assert kernel.metadata.shared <= config.shared_bytes

    # K of one MMA is 32 bytes; S is issued before and in the block loop, P V in and after it, for two halves.
    k = 32 // config.element_bytes
    assert len(re.findall(r"tcgen05\.mma\.", ptx)) == 4 * (config.head_dim // k) + 4 * (config.block_n // k)
    assert len(re.findall(r"tcgen05\.alloc\.", ptx)) == 1
    # TMA: Q twice, K, V, in boxes of at most 128 swizzled bytes a row; O in parts of two halves.
    boxes = max(1, config.head_dim * config.element_bytes // 128)
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.4d\.shared", ptx)) == 4 * boxes
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.4d\.global", ptx)) == 2 * config.out_parts
    # Rings q, kv, o, scales, out, turns have two barriers a slot; s_ready and p_ready one a half.
    rings = 2 + config.stages + 2 + 2 * SCALE_SLOTS + 2 + 1
    assert len(re.findall(r"mbarrier\.init", ptx)) == 2 * rings + 4
    assert ("add.rn.f32x2" in ptx) == config.packed_row_sum
    assert "C75" not in capfd.readouterr().err


# What a thread does to memory that others use, and the barriers after which all threads of its partition have done so.
ACCESS = r"(tcgen05\.(?:ld|st)\b|(?:ld|st)\.shared|(?:ld|st)matrix|cp\.async\.bulk\.tensor\S*global\.shared)"
JOINED = r"(bar\.sync|barrier\.cta|cp\.async\.bulk\.wait_group\.read)"


def early_arrivals(ptx: str) -> list[str]:
    """Arrivals that one thread makes while others of its partition may still be at work on the memory it hands over.

    One thread arrives for four warps: between their last access and its arrival there must be a barrier of theirs;
    in the epilogue, whose one warp reads through TMA, the wait for these reads. A store to tensor memory has to be
    waited for before that."""
    early, last, storing = [], "", False
    for line in ptx.splitlines():
        if re.search(ACCESS, line) or re.search(JOINED, line):
            last = line
            storing |= "tcgen05.st." in line
        elif "tcgen05.wait::st" in line:
            storing = False
        elif re.search(r"mbarrier\.arrive\.shared", line) and (storing or not re.search(JOINED, last)):
            early.append(line)
    return early


@pytest.mark.parametrize("config", CONFIGS[-2:], ids=describe)
def test_a_partition_arrives_when_all_its_threads_are_done(compile_offline, config):
    ptx = compile_offline(config).asm["ptx"]
    assert len(re.findall(r"mbarrier\.arrive\.shared", ptx)) > 20
    assert early_arrivals(ptx) == []
    # Mutation check.
    assert early_arrivals(re.sub(r"bar\.sync[^;]*;", "", ptx))
    assert early_arrivals(ptx.replace("tcgen05.wait::st", "tcgen05.wait::ld"))


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (AttentionConfig(), 0),
        (AttentionConfig(packed_row_sum=True), 0),
        (AttentionConfig(causal=True), 4),
    ],
    ids=lambda value: describe(value) if isinstance(value, AttentionConfig) else str(value),
)
def test_spills_stay_few(compile_offline, tmp_path, config, most):
    """A softmax thread holds 128 scores in 192 registers. `most`: bytes stored, worst of Triton 3.6-3.9."""
    from triton.backends.nvidia.compiler import get_ptxas

    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(compile_offline(config).asm["ptx"].rstrip("\0"))
    command = [get_ptxas(100).path, "-v", "--gpu-name=sm_100a", ptx, "-o", tmp_path / "kernel.cubin"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.search(r"(\d+) bytes spill stores", log)[1]) <= most
    assert "warning" not in log.lower()


@pytest.mark.parametrize(
    ("dtype", "head_dim", "causal"), [("fp16", 128, True), ("bf16", 64, False), ("fp8e4nv", 128, True)]
)
def test_the_default_config_spills_nothing_in_its_loops_over_key_blocks(compile_offline, dtype, head_dim, causal):
    """Softmax (exp2) and correction (TMEM to TMEM); what is spilled elsewhere costs once per tile."""
    from triton.backends.nvidia.compiler import get_ptxas

    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain

    config = default_config(100, dtype, head_dim, causal=causal, n_queries=1000, n_keys=1000)
    toolchain = find_toolchain(get_ptxas(100).path)
    cubin = toolchain.assemble_or_raise(Ptx(compile_offline(config).asm["ptx"])).cubin
    sass = toolchain.disassemble(cubin)[0][config.name]
    counts = [sass.opcode_counts(loop.instructions) for loop in sass.innermost_loops]
    softmax = [c for c in counts if c["MUFU"] > config.block_n // 2]
    correction = [c for c in counts if c["LDTM"] and c["STTM"] and not c["MUFU"]]
    assert (len(softmax), len(correction)) == (4, 1)  # open and masked loop of each half
    assert not any(c["LDL"] + c["STL"] for c in softmax)
    # Triton 3.7 and 3.9: one address is read again.
    assert correction[0]["LDL"] + correction[0]["STL"] <= 1


def sections(cubin: bytes) -> dict[str, bytes]:
    elf = pytest.importorskip("elftools.elf.elffile", reason="requires pyelftools")
    return {section.name: section.data() for section in elf.ELFFile(BytesIO(cubin)).iter_sections()}


@pytest.mark.parametrize("packed", [False, True], ids=["scalar", "packed"])
def test_only_the_scalar_row_sum_is_rescheduled_under_a_cutlass_name(compile_offline, packed):
    """The reason for the kernel's two row sums: .nv.capmerc grows threefold, or hardly."""

    def code_and_capmerc(name):
        cubin = sections(compile_offline(packed_row_sum=packed, name=name).asm["cubin"])
        return cubin[f".text.{name}"], len(cubin[f".nv.capmerc.text.{name}"])

    plain, plain_capmerc = code_and_capmerc("attention_fwd")
    control, control_capmerc = code_and_capmerc("cutlasz_attention_fwd")
    cutlass, cutlass_capmerc = code_and_capmerc("cutlass_attention_fwd")

    assert control == plain and control_capmerc == plain_capmerc
    assert cutlass != plain
    if packed:
        assert cutlass_capmerc < 2.5 * plain_capmerc
    else:
        assert cutlass_capmerc > 2.8 * plain_capmerc


def test_the_name_is_part_of_the_compile_hash(compile_offline, monkeypatch):
    from gluon_kernels import attention_blackwell
    from gluon_kernels.offline import attention_source

    plain, other = (attention_source(AttentionConfig(name=name)) for name in ("plain", "other"))
    assert plain.hash() != other.hash()
    assert plain.hash() == attention_source(AttentionConfig(name="plain")).hash()

    # Mutation check: with the name in `repr` alone both would have one hash, and the cache would mix them up.
    unnamed = {**attention_blackwell.constexprs(AttentionConfig()), "NAME": ""}
    monkeypatch.setattr(attention_blackwell, "constexprs", lambda config: unnamed)
    plain, other = (attention_source(AttentionConfig(name=name)) for name in ("plain", "other"))
    assert plain.hash() == other.hash()


def test_an_unfit_config_is_refused_before_triton_sees_it(compile_offline):
    with pytest.raises(ValueError, match="arch 90: tcgen05"):
        compile_offline(arch=90)
    with pytest.raises(ValueError, match="head_dim 80"):
        compile_offline(head_dim=80)


def test_an_old_triton_is_refused_with_a_sentence():
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels.gluon_api import why_not_triton

    assert "install triton>=3.6" in why_not_triton("3.5.1")
    assert why_not_triton("3.6.0") is None
    assert why_not_triton("3.10.0+git1234") is None


# --- launcher


@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (FakeTensor(shape=(1, 3, 256, 64)), ValueError, "k has shape .1, 3, 256, 64., q .*a multiple of k's"),
        (FakeTensor(shape=(2, 2, 256, 64)), ValueError, "batch and head_dim must be equal"),
        (FakeTensor(shape=(1, 2, 256, 128)), ValueError, "batch and head_dim must be equal"),
        (FakeTensor(shape=(1, 0, 256, 64)), ValueError, "k has shape .1, 0, 256, 64., q .*a multiple of k's"),
        (FakeTensor(shape=(256, 64)), ValueError, "pass .batch, heads, length, head_dim."),
        (FakeTensor(dtype="torch.bfloat16"), TypeError, "k is torch.bfloat16, q is torch.float16"),
        (FakeTensor(device="cpu"), ValueError, "one CUDA device"),
        (FakeTensor(strides=(32768, 16384, 1, 256)), ValueError, r"stride 256: call k.contiguous\(\)"),
        (FakeTensor(strides=(32768, 16384, 68, 1)), ValueError, "TMA steps 16 bytes"),
        (FakeTensor(strides=(32768, 0, 64, 1)), ValueError, "TMA steps 16 bytes"),
        (FakeTensor(address=8), ValueError, "16-byte aligned"),
    ],
)
def test_the_launcher_says_what_is_wrong_with_a_tensor(k, error, message):
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels.attention_blackwell import check_tensors

    q = FakeTensor()
    with pytest.raises(error, match=message):
        check_tensors(q, k, k)
    with pytest.raises(TypeError, match="q is torch.float32"):
        check_tensors(*[FakeTensor(dtype="torch.float32")] * 3)
    with pytest.raises(ValueError, match="v has shape"):
        check_tensors(q, q, FakeTensor(shape=(1, 2, 257, 64)))
    with pytest.raises(ValueError, match="32 bits"):
        check_tensors(*[FakeTensor(shape=(2**10, 2**10, 2**11, 64))] * 3)


def test_the_launcher_takes_other_lengths_shared_heads_and_transposed_tensors():
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels.attention_blackwell import check_tensors
    from gluon_kernels.tensors import tma_strides

    q = FakeTensor(shape=(2, 8, 100, 64), strides=(51200, 64, 512, 1))  # stored as [batch, length, heads, head_dim]
    k = FakeTensor(shape=(2, 2, 33, 64))
    assert check_tensors(q, k, k) == "fp16"
    assert tma_strides(q.shape, q.strides) == [51200, 64, 512, 1]
    # A single head or row is never stepped over, so torch may give it any stride; TMA wants a multiple of 16 bytes.
    one = FakeTensor(shape=(1, 1, 1, 64), strides=(7, 7, 7, 1))
    assert check_tensors(one, one, one) == "fp16"
    assert tma_strides(one.shape, one.strides) == [64, 64, 64, 1]


@pytest.fixture
def launch(monkeypatch):
    """attention(...) without a GPU: its result, and the grid and arguments of the kernel by name."""
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels import attention_blackwell

    launches = []
    names = attention_blackwell.attention_kernel.arg_names

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: launches.append((grid, dict(zip(names, args, strict=False)) | kwargs))

    monkeypatch.setattr(attention_blackwell, "attention_kernel", Kernel())
    monkeypatch.setattr(attention_blackwell, "descriptor", lambda x, dtype, box: (x, dtype, box))
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())

    def run(q, k, v, **options):
        launches.clear()
        result = attention_blackwell.attention(q, k, v, **options)
        ((grid, arguments),) = launches
        assert arguments.keys() == {*names, *attention_blackwell.COMPILE_OPTIONS}
        return result, grid, arguments

    return run


def test_a_launch_passes_the_problem(launch):
    q, k = FakeTensor((2, 8, 300, 128)), FakeTensor((2, 2, 1000, 128))
    (o, lse), grid, arguments = launch(q, k, k, causal="bottom-right", return_lse=True, name="cutlass_attention_fwd")

    assert (o.shape, o.dtype) == (q.shape, q.dtype) and (lse.shape, lse.dtype) == (q.shape[:3], "torch.float32")
    assert grid == (2 * 8 * 2,)
    expected = {"batch_heads": 16, "heads": 8, "group": 4, "n_queries": 300, "n_keys": 1000, "diagonal": 700}
    assert expected.items() <= arguments.items()
    assert arguments["scale"] == pytest.approx(128**-0.5)
    assert arguments["NAME"] == "cutlass_attention_fwd" and arguments["CAUSAL"] and arguments["RAGGED"]
    assert arguments["k_desc"][0] is k and arguments["o_desc"][0] is o


def test_a_launch_takes_as_many_programs_as_there_are_sms_or_tiles(launch):
    q = FakeTensor((4, 16, 1024, 64), "torch.float8_e5m2")
    o, grid, arguments = launch(q, q, q, causal="top-left", scale=0.5)
    assert grid == (100,)
    assert (arguments["diagonal"], arguments["scale"], arguments["RAGGED"]) == (0, 0.5, False)
    assert (o.dtype, arguments["o_desc"][1]) == ("torch.bfloat16", "bf16")
    config = AttentionConfig("fp8e5", 64)
    o, _, arguments = launch(q, q, q, config=config)
    assert (o.dtype, arguments["o_desc"][1]) == ("torch.float8_e5m2", "fp8e5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": True}, "causal True: None, 'top-left' or 'bottom-right'"),
        ({"causal": "lower"}, "causal 'lower'"),
        ({"scale": 0}, "scale 0.0: must be positive"),
        ({"scale": math.nan}, "scale nan: must be positive"),
        ({"config": AttentionConfig("fp16", 64)}, "n_queries 100: not a multiple of 256"),
        ({"config": AttentionConfig("bf16", 64)}, "config.dtype is 'bf16': these arguments need 'fp16'"),
        ({"config": AttentionConfig("fp16", 128)}, "config.head_dim is 128"),
        ({"config": AttentionConfig("fp16", 64, causal=True)}, "config.causal is True: these arguments need False"),
        ({"name": "two words"}, "name 'two words': Triton wants letters"),
    ],
)
def test_a_launch_refuses_what_the_kernel_cannot_do(launch, options, message):
    q = FakeTensor((1, 1, 100, 64))
    with pytest.raises(ValueError, match=message):
        launch(q, q, q, **options)


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("lengths", [(1024, 1024), (1, 1000), (1000, 17), (129, 129)], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_matches_the_reference_on_a_gpu(dtype, head_dim, lengths, causal):
    torch = pytest.importorskip("torch", reason="requires torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10:
        pytest.skip("requires an sm_100 GPU")
    from gluon_kernels import attention_reference
    from gluon_kernels.attention_blackwell import attention

    torch.manual_seed(0)
    n_queries, n_keys = lengths
    sizes = ((6, n_queries), (2, n_keys), (2, n_keys))
    q, k, v = (torch.randn(2, *size, head_dim, device="cuda").to(getattr(torch, dtype)) for size in sizes)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected_o, expected_lse = attention_reference(q, k, v, causal=causal)
    # e5m2 keeps 2 bits of mantissa of each probability, e4m3 keeps 3.
    tolerance = {"float16": 5e-3, "bfloat16": 2e-2, "float8_e5m2": 0.25, "float8_e4m3fn": 0.12}[dtype]
    torch.testing.assert_close(o.float(), expected_o.float(), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse, expected_lse.float(), atol=1e-3, rtol=1e-3)
