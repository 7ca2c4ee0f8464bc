"""The folder in which tritonhook keeps what it can make or fetch again: programs, results, hashes."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TRITONHOOK_CACHE"


def cache_folder() -> Path:
    """$TRITONHOOK_CACHE, or a folder in the user's cache. It may not exist yet."""
    import platformdirs

    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("tritonhook"))
