"""From tensors to a launch of a compiled kernel."""
