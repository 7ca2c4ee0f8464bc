"""Forward attention with mma.sync, for sm_80, sm_90, sm_120 and sm_121."""
