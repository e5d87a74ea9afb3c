-- Drop the history's oldest partition that is older than the retention.
SELECT drop_run_partition(%(days)s)
