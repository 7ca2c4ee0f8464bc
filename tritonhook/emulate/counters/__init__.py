"""Nsight Compute's counters of a launch, without a GPU: what is counting in them, and no measurement.

`banks` computes what one access of a warp costs. `observer` watches a machine while it executes machine code. `metrics`
has the values, in ncu's names and units, and the evidence of each rule. `run` executes a launch with all of it.
"""
