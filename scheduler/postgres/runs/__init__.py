"""Store, claim, settle and list runs: open ones in a small table, finished ones in a history by day."""
