"""The PTX of the experiments: one-instruction kernels, the published table's kernels."""
