"""The protocol of the Hopper attention, run on the CPU by hopper_model."""

from dataclasses import replace

import pytest

from gluon_kernels.hopper.config import HopperConfig
from gluon_kernels.hopper.tile_order import tile_order
from tests.gluon_kernels.support.hopper_model import FILES, Problem, ProtocolError, run
from tests.gluon_kernels.support.kernel_source import SOURCE, unchanged


def edited(old: str, new: str):
    def edit(file: str, source: str) -> str:
        return source.replace(old, new)

    return edit


def check_protocol(size: Problem, seed: int, programs: int, edit=unchanged) -> None:
    """Check that every tile is computed once, from the right blocks. Raises ProtocolError or AssertionError."""
    if size.causal or size.uneven:
        config = HopperConfig(causal="top-left" if size.causal else None, consumers=size.consumers)
        order = tile_order(config, size.num_heads, size.qheads_per_kvhead, size.seqlen_q, size.seqlen_k, programs)
        size = replace(size, order=tuple(order))
    written = run(size, seed, programs, edit)
    tile = 64 * size.consumers
    rows = [row for first in range(0, size.seqlen_q, tile) for row in range(first, first + tile, 64)]
    assert sorted(written) == [(0, head, row, 0) for head in range(size.num_heads) for row in rows]
    for at, held in written.items():
        assert held[:2] == ("o", at[:3])


@pytest.mark.parametrize("widen_v", [False, True], ids=["as-it-is", "widened"])
@pytest.mark.parametrize("turns", [False, True], ids=["free", "turns"])
@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("stages", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_any_interleaving_computes_each_tile_from_its_blocks(turns, consumers, stages, widen_v):
    for seed in range(4):
        shared_out, causal = bool(seed & 1), bool(seed & 2)
        keep_q = not shared_out and turns
        size = Problem(
            consumers, stages, turns, shared_out, causal, uneven=consumers == 3, keep_q=keep_q,
            widen_v=widen_v, q_early=causal and not shared_out and not keep_q,
            seqlen_k=(500, 100)[seed % 2],
        )  # fmt: skip
        check_protocol(size, seed, programs=1 + seed % 3)


@pytest.mark.parametrize("lengths", [(300, 500), (500, 300), (300, 300)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keep_q", [False, True])
def test_own_keys_come_first_and_no_key_is_left_out(keep_q, causal, lengths):
    for seed in range(4):
        size = Problem(
            turns=bool(seed & 1), causal=causal, keep_q=keep_q, widen_v=True, q_early=causal and not keep_q,
            own_sums=2 + seed % 2 * 2, seqlen_q=lengths[0], seqlen_k=lengths[1],
        )  # fmt: skip
        check_protocol(size, seed, programs=1 + seed % 3)


SCORES_WAIT = "scores = warpgroup_mma_wait(1, deps=(scores_token,))"


MUTANTS = {
    "a K slot is refilled too early": ("    await_empty(p, 0, at, filled)\n", ""),
    "a V slot is refilled too early": ("    await_empty(p, p.options.stages, at, filled)\n", ""),
    "the first fills are waited for": ("if filled >= p.options.stages:", "if filled >= 0:"),
    "one fill is not waited for": ("if filled >= p.options.stages:", "if filled > p.options.stages:"),
    "the last arrivals are left": ("for i in range(gl.minimum(filled, p.options.stages)):", "for i in range(0):"),
    "K is handed back before it is read": (
        f"            {SCORES_WAIT}\n            hand_back(p, 0, k_at)\n",
        f"            hand_back(p, 0, k_at)\n            {SCORES_WAIT}\n",
    ),
    "scores are used before they are there": (
        f"            {SCORES_WAIT}",
        f"            {SCORES_WAIT.replace('1', '2')}",
    ),
    "V is used before it is there": ("mbarrier.wait(p.v_ready.index(v_at.slot), v_at.phase)\n", "pass\n"),
    "Q is used before it is there": ("        p.q.wait_ready(me, phase)\n", ""),
    "Q is replaced too early": ("            p.q.wait_empty(i, phase)\n", ""),
    "Q is replaced under the output": (
        "    if p.options.shared_out:\n        tma.store_wait(0)\n",
        "    if p.options.shared_out:\n",
    ),
    "the output is overwritten": ("    tma.store_wait(0)\n    smem =", "    smem ="),
    "V is widened before it is there": (
        "        mbarrier.wait(p.narrow_ready.index(narrow_at.slot), narrow_at.phase)\n",
        "",
    ),
    "V is loaded over the block that is widened next": (
        "narrow_at.next())\n            load_v",
        "narrow_at)\n            load_v",
    ),
    "widened V is not fenced": ("        fence_async_shared()\n        mbarrier", "        mbarrier"),
    "O is not fenced": ("    fence_async_shared()\n    tma_store", "    tma_store"),
    "the next Q is asked for too early": ("hand_back_q(p, me, left == 0)", "hand_back_q(p, me, left == 1)"),
    "a phase never flips": ("        phase ^= 1\n", ""),
    "turns are not primed": ('named_barrier("bar.arrive", FIRST_TURN, 2)', "pass"),
    "the last turn is left": ('named_barrier("bar.sync", FIRST_TURN, 2)', "pass"),
    "a block is forgotten": (
        "for i in range(1, blocks):\n            scores_token",
        "for i in range(1, blocks - 1):\n            scores_token",
    ),
    "blocks that a consumer leaves out are not waited for": (
        "        take_turn(p, me)\n        pass_turn(p, me)\n        mbarrier.wait(p.k_ready",
        "        take_turn(p, me)\n        pass_turn(p, me)\n        (p.k_ready",
    ),
    "a block left out is not handed back": (
        "        hand_back(p, p.options.stages, v_at)\n        v_at = v_at.next()\n    return",
        "        v_at = v_at.next()\n    return",
    ),
    "a turn of a block left out is not passed": ("        take_turn(p, me)\n        pass_turn(p, me)\n", ""),
    "too many blocks are left out": ("first_row + (me + 1) * ROWS)", "first_row + me * ROWS)"),
    "a consumer without rows computes all blocks": ("ROWS < self.seqlen_q, own, 1)", "ROWS < self.seqlen_q, own, own)"),
    "the first tile leaves nothing out": ("left_out = p.left_out(number, me)\n    for", "left_out = 0\n    for"),
    "Q is replaced before it is loaded": (
        "        q = q.load(left_layout(p.options.block_n, p.q_desc.dtype))\n"
        "        if p.options.own_sums == 1:\n            p.q.mark_empty(me)\n",
        "        p.q.mark_empty(me)\n        tma.store_wait(0)\n        q = q.load(None)\n",
    ),
    "Q is replaced before its own sums": ("if p.options.own_sums == 1:\n            p", "if True:\n            p"),
    "own sums are used before they are there": ("more = warpgroup_mma_wait(0,", "more = warpgroup_mma_wait(1,"),
    "the block after an own one is not the one below": ("tile.own_block + 1 -", "tile.own_block -"),
    "V of another block is loaded": (
        "load_narrow(p, tile, p.block(tile, tile.blocks - 1 - i)",
        "load_narrow(p, tile, tile.blocks - 1 - i",
    ),
    "Q is handed back twice": ("p.options.q_early or p.options.keep_q", "p.options.q_early"),
    "K and V share named barriers": ("await_empty(p, p.options.stages, at, filled)", "await_empty(p, 0, at, filled)"),
    "grouped heads take another's keys": (
        "head % self.num_heads // self.qheads_per_kvhead",
        "head % self.num_heads % 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (n % 5 > 0)) for n, name in enumerate(MUTANTS)]
)
def test_the_host_model_finds_a_broken_protocol(name):
    """Mutation check: with one line of the kernel broken, some interleaving must fail."""
    old, new = MUTANTS[name]
    assert sum(old in (SOURCE / file).read_text() for file in FILES) == 1

    def fails(seed):
        causal, shared_out, keep_q = bool(seed & 4), bool(seed & 2), not seed & 2 and bool(seed & 24)
        own_sums = 2 if 8 <= seed < 16 else 1
        size = Problem(
            3 if seed & 16 else 2, 2, bool(seed & 1), shared_out, causal, uneven=bool(seed & 16), keep_q=keep_q,
            widen_v=bool(seed & 8), q_early=causal and not shared_out and not keep_q, own_sums=own_sums,
        )  # fmt: skip
        try:
            check_protocol(size, seed, 2, edited(old, new))
        except (ProtocolError, AssertionError):
            return True
        return False

    assert any(fails(seed) for seed in range(32))
