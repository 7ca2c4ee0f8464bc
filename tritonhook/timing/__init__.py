"""Paired timing of two forms of a launch on one GPU, in fresh processes, and the statistics of the verdict."""
