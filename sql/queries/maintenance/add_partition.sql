-- Add the history's first missing partition.
SELECT add_run_partition(%(days)s)
