"""Results in the formats of other tools: Perfetto, nvbench."""
