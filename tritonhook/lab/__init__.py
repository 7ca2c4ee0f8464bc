"""Experiments with ptxas: kernel names that change the code, and the instructions of each architecture."""
