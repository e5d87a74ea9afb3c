-- The new indexes take the names of those by time alone: the release before asks jobs_due for how many jobs are pending.
ALTER INDEX jobs_due RENAME TO jobs_due_by_time;
ALTER INDEX jobs_due_with_class RENAME TO jobs_due;
ALTER INDEX runs_due RENAME TO runs_due_by_time;
ALTER INDEX runs_due_with_class RENAME TO runs_due;
