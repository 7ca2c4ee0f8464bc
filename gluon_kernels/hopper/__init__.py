"""Forward attention for sm_90: TMA and wgmma."""
