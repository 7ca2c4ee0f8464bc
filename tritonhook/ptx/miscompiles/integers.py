"""Miscompilations of integers: shifts, bit fields, the greatest of three, comparisons, products."""

from __future__ import annotations

from struct import pack

from tritonhook.ptx.dataflow import Operation, behind_moves
from tritonhook.ptx.miscompiles.record import Example, Miscompilation, Range, all_targets

_FUZZX = "https://github.com/SemiAnalysisAI/FuzzX/tree/master/ptx/known-miscompiles/"
_OPENPTXAS = "https://github.com/garrick99/openptxas"
_TOP_BIT = 1 << 31
_ADDITIONS = ("or.b32", "add.s32", "add.u32", "mad.lo.s32", "mad.lo.u32")
_UNSIGNED_COMPARISONS = tuple(f"setp.{how}.u32" for how in ("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"))
_NAN = 0x7F80_0001  # the least number whose bits are a NaN


def _rotates(operation: Operation) -> bool:
    """`(x << k) - (x >> 64 - k)`, in either order."""
    if not operation.is_a("sub", "s64", "u64"):
        return False
    a, b = operation.made_by(0), operation.made_by(1)
    return a is not None and b is not None and (_is_rotation(a, b) or _is_rotation(b, a))


def _is_rotation(left: Operation, right: Operation) -> bool:
    if not (left.is_a("shl", "b64") and right.is_a("shr", "u64", "b64")):
        return False
    counts = left.number(1), right.number(1)
    same = behind_moves(left.source(0)) == behind_moves(right.source(0))
    return same and counts[0] is not None and counts[1] is not None and counts[0] + counts[1] == 64


def _greatest_of_three(operation: Operation) -> bool:
    """`max(max(x, -x), y)`, or the least, where nothing else reads the first."""
    opcode = operation.statement.opcode
    if opcode not in ("max.s32", "min.s32") or operation.guarded:
        return False
    for inner, _ in operation.operands(*opcode.split(".")):
        negated = inner.made_by(1)
        is_negation = negated is not None and negated.is_a("neg", "s32")
        if is_negation and len(inner.readers) == 1:
            assert negated is not None
            return behind_moves(negated.source(0)) == behind_moves(inner.source(0))
    return False


def _selects_by_nan(operation: Operation) -> bool:
    chosen_by = operation.number(2)
    is_selection = operation.statement.opcode == "slct.s32.s32" and not operation.guarded
    return is_selection and chosen_by is not None and _NAN <= chosen_by < _TOP_BIT


def _compares_shifted_sign(operation: Operation) -> bool:
    """An unsigned comparison of a number with `(x | 0x80000000) >> k`, which keeps its sign."""
    if not operation.is_a("setp", "u32") or all(operation.number(index) is None for index in (0, 1)):
        return False
    for shifted, _ in operation.operands("shr", "s32"):
        made = shifted.made_by(0)
        ones = [made.number(0), made.number(1)] if made is not None and made.is_a("or", "b32") else []
        if any(number is not None and number & _TOP_BIT for number in ones) and shifted.number(1):
            return True
    return False


def _multiplies_known_bits(operation: Operation) -> bool:
    """A product of two numbers of which the lowest 1 is known, so that of the product is known too; read bit by bit."""
    is_product = operation.is_a("mul", "s32", "u32") or operation.is_a("mad", "s32", "u32")
    if not is_product or "lo" not in operation.statement.parts:
        return False
    places = [_lowest_one(operation.made_by(index)) for index in (0, 1)]
    if places[0] is None or places[1] is None:
        return False
    place = places[0] + places[1]
    is_even = place > 0 and operation.is_a("mul")
    return any(_masks_to(place, reader) or (is_even and _reads_bits(reader)) for _, reader in operation.readers)


def _reads_bits(operation: Operation) -> bool:
    return operation.is_a("and", "b32") or operation.is_a("or", "b32") or operation.is_a("shr")


def _masks_to(place: int, operation: Operation) -> bool:
    """Whether an `and` leaves no bit above this place, also behind a shift to the left."""
    shift = operation.number(1) if operation.is_a("shl", "b32") else None
    masks = [operation] if shift is None else [reader for _, reader in operation.readers]
    numbers = [mask.number(0) or mask.number(1) for mask in masks if mask.is_a("and", "b32")]
    return any(number is not None and 0 < number < 2 << place + (shift or 0) for number in numbers)


def _lowest_one(operation: Operation | None) -> int | None:
    """Where the lowest 1 of `(x << k) + number` is, if it is below k, or of `x | 1`. None where it is not known."""
    if operation is None:
        return None
    if operation.is_a("or", "b32") and (operation.number(1) or 0) & 1:
        return 0
    if operation.is_a("mad", "s32", "u32") and "lo" in operation.statement.parts:
        factor, added = operation.number(1) or operation.number(0), operation.number(2)
    elif operation.is_a("or", "b32") or operation.is_a("add", "s32", "u32"):
        factor, added = _factor(operation.made_by(0)), operation.number(1)
    else:
        return None
    if not factor or not added:
        return None
    place = (added & -added).bit_length() - 1
    return place if added & -added < factor & -factor else None


def _factor(operation: Operation | None) -> int | None:
    """The number that a shift or a product multiplies by."""
    if operation is None:
        return None
    if operation.is_a("shl", "b32"):
        count = operation.number(1)
        return None if count is None or not 0 <= count < 32 else 1 << count
    if operation.is_a("mul", "s32", "u32") and "lo" in operation.statement.parts:
        return operation.number(1)
    return None


def _takes_bits_beyond(operation: Operation) -> bool:
    place = operation.number(1)
    return operation.is_a("bfe", "s32") and place is not None and place & 0xFF >= 32 and operation.number(2) != 0


def _inserts_too_many_bits(operation: Operation) -> bool:
    place, count = operation.number(2), operation.number(3)
    if not operation.is_a("bfi", "b32") or place is None or count is None:
        return False
    return 0 < place & 0xFF < 32 <= count & 0xFF


def _masks_signs(operation: Operation) -> bool:
    """`prmt` that takes four signs of bytes, of which some bits are used."""
    if not operation.is_a("and", "b32") or all(operation.number(index) is None for index in (0, 1)):
        return False
    for made, _ in operation.operands("prmt", "b32"):
        chosen = made.number(2)
        if chosen is not None and chosen & 0x8888 == 0x8888:
            return True
    return False


def _clamps_to_zero(operation: Operation) -> bool:
    """`min.s32` with 0 of `max.u32` with 0."""
    if not operation.is_a("min", "s32") or 0 not in (operation.number(0), operation.number(1)):
        return False
    return any(0 in (made.number(0), made.number(1)) for made, _ in operation.operands("max", "u32"))


def _below_zero(operation: Operation) -> bool:
    """`0 > -cnot(x)`, unsigned."""
    if not operation.is_a("setp", "u32") or "gt" not in operation.statement.parts or operation.number(0) != 0:
        return False
    negated = operation.made_by(1)
    made = negated.made_by(0) if negated is not None and negated.is_a("neg", "s32") else None
    return made is not None and made.is_a("cnot", "b32")


def _carries_nothing(operation: Operation) -> bool:
    """`add.cc` of a number that two shifts have emptied."""
    if not (operation.is_a("add", "u32", "s32") and "cc" in operation.statement.parts):
        return False
    for outer, _ in operation.operands("shl", "b32"):
        inner = outer.made_by(0)
        if inner is not None and inner.is_a("shl", "b32") and (outer.number(1) or 0) + (inner.number(1) or 0) >= 32:
            return True
    return False


def _borrows_after_cnot(operation: Operation) -> bool:
    """`sub.cc` of a shifted `cnot`."""
    if not (operation.is_a("sub", "u32", "s32") and "cc" in operation.statement.parts):
        return False
    shifted = operation.made_by(1)
    made = shifted.made_by(0) if shifted is not None and shifted.is_a("shl", "b32") else None
    return made is not None and made.is_a("cnot", "b32")


def _folds_repeated_operand(operation: Operation) -> bool:
    """A logical operation on `lop3` of a register that is its first operand and another one, and on one of those."""
    if operation.guarded or operation.statement.parts[0] not in ("and", "or", "xor"):
        return False
    for made, index in operation.operands("lop3", "b32"):
        first, *others = (behind_moves(made.source(number)) for number in range(3))
        if first in others and behind_moves(operation.source(1 - index)) in (first, *others):
            return True
    return False


def _words(*u32: int) -> bytes:
    return pack(f"<{len(u32)}I", *(number & 0xFFFF_FFFF for number in u32))


_LOAD = "ld.global.b32 %r0, [%in];\n"
_LOAD_TWO = "ld.global.b32 %r0, [%in]; ld.global.b32 %r1, [%in+4];\n"
_STORE = "st.global.b32 [%out], %r7;"

INTEGERS = (
    Miscompilation(
        name="shift-sub-rotate-64",
        does="makes a rotation, which adds, of the 64-bit difference `(x << k) - (x >> 64 - k)`",
        instead="write `add` and a negation",
        sources=(_OPENPTXAS,),
        ranges=all_targets("11.7.99", "13.2.86"),
        words=(("sub.s64", "sub.u64"), ("shl.b64",), ("shr.u64", "shr.b64")),
        matches=_rotates,
        example=Example(
            "ld.global.b64 %d0, [%in];\nshl.b64 %d1, %d0, 8;\nshr.u64 %d2, %d0, 56;\nsub.s64 %d3, %d1, %d2;\n"
            "st.global.b64 [%out], %d3;",
            pack("<Q", 0xFF00_0000_0000_0001),
            pack("<Q", 1),
            "ld.global.b64 %d0, [%in];\nshl.b64 %d1, %d0, 8;\nshr.u64 %d2, %d0, 55;\nsub.s64 %d3, %d1, %d2;\n"
            "st.global.b64 [%out], %d3;",
            pack("<Q", 0x100 - 0x1FE & 0xFFFF_FFFF_FFFF_FFFF),
        ),
        executed=True,
    ),
    Miscompilation(
        name="greatest-of-three",
        does="drops the negation in `max(max(x, -x), y)`, which becomes `max(x, y)`; the same for `min`",
        instead="write `abs.s32`",
        sources=(
            "https://github.com/pytorch/pytorch/issues/190973",
            "https://github.com/triton-lang/triton/pull/11032",
        ),
        ranges=(Range(("sm_90a", "sm_100a"), "12.6.85", "13.3.73"),),
        words=(("neg.s32",), ("max.s32", "min.s32")),
        matches=_greatest_of_three,
        example=Example(
            f"{_LOAD_TWO}neg.s32 %r2, %r0;\nmax.s32 %r3, %r0, %r2;\nmax.s32 %r7, %r3, %r1;\n{_STORE}",
            _words(-13, 6),
            _words(13),
            f"{_LOAD_TWO}neg.s32 %r2, %r0;\nmax.s32 %r3, %r0, %r2;\nmin.s32 %r7, %r3, %r1;\n{_STORE}",
            _words(6),
        ),
        executed=True,
    ),
    Miscompilation(
        name="product-low-bits",
        does="takes the lowest 1 of a product for 0, e.g. of `(x | 1) * (y | 1)`, where single bits are read",
        instead="take the low half of `mul.wide`",
        sources=(),
        ranges=all_targets("13.4.59", "13.5.37"),
        words=(("mul.lo.s32", "mul.lo.u32", "mad.lo.s32", "mad.lo.u32"), ("and.b32", "or.b32", "shr."), _ADDITIONS),
        matches=_multiplies_known_bits,
        example=Example(
            f"{_LOAD}shl.b32 %r1, %r0, 2;\nor.b32 %r2, %r1, 2;\nmul.lo.s32 %r3, %r2, %r2;\n"
            f"and.b32 %r7, %r3, 7;\n{_STORE}",
            _words(32),
            _words(4),
            f"{_LOAD}shl.b32 %r1, %r0, 2;\nor.b32 %r2, %r1, 1;\nmul.lo.s32 %r3, %r2, %r2;\n"
            f"and.b32 %r7, %r3, 7;\n{_STORE}",
            _words(1),
        ),
        executed=True,
    ),
    Miscompilation(
        name="unsigned-of-shifted-sign",
        does="takes `shr.s32` of a negative number for `shr.u32` in an unsigned comparison with a number",
        instead="compare signed numbers",
        sources=(f"{_FUZZX}m010-shr-s32-range-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("shr.s32",), ("or.b32",), _UNSIGNED_COMPARISONS),
        matches=_compares_shifted_sign,
        example=Example(
            f"{_LOAD}or.b32 %r1, %r0, 0x80000000;\nshr.s32 %r2, %r1, 1;\nsetp.lt.u32 %p0, %r2, 0xc0000000;\n"
            f"selp.b32 %r7, 1, 0, %p0;\n{_STORE}",
            _words(0),
            _words(0),
            f"{_LOAD}or.b32 %r1, %r0, 0x40000000;\nshr.s32 %r2, %r1, 1;\nsetp.lt.u32 %p0, %r2, 0xc0000000;\n"
            f"selp.b32 %r7, 1, 0, %p0;\n{_STORE}",
            _words(1),
        ),
        executed=True,
    ),
    Miscompilation(
        name="bit-field-beyond-register",
        does="fills `bfe.s32` with ones where the field begins at bit 32 or later, whatever the sign",
        instead="take `shr.s32` by 31",
        sources=(f"{_FUZZX}m052-bfe-reg-pos-fold", _OPENPTXAS),
        ranges=all_targets("11.7.99", "13.4.92"),
        words=(("bfe.s32",),),
        matches=_takes_bits_beyond,
        example=Example(
            f"{_LOAD}bfe.s32 %r7, %r0, 40, 9;\n{_STORE}",
            _words(0x12345678),
            _words(0),
            f"{_LOAD}bfe.s32 %r7, %r0, 30, 9;\n{_STORE}",
            _words(0),
        ),
        executed=True,
    ),
    Miscompilation(
        name="bit-field-too-long",
        does="counts the bits of `bfi.b32` modulo 32 where there are 32 or more",
        instead="give 32 minus the first bit as the length",
        sources=(f"{_FUZZX}m053-bfi-reg-len-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("bfi.b32",),),
        matches=_inserts_too_many_bits,
        example=Example(
            f"{_LOAD_TWO}bfi.b32 %r7, %r0, %r1, 6, 49;\n{_STORE}",
            _words(0x20, 0x03020100),
            _words(0x800),
            f"{_LOAD_TWO}bfi.b32 %r7, %r0, %r1, 6, 26;\n{_STORE}",
            _words(0x800),
        ),
        executed=True,
    ),
    Miscompilation(
        name="select-by-number",
        does="chooses the wrong value in `slct.s32.s32` by a constant whose bits are a NaN, e.g. 0x7fc00000",
        instead="write `mov` of the right value",
        sources=(f"{_FUZZX}m016-slct-s32-immediate-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("slct.s32.s32",),),
        matches=_selects_by_nan,
        example=Example(
            f"{_LOAD_TWO}slct.s32.s32 %r7, %r0, %r1, 0x7fc00000;\n{_STORE}",
            _words(7, 9),
            _words(7),
            f"{_LOAD_TWO}slct.s32.s32 %r7, %r0, %r1, 0x7f800000;\n{_STORE}",
            _words(7),
        ),
        executed=True,
    ),
    Miscompilation(
        name="signs-of-bytes",
        does="drops signs of bytes that `prmt.b32` takes and `and.b32` masks",
        instead="mask before `prmt.b32`",
        sources=(f"{_FUZZX}m024-prmt-cvt-u16-fold", f"{_FUZZX}m066-prmt-sign-byte-and-fold"),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("prmt.b32",), ("and.b32",)),
        matches=_masks_signs,
        example=Example(
            f"{_LOAD_TWO}prmt.b32 %r2, %r0, %r1, 0xba98;\nand.b32 %r7, %r2, 65535;\n{_STORE}",
            _words(0x80808080, 0),
            _words(0xFFFF),
            f"{_LOAD_TWO}prmt.b32 %r2, %r0, %r1, 0x9910;\nand.b32 %r7, %r2, 65535;\n{_STORE}",
            _words(0x8080),
        ),
        executed=True,
    ),
    Miscompilation(
        name="clamp-of-mixed-signs",
        does="makes 0 of `min.s32` with 0 of `max.u32` with 0, which is a negative number for one with the top bit",
        instead="leave out the `max.u32`, which does nothing",
        sources=(f"{_FUZZX}m020-mixed-minmax-signedness-fold",),
        ranges=all_targets("12.0.140", "13.3.73"),
        words=(("max.u32",), ("min.s32",)),
        matches=_clamps_to_zero,
        example=Example(
            f"{_LOAD}max.u32 %r1, %r0, 0;\nmin.s32 %r7, %r1, 0;\n{_STORE}",
            _words(-5),
            _words(-5),
            f"{_LOAD}max.u32 %r1, %r0, 0;\nmin.s32 %r7, %r1, 100;\n{_STORE}",
            _words(-5),
        ),
        executed=True,
    ),
    Miscompilation(
        name="unsigned-below-zero",
        does="takes the unsigned `0 > -cnot(x)`, which is never true, for true where x is 0",
        instead="compare with `ne`",
        sources=(f"{_FUZZX}m032-cnot-neg-ugt-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("cnot.b32",), ("setp.gt.u32",)),
        matches=_below_zero,
        example=Example(
            f"{_LOAD}cnot.b32 %r1, %r0;\nneg.s32 %r2, %r1;\nsetp.gt.u32 %p0, 0, %r2;\n"
            f"selp.b32 %r7, 1, 2, %p0;\n{_STORE}",
            _words(0),
            _words(2),
            f"{_LOAD}cnot.b32 %r1, %r0;\nneg.s32 %r2, %r1;\nsetp.gt.u32 %p0, 5, %r2;\n"
            f"selp.b32 %r7, 1, 2, %p0;\n{_STORE}",
            _words(2),
        ),
        executed=True,
    ),
    Miscompilation(
        name="lop3-repeated-operand",
        does="folds a logical operation with `lop3` of a repeated operand wrongly, e.g. `lop3(a, b, a) & a`",
        instead="write `and`, `or` and `xor`",
        sources=(f"{_FUZZX}m002-structured-lop3",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("lop3.b32",), ("and.b32", "or.b32", "xor.b32")),
        matches=_folds_repeated_operand,
        example=Example(
            f"{_LOAD_TWO}lop3.b32 %r2, %r1, %r0, %r1, 0xd0;\nand.b32 %r7, %r1, %r2;\n{_STORE}",
            _words(0x0F0F, 0x3355),
            _words(0x0305),
            f"{_LOAD_TWO}lop3.b32 %r2, %r0, %r1, %r1, 0xd0;\nand.b32 %r7, %r1, %r2;\n{_STORE}",
            _words(0x0305),
        ),
        executed=True,
    ),
    Miscompilation(
        name="carry-of-nothing",
        does="carries 1 out of `add.cc` of a number that two shifts have emptied",
        instead="write 0 for the emptied number",
        sources=(f"{_FUZZX}m017-addc-shift-carry-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("add.cc.s32", "add.cc.u32"), ("shl.b32",)),
        matches=_carries_nothing,
        example=Example(
            f"{_LOAD_TWO}shl.b32 %r2, %r0, 1;\nshl.b32 %r3, %r2, 31;\nadd.cc.u32 %r4, %r3, 536;\n"
            f"addc.u32 %r7, %r1, 0;\n{_STORE}",
            _words(32, 64),
            _words(64),
            f"{_LOAD_TWO}shl.b32 %r2, %r0, 1;\nshl.b32 %r3, %r2, 15;\nadd.cc.u32 %r4, %r3, 536;\n"
            f"addc.u32 %r7, %r1, 0;\n{_STORE}",
            _words(64),
        ),
        executed=True,
    ),
    Miscompilation(
        name="borrow-after-cnot",
        does="borrows 1 too much in `sub.cc` of a shifted `cnot` that is 0",
        instead="write `setp` and `selp`",
        sources=(f"{_FUZZX}m018-subc-cnot-shift-borrow-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("cnot.b32",), ("sub.cc",)),
        matches=_borrows_after_cnot,
        example=Example(
            f"{_LOAD_TWO}cnot.b32 %r2, %r0;\nshl.b32 %r3, %r2, 12;\nsub.cc.u32 %r4, 3285, %r3;\n"
            f"subc.u32 %r7, %r1, 433;\n{_STORE}",
            _words(32, 939),
            _words(939 - 433),
            f"{_LOAD_TWO}and.b32 %r2, %r0, 1;\nshl.b32 %r3, %r2, 12;\nsub.cc.u32 %r4, 3285, %r3;\n"
            f"subc.u32 %r7, %r1, 433;\n{_STORE}",
            _words(939 - 433),
        ),
        executed=True,
    ),
)
