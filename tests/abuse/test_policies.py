"""Policies of strangers, damaged and hostile: read or refused in one line, and no file elsewhere is read or copied."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from damage import damaged_json, no_hang, outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tritonhook._util.toml import toml_block
from tritonhook.capture.policy.model import read_policy
from tritonhook.errors import PolicyError

from .conftest import ABUSE

SECRET = b"a private key, 0600"
KERNEL = {
    "name": "add",
    "arch": "sm_90a",
    "front_end": "Triton",
    "lever": "ptxas=13.5.37+controls=fast.bin",
    "gain_percent": 5.25,
    "interval_percent": [4.5, 6.02],
    "gpu": "NVIDIA H200",
    "date": "2026-11-22",
    "ptxas": "12.8.93",
    "ptx": "1a" * 32,
    "code": "3c" * 8,
    "controls": "1a" * 32,
}
PIN = {"function": "add", "arch": "sm_90a", "key": ["n=1"], "config": "BLOCK: 64"}
NAMES = (
    "fast.bin",
    "../private",
    "{0}/private",
    "link",
    "folder/private",
    "fifo",
    ".",
    "",
    "/dev/zero",
    "a" * 5000,
    "\x00",
)
PARTS = (
    "controls=NAME",
    "name",
    "name=x",
    "ptxas=NAME",
    "ptxas=13.5.37",
    "O1",
    "regalloc=1",
    "pragma",
    "+",
    "=",
    "NAME",
    "\u202e",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a policy. Beside it are a private file, and the cache."""
    around = tmp_path_factory.mktemp("policies")
    (around / "private").write_bytes(SECRET)
    (around / "private").chmod(0o600)
    cloned = around / "cloned"
    cloned.mkdir()
    (cloned / "fast.bin").write_bytes(b"controls")
    (cloned / "link").symlink_to("../private")
    (cloned / "folder").symlink_to("..")
    os.mkfifo(cloned / "fifo")
    return cloned


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(folder.parent / "cache"))


def read(folder: Path, text: bytes) -> None:
    """It is read, or refused by a PolicyError; the private file is nowhere else."""
    path = folder / "tritonhook.toml"
    path.write_bytes(text)
    with no_hang():
        try:
            read_policy(path)
        except PolicyError as error:
            assert "\n" not in str(error) and str(path) in str(error)
    copies = (one for one in folder.parent.rglob("*") if one.is_file() and not one.is_symlink())
    assert [one for one in copies if one.read_bytes() == SECRET] == [folder.parent / "private"]


def block(kernel: dict[str, Any]) -> bytes:
    return ("format = 2\n" + toml_block("kernel", kernel)).encode()


@settings(ABUSE)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), st.sampled_from(NAMES))
@example(["controls=NAME"], "../private")
@example(["ptxas=13.5.37", "controls=NAME"], "fifo")
def test_any_lever_reads_no_file_elsewhere(folder: Path, parts: list[str], name: str) -> None:
    lever = "+".join(parts).replace("NAME", name.format(folder.parent))
    read(folder, block(KERNEL | {"lever": lever}))


def test_the_verb_that_lists_a_hostile_policy_ends(folder: Path) -> None:
    read(folder, block(KERNEL | {"lever": "controls=fifo", "name": "\x1b[2J\u202e"}))
    outcome("tune", "--check", "-o", str(folder / "tritonhook.toml"))


@settings(ABUSE)
@given(damaged_json({"format": 2, "kernel": [KERNEL], "pin": [PIN]}))
def test_a_damaged_policy_is_read_or_refused(folder: Path, data: bytes) -> None:
    """Each value as TOML, which for these is the same as JSON; and the JSON itself, which is no TOML."""
    read(folder, data)
    try:
        document = json.loads(data)
        blocks = [
            toml_block(name, one)
            for name in ("kernel", "pin")
            for one in document.get(name, ())
            if isinstance(one, dict)
        ]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return  # TOML cannot hold it
    read(folder, "\n".join(["format = 2\n", *blocks]).encode("utf-8", "surrogatepass"))
