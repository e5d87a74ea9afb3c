-- Return the sessions whose locks prevent writes to these tables, and the sessions that wait for such locks.
SELECT DISTINCT pid
FROM pg_locks
WHERE relation = ANY (%(tables)s::regclass[])
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY pid
