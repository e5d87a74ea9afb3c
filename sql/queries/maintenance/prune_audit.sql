-- Delete some of the oldest audit entries.
SELECT prune_audit(%(days)s, %(limit)s)
