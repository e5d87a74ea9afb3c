"""Jobs and runs in words: `scheduler job show` and `scheduler run show`."""
