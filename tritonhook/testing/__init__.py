"""The features of the pytest plugin (pytest_plugin.py), which tests the kernels of other projects.

recording       capture the kernels that the tests compile, in this process and its child processes
kernels         the fixture captured_kernels: kernels of a test, for its assertions
lock_run        compare the kernels of a test run with a lock
dry_tests       a test run without a GPU, which compiles kernels but launches none
emulated_tests  a test run without a GPU, whose launches are executed on the CPU
"""

NEED_EMULATE = "sanitize", "suppress", "bounds", "limit", "shrink"  # options --kernel-...
