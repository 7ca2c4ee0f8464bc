"""Miscompilations of integers: shifts, bit fields, the greatest of three, comparisons, products."""

from __future__ import annotations

from tritonhook.ptx.dataflow import Operation, Part, Source, number, only_maker
from tritonhook.ptx.miscompiles.normal import is_pure, zeros
from tritonhook.ptx.miscompiles.record import Miscompilation, Range, all_targets

_FUZZX = "https://github.com/SemiAnalysisAI/FuzzX/tree/master/ptx/known-miscompiles/"
_OPENPTXAS = "https://github.com/garrick99/openptxas"
_TOP_BIT, _ONES = 1 << 31, 0xFFFF_FFFF
_NAN = 0x7F80_0001  # the smallest positive integer whose bits are a NaN in float32


def _is_spelled(operation: Operation, *names: str) -> bool:
    """Return True if the operation is written as one of these instructions in the text. Some bugs need this spelling:
    ptxas converts equivalent instructions to the same form only after the pass with the bug."""
    return operation.statement.opcode.partition(".")[0] in names


def _made(value: Source | None, name: str, *types: str) -> Operation | None:
    """Find the operation with this name that produced a value. A guard that may replace the value by 0 is allowed."""
    made = only_maker(value)
    if made is not None and (guarded := _guarded(made)) is not None:
        made = made.made_by(guarded)
    return made if made is not None and made.is_a(name, *types) else None


def _guarded(operation: Operation) -> int | None:
    """If an operation selects between a source and 0, return the index of that source, else None."""
    if not operation.is_a("selp"):
        return None
    return next((index for index in (0, 1) if operation.number(1 - index) == 0), None)


def _rotates(operation: Operation) -> bool:
    """Match `(x << k) - (x >> 64 - k)`, in either order."""
    a, b = operation.made_by(0), operation.made_by(1)
    is_difference = operation.is_a("sub", "b64") or (operation.name == "sub.cc" and operation.type in ("s64", "u64"))
    if not is_difference or a is None or b is None:
        return False
    return _is_rotation(a, b) or _is_rotation(b, a)


def _is_rotation(left: Operation, right: Operation) -> bool:
    if not (left.is_a("shl", "b64") and right.is_a("shr", "u64", "s64")) or left.source(0) != right.source(0):
        return False
    if not (_is_spelled(left, "shl") and _is_spelled(right, "shr", "div")):
        return False
    counts = left.number(1), right.number(1)
    if number(left.statement.operands[-1]) not in (None, counts[0]):  # merged from several shifts
        return False
    return counts[0] is not None and counts[1] is not None and counts[0] + counts[1] == 64


def _greatest_of_three(operation: Operation) -> bool:
    """Match `max(max(x, -x), y)`, and the same with `min`, if nothing else reads the inner result."""
    if operation.name not in ("max", "min") or operation.type != "s32":
        return False
    for inner, index in operation.operands(operation.name, "s32"):
        readers = {reader for _, reader in inner.readers if reader.readers or not is_pure(reader.name)}
        if (
            operation.number(1) is None
            and readers <= {operation}
            and operation.source(1 - index) != operation.source(index)
            and _is_absolute(inner)
        ):
            return True
    return False


def _is_absolute(operation: Operation) -> bool:
    """Match `max(x, -x)`, in this order."""
    negated = operation.made_by(1)
    if negated is None or not negated.is_a("neg", "b32") or _is_spelled(negated, "add", "not", "xor"):
        return False
    return _is_spelled(operation, "max", "min") and negated.source(0) == operation.source(0)


def _selects_by_nan(operation: Operation) -> bool:
    chosen_by = operation.number(2)
    return operation.is_a("slct.s32", "s32") and chosen_by is not None and _NAN <= chosen_by < _TOP_BIT


def _compares_shifted_sign(operation: Operation) -> bool:
    """Match an unsigned comparison of a constant with `(x | 0x80000000) >> k`, an arithmetic shift of a negative
    number. If the shift were logical, the comparison would have to be always true or always false. If the shifted
    number has more than four leading sign bits, ptxas is right."""
    if operation.name not in ("setp.lt", "setp.le") or operation.type != "u32":
        return False
    for index, source in enumerate(operation.sources):
        made, limit = _made(source, "shr", "s32"), operation.number(1 - index)
        count = made.number(1) if made is not None else None
        user = made.made_by(0) if made is not None and count else None
        if user is None or count is None or limit is None or not user.is_a("or", "b32"):
            continue
        signs = 32 - (~(user.number(1) or 0) & _ONES).bit_length()
        most = _ONES >> count
        is_decided = limit > most or (limit == most and (operation.name == "setp.le") != bool(index))
        if is_decided and 0 < signs <= 4 - count and not _is_spelled(user, "bfi"):
            return True
    return False


def _multiplies_known_bits(operation: Operation) -> bool:
    """Match a product of two numbers if the position of the lowest 1 bit is known for both, and if single bits of the
    product are read. The position of the product's lowest 1 bit is then also known."""
    if not operation.is_a("mul.lo", "b32"):
        return False
    places = [_lowest_one(operation.source(index)) for index in (0, 1)]
    if places[0] is None or places[1] is None:
        return False
    return _reads_known(places[0] + places[1], operation)


def _reads_known(place: int, product: Operation) -> bool:
    """Return True if some operation depends only on the product's low bits, up to its lowest 1 bit at `place`. It is an
    `and` with a mask of low bits, an `or` with a mask of low bits or of all higher bits, or a left shift that keeps
    only low bits. A guard, a left shift, an added constant or a truncation may stand between product and operation."""
    for _, reader in product.readers:
        count = reader.number(1)
        if reader.is_a("and", "b32", "b16") or reader.is_a("or", "b32"):
            first = only_maker(reader.sources[0])  # equal operations share their readers
            other = reader.sources[first is not None and first.readers is product.readers]
            mask, known = ~zeros(other, 32) & _ONES, (2 << place) - 1
            is_or = reader.name == "or"
            decides = (mask >> place & 1 and not mask & ~known) or (is_or and mask | known == _ONES)
            if decides and not _is_spelled(reader, "bfi", "not"):
                return True
        elif reader.is_a("shl", "b32") and count is not None and place + count < 32:
            if count + place == 31 or _reads_known(place + count, reader):
                return True
        elif _passes_on(reader) and _reads_known(place, reader):
            return True
    return False


def _passes_on(operation: Operation) -> bool:
    is_sum = operation.is_a("add", "b32") and operation.number(1) is not None
    return is_sum or _guarded(operation) is not None or operation.is_a("cvt.u16", "u32", "s32")


def _lowest_one(value: Source | None) -> int | None:
    """Find the position of the lowest 1 bit of `x | 1`, or of `(x << k) + constant` if the constant has a 1 bit below
    k. A further left shift may follow. None if the position is not known."""
    made = only_maker(value)
    added = made.number(1) if made is not None else None
    if made is not None and added and made.is_a("shl", "b32"):
        inner = _lowest_one(made.source(0))
        return None if inner is None else inner + added
    if made is None or not added or made.type != "b32" or made.name not in ("or", "add"):
        return None
    if _is_spelled(made, "bfi", "not"):
        return None
    lowest = added & -added
    if made.is_a("or") and lowest == 1:
        return 0
    is_known = zeros(made.source(0) or 0, 32) & 2 * lowest - 1 == 2 * lowest - 1
    return lowest.bit_length() - 1 if is_known else None


def _takes_bits_beyond(operation: Operation) -> bool:
    place = operation.number(1)
    return operation.is_a("bfe", "s32") and place is not None and place & 0xFF >= 32 and bool(operation.number(2))


def _inserts_too_many_bits(operation: Operation) -> bool:
    place, count = operation.number(2), operation.number(3)
    if not operation.is_a("bfi", "b32") or place is None or count is None or operation.number(1) is not None:
        return False
    place, count = place & 0xFF, count & 0xFF
    return 0 < place < 32 <= count and place + count % 32 < 32


def _masks_signs(operation: Operation) -> bool:
    """Match a mask on the result of a `prmt`: an `and`, a zero-extension from 16 or 8 bits, or a store of 16 or 8 bits.
    The mask must keep whole bytes, including the lowest. In `prmt`, each of these bytes must be a replicated sign, and
    at least one of them a sign in the first operand."""
    mask = operation.number(1)
    if operation.is_a("and", "b32", "b64") and _is_spelled(operation, "and", "cvt"):
        value = operation.sources[0]
    elif operation.is_a("cvt.u32", "u16", "u8") or (operation.name.startswith("st.") and operation.sources[1:]):
        value, mask = operation.sources[-1], {"16": 0xFFFF, "8": 0xFF}.get(operation.type[1:])
    else:
        return False
    made = only_maker(_widest(value))
    if made is None or mask is None or not made.is_a("prmt", "b32"):
        return False
    parts = [mask >> 8 * at & 0xFF for at in range(4)]
    taken = [(made.number(2) or 0) >> 4 * at & 0xF for at in range(4) if parts[at]]
    is_whole = parts[0] == 0xFF and set(parts) == {0, 0xFF}
    return is_whole and min(taken) >= 8 and any(one < 12 for one in taken)


def _widest(value: Source) -> Source:
    """Find the 32-bit number that was truncated or extended to this value; else return the value."""
    made = only_maker(value)
    if isinstance(value, Part) and value.operation.is_a("mov", "b32") and not value.index:
        return value.operation.sources[0] if value.operation.results == 2 else value
    if made is not None and made.name in ("cvt.u16", "cvt.s16", "cvt.u8", "cvt.s8") and made.type in ("u32", "s32"):
        return made.sources[0]
    return _narrow(value)


def _clamps_to_zero(operation: Operation) -> bool:
    """Match `min.s32(max.u32(x, 0), 0)`."""
    if not operation.is_a("min", "s32") or operation.number(1) != 0:
        return False
    return any(made.number(1) == 0 for made, _ in operation.operands("max", "u32"))


def _below_zero(operation: Operation) -> bool:
    """Match the unsigned comparisons `0 > -cnot(x)` and `0 > set.eq(x, 0)`, and their negations."""
    zero = 1 if operation.is_a("setp.lt", "u32") else 0
    is_below = operation.is_a("setp.lt", "u32") or operation.is_a("setp.le", "u32")
    negated = operation.made_by(1 - zero)
    if not is_below or operation.number(zero) != 0 or ".hi." in operation.statement.opcode or negated is None:
        return False
    if negated.is_a("selp", "b32") and _is_spelled(negated, "set"):
        return negated.sources[:2] == (_ONES, 0)
    made = next((made for made, _ in negated.operands("cnot", "b32")), None)
    if made is None or not negated.is_a("neg", "b32") or _is_spelled(negated, "add", "not", "xor"):
        return False
    return _is_spelled(made, "cnot") or (_is_spelled(made, "selp") and made.statement.operands[1] == "0")


def _carries_nothing(operation: Operation) -> bool:
    """Match `add.cc` or `sub.cc` of a nonzero constant and a value that two left shifts made 0."""
    if operation.name not in ("add.cc", "sub.cc") or not operation.number(1):
        return False
    for outer, _ in operation.operands("shl", "b32"):
        inner = _made(outer.source(0), "shl", "b32")
        if inner is not None and not any(_is_spelled(one, "add") for one in (outer, inner)):
            return (outer.number(1) or 0) + (inner.number(1) or 0) >= 32
    return False


def _borrows_after_cnot(operation: Operation) -> bool:
    """Match `sub.cc` with a shifted `cnot`."""
    if operation.name != "sub.cc":
        return False
    shifts = (made for made, _ in operation.operands("shl", "b32") if not _is_spelled(made, "add"))
    return any(_is_spelled(made, "cnot") for shift in shifts for made, _ in shift.operands("cnot", "b32"))


def _folds_repeated_operand(operation: Operation) -> bool:
    """Match a logical operation whose operands are the result of a `lop3` with a repeated operand, and an operand of
    that `lop3`. ptxas replaces one of the two equal operands by 0. The result is wrong if that changes the `lop3` for
    an input for which the logical operation depends on it."""
    if operation.name not in ("and", "or", "xor"):
        return False
    narrow = [_narrow(source) if operation.name == "and" else source for source in operation.sources]
    for index, source in enumerate(narrow):
        made, other = only_maker(source), narrow[1 - index]
        table = made.number(3) if made is not None and made.is_a("lop3", "b32") else None
        if made is None or table is None:
            continue
        given = made.sources[:3]
        pair = next(((a, b) for a, b in ((0, 2), (1, 2), (0, 1)) if given[a] == given[b]), None)
        if pair is None or other not in given:
            continue
        dropped = 4 >> (pair[0] if pair == (0, 1) and other == given[2] else pair[1])
        rows = [row for row in range(8) if (row >> 2 - pair[0] & 1) == (row >> 2 - pair[1] & 1)]
        at, needed = 2 - given.index(other), {"and": 1, "or": 0}.get(operation.name)
        rows = [row for row in rows if needed is None or row >> at & 1 == needed]
        if any((table >> row ^ table >> (row & ~dropped)) & 1 for row in rows):
            return True
    return False


def _narrow(value: Source) -> Source:
    """Find the 32-bit number that was extended to this value or is the low half of this 64-bit pair; else return the
    value."""
    made = only_maker(value)
    is_wide = made is not None and (made.is_a("cvt.u64", "u32") or made.is_a("cvt.s64", "s32"))
    is_pair = made is not None and made.is_a("mov", "b64") and len(made.sources) == 2
    return made.sources[0] if made is not None and (is_wide or is_pair) else value


INTEGERS = (
    Miscompilation(
        name="shift-sub-rotate-64",
        does="compiles the 64-bit difference `(x << k) - (x >> 64 - k)` as a rotation, which is the sum of both terms",
        instead="negate the second term and use `add`",
        sources=(_OPENPTXAS,),
        ranges=all_targets("11.7.99", "13.2.86"),
        words=(("shr.", "div.u64"), ("shl.b64",)),
        matches=_rotates,
        executed=True,
    ),
    Miscompilation(
        name="greatest-of-three",
        does="drops the negation in `max(max(x, -x), y)`, so that it becomes `max(x, y)`; likewise with `min`",
        instead="write `abs.s32`",
        sources=(
            "https://github.com/pytorch/pytorch/issues/190973",
            "https://github.com/triton-lang/triton/pull/11032",
        ),
        ranges=(Range(("sm_90a", "sm_100a"), "12.6.85", "13.3.73"),),
        words=(("max.s32", "min.s32"), ("neg.", "sub.", "mul.lo", "mad.lo")),
        matches=_greatest_of_three,
        executed=True,
    ),
    Miscompilation(
        name="product-low-bits",
        does="assumes that the lowest 1 bit of a product is 0, e.g. of `(x | 1) * (y | 1)`, if single bits of the "
        "product are read",
        instead="use the low half of `mul.wide`",
        sources=(),
        ranges=all_targets("13.4.59", "13.5.37"),
        words=(("mul.lo", "mad.lo"),),
        matches=_multiplies_known_bits,
        executed=True,
    ),
    Miscompilation(
        name="unsigned-of-shifted-sign",
        does="treats `shr.s32` of a negative number as `shr.u32` in an unsigned comparison with a constant",
        instead="compare signed numbers",
        sources=(f"{_FUZZX}m010-shr-s32-range-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("shr.s32",), ("setp.", "set.")),
        matches=_compares_shifted_sign,
        executed=True,
    ),
    Miscompilation(
        name="bit-field-beyond-register",
        does="returns all ones for `bfe.s32` if the field begins at bit 32 or later, even if the number is positive",
        instead="use `shr.s32` by 31",
        sources=(f"{_FUZZX}m052-bfe-reg-pos-fold", _OPENPTXAS),
        ranges=all_targets("11.7.99", "13.4.92"),
        words=(("bfe.s32",),),
        matches=_takes_bits_beyond,
        executed=True,
    ),
    Miscompilation(
        name="bit-field-too-long",
        does="takes the length of `bfi.b32` modulo 32 if it is 32 or more",
        instead="write 32 minus the first bit as the length",
        sources=(f"{_FUZZX}m053-bfi-reg-len-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("bfi.b32",),),
        matches=_inserts_too_many_bits,
        executed=True,
    ),
    Miscompilation(
        name="select-by-number",
        does="chooses the wrong value in `slct.s32.s32` if the last operand is a constant whose bits are a "
        "NaN, e.g. 0x7fc00000",
        instead="write a `mov` of the right value instead of `slct`",
        sources=(f"{_FUZZX}m016-slct-s32-immediate-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("slct.s32.s32",),),
        matches=_selects_by_nan,
        executed=True,
    ),
    Miscompilation(
        name="signs-of-bytes",
        does="loses the signs of bytes that `prmt.b32` replicates if `and.b32` masks the result",
        instead="mask before `prmt.b32`",
        sources=(f"{_FUZZX}m024-prmt-cvt-u16-fold", f"{_FUZZX}m066-prmt-sign-byte-and-fold"),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("prmt.b32",),),
        matches=_masks_signs,
        executed=True,
    ),
    Miscompilation(
        name="clamp-of-mixed-signs",
        does="replaces `min.s32(max.u32(x, 0), 0)` by 0, even if x is negative",
        instead="omit the `max.u32`, which has no effect",
        sources=(f"{_FUZZX}m020-mixed-minmax-signedness-fold",),
        ranges=all_targets("12.0.140", "13.3.73"),
        words=(("max.u32", "setp."), ("min.s32", "setp.")),
        matches=_clamps_to_zero,
        executed=True,
    ),
    Miscompilation(
        name="unsigned-below-zero",
        does="evaluates the unsigned `0 > -cnot(x)`, which is never true, as true if x is 0",
        instead="compare with `ne`",
        sources=(f"{_FUZZX}m032-cnot-neg-ugt-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("cnot.b32", "set.eq", "selp."), ("setp.", "set.")),
        matches=_below_zero,
        executed=True,
    ),
    Miscompilation(
        name="lop3-repeated-operand",
        does="folds a logical operation on a `lop3` with a repeated operand wrongly, e.g. `lop3(a, b, a) & a`",
        instead="write `and`, `or` and `xor`",
        sources=(f"{_FUZZX}m002-structured-lop3",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("lop3.b32",),),
        matches=_folds_repeated_operand,
        executed=True,
    ),
    Miscompilation(
        name="carry-of-nothing",
        does="sets the carry of an `add.cc` although one operand is 0 after two left shifts",
        instead="write 0 instead of the shifted number",
        sources=(f"{_FUZZX}m017-addc-shift-carry-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("add.cc.", "sub.cc."),),
        matches=_carries_nothing,
        executed=True,
    ),
    Miscompilation(
        name="borrow-after-cnot",
        does="borrows 1 too much in a `sub.cc` if an operand is a shifted `cnot` that is 0",
        instead="write `setp` and `selp`",
        sources=(f"{_FUZZX}m018-subc-cnot-shift-borrow-fold",),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("sub.cc.",), ("cnot.b32",)),
        matches=_borrows_after_cnot,
        executed=True,
    ),
)
