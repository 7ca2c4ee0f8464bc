"""Known miscompilations: `verify --known`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields


class KnownPlace(Fields):
    """A statement that some versions of ptxas assemble wrongly.

    module: the file, or the id of its first kernel. line: in the module's PTX. ptxas: the version in use; null: not
    known. verdict: what that version makes of it. does: what a wrong version does. sources: where that is published.
    """

    bug: str
    module: str
    function: str
    line: Count
    target: str | None
    ptxas: str | None
    verdict: Literal["wrong", "right", "not known"]
    does: str
    remedy: str
    sources: list[str]


class KnownUnread(Fields):
    """A module that could not be read."""

    module: str
    reason: str


class Known(Fields):
    """Known miscompilations in PTX. modules: how many were looked at."""

    format: Literal[1]
    kind: Literal["known miscompilations"]
    path: str
    modules: Count
    places: list[KnownPlace]
    unread: list[KnownUnread]
    notes: list[str]
