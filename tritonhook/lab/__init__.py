"""Experiments with ptxas: which names change the code, and which instructions each architecture has."""
