"""Forward attention for sm_100 and sm_103: TMA, tcgen05 MMA, tensor memory."""
