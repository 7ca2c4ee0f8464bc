"""The sanitizer: each fault is found where a line of a healthy kernel is missing, and the healthy one has none."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.emulate.errors import Fault, Hang, Unfinished  # noqa: E402
from tritonhook.emulate.machine import MOST_STEPS  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.sanitizer.findings import source_lines  # noqa: E402
from tritonhook.emulate.sanitizer.run import _unit, sanitize  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402

ROOM = '.file 1 "/home/kernels.py"\n.shared .align 1024 .b8 room[4096]; .shared .align 8 .b64 gate;'
MINE = "mov.u32 %r1, room; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r2, 4, %r1; xor.b32 %r5, %r3, 128;\n"
STORE = "mad.wide.u32 %rd9, %r20, 4, %rd20; st.global.b32 [%rd9], %r4;"
FLAG = (  # warp 0 writes for warp 1
    "setp.eq.u32 %p1, %r2, 0; mov.u32 %r4, 0; @%p1 st.shared.b32 [gate], 0; bar.sync 0;\n"
    "setp.ge.u32 %p3, %r2, 32; @%p3 bra W; st.shared.b32 [%r3], %r2; bar.warp.sync -1;\n"
)
INIT = "setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 1; bar.sync 0;\n"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 %p2, [gate], 0; @!%p2 bra {name};"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10,%r11,%r12,%r13}, %rd1, %rd1, 0, 1, 1, 0, 0;"
# Each: what the kernel does, and without which line of it which fault is found, between which accesses.
KERNELS = {
    "a barrier before the reads": (
        "st.shared.b32 [%r3], %r2;\nbar.sync 0;\nld.shared.b32 %r4, [%r5];\n",
        ("bar.sync 0;", "race", "write by warp", "read by warp"),
    ),
    "a barrier before the next writes": (
        "st.shared.b32 [%r3], %r2; bar.sync 0; ld.shared.b32 %r4, [%r5];\nbar.sync 0, 64;\nst.shared.b32 [%r3], %r4;\n",
        ("bar.sync 0, 64;", "race", "read by warp", "write by warp"),
    ),
    "named barriers that hand over": (
        "setp.lt.u32 %p1, %r2, 32; mov.u32 %r4, 0;\n"
        "@%p1 st.shared.b32 [%r3], %r2; @%p1 bar.arrive 1, 64; @%p1 bra END;\n"
        "bar.sync 1, 64;\nld.shared.b32 %r4, [%r5]; END:\n",
        ("bar.sync 1, 64;", "race", "write by warp", "read by warp"),
    ),
    "an mbarrier that hands over": (
        INIT + "mov.u32 %r4, 0; setp.ge.u32 %p3, %r2, 32; @%p3 bra OTHER;\nst.shared.b32 [%r3], %r2;\n"
        "@%p1 mbarrier.arrive.shared.b64 %rd3, [gate]; bra END;\nOTHER:\n"
        + WAIT.format(name="A") + "\nld.shared.b32 %r4, [%r5];\nEND:\n",
        (WAIT.format(name="A"), "race", "write by warp", "read by warp"),
    ),
    "an mbarrier that is initialised before others use it": (
        "setp.eq.u32 %p1, %r2, 0; mov.u32 %r4, 0; @%p1 mbarrier.init.shared.b64 [gate], 64;\nbar.sync 0;\n"
        "mbarrier.arrive.shared.b64 %rd3, [gate];\n",
        ("bar.sync 0;", "race", "mbarrier.init by warp 0", "use of the mbarrier by warp 1"),
    ),
    "an atomic access and a store": (
        "st.shared.b32 [%r3], 0; bar.sync 0;\nred.shared.add.u32 [%r1], 1;\nbar.sync 0, 64;\n"
        "setp.eq.u32 %p1, %r2, 40;\n@%p1 st.shared.b32 [%r1], %r2;\nmov.u32 %r4, 0;\n",
        ("bar.sync 0, 64;", "race", "atomic access by warp 0", "write by warp 1"),
    ),
    "a flag with release and acquire": (
        FLAG + "@%p1 atom.release.cta.shared.exch.b32 %r7, [gate], 1; bra END;\n"
        "W: ld.acquire.cta.shared.u32 %r6, [gate]; setp.ne.u32 %p2, %r6, 1; @%p2 bra W;\nld.shared.b32 %r4, [%r5];\n"
        "END:\n",
        (".release", "race", "write by warp 0", "read by warp 1"),
    ),
    "a flag with fences": (
        FLAG + "membar.cta;\n@%p1 st.volatile.shared.u32 [gate], 1; bra END;\n"
        "W: ld.volatile.shared.u32 %r6, [gate]; setp.ne.u32 %p2, %r6, 1; @%p2 bra W;\nfence.acq_rel.cta;\n"
        "ld.shared.b32 %r4, [%r5];\nEND:\n",
        ("fence.acq_rel.cta;", "race", "write by warp 0", "read by warp 1"),
    ),
    "local memory that is written": (
        ".local .align 4 .b32 own[4]; mov.u64 %rd3, own;\nst.local.b32 [%rd3+4], %r2;\nld.local.b32 %r4, [%rd3+4];\n",
        ("st.local.b32 [%rd3+4], %r2;", "uninitialised", "read", "read"),
    ),
    "a shuffle of lanes that take part": (
        "mov.u32 %r4, 0; mov.u32 %r6, %laneid; setp.lt.u32 %p1, %r6, 20;\n@!%p1 bra END;\n"
        "shfl.sync.down.b32 %r4, %r2, 4, 31, 0x000fffff;\nsetp.ge.u32 %p2, %r6, 16;\n@%p2 mov.u32 %r4, 0;\nEND:\n",
        ("@%p2 mov.u32 %r4, 0;", "shuffle", "shuffle", "shuffle"),
    ),
    "a shuffle of members": (
        "mov.u32 %r4, 0; mov.u32 %r6, %laneid; setp.lt.u32 %p1, %r6, 20; mov.b32 %r7, 0x0000ffff;\n"
        "mov.b32 %r7, 0x000fffff;\n@!%p1 bra END;\nshfl.sync.bfly.b32 %r4, %r2, 1, 31, %r7;\nEND:\n",
        ("mov.b32 %r7, 0x000fffff;", "shuffle", "shuffle", "shuffle"),
    ),
    "a shuffle that members call": (
        "mov.u32 %r4, 0; mov.u32 %r6, %laneid; setp.lt.u32 %p1, %r6, 20; mov.b32 %r7, 0x0000ffff;\n"
        "mov.b32 %r7, 0x000fffff;\n@!%p1 bra END;\nshfl.sync.idx.b32 %r4, %r2, 0, 31, %r7;\nEND:\n",
        ("mov.b32 %r7, 0x000fffff;", "shuffle", "shuffle", "shuffle"),
    ),
    "a copy that is waited for": (
        "cp.async.ca.shared.global [%r3], [%rd21], 4; cp.async.commit_group;\ncp.async.wait_group 0;\n"
        "ld.shared.b32 %r4, [%r3];\n",
        ("cp.async.wait_group 0;", "race", "copy that has not landed", "read by warp"),
    ),
    "a bulk copy that is waited for": (
        INIT + f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [gate], 256; @%p1 {BULK} [%r1], [%rd21], 256, [gate];\n"
        + WAIT.format(name="A") + "\nld.shared.b32 %r4, [%r3];\n",
        (WAIT.format(name="A"), "race", "bulk copy to CTA 0", "read by warp"),
    ),
    "copies that two mbarriers wait for": (
        INIT + "@%p1 mbarrier.init.shared.b64 [room+2048], 1; bar.sync 0;\n"
        f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [gate], 256; @%p1 {BULK} [%r1], [%rd21], 256, [gate];\n"
        f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [room+2048], 256; @%p1 {BULK} [%r1+1024], [%rd21], 256, "
        "[room+2048];\nB: mbarrier.try_wait.parity.shared.b64 %p2, [room+2048], 0; @!%p2 bra B;\n"
        + WAIT.format(name="A") + "\nld.shared.b32 %r4, [%r3];\n",
        (WAIT.format(name="A"), "race", "bulk copy to CTA 0", "read by warp"),
    ),
    "a fence before a bulk store": (
        "mov.u32 %r4, 0; setp.eq.u32 %p1, %r2, 0; st.shared.b32 [%r3], %r2;\n"
        "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd21], [%r1], 256;\n",
        ("fence.proxy.async.shared::cta;", "missing proxy fence", "write by warp", "read of a bulk store"),
    ),
    "a bulk store that is waited for": (
        "mov.u32 %r4, 0; setp.eq.u32 %p1, %r2, 0; st.shared.b32 [%r3], %r2; fence.proxy.async; bar.sync 0;\n"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd21], [%r1], 256; cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;\nbar.sync 0; st.shared.b32 [%r3], %r4;\n",
        ("cp.async.bulk.wait_group.read 0;", "race", "asynchronous read", "write by warp"),
    ),
    "all lanes at a barrier": (
        "mov.u32 %r4, 0; and.b32 %r6, %r2, 31; setp.lt.u32 %p1, %r6, 4;\nbar.warp.sync -1;\nbar.sync 0;\n@%p1 bra A;\n"
        "bar.sync 0; bra.uni B;\nA: bar.sync 0;\nB:\n",
        None,
    ),
    "what is written before it is read": (
        "st.shared.b32 [%r3], 0;\nld.shared.b32 %r4, [%r3];\n",
        ("st.shared.b32 [%r3], 0;", "uninitialised", "read", ""),
    ),
    "lanes that have read before another lane writes": (
        "st.shared.b32 [%r3], %r2; bar.sync 0; xor.b32 %r6, %r3, 4; ld.shared.b32 %r4, [%r6];\nbar.warp.sync -1;\n"
        "st.shared.b32 [%r3], %r4;\n",
        ("bar.warp.sync -1;", "race", "read by warp", "another lane's write"),
    ),
    "a store behind the atomic accesses of its warp": (
        "st.shared.b32 [%r3], 0; bar.sync 0; setp.eq.u32 %p1, %r2, 3; setp.lt.u32 %p2, %r2, 32; mov.u32 %r4, 0;\n"
        "@%p2 red.shared.add.u32 [%r1], 1;\nbar.warp.sync -1;\n@%p1 st.shared.b32 [%r1], %r2;\n",
        ("bar.warp.sync -1;", "race", "write by warp 0", "another lane's write"),
    ),
    "a lane that hands on what its warp wrote": (
        FLAG + "@%p1 st.release.cta.shared.b32 [gate], 1; bra END;\n"
        "W: ld.acquire.cta.shared.u32 %r6, [gate]; setp.ne.u32 %p2, %r6, 1; @%p2 bra W;\nld.shared.b32 %r4, [%r5];\n"
        "END:\n",
        ("bar.warp.sync -1;", "race", "write by warp 0", "read by warp 1"),
    ),
    "a barrier that counts all warps": (
        "mov.b32 %r7, 32;\nmov.b32 %r7, 64;\nst.shared.b32 [%r3], %r2; bar.sync 1, %r7;\nld.shared.b32 %r4, [%r5];\n",
        ("mov.b32 %r7, 64;", "race", "arrival by warp 0", "arrival by warp 1"),
    ),
    "a barrier of whole warps": (
        "and.b32 %r6, %r2, 31; setp.ge.u32 %p3, %r6, 20; mov.u32 %r4, 0;\nsetp.ge.u32 %p3, %r2, 32;\n@%p3 ret;\n"
        "bar.sync 0;\n",
        ("setp.ge.u32 %p3, %r2, 32;", "barrier in divergence", "barrier", "barrier"),
    ),
    "a wait that heeds its result": (
        INIT + "mov.u32 %r4, 0; setp.ge.u32 %p3, %r2, 32; @%p3 bra OTHER;\nst.shared.b32 [%r3], %r2;\n"
        "@%p1 mbarrier.arrive.shared.b64 %rd3, [gate]; bra END;\n"
        "OTHER: mbarrier.try_wait.parity.shared.b64 %p2, [gate], 0;\n@!%p2 bra OTHER;\nld.shared.b32 %r4, [%r5];\n"
        "END:\n",
        ("@!%p2 bra OTHER;", "race", "write by warp", "read by warp"),
    ),
    "votes of members": (
        "mov.b32 %r7, 0xffff; setp.eq.u32 %p1, %r2, 0;\nmov.b32 %r7, -1;\nvote.sync.ballot.b32 %r4, %p1, %r7;\n",
        ("mov.b32 %r7, -1;", "shuffle", "access", "access"),
    ),
    "a write where an mbarrier was": (
        INIT + "mov.u32 %r4, 0;\n@%p1 mbarrier.inval.shared.b64 [gate];\n"
        "bar.sync 0; @%p1 st.shared.b32 [gate+4], %r2;\n",
        ("@%p1 mbarrier.inval.shared.b64 [gate];", "race", "mbarrier.init by warp 0", "write by warp 0"),
    ),
    "a register that is written": (
        "mov.u32 %r4, 1;\nadd.u32 %r4, %r4, 1;\n",
        ("mov.u32 %r4, 1;", "uninitialised", "read", ""),
    ),
}  # fmt: skip


def found(body, threads=64, grid=1, ctas=(0,), limit_s=600.0, most_steps=MOST_STEPS, cluster=1):
    """What is found in a kernel that stores %r4."""
    buffers = [np.zeros(128, np.uint32)] * 2
    launch = launch_of(*buffers, threads=threads, grid=grid, cluster=(cluster, 1, 1))
    text = ".loc 1 7 3\n" + MINE + body + (STORE if grid == 1 else "")
    run = Run(launch, ctas, limit_s=limit_s, most_steps=most_steps)
    return sanitize(module_of(text, 2, declarations=ROOM), run, [one.tobytes() for one in buffers])


@pytest.mark.parametrize("name", [name for name, (_, fault) in KERNELS.items() if fault])
def test_a_line_that_is_missing_is_a_finding(name):
    body, (line, kind, first, second) = KERNELS[name]
    assert line in body
    assert found(body).findings == ()
    one, *others = found(body.replace(line, "")).findings
    assert one.kind == kind and {other.kind for other in others} <= {kind}
    assert one.places[0].what.startswith(first) and one.places[-1].what.startswith(second)
    assert all(place.source == "kernels.py:7" and place.line > 0 for place in one.places)


MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
ELSEWHERE = (
    "st.shared.b32 [%r3], %r2;\n" + MEET + "mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1;\n"
    "mapa.shared::cluster.u32 %r7, %r3, %r6; ld.shared::cluster.u32 %r4, [%r7];\n" + MEET + "add.u32 %r4, %r4, 1;\n"
)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("arrive;", "arrive.relaxed;", "nothing orders the two accesses"),
        ("arrive;", "arrive.relaxed; barrier.cluster.wait; bar.sync 0; barrier.cluster.arrive;", ""),
        (MEET + "mov", "bar.sync 0; mov", "after the start of that CTA"),
        (MEET + "add", "bar.sync 0; add", "before the end of that CTA"),
        (MEET + "add", MEET.replace("arrive;", "arrive.relaxed;") + "add", ""),  # what is read is read
    ],
)
def test_shared_memory_of_another_cta(old, new, text):
    assert found(ELSEWHERE, grid=2, ctas=(0, 1), cluster=2).findings == ()
    findings = found(ELSEWHERE.replace(old, new, 1), grid=2, ctas=(0, 1), cluster=2).findings
    assert any(text in one.text and one.kind == "race" for one in findings) if text else findings == ()


ST_ASYNC = (
    INIT.replace("%r20, 0", "%r2, 0") + MEET + "mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1;\n"
    "mov.u32 %r7, gate; mapa.shared::cluster.u32 %r7, %r7, %r6; mapa.shared::cluster.u32 %r6, %r1, %r6;\n"
    "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [gate], 4;\n"
    "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r2, [%r7];\n"
    + WAIT.format(name="W") + "\nld.shared.u32 %r4, [%r1];\n" + MEET
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "other", "kinds"),
    [
        ("", "", set()),
        (WAIT.format(name="W"), "", {"race"}),
        ("complete_tx::bytes.u32 [%r6]", "complete_tx::bytes.u32 [%r6+4]", {"uninitialised"}),
    ],
)
def test_stores_that_an_mbarrier_waits_for(line, other, kinds):
    body = ST_ASYNC.replace(line, other) if line else ST_ASYNC
    text = body + "mov.u32 %r8, %ctaid.x; mad.wide.u32 %rd9, %r8, 4, %rd20; st.global.b32 [%rd9], %r4;"
    assert {one.kind for one in found(text, grid=2, ctas=(0, 1), cluster=2).findings} == kinds


def test_wgmma_needs_a_fence_behind_generic_writes_and_a_wait_before_the_next():
    body = """mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0; mov.u32 %r4, 0; mov.u32 %r6, 0;
    mov.u64 %rd1, 0x0000001000080000; shr.u32 %r7, %r1, 4; cvt.u64.u32 %rd2, %r7; or.b64 %rd1, %rd1, %rd2;
    mad.lo.u32 %r3, %r2, 16, %r1; st.shared.v4.b32 [%r3], {%r6, %r6, %r6, %r6};
    fence.proxy.async;
    bar.sync 0; wgmma.fence.sync.aligned; %s wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    bar.sync 0; st.shared.b32 [%r3], %r10; """.replace("%s", WGMMA)
    assert found(body, 128).findings == ()
    (one,) = found(body.replace("fence.proxy.async;", ""), 128).findings
    assert one.kind == "missing proxy fence" and one.places[1].instruction.startswith("wgmma.mma_async")
    (one,) = found(body.replace("wgmma.fence.sync.aligned;", ""), 128).findings
    assert one.kind == "missing wgmma.fence" and one.places[0].instruction.startswith("wgmma.mma_async")
    both = found(body.replace("wgmma.wait_group.sync.aligned 0;", ""), 128).findings
    assert sorted((one.kind, one.places[0].what[:12]) for one in both) == [
        ("race", "asynchronous"), ("race", "product by w"),
    ]  # fmt: skip
    again = f"add.f32 %r10, %r10, %r11; wgmma.fence.sync.aligned; {WGMMA} wgmma.wait_group.sync.aligned 0; bar.sync 0;"
    twice = body.replace("bar.sync 0; st.shared.b32 [%r3], %r10;", again)
    assert found(twice, 128).findings == ()
    (one,) = found(twice.replace("%r11; wgmma.fence.sync.aligned;", "%r11;"), 128).findings
    assert one.kind == "missing wgmma.fence"
    early = body.replace("wgmma.wait_group", "add.f32 %r10, %r10, %r11; wgmma.wait_group")
    (one,) = found(early, 128).findings
    assert one.kind == "race" and one.places[1].instruction.startswith("add.f32")


def test_a_barrier_that_some_lanes_do_not_reach():
    body, _ = KERNELS["all lanes at a barrier"]
    assert isinstance(found(body).error, Hang)
    (one,) = found(body).findings[:1]
    assert one.kind == "barrier in divergence" and len(one.places) == 2
    assert found(body.replace("@%p1 bra A;\n", "")).findings == ()


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "bar.warp.sync -1;"])
def test_lanes_of_a_warp_are_told_apart(barrier):
    other = "xor.b32 %r5, %r3, 4;\n"  # of the next lane
    body = f"{other}st.shared.b32 [%r3], %r2;\n{barrier}\nld.shared.b32 %r4, [%r5];\n"
    assert found(body, 32).findings == ()
    (one,) = found(body.replace(barrier, ""), 32).findings
    assert one.kind == "race"
    assert one.places[0].what.startswith("write by lane") and one.places[1].what.startswith("read by lane")
    assert found(body, 64).findings == ()
    (one,) = found(body.replace(barrier, ""), 64).findings
    assert one.places[1].what.startswith("another lane's read by warp")


PAIR = "st.shared.b32 [%r3], %r2; bar.sync {}, 64; ld.shared.b32 %r4, [%r5];"
ALIKE = "st.shared.b32 [%r1], {}; {} ld.shared.b32 %r4, [%r1];"


@pytest.mark.parametrize(
    ("body", "threads", "is_race"),
    [
        ("st.shared.b32 [%r1], 5; mov.u32 %r4, 0;", 64, False),
        ("st.shared.b32 [%r1], %r2; mov.u32 %r4, 0;", 64, True),
        (ALIKE.format(5, ""), 64, False),
        (ALIKE.format(5, ""), 32, False),
        (ALIKE.format("%r2", ""), 64, True),
        ("setp.lt.u32 %p1, %r2, 64; @%p1 " + ALIKE.format(5, "mov.u32 %r4, 0; @!%p1"), 96, True),
        (ALIKE.format(5, "setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.b32 [%r1], 6;"), 64, True),
        (ALIKE.format(5, "") + "bar.sync 0; setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.b32 [%r1], 6;", 64, False),
        (ALIKE.format(5, "") + "bar.sync 0; setp.lt.u32 %p1, %r2, 32; @%p1 st.shared.b32 [%r1], 6;"
         "@!%p1 ld.shared.b32 %r4, [%r1];", 64, True),
        ("shr.u32 %r7, %r2, 6;" + PAIR.format("%r7"), 128, False),
        (PAIR.format(1), 128, True),  # the first two warps meet, if they come first
    ],
)  # fmt: skip
def test_writes_that_are_alike_and_warps_that_meet_by_luck(body, threads, is_race):
    assert {one.kind for one in found(body, threads).findings} == ({"race"} if is_race else set())


def test_atomics_of_several_warps_are_no_race():
    atomics = "atom.shared.add.u32 %r4, [gate], 1;\n@%p9 atom.shared.add.u32 %r4, [gate], 1;\n"
    body = "setp.lt.u32 %p9, %r2, 32; st.shared.b64 [gate], 0;\nbar.sync 0;\n" + atomics
    assert found(body + "mov.u32 %r4, 0;\n").findings == ()
    both = found(body + "ld.shared.b32 %r4, [gate]; min.u32 %r4, %r4, 0;\n").findings
    assert {one.kind for one in both} == {"race"} and all("read by warp" in one.places[1].what for one in both)


def test_what_does_not_reach_the_result_is_no_finding():
    """Lanes read what nothing has written, and choose something else."""
    body = "ld.shared.b32 %r6, [%r3]; setp.ge.u32 %p1, %r2, 0; selp.b32 %r4, 1, %r6, %p1;\n"
    assert found(body).findings == ()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("st.global.b32 [%rd20+512], %r2;", "out of bounds"),
        ("st.shared.b32 [%r3+2], %r2;", "misaligned"),
        ("trap;", "fault"),
        ("mbarrier.arrive.shared.b64 %rd3, [gate];", "fault"),  # it was not initialised
    ],
)
def test_faults_are_findings(line, kind):
    got = found(line)
    assert isinstance(got.error, Fault) and got.ran is None
    assert [one.kind for one in got.findings] == [kind] and got.findings[0].places[0].line == 13


@pytest.mark.parametrize(
    ("body", "at"),
    [("W: add.u32 %r4, %r4, 1;\nbra W;", "add"), (f"{INIT}{WAIT.format(name='W')}", "mbarrier.try_wait")],
)
def test_what_never_ends_is_a_finding_with_its_line(body, at):
    got = found(body, most_steps=100_000)
    (one,) = got.findings
    assert one.kind == "hang" and at in one.places[0].instruction and got.ran is None


@pytest.mark.parametrize(
    ("leave", "text"),
    [
        (
            "@%p1 bra END;",
            "barrier 1 of CTA 0 waits for 64 threads: 32 have arrived, and 32 threads of the CTA have ended",
        ),
        ("@%p1 bar.arrive 1, 64;\n@%p1 bra END;", ""),
        ("@%p1 bar.sync 2, 64;", "all threads wait: at line 14, 15"),  # none has ended: each waits for the other
    ],
)
def test_a_barrier_waits_for_threads_that_have_ended(leave, text):
    got = found(f"mov.u32 %r4, 0; setp.ge.u32 %p1, %r2, 32;\n{leave}\n@!%p1 bar.sync 1, 64;\nEND:\n")
    assert [(one.kind, one.text) for one in got.findings] == ([("hang", text)] if text else [])


def test_a_kernel_that_is_slow_is_no_faulty_one():
    got = found("W: add.u32 %r4, %r4, 1;\nsetp.ne.u32 %p1, %r4, 0; @%p1 bra W;", limit_s=0.2)
    assert got.findings == () and got.ran is None and isinstance(got.error, Unfinished)


@pytest.mark.parametrize("count", [31, 63, 64, 65])
def test_too_many_arrivals_at_an_mbarrier_end_the_kernel(count):
    """Two warps arrive, each thread once, and once more. The bytes that are expected keep the phase open."""
    arrive = "mbarrier.arrive.expect_tx.shared.b64 _, [gate], 8;\n"
    body = INIT.replace("[gate], 1;", f"[gate], {count};") + "mov.u32 %r4, 0;" + arrive
    if count >= 64:
        assert found(body).error is None and found(body).findings == ()
    got = found(body + arrive)
    assert isinstance(got.error, Fault) and got.ran is None
    assert f"64 arrivals at an mbarrier that waits for {count if count < 64 else count - 64}" in str(got.error)


def test_places_in_the_source():
    place = source_lines(
        Ptx('.version 8.0\n.target sm_90\n.file 2 "x/a.py"\n.file 1 "/y/b.py"\n.loc 1 5 1\nadd;\n.loc 2 6 1\n')
    )
    assert [place(line) for line in (1, 6, 8)] == ["", "b.py:5", "a.py:6"]


BEYOND = "write of 4 bytes outside of argument x0 (512 bytes), 0 bytes beyond its end"
NOTHING_ORDERS = "race: nothing orders the two accesses of the shared address"
PARTED = "barrier in divergence: lanes of one warp wait for others that do not come here"


@pytest.mark.parametrize(
    ("body", "threads", "ctas", "said"),
    [
        (
            "mov.u32 %r8, %ctaid.x; setp.eq.u32 %p1, %r8, 2;\n@%p1 st.global.b32 [%rd20+512], %r2;", 33, (1, 2),
            [f"out of bounds: {BEYOND}; thread 0 of CTA 2 at line 14 (kernels.py:7): "
             "@%p1 st.global.b32 [%rd20+512], %r2;"],
        ),
        (
            "setp.eq.u32 %p1, %r20, 165;\n@%p1 st.global.b32 [%rd20+512], %r2;", 40, (1, 4),
            [f"out of bounds: {BEYOND}; thread 5 of CTA 4 at line 14 (kernels.py:7): "
             "@%p1 st.global.b32 [%rd20+512], %r2;"],
        ),
        (
            "\n  st.shared.b32 [%r3+2], %r2;", 64, (3,),
            ["misaligned: misaligned write of 4 bytes of shared memory at 0x402; "
             "thread 0 of CTA 3 at line 14 (kernels.py:7): st.shared.b32 [%r3+2], %r2;"],
        ),
        (
            "st.shared.b32 [%r3], %r2;\nld.shared.b32 %r4, [%r5];", 64, (1, 3),
            [f"{NOTHING_ORDERS} 0x480; write by warp 1 of CTA 1 at line 13 (kernels.py:7): st.shared.b32 [%r3], %r2;; "
             "read by warp 0 of CTA 1 at line 14 (kernels.py:7): ld.shared.b32 %r4, [%r5];"],
        ),
        (
            "xor.b32 %r5, %r3, 4;\nst.shared.b32 [%r3], %r2;\nld.shared.b32 %r4, [%r5];", 32, (3,),
            [f"{NOTHING_ORDERS} 0x404; write by lane 1 of CTA 3 at line 14 (kernels.py:7): st.shared.b32 [%r3], %r2;; "
             "read by lane 0 of CTA 3 at line 15 (kernels.py:7): ld.shared.b32 %r4, [%r5];"],
        ),
        (
            "ld.shared.b32 %r4, [%r1+4];\nst.global.b32 [%rd20], %r4;", 32, (3,),
            ["uninitialised: shared memory that nothing has written changes what the kernel stores; "
             "read at line 13 (kernels.py:7): ld.shared.b32 %r4, [%r1+4];"],
        ),
        (
            "and.b32 %r6, %r2, 31; setp.lt.u32 %p1, %r6, 4;\n@%p1 bra A;\nbar.sync 0;\nbra.uni B;\nA: \n"
            "bar.sync 1;\nB:", 32, (0,),
            [f"{PARTED}; 28 lanes of warp 0, the first is 4 at line 15 (kernels.py:7): bar.sync 0;; "
             "4 lanes of warp 0, the first is 0, elsewhere at line 18 (kernels.py:7): bar.sync 1;",
             f"{PARTED}; 4 lanes of warp 0, the first is 0 at line 18 (kernels.py:7): bar.sync 1;; "
             "28 lanes of warp 0, the first is 4, elsewhere at line 15 (kernels.py:7): bar.sync 0;"],
        ),
        (
            "and.b32 %r6, %r2, 31; setp.lt.u32 %p1, %r6, 4;\n@%p1 bra A;\nshfl.sync.idx.b32 %r4, %r2, 0, 31, -1;\n"
            "bra.uni B;\nA:\nshfl.sync.idx.b32 %r4, %r2, 1, 31, -1;\nB:", 32, (0,),
            ["hang: all threads wait: at line 15, 18; threads at line 15 (kernels.py:7): "
             "shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;; "
             "threads at line 18 (kernels.py:7): shfl.sync.idx.b32 %r4, %r2, 1, 31, -1;"],
        ),
        (
            "\n".join(f"add.u32 %r4, %r4, %r{10 + n};" for n in range(5)) + "\nst.global.b32 [%rd20], %r4;", 1, (0,),
            ["uninitialised: registers that nothing has written change what the kernel stores; "
             + "; ".join(f"read at line {13 + n} (kernels.py:7): add.u32 %r4, %r4, %r{10 + n};" for n in range(4))],
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_each_fault(body, threads, ctas, said):
    got = found(body, threads, 6, ctas)
    assert [str(one) for one in got.findings] == said


@pytest.mark.parametrize(
    ("lines", "unit", "outside"),
    [
        ("", 16, 16),
        ("ld.shared.b32 %r1, [%r2];", 4, 16),
        ("ld.shared.v2.b64 {%rd1, %rd2}, [%r2]; st.global.v2.b32 [%rd1], {%r1, %r2};", 16, 8),
        ("ld.shared.u16 %rs1, [%r2]; red.global.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};", 2, 4),
        ("st.b16 [%rd1], %rs1;", 2, 2),
        ("atom.shared.cas.b16 %rs1, [%r2], %rs2, %rs3;", 2, 16),
        ("red.shared.add.noftz.bf16 [%r2], %rs2;", 2, 16),
        ("st.shared.v2.b8 [%r2], {%rs1, %rs2}; ld.shared.v2.u16 {%rs1, %rs2}, [%r2];", 2, 16),
        ("ld.global.b8 %rs1, [%rd1]; ld.local.b8 %rs1, [%rd1]; ld.param.b8 %rs1, [x0];", 16, 1),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.ca.shared.global [%r1], [%rd1], 8;", 8, 8),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];", 16, 4),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", 4, 16),
        ("ldu.global.b8 %rs1, [%rd1]; mov.b16 %rs1, %rs2;", 16, 1),
        ("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %rd1;", 4, 4),
    ],
)  # fmt: skip
def test_the_smallest_access_of_a_memory(lines, unit, outside):
    kernel = read_kernel(module_of(lines, 1), "k")
    assert (_unit(kernel), _unit(kernel, "global")) == (unit, outside)
