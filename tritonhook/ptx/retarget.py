"""Change a PTX module's architecture and PTX version: two directives are replaced, the code stays.

This is safe: ptxas checks every instruction against both directives and rejects what the architecture or the version
does not have. A module made for one architecture need not be fast on another.
"""

from __future__ import annotations

from tritonhook._util.versions import version_key
from tritonhook.ptx.module import Ptx

# The PTX ISA version that introduced each target (PTX ISA, "PTX Module Directives: .target" and "Release Notes").
FIRST_VERSION = {
    **{"sm_75": "6.3", "sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4", "sm_88": "9.0", "sm_89": "7.8"},
    **{"sm_90": "7.8", "sm_90a": "8.0"},
    **{"sm_100": "8.6", "sm_100a": "8.6", "sm_100f": "8.8", "sm_101": "8.6", "sm_101a": "8.6", "sm_101f": "8.8"},
    **{"sm_103": "8.8", "sm_103a": "8.8", "sm_103f": "8.8", "sm_110": "9.0", "sm_110a": "9.0", "sm_110f": "9.0"},
    **{"sm_120": "8.7", "sm_120a": "8.7", "sm_120f": "8.8", "sm_121": "8.8", "sm_121a": "8.8", "sm_121f": "8.8"},
}


def version_for(own: str, arch: str, newest: str | None = None) -> str:
    """Raise a module's version to the first that has `arch`, and lower it to the newest that a ptxas reads."""
    wanted = max(own, FIRST_VERSION.get(arch, own), key=version_key)
    return wanted if newest is None else min(wanted, newest, key=version_key)


def newest_version(ptxas: str) -> str:
    """The newest PTX ISA version that a ptxas of this version reads, e.g. "8.7" for "12.8.93".

    PTX ISA, "Release Notes": 11.x reads 7.x; 12.0 to 12.5 read 8.0 to 8.5, 12.6 still 8.5, 12.7 8.6; 13.x reads 9.x.
    """
    major, minor = (int(part) for part in ptxas.split(".")[:2])
    return f"{major - 4}.{minor - 1 if major == 12 and minor > 5 else minor}"


def lowered_for(ptx: Ptx, ptxas: str) -> Ptx:
    """Return the module with `.version` lowered to what a ptxas of this version reads, if that is older."""
    return retarget(ptx, ptx.target, min(ptx.version, newest_version(ptxas), key=version_key))


def retarget(ptx: Ptx, arch: str, version: str) -> Ptx:
    """Return the module with these directives; options behind the target (", debug") stay."""
    if (ptx.target, ptx.version) == (arch, version):
        return ptx
    return ptx.with_directives(version=version, target=arch)
