"""FP8 attention of one warp in numpy, with the kernel's own policy: lane addresses, key order, P operands, epilogue.

The policy's methods run as they are; the instructions are replaced by those of support/numpy_warp.py. So a wrong row,
lane or byte shows as a wrong output, without a GPU.
"""

import functools
from types import SimpleNamespace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
pytest.importorskip("numpy", reason="numpy is not installed")

import numpy as np

from sm120_attn.config import BIAS_AND_LAZY_BITS, Config
from sm120_attn.kernels import attention_tma, mask, mma, mma_fp8, softmax
from tests.sm120_attn import mutants
from tests.sm120_attn.support.numpy_warp import DECODE, LANE, G, Instructions, T, encode


@pytest.fixture
def warp(monkeypatch):
    """The instructions' stand-ins, in the modules that use them."""
    made = Instructions()
    monkeypatch.setattr(mma, "ptx", made)
    monkeypatch.setattr(mma_fp8, "ptx", made)
    monkeypatch.setattr(attention_tma, "ptx", made)
    registers = lambda shape, dtype: np.zeros((*shape, 32))  # noqa: E731
    arch = SimpleNamespace(lane_idx=lambda: LANE, fmax=np.maximum, vote_any_sync=np.any)
    for module in (mma_fp8, softmax):
        monkeypatch.setattr(module, "cute", SimpleNamespace(make_rmem_tensor=registers, arch=arch))
    monkeypatch.setattr(softmax, "ptx", made)
    monkeypatch.setattr(softmax, "Float32", float)
    monkeypatch.setattr(mask, "cutlass", SimpleNamespace(min=np.minimum, max=np.maximum))
    monkeypatch.setattr(mask, "ptx", made)
    monkeypatch.setattr(mask, "Int32", int)
    monkeypatch.setattr(mask, "Float32", float)
    return made


def config_of(**fields) -> Config:
    return Config(**{"dtype": "e4m3", "out_dtype": "bf16", "tile_n": 64, "causal": True, **fields})


TILES = 2
FIRST_ROW = 40  # of the warp: in the middle of its keys, so that masks cut through a tile


def attend(warp, policy, tiles=range(TILES)):
    """One warp's walk, as attention.py does it: returns the largest error of O, relative to the largest value."""
    c = policy.config
    rng = np.random.default_rng(0)
    keys = TILES * c.tile_n
    q, k, v = (encode(rng.standard_normal((n, c.head_dim))) for n in (c.rows_per_warp, keys, keys))
    k_base, v_base = 8192, 8192 + 16384
    warp.write_tile(0, q)
    q_offsets, k_offsets, v_offsets = policy.lane_offsets(LANE)
    exact = DECODE[q] @ DECODE[k].T / np.sqrt(c.head_dim)
    exact[np.arange(keys) > FIRST_ROW + np.arange(c.rows_per_warp)[:, None]] = -np.inf
    peak = exact.max(1)
    output = policy.new_output()
    band = mask.Band(1 << 20, 1 << 20, None, 0)
    for tile in tiles:
        own = slice(tile * c.tile_n, (tile + 1) * c.tile_n)
        warp.write_tile(k_base, k[own])
        warp.write_tile(v_base, v[own])
        scores = policy.new_scores()
        policy.add_scores(scores, lambda step: policy.load_q(0, q_offsets, step), k_base, k_offsets)
        mask.hide(scores, policy, band, policy.row_numbers(FIRST_ROW, LANE), policy.key_offsets(LANE), tile * c.tile_n)
        columns, operands = policy.step_columns, []
        for step in range(policy.columns // columns):
            p = [
                policy.p_operand(
                    [probabilities(policy, scores, peak, block, columns * step + i) for i in range(columns)], step
                )
                for block in range(policy.blocks)
            ]
            operands.append(p)
        add_products(policy, output, operands, v_base, v_offsets)
    p = np.exp(exact - peak[:, None])
    total = p.sum(1)
    wanted = DECODE[encode(p)] @ DECODE[v] / total[:, None]
    return np.abs(rows_of(policy, output, total) - wanted).max() / np.abs(wanted).max()


def add_products(policy, output, operands, v_base, v_offsets):
    """Add P V of a tile to O, as attention.Warp.finish does it. operands: of P, for each step."""
    if policy.config.two_level:
        policy.add_tile(output, operands, v_base, v_offsets)
        return
    for step, p in enumerate(operands):
        policy.add_values(output, p, v_base, v_offsets, step)


def probabilities(policy, scores, peak, block, n):
    found = [None] * 4
    for r in (2 * block, 2 * block + 1):
        _, values = policy.row_of(r)
        for i in values:
            found[i] = np.exp(scores[block][n][i] / np.sqrt(policy.config.head_dim) - peak[8 * r + G])
    return found


def rows_of(policy, output, total):
    """O as the epilogue stores it: lane 4g + t has columns 8n + 2t and one more of row g."""
    c = policy.config
    o = np.full((c.rows_per_warp, c.head_dim), np.nan)
    for r in range(policy.rows):
        words = policy.row_words(output, r, 1 / total[8 * r + G])
        assert len(words) >= c.head_dim // 8
        for n, word in enumerate(words[: c.head_dim // 8]):
            pair = word.T if c.out_dtype != "fp32" else [np.asarray(w, np.uint32).view(np.float32) for w in word]
            for i in range(2):
                o[8 * r + G, 8 * n + 2 * T + i] = pair[i]
    return o


def attend_online(warp, policy, tiles: int, growth: float):
    """The same with the kernel's online softmax, tiles from right to left. Returns the errors of O against sums with
    P rounded as it should be, of O against exact sums, and of the LSE; and how often the output was rescaled.

    growth: what the scores of each tile are multiplied with, so that maxima grow on the way, or never do. With
    split_keys two warps take every other tile, and the kernel's own code joins them.
    """
    c = policy.config
    rng = np.random.default_rng(1)
    q = encode(rng.standard_normal((c.rows_per_warp, c.head_dim)))
    k, v = (encode(rng.standard_normal((tiles, c.tile_n, c.head_dim))) for _ in range(2))
    k = encode(DECODE[k] * growth ** np.arange(tiles)[::-1, None, None])
    warp.write_tile(0, q)
    q_offsets, k_offsets, v_offsets = policy.lane_offsets(LANE)
    scale = softmax.LOG2_E / np.sqrt(c.head_dim)
    bits = DECODE[q] @ DECODE[k.reshape(-1, c.head_dim)].T * scale

    def scores_of(starts=None):
        scores = policy.new_scores(starts)
        policy.add_scores(scores, lambda step: policy.load_q(0, q_offsets, step), 8192, k_offsets)
        return scores

    def walk(own_tiles):
        """A warp's softmax and output, then its maxima, sums and output without lanes, and how often it rescaled."""
        online, output = softmax.OnlineSoftmax(policy, scale), policy.new_output()
        maximum = np.full(c.rows_per_warp, -1e30)
        total, wanted, rescaled = 0.0, 0.0, 0
        for tile in own_tiles:
            warp.write_tile(8192, k[tile])
            warp.write_tile(8192 + 16384, v[tile])
            starts = None if tile == own_tiles[0] else online.starts()  # as in the steady loop
            scores = scores_of(starts)
            if online.must_rescale(scores, starts):
                starts, scores = None, scores_of()
                online.rescale(online.largest(scores), output)
            operands = []
            for step in range(c.tile_n // 32):
                p = [
                    policy.p_operand([online.exponentials(scores, block, 4 * step + i, starts) for i in range(4)], step)
                    for block in range(policy.blocks)
                ]
                operands.append(p)
            add_products(policy, output, operands, 8192 + 16384, v_offsets)
            # The same sums without lanes: a maximum is followed when one of the warp's rows has outgrown it.
            part = bits[:, tile * c.tile_n : (tile + 1) * c.tile_n]
            if (part.max(1) - maximum > policy.lazy_bits).any():
                larger = np.maximum(maximum, part.max(1))
                total, wanted = total * np.exp2(maximum - larger), np.exp2(maximum - larger)[:, None] * wanted
                maximum, rescaled = larger, rescaled + 1
            p = np.exp2(part - maximum[:, None] + policy.bias_bits)
            total, wanted = total + p.sum(1), wanted + DECODE[encode(p)] @ DECODE[v[tile]]
        return online, output, maximum, total, wanted, rescaled

    walked = list(reversed(range(tiles)))
    online, output, maximum, total, wanted, rescaled = walk(walked[:: c.tile_step])
    if c.split_keys:
        their_online, their_output, their_maximum, their_total, theirs, _ = walk(walked[1::2])
        kernel = SimpleNamespace(config=c, policy=policy)
        attention_tma.AttentionTma.hand_over(kernel, their_online, their_output, 0, 8192, 32 + LANE)
        attention_tma.AttentionTma.take_over(kernel, online, output, 0, 8192, 32 + LANE)
        larger = np.maximum(maximum, their_maximum)
        mine, other = np.exp2(maximum - larger), np.exp2(their_maximum - larger)
        total, wanted = total * mine + their_total * other, wanted * mine[:, None] + theirs * other[:, None]
    factors, lses = softmax.finish(online)
    o = np.full((c.rows_per_warp, c.head_dim), np.nan)
    lse_error = 0.0
    exact_lse = np.log(np.exp2(bits - bits.max(1)[:, None]).sum(1)) + bits.max(1) * softmax.LN_2
    for r in range(policy.rows):
        for n, word in enumerate(policy.row_words(output, r, factors[r])):
            o[8 * r + G[:, None], 8 * n + 2 * T[:, None] + np.arange(2)] = word
        lse_error = max(lse_error, np.abs(lses[r] - exact_lse[8 * r + G]).max())
    exact = np.exp2(bits - bits.max(1)[:, None])
    exact = exact @ DECODE[v.reshape(-1, c.head_dim)] / exact.sum(1)[:, None]
    errors = [np.abs(o - right).max() / np.abs(right).max() for right in (wanted / total[:, None], exact)]
    return *errors, lse_error, rescaled


@pytest.mark.parametrize(("growth", "often"), [(1.0, False), (1.6, True)])
def test_the_online_softmax_is_right_with_its_bias(warp, growth, often):
    """Given maxima that grow by little, or by much, when tiles are walked, then O and LSE are those of plain sums."""
    policy = mma_fp8.Mma8(config_of(causal=False, rows_per_warp=32))

    error, exact_error, lse_error, rescaled = attend_online(warp, policy, 4, growth)

    assert error < 1e-12 and lse_error < 1e-12 and exact_error < 0.1
    assert (rescaled > 1) == often


SPLIT = {"causal": False, "split_keys": True, "tile_n": 128, "head_dim": 64}


@pytest.mark.parametrize("policy", ["native", "portable"])
@pytest.mark.parametrize("tiles", [1, 4, 5])
def test_two_warps_to_a_row_join_their_halves(warp, policy, tiles):
    """Given maxima that differ between the halves, when joined, then O and LSE are those of all keys."""
    error, exact_error, lse_error, _ = attend_online(warp, POLICIES[policy](config_of(**SPLIT)), tiles, 1.6)

    assert error < 1e-6 and lse_error < 1e-6 and exact_error < 0.1  # the halves meet in single precision


POLICIES = {
    "native": lambda c: mma_fp8.Mma8(c, block_scaled=True),
    "plain": mma_fp8.Mma8,
    "stand-in": mma_fp8.Mma8StandIn,
    "portable": mma_fp8.Mma8Portable,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "fields",
    [
        {"head_dim": 64, "tile_n": 128},
        {"head_dim": 40, "rows_per_warp": 32},
        {"head_dim": 128, "rows_per_warp": 32},
        {"head_dim": 80, "out_dtype": "fp32"},
        {"head_dim": 192, "tile_n": 32},
        {"head_dim": 128, "tile_n": 128, "two_level": True},
        {"head_dim": 72, "rows_per_warp": 32, "two_level": True, "out_dtype": "fp32"},
    ],
)
def test_a_warp_gets_attention_right(warp, policy, fields):
    """Given rows under a causal mask, when the policy makes O, then it is softmax(Q K^T) V with P rounded to e4m3."""
    single = 1e-6 if fields.get("out_dtype") == "fp32" else 1e-12  # the fp32 output is in single precision

    assert attend(warp, POLICIES[policy](config_of(**fields))) < single


def thirteen_bits(values):
    """Cut off what is below 2^-13 of a value."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.trunc(fraction * 2**13), exponent - 13)


@pytest.mark.parametrize(("two_level", "least", "most"), [(False, 5e-3, 1), (True, 0, 5e-4)])
def test_two_levels_keep_a_sum_that_the_tensor_cores_would_lose(warp, monkeypatch, two_level, least, most):
    """Given accumulators of 13 bits and V of ones, when 4,096 keys are summed, then one level loses what two keep."""
    policy = mma_fp8.Mma8(config_of(two_level=two_level, tile_n=128))
    exact = warp.mma_m16n8k32
    monkeypatch.setattr(warp, "mma_m16n8k32", lambda *given: [thirteen_bits(x) for x in exact(*given)])
    warp.write_tile(8192, encode(np.ones((128, 128))))
    *_, v_offsets = policy.lane_offsets(LANE)
    rng = np.random.default_rng(3)
    output, total = policy.new_output(), 0.0

    for _ in range(4096 // 128):
        p = rng.uniform(30, 60, (4, 4, 4, 32))  # step, n8 column, value, lane
        add_products(policy, output, [[policy.p_operand(list(step), 0)] for step in p], 8192, v_offsets)
        rows = DECODE[encode(p)].reshape(16, 2, 2, 8, 4)  # n8 column, row g or g + 8, value, g, t
        total = total + rows.sum((0, 2, 4)).reshape(16)

    found = rows_of(policy, output, total)
    assert least <= np.abs(1 - found).max() <= most


def with_mistake(name: str, config):
    return mutants.broken(POLICIES["native"](config), name)


class UnturnedV(mma_fp8.Mma8):
    def v_row(self, lane):
        odd = (lane >> 1) & 1
        return super().v_row(lane) ^ (odd << 2)


class UnturnedK(mma_fp8.Mma8):
    def k_row(self, lane):
        return (lane & 7) + ((lane >> 4) << 3)


class HalvesOfPSwapped(mma_fp8.Mma8):
    def p_operand(self, probabilities, step):
        return [operand[::-1] for operand in super().p_operand(probabilities, step)]


class RowsAsColumns(mma_fp8.Mma8):
    def transposed(self, left, right):
        return mma_fp8.ptx.pack("bf16", left, right)


class PortableOutOfOrder(mma_fp8.Mma8Portable):
    def in_order(self, values):
        return values


@pytest.mark.parametrize(
    "wrong",
    [
        *(UnturnedV, UnturnedK, HalvesOfPSwapped, RowsAsColumns, PortableOutOfOrder),
        *(pytest.param(functools.partial(with_mistake, name), id=name) for name in mutants.MISTAKES),
    ],
)
def test_a_wrong_mapping_is_seen(warp, wrong):
    assert not attend(warp, wrong(config_of())) < 1e-2


def test_a_dropped_tile_is_seen(warp):
    assert not attend(warp, mma_fp8.Mma8(config_of()), tiles=[1]) < 1e-2


def conflicts(policy):
    """Groups of eight lanes, which ldmatrix serves at a time, that do not have eight different 16-byte columns."""
    found = []
    for offsets in policy.lane_offsets(LANE):
        for address in offsets:
            phases = (address // 16 % 8).reshape(4, 8)
            found += [phase for phase in phases if len(set(phase)) < 8]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("head_dim", [48, 64, 128])
def test_no_two_lanes_of_a_phase_share_a_bank(warp, policy, head_dim):
    assert not conflicts(POLICIES[policy](config_of(head_dim=head_dim)))


def test_probabilities_stay_below_the_largest_value():
    """A maximum that grew by just less than is followed must not overflow."""
    largest = {"e4m3": np.nanmax(DECODE), "e5m2": 57344.0}
    for dtype, (bias, lazy) in BIAS_AND_LAZY_BITS.items():
        assert 2.0 ** (bias + lazy) <= largest[dtype]


@pytest.mark.parametrize("row", range(2))
def test_one_positive_score_of_any_row_ends_the_steady_loop(warp, row):
    policy = mma_fp8.Mma8(config_of())
    online = softmax.OnlineSoftmax(policy, 0.5)
    online.row_max[:] = 3.0
    starts = online.starts()
    scores = [[[np.full(32, -1e-3) for _ in range(4)] for _ in range(policy.columns)] for _ in range(policy.blocks)]

    assert [np.ravel(values)[0] for values in starts] == pytest.approx([-(3.0 + online.limit) / 0.5] * 2)
    assert not online.must_rescale(scores, starts)
    _, values = policy.row_of(row)
    scores[0][policy.columns - 1][values[1]][17] = 1e-3
    assert online.must_rescale(scores, starts)


@pytest.mark.parametrize("row_max", [softmax.NOTHING_SEEN, float("inf"), 1e30])
def test_a_start_that_is_no_number_of_use_ends_the_steady_loop(warp, row_max):
    """So it is where a row has seen no key, where a score was infinite, and where the scale is tiny."""
    online = softmax.OnlineSoftmax(mma_fp8.Mma8(config_of()), 1e-30)
    online.row_max[:] = row_max
    with np.errstate(invalid="ignore", over="ignore"):
        starts = online.starts()

    assert all((values[0] > 1e37).all() for values in starts)
