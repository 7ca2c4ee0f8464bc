"""Capture from the CuTe DSL: hooks around its compiler, renaming of its MLIR modules, its compiled modules."""
