"""The protocol and the sums of the Blackwell attention, run on the CPU by blackwell_model."""

import math
import random
import re
from itertools import product
from operator import attrgetter

import pytest

from gluon_kernels.blackwell.config import SCALE_SLOTS
from gluon_kernels.config import CAUSAL
from tests.gluon_kernels.support.blackwell_model import Problem, ProtocolError, e4m3, run_attention
from tests.gluon_kernels.support.kernel_source import SOURCE, unchanged


def random_tensor(values: random.Random, heads: int, rows: int, size: Problem, scale: float):
    def matrix():
        return [[values.gauss(0, scale) for _ in range(size.head_dim)] for _ in range(rows)]

    return [[matrix() for _ in range(heads)] for _ in range(size.batch)]


def by_definition(q, k, v, size: Problem) -> tuple[list[float], float]:
    """One row of O and its lse by definition, for a query and the keys and values that it sees; scores are in bits."""
    bits = [sum(x * y for x, y in zip(q, key, strict=True)) for key in k]
    if not bits:
        return [0.0] * size.head_dim, -math.inf
    weights = [2.0 ** (b - max(bits)) for b in bits]
    total = sum(weights)
    o = [sum(w * row[column] for w, row in zip(weights, v, strict=True)) / total for column in range(size.head_dim)]
    return o, (max(bits) + math.log2(total)) * math.log(2)


def worst_error(seed: int, size: Problem, edit=unchanged, spread: float = 3) -> float:
    """The largest difference from the definition of attention, in O and in lse; NaN counts as infinite."""
    values = random.Random(seed)
    q = random_tensor(values, size.num_heads, size.seqlen_q, size, spread)
    k = random_tensor(values, size.num_heads_kv, size.seqlen_k, size, spread)
    v = random_tensor(values, size.num_heads_kv, size.seqlen_k, size, 1)
    o, lse, _ = run_attention(q, k, v, size, seed, programs=1 + seed % 2, edit=edit)
    errors = [0.0]
    for batch, head, row in product(range(size.batch), range(size.num_heads), range(size.seqlen_q)):
        shared = head * size.num_heads_kv // size.num_heads
        seen = slice(size.keys_of(row))
        keys, values_seen = k[batch][shared][seen], v[batch][shared][seen]
        expected, expected_lse = by_definition(q[batch][head][row], keys, values_seen, size)
        got_lse = lse[batch * size.num_heads + head][row]
        errors.append(0.0 if got_lse == expected_lse else abs(got_lse - expected_lse))
        errors += [abs(x - y) for x, y in zip(o[batch][head][row], expected, strict=True)]
    return max(math.inf if math.isnan(error) else error for error in errors)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("packed", [False, True], ids=["scalar", "packed"])
@pytest.mark.parametrize("turns", [False, True], ids=["free", "turns"])
@pytest.mark.parametrize("stages", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 8))])
def test_any_interleaving_gives_the_right_numbers(causal, packed, turns, stages):
    size = Problem(stages=stages, causal=causal, packed_row_sum=packed, exp_turns=turns)
    for seed in range(2):
        assert worst_error(seed, size) < 1e-9


# A tile has 8 rows and a block 4 keys: one, all but one, all, one more; and a few tiles.
LENGTHS = [1, 3, 4, 5, 7, 8, 9, 19]


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(
    "seqlen_q", [pytest.param(q, marks=[pytest.mark.nightly] * (n % 3 > 0)) for n, q in enumerate(LENGTHS)]
)
def test_any_lengths_give_the_right_numbers(causal, seqlen_q):
    """Tails of rows and keys. With more rows than keys, some rows see nothing."""
    for seqlen_k in LENGTHS:
        size = Problem(num_heads=1, num_heads_kv=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=causal)
        assert worst_error(seqlen_k, size) < 1e-9, seqlen_k


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(("num_heads", "num_heads_kv"), [(4, 4), (4, 2), (3, 1)])
def test_heads_share_keys_within_their_batch_entry(causal, num_heads, num_heads_kv):
    size = Problem(batch=2, num_heads=num_heads, num_heads_kv=num_heads_kv, seqlen_q=9, seqlen_k=6, causal=causal)
    assert worst_error(0, size) < 1e-9


@pytest.mark.parametrize("causal", CAUSAL)
def test_lengths_that_fill_their_tiles_need_no_tail(causal):
    """A config that is not `ragged` compiles no mask for tails, for equal lengths or not."""
    for seqlen_q, seqlen_k in ((8, 16), (16, 8), (8, 4), (24, 12)):
        size = Problem(num_heads=1, num_heads_kv=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=causal)
        assert not size.ragged
        assert worst_error(1, size) < 1e-9


def test_large_scores_are_as_good_as_small_ones():
    """Scores of about +-10^4: the maximum is subtracted before exp2."""
    assert worst_error(1, Problem(seqlen_q=9, seqlen_k=7, causal="bottom-right", head_dim=2), spread=80) < 1e-9


def test_e4m3_keeps_small_probabilities_because_they_are_stored_larger():
    """One key weighs 1, 63 weigh 2^-8.5. That is two steps of e4m3, but a normal number if stored 2^8 times larger."""
    q = [[[[1.0, 0, 0, 0]] * 8]]
    k = [[[[8.5, 0, 0, 0]] + [[0.0] * 4] * 63]]
    v = [[[[0.0] * 4] + [[1.0] * 4] * 63]]
    expected = 63 * 2**-8.5 / (1 + 63 * 2**-8.5)

    def error(exp_bits):
        size = Problem(num_heads=1, num_heads_kv=1, seqlen_q=8, seqlen_k=64, exp_bits=exp_bits, round=e4m3)
        o, lse, _ = run_attention(q, k, v, size, seed=0, programs=1)
        assert lse[0][0] == pytest.approx(math.log(2**8.5 + 63))
        return abs(o[0][0][0][0] / expected - 1)

    assert error(exp_bits=0) > 0.2
    assert error(exp_bits=8) < 2**-4
    assert worst_error(1, Problem(exp_bits=8)) < 1e-9


def protocol_table() -> list[list[str]]:
    """The rows of the table in the kernel's docstring: barrier, who arrives, who waits, how often per tile."""
    source = (SOURCE / "blackwell" / "kernel.py").read_text()
    lines = source[: source.index('"""', 3)].splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["barrier"])
    columns = [lines[start].index(title) for title in ("barrier", "who arrives", "who waits", "per tile")]
    rows = [line for line in lines[start + 1 :] if line.strip()]
    return [[line[a:b].strip() for a, b in zip(columns, [*columns[1:], None], strict=True)] for line in rows]


@pytest.mark.parametrize("causal", CAUSAL)
def test_the_written_protocol_is_what_happens(causal):
    """The table in the kernel's docstring is right: who arrives at each barrier, who waits for it, and how often."""
    size = Problem(seqlen_q=20, seqlen_k=11, causal=causal, exp_turns=True)
    tensors = [random_tensor(random.Random(0), 2, n, size, 1) for n in (size.seqlen_q, size.seqlen_k, size.seqlen_k)]
    p = run_attention(*tensors, size, seed=0, programs=1)[2][0]
    first_rows = range(0, size.seqlen_q, size.block_m)
    last_rows = [min(row + size.block_m, size.seqlen_q) - 1 for row in first_rows]
    blocks = [max(-(-size.keys_of(row) // size.block_n), 1) for row in last_rows]
    assert len(set(blocks)) > 1 or causal is None

    table = protocol_table()
    assert len(table) == 14
    for barrier, arrives, waits, per_tile in table:
        ring, index = re.fullmatch(r"([\w.]+)(?:\[(\w+)\])?", barrier).groups()
        slots = attrgetter(ring)(p).slots
        # A row of the table with h stands for one half; that of scales stands for the slots of one half.
        per_half = {"h": 1, None: SCALE_SLOTS}.get(index) if index == "h" or "scales" in ring else None
        for half in range(2) if per_half else [None]:
            mine = slots if half is None else slots[half * per_half :][:per_half]
            expected = size.num_heads * sum(eval(per_tile.replace("2n", "2 * n"), {"n": n}) for n in blocks)
            assert sum(bar.completed for bar in mine) == expected, barrier
            assert sum(bar.waited.total() for bar in mine) == expected, barrier
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
    "lse of the rows past the end is stored": ("mask=row < p.seqlen_q", "mask=row < p.seqlen_q + 1"),
    "a row does not see itself": ("column[None, :] <= last", "column[None, :] < last"),
    "the mask forgets where its block begins": ("last_key - block * p.block_n", "last_key - 0"),
    "keys past the end count": ("gl.minimum(row + self.causal_offset, self.seqlen_k - 1)", "row + self.causal_offset"),
    "all keys of the last block count": ("row * 0 + (self.seqlen_k - 1)", "row * 0 + self.seqlen_k"),
    "the mask begins a block late": ("return self.seqlen_k // self.block_n", "return tile.blocks"),
    "the diagonal begins a block late": (
        "gl.maximum(keys, 0) // self.block_n",
        "gl.maximum(keys + 3, 0) // self.block_n",
    ),
    "a half tile begins where the tile does": (
        "first_row + self.causal_offset + 1",
        "tile.first_row + self.causal_offset + 5",
    ),
    "the last keys are left out": ("(end_key + self.block_n - 1)", "end_key"),
    "the last rows are left out": ("(self.seqlen_q + self.block_m - 1)", "self.seqlen_q"),
    "an empty tile visits no block": ("gl.minimum(end_row + self.causal_offset, self.seqlen_k), 1)", "end_row * 0, 0)"),
    "the last tile is as long as a full one": (
        "gl.minimum(end_row + self.causal_offset, self.seqlen_k)",
        "end_row + self.causal_offset",
    ),
    "the diagonal is forgotten": ("gl.minimum(end_row + self.causal_offset,", "gl.minimum(end_row,"),
    "a masked score is no zero": ("scores, 0, row_max", "scores, p.fma_parts, row_max"),
    "the maximum of no key is infinite": ("gl.constexpr(-1e38)", 'gl.constexpr(-float("inf"))'),
    "a row that saw nothing divides by zero": ("gl.where(total == 0.0, 0.0, 1.0 / total)", "1.0 / total"),
    "a query head takes the next key head": (
        "head // self.qheads_per_kvhead",
        "(head + 1) % self.num_heads // self.qheads_per_kvhead",
    ),
    "heads are counted through the batch": ("batch_head % self.num_heads", "batch_head % (self.num_heads + 1)"),
    "K comes from the first batch entry": ("at_keys = [tile.batch,", "at_keys = [0,"),
    "O goes to the wrong head": ("[tile.batch, tile.head, row, part", "[tile.batch, tile.kv_head, row, part"),
    "the old sum is not scaled": ("return row_sum * shrink + gl", "return row_sum + gl"),
    "fewer bytes are announced": ("desc.block_type.nbytes)", "desc.block_type.nbytes // 2)"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (n % 5 > 0)) for n, name in enumerate(MUTANTS)]
)
def test_the_host_model_finds_a_broken_kernel(name):
    """Mutation check: with one line of the kernel broken, some interleaving must fail."""
    old, new = MUTANTS[name]
    edited = set()

    def edit(file, source):
        if old in source:
            edited.add(file)
        return source.replace(old, new)

    def fails(seed):
        seqlen_q, seqlen_k = ((16, 16), (11, 5), (5, 11), (20, 9), (16, 8))[seed % 5]
        size = Problem(
            batch=2, num_heads=2, num_heads_kv=1 + seed % 2, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
            causal=CAUSAL[seed % 3], exp_turns=bool(seed & 2),
        )  # fmt: skip
        try:
            return not worst_error(seed, size, edit) < 1e-9
        except (ProtocolError, ValueError, IndexError, ZeroDivisionError, OverflowError):
            return True

    assert any(fails(seed) for seed in range(40))
    assert len(edited) == 1, "the mutant must change one file"
