"""Kernels in the tests of other projects: what the pytest plugin does once it is asked to (pytest_plugin.py).

recording    capture what the tests of this process and its child processes compile
kernels      the kernels of a test, for its assertions
lock_run     a run of the tests held to a lock
dry_tests, emulated_tests   a run without a GPU: launches are left out, or executed on the CPU
"""

NEED_EMULATE = "sanitize", "suppress", "bounds", "limit", "shrink"  # options, behind --kernel-
