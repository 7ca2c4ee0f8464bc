"""Orders that are carried out on the CPU, by the emulator; the builds are PTX."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy")

from tritonhook.capture.launches.contents import NORMAL, ZEROS  # noqa: E402
from tritonhook.capture.launches.record import Buffer, Launch, Pointer  # noqa: E402
from tritonhook.emulate import machine  # noqa: E402
from tritonhook.verify.cpu import CpuExecutor, with_ptx  # noqa: E402
from tritonhook.verify.differential import Built  # noqa: E402
from tritonhook.verify.judgement import Latitude, judge  # noqa: E402
from tritonhook.verify.model import Build, FailureKind, Order, Verdict  # noqa: E402

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {\n"
LOAD = """.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 32,
%r2; mad.wide.u32 %rd3, %r1, 4, %rd1; mad.wide.u32 %rd4, %r1, 4, %rd2; ld.global.b32 %r3, [%rd3];
"""
STORE = "st.global.b32 [%rd4], %r3; ret; }"
LATITUDE = Latitude()


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Each look at the clock takes a millisecond: what hangs does so on a machine however busy."""
    looks, begin = itertools.count(), time.monotonic()
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: begin + next(looks) / 1000))


def launch_of(grid=1, elements=32):
    buffers = Buffer(4 * elements, "int32"), Buffer(4 * elements, "int32")
    return Launch("k", (grid, 1, 1), (32, 1, 1), (Pointer("a", 0), Pointer("b", 1)), buffers)


def order_of(folder, *middles, inputs=(NORMAL,), launch=None, **options):
    builds = []
    for number, middle in enumerate(middles):
        path = folder / f"{number}.ptx"
        path.write_text(HEAD + LOAD + middle + STORE)
        builds.append(Build(str(number), path, "k"))
    return Order(launch or launch_of(), tuple(builds), inputs, **options)


def judged(order, **options):
    ran = CpuExecutor(**options).run(order)
    return judge(ran, order.launch, LATITUDE), ran


def test_builds_are_compared_with_the_first(tmp_path):
    order = order_of(tmp_path, "add.s32 %r3, %r3, 1;", "sub.s32 %r3, %r3, -1;", "add.s32 %r3, %r3, 2;")
    judgement, ran = judged(order)
    assert judgement.verdict is Verdict.DIFFERENT and judgement.worst.build == "2"
    assert [one.is_clean for one in ran] == [True, True, False] and ran[0].stored == 1


NAN = "or.b32 %r3, %r3, 0x7f800001; "


@pytest.mark.parametrize(
    ("reference", "other", "verdict"),
    [
        ("neg.f32 %r3, %r3;", "xor.b32 %r3, %r3, 0x80000000;", Verdict.ROUNDING),
        ("neg.f32 %r3, %r3; popc.b32 %r3, %r3;", "popc.b32 %r3, %r3;", Verdict.ROUNDING),
        ("min.f32 %r3, %r3, %r3; shr.u32 %r3, %r3, 8;", "shr.u32 %r3, %r3, 8;", Verdict.ROUNDING),
        ("neg.f32 %r3, %r3;", "mov.b32 %r3, 0x3f800000;", Verdict.DIFFERENT),  # a number
        ("xor.b32 %r3, %r3, 0x80000000;", "neg.f32 %r3, %r3;", Verdict.DIFFERENT),  # no operation on floats
        ("neg.f32 %r3, %r3; mov.b32 %r3, 1;", "mov.b32 %r3, 2;", Verdict.DIFFERENT),
    ],
)
def test_nobody_is_accused_of_bits_of_nans(tmp_path, reference, other, verdict):
    """The buffers hold integers: nothing says that they are NaNs."""
    judgement, _ = judged(order_of(tmp_path, NAN + reference, NAN + other))
    assert judgement.verdict is verdict


def test_what_is_not_understood_is_a_verdict_with_its_reason(tmp_path):
    judgement, ran = judged(order_of(tmp_path, "", "frob.b32 %r3, %r3;"))
    assert judgement.verdict is Verdict.NOT_UNDERSTOOD and "frob.b32" in judgement.worst.text
    assert ran[1].failure.kind is FailureKind.NOT_UNDERSTOOD


def test_a_write_outside_of_a_buffer_is_a_crash_of_this_build(tmp_path):
    judgement, _ = judged(order_of(tmp_path, "", "st.global.b32 [%rd4+4], %r3;"))
    assert (judgement.verdict, judgement.worst.build) == (Verdict.CRASH, "1")
    assert "outside of argument b (128 bytes), 0 bytes beyond its end" in judgement.worst.text


@pytest.mark.parametrize(
    ("grid", "first", "verdict", "build"),
    [
        (1, "", Verdict.HANG, "1"),
        (10, "", Verdict.HANG, "1"),  # others of the same CTAs came to their end
        (10, "LOOP: bra LOOP;", Verdict.NOT_UNDERSTOOD, "0"),  # it may wait for a CTA that was not executed
        (1, "LOOP: bra LOOP;", Verdict.HANG, None),
    ],
)
def test_a_build_that_never_ends_hangs(grid, first, verdict, build, tmp_path):
    order = order_of(tmp_path, first, "LOOP: bra LOOP;", launch=launch_of(grid, 32 * grid))
    judgement, _ = judged(order, limit_s=0.5, ctas=2)
    assert verdict in [one.verdict for one in judgement.findings]
    assert build in [one.build for one in judgement.findings if one.verdict is verdict]
    assert grid == 1 or first or judgement.verdict is Verdict.HANG


def test_each_input_has_contents_of_its_own(tmp_path):
    order = order_of(tmp_path, "", "setp.eq.s32 %p1, %r3, 0; @!%p1 mov.u32 %r3, 7;", inputs=(ZEROS, NORMAL))
    judgement, ran = judged(order)
    assert judgement.worst.input == NORMAL and [one.is_clean for one in ran] == [True, True, True, False]


def test_an_input_on_which_a_build_fails_is_no_trouble_for_the_others(tmp_path):
    outside = "setp.ne.s32 %p1, %r3, 0; @%p1 st.global.b32 [%rd4+4096], %r3;"
    _, ran = judged(order_of(tmp_path, "", outside, "add.s32 %r3, %r3, 1;", inputs=(ZEROS, NORMAL)))
    assert [one.failure and one.failure.kind for one in ran] == [None, None, None, None, FailureKind.CRASH, None]
    assert [bool(one.differences) for one in ran] == [False, False, True, False, False, True]


def test_only_some_ctas_are_executed_and_the_last_is_one(tmp_path):
    launch = launch_of(10, 320)
    wrong_at = "setp.eq.u32 %p1, %r2, 5; mov.u32 %r4, %ctaid.x; setp.eq.and.u32 %p1, %r4, {}, %p1; @%p1 mov.u32 %r3, 7;"
    for cta, verdict in ((9, Verdict.DIFFERENT), (4, Verdict.SAME)):
        judgement, _ = judged(order_of(tmp_path, "", wrong_at.format(cta), launch=launch), ctas=2)
        assert judgement.verdict is verdict
    judgement, _ = judged(order_of(tmp_path, "", wrong_at.format(4), launch=launch), ctas=10)
    assert judgement.verdict is Verdict.DIFFERENT


def test_all_ctas_of_a_cooperative_launch_are_executed(tmp_path):
    everyone = (
        "atom.global.add.u32 %r5, [%rd2], 1; WAIT: ld.volatile.global.u32 %r6, [%rd2]; setp.lt.u32 %p2, %r6, 320; "
    )
    everyone += "@%p2 bra WAIT;"
    _, (ran,) = judged(order_of(tmp_path, everyone, launch=launch_of(10, 640), inputs=(ZEROS,)), ctas=2, limit_s=0.5)
    assert "2 of 10 CTAs" in ran.failure.text
    launch = replace(launch_of(10, 640), cooperative=True)
    _, (ran,) = judged(order_of(tmp_path, everyone, launch=launch, inputs=(ZEROS,)), ctas=2)
    assert ran.failure is None


def test_atomics_in_another_order_are_seen(tmp_path):
    exchange = "atom.global.exch.b32 %r5, [%rd2], %r1; mov.u32 %r3, %r5;"
    _, ran = judged(order_of(tmp_path, exchange, runs=3))
    assert ran[0].unsteady


def test_contents_are_saved_and_the_first_failure_ends_an_order(tmp_path):
    order = order_of(tmp_path, "", "frob.b32 %r3, %r3;", "", save=tmp_path)
    assert len(CpuExecutor().run_until_lost(order)) == 2
    assert (tmp_path / f"{NORMAL}-0-1.bin").read_bytes() == (tmp_path / f"{NORMAL}-0-0.bin").read_bytes()


def test_the_ptx_comes_before_the_builds(tmp_path):
    from tritonhook.ptx.module import Ptx

    built = with_ptx(Built((), (), ()), Ptx(HEAD + LOAD + STORE), "k", tmp_path)
    (build,) = built.builds
    assert build.label == "PTX" and build.path.read_text().startswith(".version")
