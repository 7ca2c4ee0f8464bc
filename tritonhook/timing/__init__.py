"""Paired timing of two versions of a launch on one GPU, in new processes, and the statistics of the verdict."""
