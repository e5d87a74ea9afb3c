"""Store, claim, settle and list jobs."""
