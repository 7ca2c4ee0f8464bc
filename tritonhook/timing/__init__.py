"""Paired timing of two versions of a launch on one GPU, in new processes, and the statistics of the verdict.

The launches that are timed together are called sides: the reference, the candidate, and the control, which has the
reference's code under another name. Further sides are baselines.
"""
