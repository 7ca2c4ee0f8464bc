"""Facts of kernels' machine code: read, stored in a lock, and compared before and after an upgrade.

facts        facts of one kernel (figures, hashes, identity), also of kernels in built libraries; budgets
changes      comparison of two sets of facts: what changed, and the cause
rules        conditions under which a comparison fails: --fail-on, budgets
lockfile     facts as a text file for code review, with the PTX in a folder
folders      facts of the kernels in capture folders
assembled    locked kernels assembled again, to check a lock
crossed      builds of the old PTX with the new ptxas, and of the new PTX with the old one, to find a change's cause
executed     counters and stored bits of a launch that is executed on the CPU
kernels      captured kernels as Python objects
bisection    search for the ptxas version that changed a kernel
"""
