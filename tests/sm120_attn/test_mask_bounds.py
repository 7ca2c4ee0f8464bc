"""What a caller says about visible keys, in the numbers a kernel takes. Checked by brute force."""

import itertools

import pytest

from sm120_attn.mask_bounds import ALL, bounds, whole_tiles

SIDES = (None, -1, 0, 3)


@pytest.mark.parametrize(("causal", "left", "right"), list(itertools.product((False, True), SIDES, SIDES)))
def test_the_numbers_mean_what_the_caller_said(causal: bool, left: int | None, right: int | None) -> None:
    # given
    found = bounds(causal, (left, right))
    kernel_left, kernel_right = found.sides

    for distance in range(-8, 9):  # key - query, after the offset of the alignment
        # when a kernel looks at a causal side only if told so, and at a window only if told so
        seen = not (found.causal and distance > 0)
        if found.window:
            seen = seen and -kernel_left <= distance <= kernel_right

        # then
        wanted = not (causal and distance > 0)
        wanted = wanted and (left in (None, -1) or distance >= -left)
        wanted = wanted and (right in (None, -1) or distance <= right)
        assert seen == wanted, distance


def test_a_window_that_ends_at_the_diagonal_is_causal_and_needs_no_window() -> None:
    assert bounds(False, (None, 0)) == bounds(True, None)
    assert not bounds(True, None).window
    assert bounds(True, None).sides == (ALL, 0)


def test_a_causal_mask_hides_what_a_window_shows_on_the_right() -> None:
    assert bounds(True, (5, 7)) == bounds(True, (5, 0))


def test_lengths_in_whole_tiles() -> None:
    assert [whole_tiles(n) for n in (0, 1, 63, 64, 65, 4096)] == [0, 64, 64, 64, 128, 4096]


def test_huge_windows_fit_beside_a_row_in_an_int32() -> None:
    left, right = bounds(False, (2**31 - 1, 2**31 - 1)).sides
    assert left == right == ALL
    assert left + ALL <= 2**31


@pytest.mark.parametrize("window", [5, (1, 2, 3), "", {}])
def test_a_window_that_is_no_pair_is_named(window: object) -> None:
    with pytest.raises(ValueError, match="window is .*: must be .left, right., numbers of keys"):
        bounds(False, window)
