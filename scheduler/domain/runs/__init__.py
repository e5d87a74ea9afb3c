"""A run: an occurrence of a tracked job, with its attempts, until it has succeeded or was given up."""
