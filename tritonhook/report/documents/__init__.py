"""Results as JSON documents: one module for each kind. They read values and know nothing of how a result is shown."""

FORMAT = 1  # of every document; grows when a field changes its meaning or goes
