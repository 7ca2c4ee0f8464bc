"""Short ids of kernels."""

from __future__ import annotations

import pytest

from tritonhook.capture.store import ids


def test_an_id_has_six_digits_and_so_many_that_it_is_the_only_one(monkeypatch) -> None:
    assert ids.digest_of("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    digests = {"a": "0123456789", "b": "01234567ff", "c": "01fff", "d": "aaaaaaaa", "e": "aaaaaab1", "f": "aaaaaa00"}
    digests = {record: digest.ljust(64, "0") for record, digest in digests.items()}
    monkeypatch.setattr(ids, "digest_of", digests.get)
    shown = {"a": "012345678", "b": "01234567f", "c": "01fff0", "d": "aaaaaaa", "e": "aaaaaab", "f": "aaaaaa0"}
    assert ids.short_ids(list(digests)) == shown and list(ids.short_ids("fa")) == ["f", "a"]
    assert ids.short_ids("ac") == {"a": "012345", "c": "01fff0"} and ids.short_ids("") == {}


@pytest.mark.parametrize(
    ("text", "is_id", "is_short"),
    [
        *(("0a1f", True, False), ("0a1", False, True), ("", False, False), ("0A1F", False, False), ("g", False, False)),
        *(("0" * 64, True, False), ("0" * 65, False, False), ("12345\n", False, False), ("wxyz", False, False)),
    ],
)
def test_digits_can_be_the_beginning_of_an_id(text, is_id, is_short) -> None:
    assert (ids.is_id(text), ids.is_short_of_id(text)) == (is_id, is_short)
