"""Comparison of two cubins, and of one kernel under several names."""
