"""A policy of a stranger names its controls file: nothing but a file below the policy's folder is read or copied."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tritonhook.capture.policy.levers import lever
from tritonhook.errors import ToolError

SECRET = b"a private key"
SHA256 = hashlib.sha256(SECRET).hexdigest()


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a policy. Beside it are a private file, and an empty cache."""
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "private").write_bytes(SECRET)
    (tmp_path / "private").chmod(0o600)
    folder = tmp_path / "cloned"
    (folder / "sub").mkdir(parents=True)
    return folder


def copies(policy: Path) -> list[Path]:
    return sorted((policy.parent / "cache").rglob("*"))


@pytest.mark.parametrize("sha256", [None, SHA256])
@pytest.mark.parametrize("name", ["{0}/private", "../private", "sub/../../private", "link", "folder/private", "."])
def test_a_file_elsewhere_is_not_copied(name: str, sha256: str | None, policy: Path) -> None:
    (policy / "link").symlink_to("../private")
    (policy / "folder").symlink_to("..")
    with pytest.raises(ToolError):
        lever(f"controls={name.format(policy.parent)}").assembling(policy, sha256)
    assert copies(policy) == []


def test_a_file_that_was_not_certified_is_not_copied(policy: Path) -> None:
    (policy / "fast.bin").write_bytes(b"other")
    with pytest.raises(ToolError, match="not the controls file that was certified"):
        lever("controls=fast.bin").assembling(policy, SHA256)
    assert copies(policy) == []


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_copy_has_the_permissions_of_its_file(mode: int, policy: Path) -> None:
    for before in (0o644, mode):  # a copy of the same content with others was there
        (policy / "sub" / "fast.bin").write_bytes(SECRET)
        (policy / "sub" / "fast.bin").chmod(before)
        assembling = lever("controls=sub/fast.bin").assembling(policy, SHA256)
    assert assembling is not None
    copy = Path(assembling.options[0].partition("=")[2])
    assert copy.read_bytes() == SECRET and copy.stat().st_mode & 0o777 == mode
