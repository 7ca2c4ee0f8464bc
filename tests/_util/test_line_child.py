"""A child that answers line by line, in time or not."""

from __future__ import annotations

import sys

from tritonhook._util.line_child import LineChild

ECHO = "import sys\nfor line in sys.stdin:\n    print('{\"said\": \"' + line.strip() + '\"}', flush=True)"


def child(code: str) -> LineChild:
    return LineChild((sys.executable, "-c", code))


def test_lines_are_answered_in_order_and_the_child_ends_with_its_input() -> None:
    one = child(ECHO)
    for word in ("a", "b"):
        one.send(word)
    assert [one.answer(120), one.answer(120)] == [{"said": "a"}, {"said": "b"}]
    one.finish()
    assert one.ended().endswith("status 0")


def test_no_answer_in_time_is_none_and_a_dead_child_is_lost() -> None:
    one = child("import time; time.sleep(60)")
    assert one.answer(0.2) is None
    one.end()
    assert one.ended().endswith("status -9")
    two = child("raise SystemExit(3)")
    assert two.answer(120) == {"lost": ""} and two.ended().endswith("status 3")
    two.send("nobody reads this")
    two.end()
