"""wgmma of warps that come one by one, in CTAs that are no whole number of warpgroups; arrivals that are counted."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.emulate.errors import Hang  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

CTAS, THREADS = 2, 160
ROOM = ".shared .align 128 .b8 room[4096]; .shared .align 8 .b64 gate;"
# Warps 1 to 3 come late. As soon as its product is done, warp 0 writes over A, which is also B.
PRODUCT = """mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ge.u32 %p1, %r1, 128; mov.u32 %r3, room;
setp.eq.u32 %p2, %r1, 128; setp.eq.u32 %p6, %r2, 0; mov.u32 %r17, 0; mov.u32 %r18, 0x3f803f80;
mad.lo.u32 %r4, %r1, 16, %r3; @!%p1 st.shared.v4.b32 [%r4], {%r18, %r18, %r18, %r18};
mov.u32 %r5, gate; ld.global.u32 %r6, [%rd21]; @%p2 mbarrier.init.shared.b64 [%r5], 6; fence.proxy.async; bar.sync 0;
mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
@%p2 mbarrier.arrive.shared.b64 _, [%r5], %r6; @%p1 bra END; @!%p6 bra LATE;
ON: wgmma.fence.sync.aligned; mov.u64 %rd1, 0x0000001000080000; shr.u32 %r7, %r3, 4; cvt.u64.u32 %rd2, %r7;
or.b64 %rd1, %rd1, %rd2;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10,%r11,%r12,%r13}, %rd1, %rd1, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
@%p6 st.shared.v4.b32 [%r4], {%r17, %r17, %r17, %r17};
mad.wide.u32 %rd9, %r20, 16, %rd20; st.global.v4.b32 [%rd9], {%r10, %r11, %r12, %r13};
bra.uni END;
LATE: mbarrier.try_wait.parity.shared.b64 %p5, [%r5], 0; @!%p5 bra LATE; bra.uni ON;
END: """


def stored(body=PRODUCT, arrivals=6, tools=None):
    """What the threads of the warpgroups store, from PTX or from what ptxas makes of it."""
    arrays = np.zeros(4 * CTAS * THREADS, np.float32), np.full(1, arrivals, np.uint32)
    run = Run(launch_of(*arrays, threads=THREADS, grid=CTAS), range(CTAS), most_steps=100_000)
    ptx, contents = module_of(body, 2, declarations=ROOM), [one.tobytes() for one in arrays]
    if tools is None:
        return _products(run_ptx(ptx, run, contents))
    made = assemble(tools.ptxas, ptx, ["-O3"])
    assert isinstance(made, Assembled), made
    return _products(run_cubin(made.cubin, "k", run, contents))


def _products(ran):
    return np.frombuffer(ran.contents[0], np.float32).reshape(CTAS, THREADS, 4)[:, :128]


def test_a_warp_waits_for_the_others_of_its_warpgroup(tools):
    assert (stored() == 16).all()
    assert (stored(tools=tools) == 16).all()


def test_a_part_of_a_warpgroup_waits_for_ever():
    assert "@!%p6 bra LATE" in PRODUCT
    with pytest.raises(Hang, match="all threads wait: at line"):
        stored(PRODUCT.replace("@!%p6 bra LATE", "@!%p6 bra END"))


def test_each_arrival_counts(tools):
    for tool in (None, tools):
        with pytest.raises(Hang):
            stored(arrivals=5, tools=tool)
