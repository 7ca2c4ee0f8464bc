"""mbarrier, bulk copies and TMA."""
