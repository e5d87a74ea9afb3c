-- Commit, and wake producers in the next transaction, whose commit does not wait for the disk: rows of a kind are due from
-- a time on.
COMMIT;
BEGIN;
SELECT set_config('synchronous_commit', 'off', true),
       pg_notify(coalesce(current_setting('scheduler.wakeup_channel', true), 'scheduler_wakeup'), message)
FROM unnest(%(messages)s::text[]) AS message
