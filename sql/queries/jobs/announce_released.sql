-- Wake producers for released jobs, in a separate transaction whose commit does not wait for the disk: without it the jobs
-- are held for up to 30 seconds.
set_config('synchronous_commit', 'off', true),
pg_notify(coalesce(current_setting('scheduler.wakeup_channel', true), 'scheduler_wakeup'),
          'jobs ' || to_char(min(wake_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
