"""GPU memory outside all allocators: watch it, predict it."""
