-- Drop the history's partitions that are older than the retention.
SELECT drop_run_partitions(%(days)s)
