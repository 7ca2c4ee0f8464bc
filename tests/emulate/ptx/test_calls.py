"""Calls of functions, also by lanes that are apart and by themselves; lanes that meet; polls that give way."""

from __future__ import annotations

from math import factorial

import pytest

np = pytest.importorskip("numpy")

from emulated import run_body, run_both  # noqa: E402

from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

FACTORIAL = """
.func (.param .b32 back) fact(.param .b32 number) {
.reg .pred %p<2>; .reg .b32 %r<4>; .local .b32 kept[1];
ld.param.b32 %r0, [number];
st.local.b32 [kept], %r0;
mov.b32 %r1, 1;
setp.le.u32 %p0, %r0, 1;
@%p0 bra done;
sub.u32 %r2, %r0, 1;
{ .param .b32 to; .param .b32 of; st.param.b32 [to], %r2; call (of), fact, (to); ld.param.b32 %r3, [of]; }
ld.local.b32 %r1, [kept];
mul.lo.u32 %r1, %r1, %r0;
div.u32 %r1, %r1, %r0;
mul.lo.u32 %r1, %r1, %r3;
done:
st.param.b32 [back], %r1;
ret;
}
"""
CALL = """
{ .param .b32 to; .param .b32 of; st.param.b32 [to], %r1; call.uni (of), fact, (to); ld.param.b32 %r2, [of]; }
"""
SHORT = "call (%r2), fact, (%r1);"  # with registers
TAKES_REGISTERS = """.func (.reg .b32 back) fact(.reg .b32 of)
{
.reg .pred p; .reg .b32 t;
setp.le.u32 p, of, 1; @p bra one; sub.u32 t, of, 1; call (back), fact, (t); mul.lo.u32 back, back, of; ret;
one: mov.u32 back, 1; }
"""
MINE = "mul.wide.u32 %rd0, %r20, 4; add.u64 %rd1, %rd20, %rd0; ld.global.u32 %r1, [%rd1];"
BACK = "st.global.u32 [%rd1], %r2;"


@pytest.mark.parametrize(("call", "function"), [(CALL, FACTORIAL), (SHORT, FACTORIAL), (SHORT, TAKES_REGISTERS)])
def test_a_function_calls_itself_and_keeps_its_registers_and_its_memory(call, function):
    numbers = np.arange(64, dtype=np.uint32) % 13
    (found,) = run_body(MINE + call + BACK, numbers, threads=64, declarations=function)
    assert found.tolist() == [factorial(int(n)) for n in numbers]


def test_lanes_that_are_apart_call_from_two_places():
    body = f"""{MINE} setp.lt.u32 %p1, %r20, 9; @%p1 bra few;
        {CALL} add.u32 %r2, %r2, 1000; bra out; few: {CALL} out: {BACK}"""
    (found,) = run_body(body, np.full(32, 5, np.uint32), declarations=FACTORIAL)
    assert found.tolist() == [120] * 9 + [1120] * 23


THREE = "".join(
    f"""
.func (.param .b32 back) {name}(.param .b32 of) {{
.reg .b32 t; ld.param.b32 t, [of]; {line} st.param.b32 [back], t; ret; }}"""
    for name, line in (
        ("plus", "add.u32 t, t, 7;"),
        ("times", "mul.lo.u32 t, t, 3;"),
        ("square", "mul.lo.u32 t, t, t;"),
    )
)
BY_REGISTER = f"""{MINE} how: .callprototype (.param .b32 _) _ (.param .b32 _); rem.u32 %r3, %r20, 3;
mov.u64 %rd2, plus; mov.u64 %rd3, times; mov.u64 %rd4, square;
setp.eq.u32 %p1, %r3, 1; selp.b64 %rd2, %rd3, %rd2, %p1; setp.eq.u32 %p1, %r3, 2; selp.b64 %rd2, %rd4, %rd2, %p1;
{{ .param .b32 to; .param .b32 of; st.param.b32 [to], %r1; call (of), %rd2, (to), how; ld.param.b32 %r2, [of]; }}
{BACK}"""


def test_each_lane_calls_the_function_whose_address_it_has():
    numbers = np.arange(100, 164, dtype=np.uint32)
    (found,) = run_both(BY_REGISTER, numbers, threads=64, declarations=THREE)
    assert found.tolist() == [(n + 7, 3 * n, n * n)[t % 3] for t, n in enumerate(numbers.tolist())]


def test_a_call_of_what_is_no_function_is_a_fault():
    with pytest.raises(Fault, match="a call of 0x8, where no function"):
        run_body(
            BY_REGISTER.replace("mov.u64 %rd4, square", "mov.u64 %rd4, 8"), np.zeros(32, np.uint32), declarations=THREE
        )


def test_a_stack_ends():
    with pytest.raises(Fault, match="256 nested calls"):
        run_body(MINE + CALL + BACK, np.full(32, 1000, np.uint32), declarations=FACTORIAL)


@pytest.mark.parametrize("text", ["call (%r2), other, (%r1);", "call (%r2), fact, (7);"])
def test_other_calls_are_not_understood(text):
    with pytest.raises(NotUnderstood, match="call"):
        run_body(f"{MINE} {text} {BACK}", np.zeros(32, np.uint32), declarations=FACTORIAL)


# --- lanes that meet -------------------------------------------------------------------------------


def test_lanes_wait_for_one_another_in_two_places():
    """The upper lanes store before the barrier what the lower ones load behind theirs."""
    body = f"""{MINE} mov.b32 %r2, 7; setp.lt.u32 %p1, %r20, 16; @%p1 bra low;
        st.global.u32 [%rd20], %r20; bar.warp.sync 0xffff0001; bra out;
        low: setp.ne.u32 %p2, %r20, 0; @%p2 bra out; bar.warp.sync 0xffff0001; ld.global.u32 %r2, [%rd20];
        st.global.u32 [%rd20+4], %r2; out:"""
    (found,) = run_body(body, np.zeros(32, np.uint32))
    assert found[1] == found[0] >= 16


def test_a_barrier_of_lanes_of_which_one_does_not_come_hangs():
    body = f"""{MINE} setp.eq.u32 %p1, %r20, 3; @%p1 bra other; bar.warp.sync 0xffffffff; bra out;
        other: bar.warp.sync 0xff; out: {BACK}"""
    with pytest.raises(Hang, match="all threads wait"):
        run_body(body, np.zeros(32, np.uint32))


def test_halves_of_a_warp_vote_match_and_reduce_by_their_own_masks():
    """Lane 0 of each warp is elsewhere."""
    body = f"""{MINE} setp.eq.u32 %p1, %r1, 99; mov.b32 %r2, 0; @%p1 bra out;
        and.b32 %r3, %r20, 16; setp.eq.u32 %p2, %r3, 0; selp.b32 %r4, 0xfffe, 0xffff0000, %p2;
        setp.gt.u32 %p3, %r1, 4; vote.sync.ballot.b32 %r5, %p3, %r4; match.any.sync.b32 %r6, %r1, %r4;
        redux.sync.add.u32 %r7, %r1, %r4; xor.b32 %r2, %r5, %r6; add.u32 %r2, %r2, %r7;
        out: {BACK}"""
    numbers = np.arange(64, dtype=np.uint32) % 7
    numbers[[0, 32]] = 99
    (found,) = run_body(body, numbers, threads=64)
    for thread in np.flatnonzero(numbers != 99):
        begin = thread // 16 * 16
        half = [n for n in range(begin, begin + 16) if numbers[n] != 99]
        ballot = sum(1 << n % 32 for n in half if numbers[n] > 4)
        same = sum(1 << n % 32 for n in half if numbers[n] == numbers[thread])
        assert found[thread] == ((ballot ^ same) + sum(int(numbers[n]) for n in half)) & 0xFFFF_FFFF


TAKE = {
    "under a predicate": "@%p1 atom.global.acq_rel.gpu.cas.b32 %r1, [%rd20], 0, 1;",
    "in a branch": """@!%p1 bra together; atom.global.acq_rel.gpu.cas.b32 %r1, [%rd20], 0, 1;
        together: bar.warp.sync 0xffffffff; add.u32 %r4, %r4, 1;""",
}


@pytest.mark.parametrize("ctas", [2, 9])
@pytest.mark.parametrize("how", TAKE)
def test_a_lock_is_handed_on_where_one_thread_asks(how, ctas):
    body = f"""mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; mov.b32 %r4, 0;
        again: mov.b32 %r1, 0; {TAKE[how]}
        setp.eq.u32 %p2, %r1, 1; @%p2 bra again; bar.sync 0;
        @%p1 ld.global.u32 %r2, [%rd20+4]; @%p1 add.u32 %r2, %r2, 1; @%p1 st.global.u32 [%rd20+4], %r2;
        bar.sync 0; @%p1 atom.global.exch.b32 %r1, [%rd20], 0;"""
    if how == "in a branch":  # all threads of the CTA ask again, as in Triton's loops
        told = "@%p1 st.shared.u32 [seen], %r1; bar.sync 0; ld.shared.u32 %r1, [seen];"
        body = body.replace("setp.eq.u32 %p2", f"{told} setp.eq.u32 %p2")
    given = {"threads": 64, "grid": ctas, "declarations": ".shared .b32 seen;", "most_steps": 100_000}
    (found,) = run_body(body, np.zeros(2, np.uint32), **given)
    assert found.tolist() == [0, ctas]
