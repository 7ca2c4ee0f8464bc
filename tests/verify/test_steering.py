"""Which contents steer a kernel: what reaches an address or a branch, by any way."""

from __future__ import annotations

import pytest

from tritonhook.capture.launches.steering import steering_parameters
from tritonhook.ptx.module import Ptx

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2)
{
.reg .b64 %rd<9>;
.reg .b32 %r<9>;
.reg .pred %p<9>;
ld.param.b64 %rd1, [k_param_0];
ld.param.b64 %rd2, [k_param_1];
ld.global.b32 %r1, [%rd1];
"""


BRANCH = "setp.ne.s32 %p1, %r2, 0;\n@%p1 bra L;\nL:"


@pytest.mark.parametrize(
    ("body", "steering"),
    [
        ("add.s32 %r2, %r1, 1;\nst.global.b32 [%rd2], %r2;", set()),
        ("mul.wide.s32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd2, %rd3;\nst.global.b32 [%rd4], 0;", {0}),
        ("setp.lt.s32 %p1, %r1, 5;\n@%p1 bra DONE;\nst.global.b32 [%rd2], %r1;\nDONE:", {0}),
        ("setp.lt.s32 %p1, %r1, 5;\n@!%p1 bra DONE;\nDONE:", {0}),
        ("setp.lt.s32 %p1, %r1, 5;\n@%p1 st.global.b32 [%rd2], 0;", set()),  # a mask, not a branch
        ("st.shared.b32 [64], %r1;\nld.shared.b32 %r2, [64];\ncvt.u64.u32 %rd3, %r2;\nld.global.b32 %r3, [%rd3];", {0}),
        (f"cp.async.cg.shared.global [64], [%rd2], 16;\nld.shared.b32 %r2, [64];\n{BRANCH}", {1}),
        (f"ld.global.v2.b32 {{%r2, %r3}}, [%rd2+8];\n{BRANCH}", {1}),
        (f"atom.global.cas.b32 %r2, [%rd2], 0, 1;\n{BRANCH}", {1}),
        ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nst.global.b32 [%rd2], %r2;", set()),
        ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1};\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r4];\n"
         f"{BRANCH}", {0}),
        (f"setp.ne.s32 %p2, %r1, 0;\nbar.red.popc.u32 %r2, 0, %p2;\n{BRANCH}", {0}),
        (f"multimem.ld_reduce.global.add.u32 %r2, [%rd2];\n{BRANCH}", {1}),
        (f"st.param.b32 [given], %r1;\ncall (got), f, (given);\nld.param.b32 %r2, [got];\n{BRANCH}", {0}),
        ("call f, (%r1);", {0}),
        ("setp.ne.s32 %p1, %r1, 0;\n@%p1 trap;", {0}),
        (f"st.local.b32 [%rd3], %r1;\nld.local.b32 %r2, [%rd3];\n{BRANCH}", {0}),
        (f"st.shared.b32 [64], %r1;\ncall (%r2), f, (64);\n{BRANCH}", {0}),
        (f"st.b32 [%rd3], %r1;\nld.b32 %r2, [%rd4];\n{BRANCH}", {0}),
        (f"st.global.b32 [%rd2], %r1;\nld.shared.b32 %r2, [64];\n{BRANCH}", set()),
        (f"st.shared.b32 [64], %r1;\nld.global.b32 %r2, [%rd2];\n{BRANCH}", {1}),
        (f"atom.shared.exch.b32 %r3, [64], %r1;\nld.shared.b32 %r2, [64];\n{BRANCH}", {0}),
        (f"atom.global.exch.b32 %r3, [%rd2], %r1;\nld.shared.b32 %r2, [64];\n{BRANCH}", set()),
        ("mbarrier.try_wait.shared.b64 %p1, [64], %r1;\n@%p1 bra L;\nL:", set()),
        (f"st.shared.b32 [64], %r1;\nld.const.b32 %r2, [%rd2];\n{BRANCH}", {1}),
        (f"ldu.global.b32 %r2, [%rd2];\n{BRANCH}", {1}),
        (f"red.shared.add.u32 [64], %r1;\nld.shared.b32 %r2, [64];\n{BRANCH}", {0}),
        (f"red.global.add.u32 [%rd2], %r1;\nld.shared.b32 %r2, [64];\n{BRANCH}", set()),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [0], {%r1};\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [0];\n"
         f"{BRANCH}", {0}),
        ("st.shared.b32 [64], %r1;\nwgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%r2}, %rd3, %rd4, 0, 1, 1;\n"
         f"{BRANCH}", {0}),
        ("brx.idx %r1, TABLE;", {0}),
        *((f"setp.ne.s32 %p1, %r1, 0;\n@%p1 {end};", {0}) for end in ("ret", "exit")),
    ],
)  # fmt: skip
def test_contents_that_reach_an_address_or_a_branch_steer(body: str, steering: set[int]) -> None:
    ptx = Ptx(f"{HEAD}{body}\nret;\n}}\n")
    assert steering_parameters(ptx, "k") == steering


def test_a_loop_carries_contents_backwards() -> None:
    body = "L:\nadd.s64 %rd3, %rd2, %rd4;\nst.global.b32 [%rd3], 0;\ncvt.s64.s32 %rd4, %r1;\nbra L;"
    assert steering_parameters(Ptx(f"{HEAD}{body}\nret;\n}}\n"), "k") == {0}
