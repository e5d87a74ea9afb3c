-- Make the history's partitions for the days to come.
SELECT make_run_partitions(%(days)s)
