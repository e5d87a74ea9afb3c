-- Delete some of the audit's oldest entries.
SELECT prune_audit(%(days)s, %(limit)s)
