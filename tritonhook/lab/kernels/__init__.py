"""The PTX of the experiments: families of generated kernels, one-instruction kernels, the published table's kernels."""
