-- Drop the history's oldest partition beyond the retention period.
SELECT drop_run_partition(%(days)s)
