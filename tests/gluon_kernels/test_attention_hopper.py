"""The Hopper attention kernel: what it accepts, that it assembles as designed, and, on a GPU, that it is right."""

import itertools
import math
import re
import struct
import subprocess
import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from fake_torch import FakeTensor, FakeTorch
from hopper_model import SOURCE, Problem, ProtocolError, run
from ptx_words import Ptx, selected

from gluon_kernels.codes import CODES, LINE_BITS
from gluon_kernels.config import SHARED_BYTES
from gluon_kernels.config_hopper import (
    CAUSAL,
    TILE_OVERHEAD_BLOCKS,
    HopperConfig,
    candidates,
    consumer_blocks,
    default_config,
    shift,
    tile_order,
    tile_work,
)
from gluon_kernels.exp2 import softmax_exp2_asm

FP8 = "torch.float8_e4m3fn"
DTYPES = ("bf16", "fp16", "fp8e4nv", "fp8e5")


# --- config


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", CAUSAL)
def test_default_configs_and_candidates_fit_hopper(dtype, head_dim, causal):
    config = default_config(90, dtype, head_dim, causal)
    assert config.why_not(90) is None
    found = list(candidates(config, 90))
    assert found[0] == config
    assert 1 < len(found) == len(set(found))
    for one in found:
        assert one.why_not(90) is None
        assert not (one.q_early and one.shared_out), "the next Q would be loaded over O"
        assert (one.dtype, one.head_dim, one.causal, one.name) == (dtype, head_dim, causal, config.name)
    assert {one.guess for one in found} == {False, True}


@pytest.mark.parametrize(
    ("head_dim", "causal", "queries", "fields"),
    [
        (128, None, 255, {"guess": False, "codes": False, "consumers": 2, "turns": False, "keep_q": False}),
        (128, None, 256, {"overlap": True, "turns": True, "q_early": False, "consumer_registers": 232}),
        (128, "top-left", 1024, {"overlap": True, "turns": False, "q_early": False}),
        (128, "top-left", 4096, {"overlap": True, "turns": True}),
        (64, None, 1, {"guess": False, "codes": False, "consumers": 2, "keep_q": False}),
        (64, None, 1024, {"overlap": True, "consumers": 2, "turns": True, "uneven": False}),
        (64, None, 4096, {"consumers": 3, "turns": True, "keep_q": False, "consumer_registers": 160}),
        (64, "top-left", 4096, {"overlap": True, "consumers": 2, "turns": True}),
        (64, "top-left", 8192, {"consumers": 3, "turns": True, "keep_q": False, "uneven": True}),
        (256, None, 4096, {"overlap": False, "turns": True, "keep_q": False, "consumer_registers": 240}),
        (256, "top-left", 256, {"overlap": False, "turns": True, "keep_q": False, "q_early": False}),
        (256, "top-left", 255, {"guess": False, "codes": False}),
    ],
)
def test_fp8_takes_what_was_fastest_and_exact_maxima_for_few_rows(head_dim, causal, queries, fields):
    config = default_config(90, "fp8e4nv", head_dim, causal, queries)
    many = queries >= 256
    guess = many and head_dim < 256
    rough = {"codes": many, "guess": guess, "int_max": many and not guess, "overlap": guess, "keep_q": many}
    wanted = rough | {"by_fma": 0, "block_n": 128} | fields
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert config.transpose_v == (head_dim < 256)
    with_lse = default_config(90, "fp8e4nv", head_dim, causal, queries, lse=True)
    assert (with_lse.codes, with_lse.overlap, with_lse.guess) == (False, False, guess)
    assert with_lse.int_max == (many and head_dim == 256)
    assert with_lse.by_fma == ({64: 2, 128: 1}[head_dim] if guess else 0)
    assert (with_lse.consumers, with_lse.block_n, with_lse.keep_q) == (config.consumers, 128, False)


@pytest.mark.parametrize(
    ("head_dim", "causal", "queries", "fields"),
    [
        (64, None, 1024, {"consumers": 2, "guess": True, "keep_q": True, "turns": True, "uneven": False}),
        (64, None, 2048, {"consumers": 3, "int_max": True, "turns": True, "uneven": True, "ordered": True}),
        (64, "top-left", 4095, {"consumers": 2, "guess": True, "keep_q": True, "turns": True, "ordered": True}),
        (64, "bottom-right", 4096, {"consumers": 3, "int_max": True, "keep_q": False, "turns": True, "uneven": True}),
        (128, None, 1024, {"guess": True, "turns": False, "uneven": False, "ordered": False}),
        (128, "top-left", 1024, {"guess": True, "turns": True, "q_early": True, "ordered": True, "uneven": False}),
        (128, "top-left", 2048, {"guess": True, "turns": False, "keep_q": False}),
        (256, None, 4096, {"guess": True, "block_n": 64, "uneven": False, "ordered": False}),
        (256, "top-left", 4096, {"guess": True, "block_n": 64, "uneven": True, "q_early": False}),
    ],
)
def test_sixteen_bits_take_what_was_fastest(head_dim, causal, queries, fields):
    for dtype in ("bf16", "fp16"):
        config = default_config(90, dtype, head_dim, causal, queries)
        assert {name: getattr(config, name) for name in fields} == fields
        assert not config.overlap and config.guess != config.int_max
        assert config == default_config(90, dtype, head_dim, causal, queries, lse=True)


def test_two_consumers_leave_registers_to_the_warps_that_transpose_for_codes():
    codes = HopperConfig("fp8e4nv", guess=True, codes=True, transpose_v=True)
    assert codes.consumer_registers == 232
    for other in ({"codes": False}, {"transpose_v": False}):
        assert replace(codes, **other).consumer_registers == 240, other
    three = replace(codes, head_dim=64, consumers=3)
    assert three.consumer_registers == 160 and three.why_not(90) is None


def test_codes_take_shared_memory_for_their_ones_and_keep_what_few_keys_guess():
    codes = HopperConfig("fp8e4nv", guess=True, codes=True, kv_stages=2)
    assert codes.shared_bytes == replace(codes, codes=False).shared_bytes + 8 * 128
    assert (codes.margin_bits, codes.head_bits) == (0, 5)
    assert (replace(codes, dtype="fp8e5").margin_bits, replace(codes, dtype="fp8e5").head_bits) == (3, 7)
    assert (replace(codes, codes=False).margin_bits, replace(codes, codes=False).head_bits) == (3, 3)


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: wgmma exists on sm_90 only"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of"),
        ({"head_dim": 96}, 90, "head_dim 96: not one of 64, 128, 256"),
        ({"causal": True}, 90, "causal True: not None, 'top-left' or 'bottom-right'"),
        ({"consumers": 4}, 90, "consumers 4: 2 or 3 warpgroups"),
        ({"block_n": 96}, 90, "block_n 96: 64, 128 or 256"),
        ({"consumers": 3}, 90, "160 registers for the tiles of block_n 128: a thread of 3 consumers has 160"),
        ({"head_dim": 256}, 90, "224 registers for the tiles of block_n 128"),
        ({"kv_stages": 1}, 90, "kv_stages 1: 2 to 4, there is a named barrier for each"),
        ({"kv_stages": 5, "head_dim": 64}, 90, "kv_stages 5: 2 to 4"),
        ({"kv_stages": 3}, 90, "shared bytes for 3 kv_stages: a CTA has 232448"),
        ({"guess": True, "dtype": "fp8e4nv", "block_n": 256, "head_dim": 64}, 90, "block_n 256: with guess 64 or 128"),
        ({"by_fma": 2}, 90, "by_fma 2: 0 to 16, and 0 without guess"),
        ({"guess": True, "by_fma": 17}, 90, "by_fma 17: 0 to 16"),
        ({"codes": True, "guess": True}, 90, "codes with bf16: they are of fp8"),
        ({"transpose_v": True, "dtype": "fp8e4nv", "head_dim": 64, "block_n": 256}, 90, "256: transpose_v writes rows"),
        ({"transpose_v": True, "dtype": "fp8e4nv", "head_dim": 256}, 90, "kv_stages 1: 2 to 4"),
        ({"consumers": 3, "head_dim": 64, "keep_q": True}, 90, "144 registers for the tiles of block_n 128"),
        ({"overlap": True}, 90, "overlap without guess"),
        ({"keep_q": True, "head_dim": 256, "block_n": 64}, 90, "240 registers for the tiles of block_n 64"),
        ({"int_max": True, "guess": True}, 90, "int_max with guess: it looks for maxima only where"),
        ({"transpose_v": True}, 90, "transpose_v with bf16: wgmma reads V of 16 bits as it is"),
        (
            {"guess": True, "overlap": True, "dtype": "fp8e4nv", "head_dim": 256},
            90,
            "224 registers for the tiles of block_n 128",
        ),
        ({"name": "two words"}, 90, "name 'two words': Triton wants letters"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(HopperConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_stages_fill_shared_memory_but_no_more():
    config = HopperConfig(dtype="fp8e4nv", head_dim=256, block_n=128)
    assert config.stages == 2
    assert config.shared_bytes <= SHARED_BYTES < replace(config, kv_stages=3).shared_bytes


def test_fp8_probabilities_stay_in_the_range_of_the_type():
    for dtype, largest in (("fp8e4nv", 448), ("fp8e5", 57344)):
        config = HopperConfig(dtype=dtype)
        assert largest / 4 < 2 ** (config.head_bits + config.lazy_bits) < largest
        assert 2 ** (replace(config, guess=True, codes=True).head_bits + 3) < largest
    assert HopperConfig().head_bits == 0


@pytest.mark.parametrize(
    ("dtype", "largest"), [("fp8e4nv", 448), ("fp8e5", 57344), ("fp16", 65504), ("bf16", 2.0**127)]
)
def test_guessed_probabilities_stay_in_range_and_a_true_maximum_is_never_doubted(dtype, largest):
    config = HopperConfig(dtype=dtype, guess=True)
    assert 128 / 4 * 2**config.head_bits <= config.most_lane_sum <= largest


# --- the order of causal tiles


@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize(
    ("heads", "heads_per_kv", "rows", "keys", "causal"),
    [
        (64, 1, 4096, 4096, "top-left"),
        (64, 1, 4096, 4096, "bottom-right"),
        (16, 8, 16384, 16384, "top-left"),
        (24, 4, 1000, 4000, "bottom-right"),
        (24, 4, 4000, 1000, "bottom-right"),
        (1, 1, 1, 1, "top-left"),
        (256, 1, 1024, 1024, None),
    ],
)
def test_each_tile_is_taken_once_and_no_cta_has_much_more_to_do(heads, heads_per_kv, rows, keys, causal, consumers):
    config = HopperConfig(head_dim=64, causal=causal, consumers=consumers)
    tiles_m = -(-rows // config.block_m)
    programs = min(132, heads * tiles_m)
    order = tile_order(config, heads, heads_per_kv, rows, keys, programs)
    assert sorted(order) == list(range(heads * tiles_m))

    work = [0] * programs
    for i, tile in enumerate(order):
        work[i % programs] += tile_work(config, tile // heads, rows, keys) + TILE_OVERHEAD_BLOCKS
    longest = max(tile_work(config, m, rows, keys) for m in range(tiles_m)) + TILE_OVERHEAD_BLOCKS
    mean = sum(work) / programs
    assert max(work) <= mean + longest / 2 or programs == len(order)
    if heads == 64:
        assert max(work) < 1.03 * mean


@pytest.mark.parametrize(
    ("dtype", "head_dim", "keys", "heads_per_kv", "round_heads", "heads"),
    [
        ("bf16", 128, 4096, 1, 4, 4),
        ("bf16", 128, 1024, 1, 16, 16),
        ("bf16", 256, 4096, 1, 4, 4),  # 2 fit, a round has 4
        ("bf16", 128, 4096, 4, 4, 16),  # each K and V serves four
        ("fp8e4nv", 64, 4096, 1, 4, 16),
        ("bf16", 128, 2**20, 2, 0, 2),
        ("bf16", 128, 2**20, 4, 5, 8),
    ],
)
def test_heads_are_taken_together_whose_k_and_v_stay_in_the_cache(
    dtype, head_dim, keys, heads_per_kv, round_heads, heads
):
    config = HopperConfig(dtype, head_dim, "top-left")
    assert config.section(keys, heads_per_kv, round_heads) == heads


def test_the_first_tiles_are_of_the_first_heads_only():
    config = HopperConfig("bf16", 256, "top-left", block_n=64)
    order = tile_order(config, 32, 1, 4096, 4096, 132)
    # K and V of 2 heads have 8 MiB; a round of 132 tiles is 4 heads and 4 tiles.
    assert sum(tile % 32 < 4 for tile in order[:132]) == 128
    assert {tile % 32 for tile in order[:132]} == {0, 1, 2, 3, 4, 5, 6, 7}, "the longest of the next four"


@pytest.mark.parametrize("consumers", [2, 3])
def test_blocks_of_a_consumer_cover_what_its_rows_see_and_few_more(consumers):
    for causal, rows, keys in product(CAUSAL, (1, 127, 129, 300, 1000), (1, 64, 129, 1000)):
        config = HopperConfig(head_dim=64, causal=causal, consumers=consumers)
        for m, i in product(range(-(-rows // config.block_m)), range(consumers)):
            first = m * config.block_m + i * 64
            blocks = consumer_blocks(config, m, i, rows, keys)
            if first >= rows:
                assert blocks == 1 or consumers == 2
                continue
            end = min(rows, first + 64)
            seen = max(0, min(keys, end + shift(causal, rows, keys))) if causal else keys
            assert seen <= blocks * config.block_n
            assert (blocks - 1) * config.block_n <= max(0, seen + (first + 64 - end))
    assert tile_work(replace(HopperConfig(head_dim=64), consumers=3), 5, 1024, 1024) == (8 + 1 + 1) / 3
    causal = HopperConfig(head_dim=64, causal="top-left")
    assert tile_work(replace(causal, consumers=3), 0, 1024, 1024) == (1 + 1 + 2) / 3
    assert tile_work(causal, 1, 1024, 1024) == 2


# --- assembled by Triton


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels import attention_hopper

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))
        yield attention_hopper


ASSEMBLED = {
    "bf16-128": default_config(90, "bf16", 128, None),
    "fp16-128-causal": default_config(90, "fp16", 128, "bottom-right"),
    "bf16-64": default_config(90, "bf16", 64, None),
    "bf16-64-causal": default_config(90, "bf16", 64, "top-left"),
    "bf16-64-causal-short": default_config(90, "bf16", 64, "top-left", 1024),
    "bf16-256": default_config(90, "bf16", 256, None),
    "fp8-128": default_config(90, "fp8e4nv", 128, None),
    "fp8-128-causal": default_config(90, "fp8e4nv", 128, "top-left"),
    "fp8-64": default_config(90, "fp8e5", 64, None),
    "fp8-128-lse": default_config(90, "fp8e4nv", 128, None, lse=True),
    "fp8-64-lse": default_config(90, "fp8e4nv", 64, None, lse=True),
    "fp8-64-long-causal": default_config(90, "fp8e4nv", 64, "top-left", 16384),
    "fp8-256-causal-lse": default_config(90, "fp8e5", 256, "top-left", lse=True),
    "fp8-256-causal": default_config(90, "fp8e5", 256, "top-left"),
}
# Bytes of spill stores, the most of Triton 3.6 to 3.9: three consumers of 160 registers have none to spare, and D256 as
# little. The loading partition has 24 to 40, too few to transpose V without.
MOST_SPILLED = {
    "bf16-128": 24,
    "bf16-256": 32,
    "fp8-128": 32,
    "fp8-64": 192,
    "fp8-64-long-causal": 192,
    "fp8-128-lse": 32,
    "fp8-256-causal-lse": 16,
    "fp8-256-causal": 32,
}
# Of these, how many instructions stand in the loop over keys.
MOST_IN_LOOP = {"fp8-64": 14, "fp8-64-long-causal": 14}


@pytest.mark.parametrize("which", ASSEMBLED)
def test_assembles_as_designed(kernel, tmp_path, which):
    from triton.backends.nvidia.compiler import get_ptxas

    config = ASSEMBLED[which]
    if config.codes and not kernel.codes_fit(config.head_dim):
        pytest.skip("as this Triton writes it, ptxas serializes the MMAs: attention takes another form")
    compiled = kernel.compile_offline(config)
    ptx = compiled.asm["ptx"].rstrip("\0")
    assert compiled.metadata.name == config.name
    assert re.search(r"^\.target sm_90a", ptx, re.M)
    assert compiled.metadata.shared <= config.shared_bytes

    source, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_text(ptx)
    command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", source, "-o", cubin]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.search(r"(\d+) bytes spill stores", log)[1]) <= MOST_SPILLED.get(which, 0)
    assert "C75" not in log, "the wgmma are serialized"
    assert "setmaxnreg" not in log, "setmaxnreg is ignored"

    # Of each consumer: scores before and in the loop over keys, values in and after it; K of one wgmma is 32 bytes.
    k = 32 // config.element_bytes
    scores, values = config.head_dim // k, config.block_n // k
    opcodes = sass(cubin)
    mma = "QGMMA" if config.fp8 else "HGMMA"
    sums = values if config.codes else 0
    assert sum(op.startswith(mma) for op in opcodes) == 2 * (scores + values + sums) * config.consumers
    assert sum(op.startswith(f"{mma}.64x8x32") for op in opcodes) == 2 * sums * config.consumers
    # setmaxnreg: producer down, each consumer up; Triton's own around them.
    registers = {int(n) for n in re.findall(r"setmaxnreg\.inc\.sync\.aligned\.u32\s+(\d+)", ptx)}
    assert config.consumer_registers in registers
    # Each block of V is transposed in the loop and after it, by four warps: 16 bytes of a thread are one ldmatrix.
    transposing = sum(op.startswith("LDSM") and ".MT" in op for op in opcodes)
    assert transposing == (2 * config.block_n * config.head_dim // (128 * 16) if config.transpose_v else 0)
    check_overlap(opcodes, config, scores + values + sums, mma, MOST_IN_LOOP.get(which, 0))


def sass(cubin) -> list[str]:
    """Opcodes with their modifiers, and branches' targets, in order."""
    from triton import knobs

    text = subprocess.run([knobs.nvidia.nvdisasm.path, "-c", cubin], capture_output=True, text=True, check=True).stdout
    opcodes = []
    for line in text.splitlines():
        match = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(.*?)\s*;", line)
        if match:
            opcodes.append(" ".join(match[1].split()))
    return opcodes


def check_overlap(opcodes: list[str], config: HopperConfig, loop_mmas: int, mma: str, spills: int) -> None:
    """In the loop over keys scores are searched between the wait for them and the wait for the values.

    Exponentials stand there with overlap, else behind the wait for the values.
    """
    waits = [i for i, op in enumerate(opcodes) if op.startswith("WARPGROUP.DEPBAR")]
    scores_waits = [i for i in waits if opcodes[i].endswith("0x2" if config.codes else "0x1")]
    assert len(scores_waits) == config.consumers

    def count(opcode: str, where: list[str]) -> int:
        return sum(op.startswith(opcode) for op in where)

    half = config.block_n // 2  # how many scores a thread has
    for i in scores_waits:
        values_wait, last_wait = [j for j in waits if j > i][:2]
        between = opcodes[i:values_wait]
        softmax = between if config.overlap else opcodes[values_wait:last_wait]
        assert count("FMNMX", softmax if config.guess else between) >= half
        # Of a row's block_n / 4 scores, one and then two at a time; floats are compared only where that does not do.
        assert count("VIMNMX3", between) == (2 * (config.block_n // 8 - 1) if config.int_max else 0)
        # With guess both those of the guess and those that are made when it was wrong; two rows' shrinking.
        exponentials = 0 if config.codes else half * (32 - config.by_fma) // 16 if config.guess else half
        assert exponentials <= count("MUFU.EX2", softmax) <= exponentials + 4
        assert config.overlap or not count("MUFU.EX2", between)
        assert not count(mma, between)
        assert count("LDL", between) + count("STL", between) <= spills
        # And before it, with no wait among them, all the MMAs of an iteration.
        before = max((j for j in waits if j < i), default=0)
        assert count(mma, opcodes[before:i]) >= loop_mmas


def test_the_name_is_part_of_the_compile_hash(kernel):
    one, other = (kernel.offline_source(HopperConfig(name=name)).hash() for name in ("one", "other"))
    assert one != other


def test_the_key_order_of_transposed_values_is_that_of_the_probabilities(kernel):
    """Mutation check included: without the permutation the orders differ."""
    key_of_column = kernel.key_of_column.fn
    for block, lane, half, i in product(range(8), range(4), range(2), range(2)):
        column = 16 * block + 4 * lane + 2 * half + i  # where wgmma looks in its left operand
        key = 16 * block + 8 * half + 2 * lane + i  # which score of its row that thread has there
        assert key_of_column(column) == key
    assert any(key_of_column(column) != column for column in range(16))


class Array:
    """Numbers or names in row-major order, with the few operations that the kernel's data movement needs."""

    def __init__(self, shape, values):
        self.shape, self.values = list(shape), list(values)
        assert math.prod(self.shape) == len(self.values)

    def at(self, *index):
        flat = 0
        for i, size in zip(index, self.shape, strict=True):
            flat = flat * size + i
        return self.values[flat]

    def reshape(self, shape):
        return Array(shape, self.values)

    def permute(self, *order):
        shape = [self.shape[axis] for axis in order]
        inverse = [order.index(axis) for axis in range(len(order))]
        return Array(shape, [self.at(*(i[axis] for axis in inverse)) for i in product(*map(range, shape))])

    def split(self):
        return Array(self.shape[:-1], self.values[::2]), Array(self.shape[:-1], self.values[1::2])


def join(a, b):
    return Array([*a.shape, 2], [x for both in zip(a.values, b.values, strict=True) for x in both])


def permuted_bytes(text, constraints, operands, dtype, is_pure, pack):
    """inline_asm_elementwise: prmt.b32 of two 16-bit neighbours each, along the second dimension; see rows_layout."""
    assert pack == 2
    selectors = [int(x, 16) for x in re.findall(r"prmt.b32 \$\d, \$2, \$3, (0x\d{4});", text)]
    a, b = operands
    outputs: list[dict] = [{} for _ in selectors]
    for i, t, pair in product(range(a.shape[0]), range(0, a.shape[1], 2), range(a.shape[2])):
        pool = [byte for x in (a, b) for neighbour in (t, t + 1) for byte in x.at(i, neighbour, pair)]
        for output, selector in zip(outputs, selectors, strict=True):
            taken = selected(pool, selector)
            output[i, t, pair], output[i, t + 1, pair] = tuple(taken[:2]), tuple(taken[2:])
    return [Array(a.shape, [x[i] for i in product(*map(range, a.shape))]) for x in outputs]


def transposed(kernel, monkeypatch, keys=32, head_dim=64, text=None):
    """What the loading partition makes of V: name of a byte for each row and column."""
    edit = text or (lambda x: x)
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, *rest, **named: permuted_bytes(edit(asm), *rest, **named),
        join=join, int16="int16", convert_layout=lambda x, layout, assert_trivial: x,
    )  # fmt: skip
    pairs = [((key, d), (key, d + 1)) for key in range(keys) for d in range(0, head_dim, 2)]
    stored = []
    rows = SimpleNamespace(shape=[keys, head_dim // 2], load=lambda layout: Array([keys, head_dim // 2], pairs))
    columns = SimpleNamespace(shape=[head_dim, keys // 2], store=stored.append)
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "gl", fake)
        patch.setattr(kernel, "rows_layout", lambda shape: None)
        patch.setattr(kernel, "columns_layout", lambda shape: None)
        kernel.transpose_part.fn(rows, columns)
    (out,) = stored
    return [[byte for c in range(keys // 2) for byte in out.at(r, c)] for r in range(head_dim)]


def test_transposed_rows_are_columns_in_the_order_of_the_probabilities_and_come_back_in_order(kernel, monkeypatch):
    rows = transposed(kernel, monkeypatch)
    order = kernel.in_order.fn(SimpleNamespace(transpose_v=True, head_dim=64), Array([64, 64], list(range(64)) * 64))
    for d, r in enumerate(order.values[:64]):  # column r of O, which is row r of the transposed V, goes to column d
        assert rows[r] == [(kernel.key_of_column.fn(column), d) for column in range(32)]
    first, second = kernel.rows_layout.fn([32, 32]), kernel.columns_layout.fn([64, 16])
    assert first.reg_bases[:2] == [[1, 0], [8, 0]], "a register has keys 2t, 2t + 1, the next 8 + 2t, 9 + 2t"
    assert second.lane_bases[2:] == [[1, 0], [2, 0], [4, 0]], "the eight rows of a stmatrix meet in no bank"


def test_another_permutation_of_bytes_is_found(kernel, monkeypatch):
    good = transposed(kernel, monkeypatch)
    for old, new in (("0x6420", "0x6240"), ("0x7531", "0x7351"), ("0x6420", "0x7531")):
        assert transposed(kernel, monkeypatch, text=lambda x, old=old, new=new: x.replace(old, new)) != good


# --- protocol, on the host model


def edited(old: str, new: str):
    def edit(source: str) -> str:
        return source.replace(old, new)

    return edit


def check_protocol(size: Problem, seed: int, programs: int, edit=lambda source: source) -> None:
    """Every tile is computed once, from the right blocks, whatever goes first; ProtocolError if not."""
    if size.causal or size.uneven:
        config = HopperConfig(causal="top-left" if size.causal else None, consumers=size.consumers)
        order = tile_order(config, size.heads, size.heads_per_kv, size.rows, size.keys, programs)
        size = replace(size, order=tuple(order))
    written = run(size, seed, programs, edit)
    tile = 64 * size.consumers
    rows = [row for first in range(0, size.rows, tile) for row in range(first, first + tile, 64)]
    assert sorted(written) == [(0, head, row, 0) for head in range(size.heads) for row in rows]
    for at, held in written.items():
        assert held[:2] == ("o", at[:3])


WAYS = ["searched", "searched-codes", "guessed", "guessed-codes", "guessed-overlap", "guessed-codes-overlap"]


@pytest.mark.parametrize("softmax", WAYS)
@pytest.mark.parametrize("transpose_v", [False, True], ids=["as-it-is", "transposed"])
@pytest.mark.parametrize("turns", [False, True], ids=["free", "turns"])
@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("stages", [2, 4])
def test_any_interleaving_computes_each_tile_from_its_blocks(softmax, turns, consumers, stages, transpose_v):
    ways = softmax.split("-")
    guess = "guessed" in ways
    for seed in range(4):
        shared_out, causal = bool(seed & 1), bool(seed & 2)
        keep_q = not shared_out and turns
        size = Problem(
            consumers, stages, turns, shared_out, causal, uneven=consumers == 3, guess=guess,
            overlap="overlap" in ways, codes="codes" in ways, keep_q=keep_q, transpose_v=transpose_v,
            q_early=guess and causal and not shared_out and not keep_q, keys=(500, 100)[seed % 2],
        )  # fmt: skip
        check_protocol(size, seed, programs=1 + seed % 3)


SCORES_WAIT = "scores = warpgroup_mma_wait(2 if p.codes else 1, deps=(scores_token,))"
FIRST_K_WAIT = "        mbarrier.wait(p.k_ready.index(k_at.slot), k_at.phase)\n"
MUTANTS = {
    "a K slot is refilled too early": ("    await_empty(p, 0, at, filled)\n", ""),
    "a V slot is refilled too early": ("    await_empty(p, p.stages, at, filled)\n", ""),
    "the first fills are waited for": ("if filled >= p.stages:", "if filled >= 0:"),
    "one fill is not waited for": ("if filled >= p.stages:", "if filled > p.stages:"),
    "the last arrivals are left": ("for i in range(gl.minimum(filled, p.stages)):", "for i in range(0):"),
    "K is handed back before it is read": (
        f"            {SCORES_WAIT}\n            hand_back(p, 0, k_at)\n",
        f"            hand_back(p, 0, k_at)\n            {SCORES_WAIT}\n",
    ),
    "scores are used before they are there": ("_wait(2 if p.codes else 1, deps", "_wait(3 if p.codes else 2, deps"),
    "the last sum is forgotten": ("            row_sum = plus(row_sum, sums)\n", ""),
    "a sum is shrunk too early": ("shrunk(plus(row_sum, sums), shrink)", "plus(shrunk(row_sum, shrink), sums)"),
    "a sum is not shrunk": ("shrunk(plus(row_sum, sums), shrink)", "plus(row_sum, sums)"),
    "ones are not fenced": ("ONE)\n        fence_async_shared()\n", "ONE)\n"),
    "ones are missing": ("        fill(ones_smem.index(0), ONE)\n", ""),
    "V is used before it is there": ("mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)\n", "pass\n"),
    "Q is used before it is there": ("        p.q.wait_ready(me, phase)\n", ""),
    "Q is replaced too early": ("            p.q.wait_empty(i, phase)\n", ""),
    "Q is replaced under the output": ("    if p.shared_out:\n        tma.store_wait(0)\n", "    if p.shared_out:\n"),
    "the output is overwritten": ("    tma.store_wait(0)\n    smem =", "    smem ="),
    "V is transposed before it is there": (
        "        mbarrier.wait(p.rows_ready.index(rows_at.slot), rows_at.phase)\n",
        "",
    ),
    "rows of V are loaded over those that are next": (
        "rows_at.next())\n            load_v",
        "rows_at)\n            load_v",
    ),
    "transposed V is not fenced": ("        fence_async_shared()\n        mbarrier", "        mbarrier"),
    "O is not fenced": ("    fence_async_shared()\n    tma_store", "    tma_store"),
    "the next Q is asked for too early": ("if p.q_early and block == 0", "if p.q_early and block == 1"),
    "a phase never flips": ("        phase ^= 1\n", ""),
    "turns are not primed": ('named_barrier("bar.arrive", FIRST_TURN, 2)', "pass"),
    "the last turn is left": ('named_barrier("bar.sync", FIRST_TURN, 2)', "pass"),
    "a block is forgotten": (
        "for i in range(1, blocks):\n            take",
        "for i in range(1, blocks - 1):\n            take",
    ),
    "blocks that a consumer leaves out are not waited for": (
        "        take_turn(p, me)\n        pass_turn(p, me)\n        mbarrier.wait(p.k_ready",
        "        take_turn(p, me)\n        pass_turn(p, me)\n        (p.k_ready",
    ),
    "a block left out is not handed back": (
        "        hand_back(p, p.stages, v_at)\n        v_at = v_at.next()\n    return",
        "        v_at = v_at.next()\n    return",
    ),
    "a turn of a block left out is not passed": ("        take_turn(p, me)\n        pass_turn(p, me)\n", ""),
    "too many blocks are left out": ("first_row + (me + 1) * ROWS)", "first_row + me * ROWS)"),
    "of rows that are none all blocks are computed": ("ROWS < self.rows, own, 1)", "ROWS < self.rows, own, own)"),
    "the first tile leaves nothing out": ("left_out = p.left_out(number, me)\n    for", "left_out = 0\n    for"),
    "Q is replaced before it is loaded": (
        "            q = q.load(left_layout(p.block_n, p.q_desc.dtype))\n            p.q.mark_empty(me)\n"
        f"{FIRST_K_WAIT}        take_turn",
        f"            p.q.mark_empty(me)\n{FIRST_K_WAIT}        if p.keep_q:\n            q = q.load(None)\n"
        "        take_turn",
    ),
    "Q is handed back twice": ("p.q_early or p.keep_q", "p.q_early"),
    "K and V share named barriers": ("await_empty(p, p.stages, at, filled)", "await_empty(p, 0, at, filled)"),
    "grouped heads take another's keys": ("head % self.heads // self.heads_per_kv", "head % self.heads % 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_host_model_finds_a_broken_protocol(name):
    """Mutation check: with one line of the kernel broken, some interleaving must fail."""
    old, new = MUTANTS[name]
    assert old in (SOURCE / "attention_hopper.py").read_text()

    def fails(seed):
        causal, shared_out, keep_q = bool(seed & 4), bool(seed & 2), not seed & 2 and bool(seed & 16)
        size = Problem(
            3 if seed & 16 else 2, 2, bool(seed & 1), shared_out, causal, uneven=bool(seed & 16), guess=bool(seed & 8),
            overlap=bool(seed & 8) and bool(seed & 4), codes=bool(seed & 8) and bool(seed & 1), keep_q=keep_q,
            transpose_v=bool(seed & 8), q_early=causal and not shared_out and not keep_q,
        )  # fmt: skip
        try:
            check_protocol(size, seed, 2, edited(old, new))
        except (ProtocolError, AssertionError):
            return True
        return False

    assert any(fails(seed) for seed in range(32))


# --- launcher


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": {"dtype": "torch.float32"}}, TypeError, "q is torch.float32: the kernel takes"),
        ({"q": {"shape": (256, 64), "strides": (64, 1)}}, ValueError, "q has shape .256, 64.: pass .batch, heads"),
        ({"k": {"dtype": "torch.bfloat16"}}, TypeError, "k is torch.bfloat16, q is torch.float16"),
        ({"v": {"device": "cpu"}}, ValueError, "v is on cpu:0: q, k and v must be on one CUDA device"),
        ({"v": {"shape": (1, 4, 128, 64)}}, ValueError, "k has shape .*, v .*: they must be equal"),
        ({"q": {"shape": (2, 4, 256, 64)}}, ValueError, "batch and head_dim must be equal"),
        ({"q": {"shape": (1, 6, 256, 64)}}, ValueError, "q has 6 heads, k 4: the first must be a multiple"),
        ({"k": {"address": 8}}, ValueError, "k starts at 0x8: TMA reads from 16-byte aligned"),
        ({"q": {"strides": (65536, 16384, 1, 256)}}, ValueError, "q has column stride 256: TMA wants 1"),
        ({"q": {"strides": (66000, 16500, 66, 1)}}, ValueError, "multiples of 16 bytes, call q.contiguous"),
    ],
)
def test_the_launcher_says_what_is_wrong_with_a_tensor(kernel, change, error, message):
    tensors = {name: FakeTensor(**{"shape": (1, 4, 256, 64)} | change.get(name, {})) for name in "qkv"}
    with pytest.raises(error, match=message):
        kernel.check_tensors(**tensors)


def test_the_launcher_takes_transposed_heads_and_grouped_queries(kernel):
    # [batch, rows, heads, columns] in memory, seen as [batch, heads, rows, columns]
    q = FakeTensor(shape=(2, 8, 256, 64), strides=(256 * 8 * 64, 64, 8 * 64, 1))
    kv = FakeTensor(shape=(2, 2, 300, 64))
    assert kernel.check_tensors(q, kv, kv) == "fp16"
    with pytest.raises(ValueError, match="32 bits"):
        kernel.check_sizes(2**10, 2**10, 2**11, 4096)


class Scalar(float):
    """One number where the kernel has a tensor."""

    def __getitem__(self, _):
        return self

    def __rsub__(self, other):
        return Scalar(other - float(self))

    def __mul__(self, other):
        return Scalar(float(self) * other)


def test_a_row_guesses_more_only_where_a_mask_leaves_it_few_keys(kernel, monkeypatch):
    fake = SimpleNamespace(max=lambda x, _: x, where=lambda c, a, b: a if c else b, exp2=lambda x: Scalar(2**x))
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "bits_offset", lambda p, row_max: Scalar(row_max * p.score_scale))
    monkeypatch.setattr(kernel, "lane_sums", lambda x: x)
    monkeypatch.setattr(kernel, "visible", lambda p, scores, *rest: scores)
    monkeypatch.setattr(kernel, "to_weights", lambda p, x: x)
    fields = {"score_scale": 0.25, "block_n": 128, "shift": 0}

    def guess(row, block, guess=True, causal=True, margin_bits=3):
        p = SimpleNamespace(guess=guess, causal=causal, margin_bits=margin_bits, codes=False, **fields)
        probability, row_max, _ = kernel.first_softmax.fn(p, Scalar(10.0), row, block, 99)
        assert probability == pytest.approx(2 ** ((10 - row_max) * 0.25))
        return (row_max - 10) * 0.25

    assert guess(row=0, block=0) == guess(row=30, block=0) == guess(row=128, block=1) == 3
    assert guess(row=31, block=0) == guess(row=127, block=0) == guess(row=200, block=0) == 0
    assert guess(row=0, block=0, guess=False) == guess(row=0, block=0, causal=False) == 0
    assert guess(row=0, block=0, margin_bits=0) == 0


class Score(float):
    """A score of a row, with the bits of a float32."""

    def to(self, dtype, bitcast):
        assert bitcast
        return {"int32": Bits(struct.unpack("<i", struct.pack("<f", self))[0])}[dtype]


class Bits(int):
    def to(self, dtype, bitcast):
        assert bitcast
        return {"float32": struct.unpack("<f", struct.pack("<i", self))[0]}[dtype]


class Scores(list):
    def to(self, dtype, bitcast):
        return [score.to(dtype, bitcast) for score in map(Score, self)]


@pytest.mark.parametrize(
    ("scores", "row_max", "largest"),
    [
        ((1.0, -2.0, 3.5, 0.0), -1e6, 3.5),  # right, whatever the row's maximum was
        ((0.0, -2.0, -math.inf), 5.0, 0.0),
        ((-1.0, -2.0, -7.0), -64.0, -7.0),  # too small: no probability is larger than 2 ** (64 / 8)
        ((-1.0, -2.0, -math.inf), 5.0, -math.inf),
        ((-1.0, -2.0, -7.0), -64.5, -1.0),
        ((-1.0, -2.0, -math.inf), -math.inf, -1.0),
    ],
)
def test_maxima_as_integers_are_right_or_do_no_harm(kernel, monkeypatch, scores, row_max, largest):
    flags = []
    fake = SimpleNamespace(
        full=lambda shape, value, *_: value, max=lambda x, axis: max(x), int32="int32", float32="float32",
        convert_layout=lambda x, layout, assert_trivial: x,
    )  # fmt: skip
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "int_max", lambda x: Bits(max(x)))
    monkeypatch.setattr(kernel, "flag_sums", lambda me, x, most: flags.append(x > most))
    monkeypatch.setattr(kernel, "get_flag", lambda me: flags[-1])
    p = SimpleNamespace(int_max=True, lazy_bits=8, score_scale=1 / 8)
    found = kernel.block_max.fn(p, 0, Scores(scores), Maximum(row_max))
    assert found == largest
    assert found == max(scores) or (max(scores) < 0 and -row_max * p.score_scale <= p.lazy_bits)
    assert kernel.block_max.fn(SimpleNamespace(int_max=False), 0, Scores(scores), Maximum(row_max)) == max(scores)


def test_the_largest_integer_of_a_row_is_found_wherever_it_is(kernel, monkeypatch):
    def larger(a, b):
        return Array(a.shape, map(max, a.values, b.values))

    def reduce(x, axis, combine):
        assert axis == 1 and combine is larger
        return [max(x.at(row, lane) for lane in range(4)) for row in range(64)]

    monkeypatch.setattr(kernel, "gl", SimpleNamespace(reduce=reduce, static_range=range))
    monkeypatch.setattr(kernel, "ROWS", 64)
    monkeypatch.setattr(kernel, "larger", larger)
    for name in ("by_lane", "columns_apart", "groups_apart"):
        monkeypatch.setattr(kernel, name, getattr(kernel, name).fn)
    for columns in (64, 128):
        values = [[(i == row * 37 % columns) - row for i in range(columns)] for row in range(64)]
        assert kernel.int_max.fn(Array([64, columns], itertools.chain(*values))) == [1 - row for row in range(64)]


@pytest.mark.parametrize(
    ("row_max", "largest", "new_max", "shrink"),
    [
        (8.0, 40.0, 8.0, 1.0),  # by 8 bits, not more
        (8.0, 41.0, 41.0, 2.0**-8.25),
        (8.0, -3.0, 8.0, 1.0),
        (-math.inf, -40.0, -40.0, 0.0),
        (-math.inf, -math.inf, -math.inf, 0.0),
    ],
)
def test_a_maximum_is_raised_where_it_is_more_than_lazy_bits_too_small(
    kernel, monkeypatch, row_max, largest, new_max, shrink
):
    fake = SimpleNamespace(maximum=max, where=lambda c, a, b: a if c else b, exp2=lambda x: 2.0**x)
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "finite", kernel.finite.fn)
    p = SimpleNamespace(score_scale=0.25)
    assert kernel.raise_max.fn(p, row_max, largest, 8) == (new_max, shrink)


def test_a_flag_says_that_a_number_is_larger(kernel):
    text = kernel.flag_asm.fn(2, "sums")
    assert "setp.gt.f32 p, $2, $4; setp.gt.or.f32 p, $3, $5, p;" in text and "vote.sync.any.pred flag_2, p" in text


def test_the_saturating_form_of_a_score_is_the_same_number(kernel, monkeypatch):
    taken = []
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, constraints, args, **named: taken.append(args), float32=""
    )
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "exp2_constraints", lambda: "")
    monkeypatch.setattr(kernel, "PER_STEP", kernel.PER_STEP.value)
    p = SimpleNamespace(exp2_asm="some", score_scale=Scalar(0.125))
    kernel.exponentials.fn(p, Scalar(70.0), Scalar(1.5))
    ((score, scale, offset, small_scale, small_offset),) = taken
    assert score * scale - offset == pytest.approx((score * small_scale + small_offset) * 253 - 126)


def test_codes_are_made_of_the_row_less_its_guess(kernel, monkeypatch):
    """The kernel's own scale and start, through the PTX: four scores of a row become its bytes in their order."""
    taken = []
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, constraints, args, **named: taken.append((asm, args)), int32=""
    )
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "by_fours", lambda p, x: x)
    monkeypatch.setattr(kernel, "beside", lambda x, like: x)
    code = CODES["fp8e4nv"]
    fields = {"code_scale": code.scale, "code_start": code.start, "codes_asm": code.asm()}
    p = SimpleNamespace(score_scale=0.125, head_bits=5, **fields)
    monkeypatch.setattr(kernel, "finite", lambda x: x)
    monkeypatch.setattr(kernel, "bits_offset", kernel.bits_offset.fn)
    exponents = [5.0, 4.0, 2.0, -1.0]  # scores 0, 1, 3 and 6 bits below the guess
    row_max = 16.0
    kernel.codes.fn(p, [row_max + (x - 5) / 0.125 for x in exponents], row_max)
    ((asm, args),) = taken
    (made,) = Ptx(*args, results=1).words(asm)
    # 2 ** x exactly, less what centres the lines, rounded: the code of a power of two, or the one below.
    assert [byte - code.guard for byte in made.to_bytes(4, "little")] == [
        round((x + 7 - LINE_BITS) * 8) for x in exponents
    ]


def test_four_scores_of_a_register_are_those_whose_keys_v_has_there(kernel):
    columns = Array([64, 32], list(range(32)) * 64)
    a, b, c, d = kernel.by_fours.fn(SimpleNamespace(block_n=32), columns)
    for i in range(8):
        assert [x.at(0, i) for x in (a, b, c, d)] == [kernel.key_of_column.fn(4 * i + j) for j in range(4)]


@pytest.mark.parametrize(
    ("words", "maxima", "flag"),
    [
        ((0x7F7F7F7F, 0x01010101), (1.0, -3.0), False),
        *[((0x80 << shift, 0), (1.0, -3.0), True) for shift in (0, 8, 16, 24)],
        *[((0, 0x80 << shift), (1.0, -3.0), True) for shift in (0, 8, 16, 24)],
        ((0, 0), (-math.inf, 0.0), True),
        ((0, 0), (0.0, -math.inf), True),
        ((0, 0), (math.inf, 0.0), False),
    ],
)
def test_a_guess_is_given_up_for_a_high_bit_or_a_row_without_a_key(kernel, words, maxima, flag):
    text = kernel.flag_asm.fn(0, "codes")
    registers = dict(zip(("$2", "$3", "$4", "$5"), (*words, *maxima), strict=True))
    for statement in re.findall(r"\b((?:or|and|setp|vote)\.[^;]*);", text):
        opcode, rest = statement.split(" ", 1)
        target, *operands = re.split(r",\s*", rest)
        a, b, *more = [
            registers[x] if x in registers else -math.inf if x == "0fFF800000" else int(x, 0) for x in operands
        ]
        registers[target] = {
            "or.b32": lambda: a | b,  # noqa: B023
            "and.b32": lambda: a & b,  # noqa: B023
            "setp.ne.u32": lambda: a != b,  # noqa: B023
            "setp.eq.or.f32": lambda: a == b or more[0],  # noqa: B023
            "vote.sync.any.pred": lambda: a,  # noqa: B023
        }[opcode]()
    assert registers["flag_0"] is flag


def test_words_are_joined_by_or(kernel):
    assert kernel.either.fn(0x80, 0x7F00) == 0x7F80


@pytest.fixture
def made_of(kernel, monkeypatch):
    """The codes that the kernel asks for are the number that it subtracts, guarded."""
    monkeypatch.setattr(kernel, "visible", lambda p, scores, *rest: scores)
    monkeypatch.setattr(kernel, "codes", lambda p, scores, row_max: int(row_max) * 0x01010101 + 0x01010101)
    fake = SimpleNamespace(
        full=lambda *_: "ones",
        zeros=lambda *_: "zero",
        max=lambda *_: Maximum(9.0),
        where=lambda c, a, b: b,
        float32="",
    )
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "without_guards", kernel.without_guards.fn)
    return SimpleNamespace(codes=True, guards=0x01010101, guess=True, causal=True, margin_bits=0)


@pytest.mark.parametrize("flag", [0, 1])
def test_both_ways_give_guarded_words_and_leave_the_sum_to_its_mma(kernel, monkeypatch, made_of, flag):
    asked = []
    monkeypatch.setattr(kernel, "flag_codes", lambda me, weights, row_max: asked.append((me, weights, row_max)))
    monkeypatch.setattr(kernel, "get_flag", lambda me: flag)
    monkeypatch.setattr(kernel, "raise_max", lambda p, row_max, largest, lazy: (largest + lazy, "shrink"))
    row_max = Maximum(7.0)
    weights, new_max, row_sum, shrink = kernel.guessed_softmax.fn(made_of, 1, "scores", 0, 0, 0, row_max, "sum")
    assert asked == [(1, 0x08080808, row_max)] and row_sum == "sum"
    assert (new_max, shrink) == ((9.0, "shrink") if flag else (row_max, "ones"))
    assert kernel.without_guards(made_of, weights) == (0x09090909 if flag else 0x07070707)


def test_searched_codes_are_of_the_new_maximum(kernel, monkeypatch, made_of):
    asked = []
    monkeypatch.setattr(kernel, "raise_max", lambda p, *args: asked.append(args) or (8.0, "shrink"))
    made_of.lazy_bits = 3
    assert kernel.searched_softmax.fn(made_of, "scores", 9.0, 7.0, "sum") == (0x09090909, 8.0, "sum", "shrink")
    assert asked == [(7.0, 9.0, 3)]


def test_the_first_block_s_codes_are_of_its_true_maximum_and_leave_the_sum_to_its_mma(kernel, monkeypatch, made_of):
    monkeypatch.setattr(kernel, "mma_layout", lambda *_: None)
    monkeypatch.setattr(kernel, "no_sums", kernel.no_sums.fn)
    made_of.q_desc = SimpleNamespace(dtype=None)
    assert kernel.first_softmax.fn(made_of, "scores", 0, 0, 99) == (0x09090909, 9.0, "zero")


class Maximum(float):
    type = SimpleNamespace(layout=None)


def test_equal_columns_of_sums_are_not_added_up(kernel, monkeypatch):
    class Total(tuple):
        __gt__ = __rtruediv__ = lambda self, other: 1.0

    fake = SimpleNamespace(
        max=lambda x, _: Total(("max", x)), sum=lambda x, _: Total(("sum", x)),
        where=lambda c, a, b: a if c else b, convert_layout=lambda x, _: x,
    )  # fmt: skip
    monkeypatch.setattr(kernel, "gl", fake)
    totals = []
    monkeypatch.setattr(kernel, "write_lse", lambda p, tile, row, row_max, total: totals.append(total))
    monkeypatch.setattr(kernel, "write_output", lambda *_: None)
    monkeypatch.setattr(kernel, "in_order", lambda p, o: o)
    monkeypatch.setattr(kernel, "scale_rows", lambda o, factor: o)
    row = SimpleNamespace(type=SimpleNamespace(layout=None))
    monkeypatch.setattr(kernel, "sees", lambda p, row: True)
    for codes in (True, False):
        kernel.finish.fn(SimpleNamespace(codes=codes, out_scale=1.0), 0, None, row, None, "columns", None)
    assert totals == [("max", "columns"), ("sum", "columns")]


@pytest.mark.parametrize(
    ("total", "row", "causal", "shift", "codes", "written"),
    [
        (4.0, 0, False, 0, True, 0.5),
        (0.0, 0, False, 0, True, math.nan),  # nothing but NaN
        (0.0, 3, True, -3, True, math.nan),
        (0.0, 2, True, -3, True, 0.0),  # sees no key
        (0.0, 0, False, 0, False, 0.0),
        (math.nan, 0, False, 0, False, math.nan),
    ],
)
def test_a_row_without_a_key_gives_0_and_one_of_nan_gives_nan(
    kernel, monkeypatch, total, row, causal, shift, codes, written
):
    class Number(float):
        type = SimpleNamespace(layout=None)

        def __rtruediv__(self, other):
            return other / float(self) if self else math.inf

    fake = SimpleNamespace(
        max=lambda x, _: x,
        sum=lambda x, _: x,
        where=lambda c, a, b: Number(a if c else b),
        convert_layout=lambda x, _: x,
    )
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "sees", kernel.sees.fn)
    for name in ("write_lse", "in_order"):
        monkeypatch.setattr(kernel, name, lambda *args: args[-1])
    monkeypatch.setattr(kernel, "scale_rows", lambda o, factor: o * factor)
    outputs = []
    monkeypatch.setattr(kernel, "write_output", lambda p, me, tile, o: outputs.append(o))
    p = SimpleNamespace(codes=codes, out_scale=2.0, causal=causal, shift=shift)
    kernel.finish.fn(p, 0, None, Number(row), None, Number(total), 1.0)
    assert outputs == [pytest.approx(written, nan_ok=True)]


@pytest.fixture
def launch(kernel, monkeypatch):
    """attention(...) without a GPU: the arguments of the kernel by name, descriptors as (tensor, dtype, box)."""
    launches = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda **arguments: launches.append(arguments)

    monkeypatch.setitem(sys.modules, "torch", FakeTorch((9, 0)))
    monkeypatch.setattr(kernel, "attention_kernel", Kernel())
    monkeypatch.setattr(kernel, "descriptor", lambda x, dtype, box: (x, dtype, box))
    monkeypatch.setattr(kernel, "sm_count", lambda device: 132)

    def run(*tensors, **options):
        launches.clear()
        kernel.attention(*tensors, **options)
        (arguments,) = launches
        return arguments

    return run


def test_lse_is_never_made_of_rough_exponentials(launch):
    x = FakeTensor((1, 2, 512, 128), FP8)
    without, with_lse = launch(x, x, x), launch(x, x, x, return_lse=True)
    assert (without["CODES"], without["CODES_ASM"], without["EXP2_ASM"]) == (True, CODES["fp8e4nv"].asm(), "")
    assert (without["GUARDS"], without["ONE"], without["CODE_SCALE"]) == (0x01010101, 0x38, 8 / 127)
    assert without["CODE_START"] == pytest.approx(7 - 0.0575, abs=1e-3)
    e5m2 = launch(*[FakeTensor((1, 2, 512, 128), "torch.float8_e5m2")] * 3)
    assert (e5m2["GUARDS"], e5m2["ONE"], e5m2["CODE_SCALE"]) == (0x04040404, 0x3C, 4 / 127)
    assert (with_lse["CODES"], with_lse["CODES_ASM"]) == (False, "")
    assert with_lse["EXP2_ASM"] == softmax_exp2_asm(16, 1)
    given = launch(x, x, x, return_lse=True, config=default_config(90, "fp8e4nv", 128, None))
    assert not given["CODES"]


@pytest.mark.parametrize(
    ("queries", "causal", "ordered"), [(2048, None, True), (1024, None, False), (1024, "top-left", True)]
)
def test_tiles_that_do_not_take_as_long_come_in_order(launch, kernel, monkeypatch, queries, causal, ordered):
    monkeypatch.setattr(kernel, "order_on_gpu", lambda *_: "order")
    x = FakeTensor((1, 2, queries, 64), "torch.bfloat16")
    arguments = launch(x, x, x, causal=causal)
    assert (arguments["order"] == "order") == arguments["ORDERED"] == ordered


def test_head_dim_256_takes_exact_exponentials_where_codes_do_not_fit(launch, kernel, monkeypatch):
    x = FakeTensor((1, 2, 512, 256), FP8)
    monkeypatch.setattr(kernel, "transposed_values", lambda v: v)
    for release, codes in (((3, 8), True), ((3, 9), False), ((4, 0), False)):
        monkeypatch.setattr(kernel, "release", lambda release=release: release)
        arguments = launch(x, x, x)
        assert (arguments["CODES"], arguments["INT_MAX"], arguments["GUARDS"]) == (codes, True, 0)
        assert arguments["CODES_ASM"] == (CODES["fp8e4nv"].asm(guarded=False) if codes else "")
        assert launch(*[FakeTensor((1, 2, 512, 128), FP8)] * 3)["CODES"]


@pytest.mark.parametrize("strides", [None, (16385, 8192, 128, 1), (7, 7, 128, 1)])
def test_v_is_launched_as_pairs_of_bytes_whatever_strides_are_not_stepped_over(launch, strides):
    q = FakeTensor((1, 1, 512, 128), FP8)
    v, dtype, box = launch(q, q, FakeTensor((1, 1, 512, 128), FP8, strides=strides))["v_desc"]
    assert (dtype, box) == ("i16", [1, 1, 128, 64])
    assert (v.shape, v.dtype, v.strides[2:]) == ((1, 1, 512, 64), "torch.int16", (64, 1))


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_matches_a_definition_on_a_gpu(kernel, dtype, head_dim, causal):
    torch = pytest.importorskip("torch", reason="requires torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("requires an sm_90 GPU")
    torch.manual_seed(0)
    for rows, keys, heads in ((300, 333, 8), (129, 1000, 4), (1, 17, 1)):
        q, k, v = (
            torch.randn(2, n, length, head_dim, device="cuda").to(getattr(torch, dtype))
            for n, length in ((heads, rows), (1, keys), (1, keys))
        )
        o, lse = kernel.attention(q, k, v, causal=causal, return_lse=True)
        alone = kernel.attention(q, k, v, causal=causal)  # another program for fp8
        scores = q.double() @ k.double().transpose(-1, -2) * head_dim**-0.5
        if causal:
            seen = torch.arange(1, rows + 1, device="cuda")[:, None] + shift(causal, rows, keys)
            scores = scores.masked_fill(torch.arange(keys, device="cuda") >= seen, -torch.inf)
        expected_lse = scores.logsumexp(-1)
        expected = torch.exp(scores - expected_lse.nan_to_num(neginf=0.0)[..., None]) @ v.double()
        # e5m2 keeps 2 bits of mantissa, e4m3 keeps 3; P is rounded to the input type.
        tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float8_e5m2": 0.15, "float8_e4m3fn": 0.08}[dtype]
        torch.testing.assert_close(o.double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(alone.double(), expected, atol=tolerance, rtol=tolerance)
        # fp8 products are added up with 13 bits after the point of the largest.
        torch.testing.assert_close(lse.double(), expected_lse, atol=5e-3 if "8" in dtype else 1e-3, rtol=1e-6)
