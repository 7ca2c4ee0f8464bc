"""Compute Nsight Compute's counters of a launch without a GPU: those that count events, not those that measure time.

`banks` computes the cost of one access of a warp. `observer` counts events while a machine executes machine code.
`metrics` has the counters in ncu's names and units, and the evidence of each rule. `run` executes a launch and counts.
"""
