-- Return the sessions whose locks on these tables keep others from writing to them, and the sessions waiting for such locks.
SELECT DISTINCT pid
FROM pg_locks
WHERE relation = ANY (%(tables)s::regclass[])
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY pid
