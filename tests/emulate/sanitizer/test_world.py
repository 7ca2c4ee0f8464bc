"""Races in global memory: none in kernels that hand over as PTX asks, one where a line of them is missing or weaker."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.emulate import waves  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.sanitizer import flags  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402

MINE = """mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r28, 0; mov.u32 %r4, 0;
mad.wide.u32 %rd1, %r20, 4, %rd20; xor.b32 %r2, %r20, 32; mad.wide.u32 %rd2, %r2, 4, %rd20;
xor.b32 %r3, %r20, 64; mad.wide.u32 %rd3, %r3, 4, %rd20; add.u32 %r5, %r20, 1;
"""
ROOM = """.shared .align 16 .b8 room[512]; mov.u32 %r9, room; mad.lo.u32 %r9, %r1, 4, %r9;
st.shared.u32 [%r9], %r5; fence.proxy.async;
"""
SPIN = "W: ld.acquire.gpu.global.u32 %r6, [%rd21];\nsetp.ne.u32 %p4, %r6, {}; @%p4 bra W;\n"
KERNELS = {
    "a barrier of the CTA": (
        "st.global.u32 [%rd1], %r5;\nbar.sync 0;\nld.global.u32 %r4, [%rd2];\n",
        [("bar.sync 0;", "")],
    ),
    "a barrier of the warp": (
        "xor.b32 %r2, %r20, 1; mad.wide.u32 %rd2, %r2, 4, %rd20;\nst.global.u32 [%rd1], %r5;\nbar.warp.sync -1;\n"
        "ld.global.u32 %r4, [%rd2];\nbar.warp.sync 0xffffffff;\nst.global.u32 [%rd1], %r28;\n",
        [("bar.warp.sync -1;", ""), ("bar.warp.sync 0xffffffff;", "")],
    ),
    "a bulk store that is waited for": (
        ROOM + "bar.sync 0; mad.wide.u32 %rd4, %r28, 256, %rd20;\n"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd4], [room], 256; @%p1 cp.async.bulk.commit_group;\n"
        "@%p1 cp.async.bulk.wait_group 0;\nbar.sync 0; ld.global.u32 %r4, [%rd1];\n",
        [("wait_group 0", "wait_group.read 0"), ("%r28, 256", "%r28, 128"), ("0;\nbar.sync 0;", "0;")],
    ),
    "a bulk store that its own thread reads": (
        ROOM + "bar.sync 0; mad.wide.u32 %rd4, %r28, 256, %rd20; @!%p1 bra Z;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd4], [room], 256; cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group 0;\nld.global.u32 %r4, [%rd4];\nZ:\n",
        [("wait_group 0", "wait_group.read 0")],
    ),
    "a bulk reduction": (
        ROOM + "bar.sync 0;\n@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd20], [room], 256;\n",
        [("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", "cp.async.bulk.global.shared::cta.bulk_group")],
    ),
    "a bulk copy of what the kernel wrote": (
        ROOM + "st.global.u32 [%rd1], %r5; @%p1 mbarrier.init.shared.b64 [room+256], 1;\nfence.proxy.async;\n"
        "bar.sync 0;\n"
        "mad.wide.u32 %rd4, %r28, 256, %rd20; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [room+256], 256;\n@%p1 "
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%rd4], 256, [room+256];\n"
        "W: mbarrier.try_wait.parity.shared.b64 %p4, [room+256], 0; @!%p4 bra W;\nld.shared.u32 %r4, [room];\n",
        [("%r28, 256", "%r28, 128")],
    ),
    "a read before a write of another CTA": (
        "ld.global.u32 %r4, [%rd1];\nred.release.gpu.global.add.u32 [%rd21], 1;\n" + SPIN.format(128)
        + "st.global.u32 [%rd3], %r5;\n",
        [(SPIN.format(128), ""), ("red.release", "red.relaxed"), ("ld.acquire", "ld.relaxed")],
    ),
    "a barrier of the grid, with fences": (
        "st.global.u32 [%rd1], %r5;\nbar.sync 0;\n@!%p1 bra IN;\nfence.acq_rel.gpu;\n"
        "atom.global.add.u32 %r6, [%rd21], 1;\n"
        "W: ld.volatile.global.u32 %r6, [%rd21]; setp.ne.u32 %p4, %r6, 2; @%p4 bra W;\nfence.sc.gpu;\n"
        "IN: bar.sync 1;\nld.global.u32 %r4, [%rd3];\n",
        [("fence.acq_rel.gpu;", ""), ("fence.sc.gpu;", ""), ("fence.sc.gpu;", "fence.sc.cta;"), ("bar.sync 0;", "")],
    ),
    "the last block": (
        "st.global.u32 [%rd1], %r5;\nmembar.gl;\nbar.sync 0;\nmov.u32 %r7, 0; @!%p1 bra Z;\n"
        "atom.global.add.u32 %r7, [%rd21], 1;\nsetp.ne.u32 %p4, %r7, 1; @%p4 bra Z;\nfence.acq_rel.gpu;\n"
        "ld.global.u32 %r4, [%rd20+128]; ld.global.u32 %r6, [%rd20+384];\nZ:\n",
        [("membar.gl;", ""), ("fence.acq_rel.gpu;", ""), ("membar.gl;", "membar.cta;")],
    ),
    "a lock": (
        "@!%p1 bra Z;\nW: atom.acquire.gpu.global.cas.b32 %r6, [%rd21], 0, 1;\nsetp.ne.u32 %p4, %r6, 0; @%p4 bra W;\n"
        "ld.global.u32 %r7, [%rd20]; add.u32 %r7, %r7, 1; st.global.u32 [%rd20], %r7;\n"
        "atom.release.gpu.global.exch.b32 %r6, [%rd21], 0;\nZ:\n",
        [("atom.acquire.gpu", "atom.relaxed.gpu"), ("atom.release.gpu", "atom.gpu"),
         ("atom.acquire.gpu", "atom.acquire.cta")],
    ),
    "a semaphore that CTAs take in turn": (
        "@!%p1 bra Z;\nW: ld.acquire.gpu.global.u32 %r6, [%rd21];\nsetp.ne.u32 %p4, %r6, %r28; @%p4 bra W;\n"
        "ld.global.u32 %r7, [%rd20]; add.u32 %r7, %r7, %r5; st.global.u32 [%rd20], %r7;\nadd.u32 %r6, %r28, 1;\n"
        "st.release.gpu.global.u32 [%rd21], %r6;\nZ:\n",
        [("ld.acquire.gpu", "ld.relaxed.gpu"), ("st.release.gpu", "st.relaxed.gpu"), ("ld.acquire.gpu", "ld.volatile")],
    ),
    "a semaphore of the first thread, between barriers of the CTA": (
        "@!%p1 bra IN; W: ld.acquire.gpu.global.u32 %r6, [%rd21]; setp.ne.u32 %p4, %r6, %r28; @%p4 bra W; IN:\n"
        "bar.sync 0; shfl.sync.idx.b32 %r7, %r5, 0, 31, -1; mad.wide.u32 %rd4, %r1, 4, %rd20;"
        "ld.global.u32 %r7, [%rd4]; add.u32 %r7, %r7, %r5; st.global.u32 [%rd4], %r7;\nbar.sync 0;\n"
        "@%p1 red.release.gpu.global.add.u32 [%rd21], 1;\n",
        [("\nbar.sync 0;\n", ""), ("@%p1 red.release", "@%p1 red.relaxed")],
    ),
    "atomics of the whole GPU": (
        "red.global.gpu.add.u32 [%rd20], %r5;\n",
        [("red.global.gpu.add", "red.global.cta.add"), ("red.global.gpu.add", "st.global")],
    ),
    "the same number written by all": (
        "st.global.u32 [%rd20], 7;\n",
        [("7;", "%r5;"), ("7;", "%r28;")],
    ),
    "the same number that all read back": (
        "st.global.u32 [%rd20], 7; ld.global.u32 %r4, [%rd20];\n",
        [("7;", "%r5;"), ("st.global", "@%p2 st.global"), ("ld.", "bar.sync 0; @%p1 st.global.u32 [%rd20], 8; ld.")],
    ),
    "warps that count": (
        "setp.eq.u32 %p3, %r28, 1; and.b32 %r7, %r1, 31; setp.eq.u32 %p5, %r7, 0; @%p3 bra W;\n"
        "st.global.u32 [%rd1], %r5;\nbar.warp.sync -1;\n@%p5 red.release.gpu.global.add.u32 [%rd21], 1;\nbra.uni Z;\n"
        + SPIN.format(2) + "ld.global.u32 %r4, [%rd3];\nZ:\n",
        [("bar.warp.sync -1;", "")],
    ),
    "a read whose value no thread uses": (
        "ld.global.u32 %r8, [%rd2];\nst.global.u32 [%rd1], %r5;\n",
        [("%r8", "%r4")],
    ),
    "no read of what the kernel wrote that may be stale": (
        "st.global.u32 [%rd1], %r5;\nbar.sync 0;\nld.global.u32 %r4, [%rd2];\n",
        [("ld.global.u32", "ld.global.nc.u32")],
    ),
}  # fmt: skip


def sanitized(text, grid=2, threads=64):
    buffers = [np.zeros(256, np.uint32), np.zeros(64, np.uint32), np.zeros(256, np.uint32)]
    run = Run(launch_of(*buffers, threads=threads, grid=grid), range(grid), limit_s=600.0)
    return sanitize(module_of(text, 3), run, [one.tobytes() for one in buffers])


def found(body, grid=2, threads=64):
    done = sanitized(MINE + body + "mad.wide.u32 %rd9, %r20, 4, %rd22; st.global.u32 [%rd9], %r4;", grid, threads)
    assert done.error is None
    return done.findings


@pytest.fixture(params=["at once", "in waves"])
def ctas(request, monkeypatch):
    """The launch's CTAs are executed at once, or in waves."""
    if request.param == "in waves":
        monkeypatch.setattr(waves, "WAVE_BYTES", 1)


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_handed_over_is_no_race_and_what_is_not_is_one(name, ctas):
    body, faults = KERNELS[name]
    assert found(body) == ()
    for line, other in faults:
        assert line in body
        findings = found(body.replace(line, other, 1))
        assert findings and {one.kind for one in findings} == {"race"}, (line, other)
        assert all("of CTA" in place.what and place.line > 0 for one in findings for place in one.places)


def test_a_bulk_copy_of_what_stores_wrote_needs_a_proxy_fence():
    body, _ = KERNELS["a bulk copy of what the kernel wrote"]
    (one,) = found(body.replace("fence.proxy.async;\nbar", "bar"))
    assert one.kind == "missing proxy fence" and "argument x0" in one.text


def test_an_acquire_of_the_cta_does_not_order_what_another_cta_wrote(ctas):
    body, _ = KERNELS["a semaphore that CTAs take in turn"]
    texts = [one.text for one in found(body.replace("ld.acquire.gpu", "ld.acquire.cta"))]
    assert any("argument x0" in text for text in texts) and any("argument x1" in text for text in texts)


LIVELOCKS = {
    "a flag that nobody sets": "W: ld.acquire.gpu.global.u32 %r6, [%rd21]; setp.ne.u32 %p4, %r6, 1; @%p4 bra W;\n",
    "a lock that its owner takes again": "W: atom.acquire.gpu.global.cas.b32 %r6, [%rd21], 0, 1;\n"
    "setp.ne.u32 %p4, %r6, 0; @%p4 bra W;\n",
    "a flag that another CTA would set if it went on": "setp.eq.u32 %p4, %r28, 0; @!%p4 bra W;\n"
    "V: ld.volatile.global.u32 %r6, [%rd21+4]; setp.eq.u32 %p4, %r6, 0; @%p4 bra V;\n"
    "st.volatile.global.u32 [%rd21], 1;\n"
    "W: ld.volatile.global.u32 %r6, [%rd21]; setp.eq.u32 %p4, %r6, 0; @%p4 bra W;\n"
    "st.volatile.global.u32 [%rd21+4], 1;\n",
}


@pytest.mark.parametrize("name", LIVELOCKS)
def test_threads_that_poll_for_ever_are_a_finding_long_before_the_time_limit(name, ctas):
    done = sanitized(MINE + LIVELOCKS[name])
    (one,) = done.findings
    assert one.kind == "hang" and "poll forever" in one.text
    assert one.places and all(place.line > 0 for place in one.places)


def test_polling_that_counts_and_polling_for_slow_threads_are_no_livelock():
    poll = "W: ld.acquire.gpu.global.u32 %r6, [%rd21]; {} @%p4 bra W;\n"
    counts = "mov.u32 %r7, 0;\n" + poll.format("add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 500;")
    slow = (
        "setp.ne.u32 %p4, %r28, 0; @%p4 bra W; mov.u32 %r7, 0;\nL: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 5000;\n"
    )
    slow += "@%p4 bra L; st.release.gpu.global.u32 [%rd21], 1;\n" + poll.format("setp.ne.u32 %p4, %r6, 1;")
    assert found(counts) == found(slow) == ()


def test_the_finding_names_the_buffer_and_the_accesses():
    (one,) = found("st.global.u32 [%rd20+8], %r28;\n")
    assert "byte 8 of argument x0" in one.text
    assert [place.what[:8] for place in one.places] == ["write by", "write by"]


@pytest.mark.parametrize("name", KERNELS)
def test_more_releases_than_are_kept_cost_no_finding(name, monkeypatch):
    """What they order is not known, and is no race."""
    monkeypatch.setattr(flags, "MOST_PUBLICATIONS", 1)
    assert found(KERNELS[name][0]) == ()
