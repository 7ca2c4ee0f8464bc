"""How long a test waits before it calls something a hang. This is no measurement, and holds under a load of 20 on two
cores; the variable TEST_HANG_S sets another limit, for a machine that is slower still."""

from __future__ import annotations

import os

HANG_S = int(os.environ.get("TEST_HANG_S", "600"))
