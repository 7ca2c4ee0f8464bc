"""Check that ptxas translates PTX correctly: run builds of a kernel on the same buffers, and compare their results."""
