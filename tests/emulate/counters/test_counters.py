"""Counters of machine code are Nsight Compute's; what no rule is known for is not known."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from counters_h100 import counted, launches  # noqa: E402

from tritonhook.emulate.counters import banks  # noqa: E402
from tritonhook.emulate.counters.metrics import counters  # noqa: E402
from tritonhook.emulate.counters.observer import Tally  # noqa: E402

# ncu's raw page has other totals than its source page: sectors of copies past the first cache, conflicts of wide loads
# whose addresses repeat.
PAGES_DISAGREE = {
    *(f"copy16cg_{pattern}_128" for pattern in ("each", "pairs", "quarters", "some")),
    *("copy16odd_each_128", "copy16odd_some_128"),
    *("lds8_pairs_128", "lds8_twos_128", "lds16_pairs_128", "lds16_twos_128", "lds16odd_quarters_128"),
}


@pytest.mark.parametrize("name", launches())
def test_counters_are_those_of_an_h100(name):
    one = launches()[name]
    found = counted(one)
    for own, theirs in zip(found.instructions, one["instructions"], strict=True):
        wanted = {counter: int(theirs.get(counter, "0").replace(",", "")) for counter in own.counters.ncu}
        assert own.counters.ncu == wanted, own.text
    totals = {name: round(float(one["launch_counters"][name].replace(",", ""))) for name in found.raw}
    assert found.raw == totals or name in PAGES_DISAGREE
    assert not found.without


def _wavefronts(addresses, size, may_join=True):
    rows = np.asarray([addresses], np.int64)
    return tuple(int(each[0]) for each in banks.wavefronts(rows, np.ones(rows.shape, bool), size, may_join))


LANES = np.arange(32)


@pytest.mark.parametrize(
    ("addresses", "size", "cost", "ideal"),
    [
        (LANES * 4, 4, 1, 1),
        (LANES * 0, 4, 1, 1),
        (LANES * 8, 4, 2, 1),
        (LANES * 128, 4, 32, 1),
        (LANES * 132, 4, 1, 1),
        (LANES * 8, 8, 2, 2),
        (LANES * 16, 16, 4, 4),
        (LANES * 128, 16, 32, 4),
    ],
)
def test_wavefronts_are_the_most_words_of_a_bank(addresses, size, cost, ideal):
    assert _wavefronts(addresses, size) == (cost, ideal)


@pytest.mark.parametrize("repeated", [LANES // 2 * 8, (LANES // 4 * 2 + LANES % 2) * 8])
def test_parts_of_a_wide_load_join_where_addresses_repeat_and_those_of_a_store_do_not(repeated):
    assert _wavefronts(repeated, 8, may_join=True) == (1, 1)
    assert _wavefronts(repeated, 8, may_join=False) == (2, 2)


def test_lanes_of_one_address_ask_for_its_sector_in_turns():
    rows, all_on = np.zeros((1, 32), np.int64), np.ones((1, 32), bool)
    assert banks.tags_and_sectors(rows, all_on)[1][0] == 1 and banks.sectors_in_turns(rows, all_on)[0] == 32


SHARED = Tally(4, 128, 128, shared_requests=4, wavefronts=8, wavefronts_ideal=4)


def test_what_no_rule_is_known_for_is_not_known():
    assert counters("LDS", "R0, [R1]", SHARED, 90).wavefronts == 8
    assert counters("LDS", "R0, [R1]", SHARED, 100).wavefronts is None
    assert counters("HGMMA.64x64x16.F32", "R24, gdesc[UR8], R24", Tally(4, 128, 128), 100).wavefronts is None
    for opcode, arch, value in (
        *(("SYNCS.ARRIVE.TRANS64", 90, 0), ("SYNCS.ARRIVE.TRANS64", 120, None), ("UTMALDG.2D", 90, 0)),
        *(("UTMAREDG.2D", 90, None), ("LD.E", 120, None)),
    ):
        found = counters(opcode, "", Tally(4, 128, 128), arch)
        assert (found.instructions, found.sectors, found.wavefronts) == (4, value, value), opcode
    assert counters("FFMA", "", Tally(4, 128, 128), 100).sectors == 0


def test_some_ctas_stand_for_all_only_where_they_agree():
    agreeing = launches()["tt.matmul.fp16"]
    few = counted(agreeing, (0, 1))
    assert few.ctas == 2 and few.agree and few.factor == few.of_ctas / 2
    assert few.total.instructions * few.factor == counted(agreeing).total.instructions
    assert counted(agreeing, (0,)).factor is None  # nothing to agree with
    differing = counted(launches()["tt.layernorm"], (0, 1))
    assert differing.agree is False and differing.factor is None
