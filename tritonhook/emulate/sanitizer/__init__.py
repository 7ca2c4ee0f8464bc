"""Find faults of a kernel that may not change its results today: races, barriers that not all lanes of a warp reach,
reads of uninitialised memory, missing proxy fences.

While PTX is executed, `order` checks accesses of shared memory, `tensor` those of tensor memory and `world` those of
global memory; `flags` tracks how threads synchronise through memory. `findings` has the results for people. `run`
executes a launch with all these checks.
"""
