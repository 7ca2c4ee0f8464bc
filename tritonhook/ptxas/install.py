"""Install ptxas by version: fetch its wheel with pip, check the hash, and keep only the binary."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonhook._util.files import VARIABLE
from tritonhook._util.versions import version_key
from tritonhook.errors import ToolError
from tritonhook.ptxas.tool import Tool, inspect_tool, is_intact, tool_at, tools_folder

_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11")
_AVAILABLE = "Available versions:"  # how a line in the output of `pip index versions` begins
_MOST_BYTES = 512 << 20  # limit for one file of a wheel; ptxas of CUDA 12 and 13 has 30 to 55 MB


def package_of(version: str) -> str:
    """Make the pip requirement of the package that contains ptxas of this version. Raises ToolError."""
    major = version.partition(".")[0]
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ToolError(f"{version!r} is not a full version; give one such as 12.8.93 or 13.5.37")
    return f"nvidia-cuda-nvcc{'-cu' + major if int(major) < 13 else ''}=={version}"


# --- versions that can be installed --------------------------------------------------------------


def released_versions() -> list[str]:
    """List the versions in the package index that `add_ptxas` can fetch, newest first. Raises ToolError."""
    with ThreadPoolExecutor(max_workers=len(_PACKAGES)) as pool:
        answers = list(pool.map(_listed, _PACKAGES))
    released = {version for versions, _ in answers for version in versions}
    if not released:
        raise ToolError(f"pip could not list the versions of ptxas: {answers[0][1]}")
    return sorted(released, key=version_key, reverse=True)


def _listed(package: str) -> tuple[list[str], str]:
    """Return the released versions of a package, and pip's error if there are none."""
    try:
        done = _pip(("index", "versions"), package)
    except OSError as error:
        return [], f"cannot run pip: {sys.executable!r}: {error.strerror}"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    text = next((line for line in lines if line.startswith(_AVAILABLE)), _AVAILABLE).removeprefix(_AVAILABLE)
    versions = [version for version in map(str.strip, text.split(",")) if re.fullmatch(r"\d+\.\d+\.\d+", version)]
    return versions, "" if versions else _pips_reason(done.stderr.decode("utf-8", "replace")) or "it printed none"


# --- install one version -------------------------------------------------------------------------


def add_ptxas(version: str) -> Tool:
    """Fetch the wheel of one ptxas version with pip, check the binary's hash, and keep only the binary.

    pip checks the wheel against the index; this function checks the binary against the wheel's RECORD.
    Raises ToolError if there is no such version or a check fails; then no file stays.
    """
    requirement = package_of(version)
    folder = tools_folder() / f"ptxas-{version}"
    if is_intact(folder) and isinstance(existing := inspect_tool(folder / "ptxas", "added"), Tool):
        return existing
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=folder.parent) as scratch:
            wheel = _download(requirement, Path(scratch))
            staged = Path(scratch, "staged")
            _extract(wheel, staged, requirement)
            _check_version(staged / "ptxas", version, requirement)
            shutil.rmtree(folder, ignore_errors=True)
            staged.replace(folder)
    except zipfile.BadZipFile as error:
        raise ToolError(
            f"{requirement}: the file that pip fetched is not a wheel ({error}); nothing was kept"
        ) from None
    except OSError as error:
        raise ToolError(
            f"{folder}: cannot keep ptxas there: {error.strerror}; set {VARIABLE} to another folder"
        ) from None
    inspect_tool.cache_clear()
    return tool_at(folder / "ptxas", "added")


def _download(requirement: str, folder: Path) -> Path:
    try:
        done = _pip(("download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(folder)), requirement)
    except OSError as error:
        raise ToolError(f"{requirement}: cannot run pip: {sys.executable!r}: {error.strerror}") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = _pips_reason(done.stderr.decode("utf-8", "replace")) or f"pip exited with {done.returncode}"
        raise ToolError(f"{requirement}: pip could not fetch it: {reason}")
    return wheels[0]


def _pip(command: Sequence[str], package: str) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "pip", *command, "--disable-pip-version-check", "--retries", "1", package]
    return subprocess.run(program, capture_output=True, check=False)


def _pips_reason(stderr: str) -> str:
    """Extract the reason of a failure from pip's output: the error lines, and the last warning about a broken
    connection. If there are no errors, or there is a traceback, return the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    if not errors or "ERROR: Exception:" in errors:
        return lines[-1] if lines else ""
    broken = [line for line in lines if "connection broken by" in line]
    return "\n  ".join([*errors, *broken[-1:]])


def _extract(wheel: Path, staged: Path, requirement: str) -> None:
    """Extract ptxas from the wheel into the new folder `staged`, and write its hash, size and time to tool.json."""
    data = _checked_member(wheel, requirement)
    staged.mkdir()
    binary = staged / "ptxas"
    binary.write_bytes(data)
    binary.chmod(0o755)
    stat = binary.stat()
    note = {
        "format": 1,
        "requirement": requirement,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
    }
    (staged / "tool.json").write_text(json.dumps(note, indent=1))


def _checked_member(wheel: Path, requirement: str) -> bytes:
    """Read ptxas from a wheel. Raises ToolError if its hash differs from the wheel's RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        member = next((name for name in names if name.endswith("/bin/ptxas")), None)
        record = next((name for name in names if name.endswith(".dist-info/RECORD")), None)
        if member is None or record is None:
            raise ToolError(f"{requirement}: its wheel contains no bin/ptxas")
        data = _content(archive, member, requirement)
        expected = _recorded_hash(_content(archive, record, requirement).decode("utf-8", "replace"), member)
    if expected is None:
        raise ToolError(f"{requirement}: the wheel's RECORD states no hash for ptxas to check; nothing was kept")
    if expected != base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="):
        raise ToolError(f"{requirement}: ptxas does not have the hash that the wheel's RECORD states; nothing was kept")
    return data


def _content(archive: zipfile.ZipFile, member: str, requirement: str) -> bytes:
    """Read a file of a wheel. Raises ToolError if it is damaged, or too large when unpacked: KBs can expand to GBs."""
    size = archive.getinfo(member).file_size
    if size > _MOST_BYTES:
        raise ToolError(
            f"{requirement}: {member} in its wheel has {size:,} bytes; at most {_MOST_BYTES:,} are allowed; "
            "nothing was kept"
        )
    try:
        return archive.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ToolError(
            f"{requirement}: {member} in its wheel cannot be unpacked ({error}); nothing was kept"
        ) from None


def _recorded_hash(record: str, member: str) -> str | None:
    for line in record.splitlines():
        path, _, rest = line.rpartition(",")[0].rpartition(",")
        if path == member and rest.startswith("sha256="):
            return rest.removeprefix("sha256=")
    return None


def _check_version(binary: Path, version: str, requirement: str) -> None:
    tool = inspect_tool(binary, "added")
    if isinstance(tool, str) or tool.version != version:
        reason = tool if isinstance(tool, str) else f"it is version {tool.version}"
        raise ToolError(f"{requirement}: its ptxas cannot be used ({reason}); nothing was kept")
