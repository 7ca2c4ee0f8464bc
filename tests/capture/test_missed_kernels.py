"""What a session says of kernels that it did not rewrite."""

from __future__ import annotations

import pytest

from tritonhook.capture.session import Session
from tritonhook.capture.settings import make_settings
from tritonhook.capture.triton.metadata import META_FROM, META_KEYS
from tritonhook.capture.triton.rewriting import digest

TEXT = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry {}()\n{{\nret;\n}}\n"


@pytest.mark.parametrize(
    ("name", "known", "noted"),
    [
        ("add", {}, True),
        ("add", {META_KEYS: ["another"]}, True),
        ("add", {META_KEYS: ["own"]}, False),
        ("sub", {}, False),  # not wanted
        ("x_add", {META_FROM: "add"}, True),
        ("a_add", {META_FROM: "sub"}, False),
        ("a_add", {}, False),  # nothing would change
        ("add", {"no ptx": 1}, True),
        ("a_add", {"no ptx": 1}, True),
        ("add", {"damaged": 1}, True),
    ],
)
def test_a_kernel_that_was_compiled_without_the_session_is_noted(out, tmp_path, name, known, noted) -> None:
    session = Session(make_settings(out, rename="a_", only="add"), ())
    path = tmp_path / "k.ptx"
    if "damaged" not in known:
        path.write_text(TEXT.format(name))
    if META_KEYS in known:
        known = {META_KEYS: [key.replace("own", digest(session.settings.key)) for key in known[META_KEYS]]}
    group = {"k.cubin": "nowhere"} | ({} if "no ptx" in known else {"k.ptx": str(path)})
    session.check_rewritten({"name": name, **known}, group, "why")
    own = known.get(META_FROM, name)
    assert session.notes == ([f"1 kernel not rewritten ({own}): why"] if noted else [])


def test_kernels_that_were_missed_for_one_reason_share_a_note(out) -> None:
    session = Session(make_settings(out, rename="a_"), ())
    for name in ("k0", "k1", "k2", "k0", "k3", "k4", "k5"):
        session.check_rewritten({"name": name}, {}, "why")
    assert session.notes == ["6 kernels not rewritten (k0, k1, k2, k3, k4, ...): why"]
