"""An access out of bounds: the argument that its address came from is named, and a 32-bit number that wrapped."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of, run_body  # noqa: E402

from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402

AT, NONE = "ld.global.b32 %r9, [%rd9];", ""
ROW = "mov.u32 %r1, 131079; mov.u32 %r2, 16384;"  # their product is above 2**31
WRAPPED = "a 32-bit product wrapped: 131,079 * 16,384 became -2,147,368,960"


def fault_of(body: str, *sizes: int) -> Fault:
    """The fault of a body that has the buffers x0, x1, ... of so many bytes."""
    with pytest.raises(Fault) as caught:
        run_body(body, *(np.zeros(size // 4, np.uint32) for size in sizes), threads=1)
    return caught.value


@pytest.mark.parametrize(
    ("body", "blamed", "wrapped"),
    [
        # x1 lies nearer to each of these addresses
        ("add.s64 %rd9, %rd20, 16800;", "argument x0", NONE),
        ("mov.u64 %rd1, %rd20; mul.wide.s32 %rd2, %r20, 4; add.s64 %rd1, %rd1, 16800; add.s64 %rd9, %rd1, %rd2;",
         "argument x0", NONE),
        ("cvta.to.global.u64 %rd1, %rd20; mov.u32 %r1, 4200; mad.wide.u32 %rd9, %r1, 4, %rd1;", "argument x0", NONE),
        ("setp.eq.u32 %p1, %r20, 0; selp.b64 %rd1, %rd20, %rd22, %p1; add.s64 %rd9, %rd1, 16800;", "argument x0", NONE),
        # a loop over a pointer that moves
        ("mov.u64 %rd9, %rd20; L: ld.global.b32 %r1, [%rd9]; add.s64 %rd9, %rd9, 64; bra L;", "argument x0", NONE),
        ("L: ld.global.b32 %r1, [%rd20]; add.s64 %rd20, %rd20, 300; bra L;", "argument x0", NONE),
        # a pointer out of a table in memory
        ("st.global.b64 [%rd21], %rd20; ld.global.b64 %rd1, [%rd21]; add.s64 %rd9, %rd1, 16800;", "argument x0", NONE),
        (f"{ROW} mul.lo.s32 %r3, %r1, %r2; cvt.s64.s32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;", "argument x1", WRAPPED),
        (f"{ROW} mad.lo.s32 %r3, %r1, %r2, %r20; cvt.s64.s32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;",
         "argument x1", WRAPPED),
        (f"{ROW} mad.lo.s32 %r3, %r1, %r2, 64; mul.wide.s32 %rd1, %r3, 4; add.s64 %rd9, %rd21, %rd1;", "argument x1",
         "131,079 * 16,384 + 64 became -2,147,368,896"),
        (f"{ROW} shl.b32 %r3, %r1, 14; mul.wide.s32 %rd1, %r3, 4; add.s64 %rd9, %rd21, %rd1;", "argument x1", WRAPPED),
        (f"{ROW} mul.lo.s32 %r3, %r1, %r2; add.s32 %r4, %r3, 64; cvt.s64.s32 %rd1, %r4; add.s64 %rd9, %rd21, %rd1;",
         "argument x1", WRAPPED),
        ("mov.u32 %r1, 2147483647; add.s32 %r2, %r1, 1; mul.wide.s32 %rd1, %r2, 4; add.s64 %rd9, %rd21, %rd1;",
         "argument x1", "a 32-bit sum wrapped: 2,147,483,647 + 1 became -2,147,483,648"),
        (f"{ROW} mul.lo.s32 %r3, %r1, %r1; cvt.u64.u32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;", "argument x1",
         "131,079 * 131,079 became"),
        # what did not wrap: a product that is an unsigned number, a negative offset, bits of a hash
        (f"{ROW} mul.lo.s32 %r3, %r1, %r2; cvt.u64.u32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;", "argument x1", NONE),
        ("mov.u32 %r1, 3000000000; add.u32 %r2, %r1, 4; cvt.u64.u32 %rd1, %r2; add.s64 %rd9, %rd21, %rd1;",
         "argument x1", NONE),
        ("mov.u32 %r1, -5; mul.lo.s32 %r3, %r1, 4; cvt.s64.s32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;",
         "argument x1", NONE),
        (f"{ROW} mul.lo.s32 %r3, %r1, -1640531527; shr.u32 %r4, %r3, 9; cvt.s64.s32 %rd1, %r4; shl.b64 %rd1, %rd1, 9;"
         "add.s64 %rd9, %rd21, %rd1;", "argument x1", NONE),
    ],
)  # fmt: skip
def test_the_argument_of_the_address_is_blamed_and_what_wrapped_is_shown(body: str, blamed: str, wrapped: str) -> None:
    fault = fault_of(f"{body} {AT}", 256, 256, 256)
    assert fault.text.startswith(f"read of 4 bytes outside of {blamed} (256 bytes), ")
    assert (wrapped in fault.origin.wrapped) if wrapped else fault.origin.wrapped == ""


def test_where_it_lies_is_counted_from_the_argument_that_is_blamed() -> None:
    assert fault_of(f"add.s64 %rd9, %rd20, 16800; {AT}", 256, 256).text.endswith(", 16,544 bytes beyond its end")
    assert fault_of(f"add.s64 %rd9, %rd21, -16500; {AT}", 256, 256).text.endswith(", 16,500 bytes before its start")
    assert fault_of(f"add.s64 %rd9, %rd20, 254; {AT}", 256, 256).text.endswith(", from 2 bytes before its end")


def test_no_argument_is_blamed_for_an_address_that_came_from_none() -> None:
    assert fault_of(f"mov.u64 %rd9, 16; {AT}", 256).text == "read of 4 bytes outside of all buffers, at address 0x10"


def test_a_finding_shows_the_line_that_wrapped() -> None:
    body = f"{ROW}\nmul.lo.s32 %r3, %r1, %r2;\ncvt.s64.s32 %rd1, %r3; add.s64 %rd9, %rd21, %rd1;\n{AT}"
    buffers = [np.zeros(64, np.uint32)] * 2
    run = Run(launch_of(*buffers, threads=1), range(1))
    (found,) = sanitize(module_of(body, 2), run, [one.tobytes() for one in buffers]).findings
    assert found.kind == "out of bounds" and WRAPPED in found.text
    assert [place.instruction for place in found.places] == ["mul.lo.s32 %r3, %r1, %r2;", AT]
