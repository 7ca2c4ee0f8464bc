"""Threads that poll for ever are a hang; those that poll for long are none."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of, run_body  # noqa: E402

from tritonhook.emulate.errors import Hang, Unfinished  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402

POLL = "ld.acquire.gpu.global.b32 %r1, [%rd20];"
AGAIN = "setp.eq.u32 %p1, %r1, 7; @!%p1 bra L;"
SPINS = {
    "a flag that nobody sets": f"\nL: {POLL} {AGAIN}",
    "a flag that is asked for by atomics": "\nL: atom.global.add.u32 %r1, [%rd20], 0;" + AGAIN,
    "a lock that nobody gives back": "\nL: atom.global.cas.b32 %r1, [%rd20], 7, 2;" + AGAIN,
    "barriers on the way": f"\nL: bar.sync 0; {POLL} bar.sync 0; {AGAIN}",
    "two loops in turn": f"setp.eq.u32 %p2, %r20, 0;\n@%p2 bra M; L: {POLL} bra L; M: {POLL} {POLL} bra M;",
}


@pytest.mark.parametrize("body", SPINS.values(), ids=SPINS)
@pytest.mark.parametrize("grid", [1, 3])
def test_threads_that_poll_for_ever_hang(body: str, grid: int) -> None:
    with pytest.raises(Hang, match="all threads poll forever: at line") as caught:
        run_body(body, np.zeros(64, np.uint32), threads=64, grid=grid)
    assert caught.value.pcs and caught.value.lines


@pytest.mark.parametrize("rounds", [70, 77, 1000, 5000])
def test_threads_that_count_while_they_poll_come_to_their_end(rounds: int) -> None:
    body = f"mov.u32 %r2, 0; L: {POLL} add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {rounds}; @%p1 bra L;"
    (found,) = run_body(f"{body} st.global.b32 [%rd20], %r2;", np.zeros(1, np.uint32), threads=32)
    assert found[0] == rounds


def test_a_counter_in_memory_goes_on_while_others_poll() -> None:
    """Each round only memory changes."""
    counts = "L: atom.global.inc.u32 %r1, [%rd20], 100000; setp.lt.u32 %p1, %r1, 2000; mov.u32 %r1, 0; @%p1 bra L;"
    (found,) = run_body(counts, np.zeros(1, np.uint32), threads=1)
    assert found[0] == 2001


def test_it_is_no_finding_if_only_some_ctas_are_executed() -> None:
    out = np.zeros(1, np.uint32)
    for ctas, kinds, error in ((range(4), ["hang"], Hang), (range(2), [], Unfinished)):
        run = Run(launch_of(out, threads=32, grid=4), ctas)
        got = sanitize(module_of(SPINS["a flag that nobody sets"], 1), run, [out.tobytes()])
        assert [one.kind for one in got.findings] == kinds and type(got.error) is error
