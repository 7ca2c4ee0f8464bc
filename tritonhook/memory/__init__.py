"""GPU memory that no allocator shows: watch it, predict it."""
