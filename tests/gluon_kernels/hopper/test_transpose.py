"""V transposed in shared memory: which byte goes where."""

import re
from itertools import product
from types import SimpleNamespace

import pytest

from tests.gluon_kernels.support.arrays import Array, join
from tests.gluon_kernels.support.ptx_interpreter import selected


@pytest.fixture
def transpose():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import transpose

    return transpose


def test_the_key_order_of_transposed_values_is_that_of_the_probabilities(transpose):
    """Mutation check included: without the permutation the orders differ."""
    key_of_column = transpose.key_of_column.fn
    for block, lane, half, i in product(range(8), range(4), range(2), range(2)):
        column = 16 * block + 4 * lane + 2 * half + i  # where wgmma looks in its left operand
        key = 16 * block + 8 * half + 2 * lane + i  # which score of its row that thread has there
        assert key_of_column(column) == key
    assert any(key_of_column(column) != column for column in range(16))


def permuted_bytes(text, constraints, operands, dtype, is_pure, pack):
    """Replace inline_asm_elementwise: prmt.b32 on pairs of 16-bit neighbours along the second dimension."""
    assert pack == 2
    selectors = [int(x, 16) for x in re.findall(r"prmt.b32 \$\d, \$2, \$3, (0x\d{4});", text)]
    a, b = operands
    outputs: list[dict] = [{} for _ in selectors]
    for i, t, pair in product(range(a.shape[0]), range(0, a.shape[1], 2), range(a.shape[2])):
        pool = [byte for x in (a, b) for neighbour in (t, t + 1) for byte in x.at(i, neighbour, pair)]
        for output, selector in zip(outputs, selectors, strict=True):
            taken = selected(pool, selector)
            output[i, t, pair], output[i, t + 1, pair] = tuple(taken[:2]), tuple(taken[2:])
    return [Array(a.shape, [x[i] for i in product(*map(range, a.shape))]) for x in outputs]


def transposed(transpose, monkeypatch, keys=32, head_dim=64, text=None):
    """V as the load partition transposes it: the name of a byte for each row and column."""
    edit = text or (lambda x: x)
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, *rest, **named: permuted_bytes(edit(asm), *rest, **named),
        join=join, int16="int16", convert_layout=lambda x, layout, assert_trivial: x,
    )  # fmt: skip
    pairs = [((key, d), (key, d + 1)) for key in range(keys) for d in range(0, head_dim, 2)]
    stored = []
    rows = SimpleNamespace(shape=[keys, head_dim // 2], load=lambda layout: Array([keys, head_dim // 2], pairs))
    columns = SimpleNamespace(shape=[head_dim, keys // 2], store=stored.append)
    with monkeypatch.context() as patch:
        patch.setattr(transpose, "gl", fake)
        patch.setattr(transpose, "rows_layout", lambda shape: None)
        patch.setattr(transpose, "columns_layout", lambda shape: None)
        transpose.transpose_part.fn(rows, columns)
    (out,) = stored
    return [[byte for c in range(keys // 2) for byte in out.at(r, c)] for r in range(head_dim)]


def test_transposed_rows_are_columns_in_the_order_of_the_probabilities_and_come_back_in_order(transpose, monkeypatch):
    rows = transposed(transpose, monkeypatch)
    order = transpose.in_order.fn(SimpleNamespace(transpose_v=True, head_dim=64), Array([64, 64], list(range(64)) * 64))
    for d, r in enumerate(order.values[:64]):  # column r of O, which is row r of the transposed V, goes to column d
        assert rows[r] == [(transpose.key_of_column.fn(column), d) for column in range(32)]
    first, second = transpose.rows_layout.fn([32, 32]), transpose.columns_layout.fn([64, 16])
    assert first.reg_bases[:2] == [[1, 0], [8, 0]], "a register has keys 2t, 2t + 1, the next 8 + 2t, 9 + 2t"
    assert second.lane_bases[2:] == [[1, 0], [2, 0], [4, 0]], "the eight rows of a stmatrix meet in no bank"


def test_another_permutation_of_bytes_is_found(transpose, monkeypatch):
    good = transposed(transpose, monkeypatch)
    for old, new in (("0x6420", "0x6240"), ("0x7531", "0x7351"), ("0x6420", "0x7531")):
        assert transposed(transpose, monkeypatch, text=lambda x, old=old, new=new: x.replace(old, new)) != good
