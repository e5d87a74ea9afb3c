-- Return whether a table is partitioned: indexes can be created concurrently only on its partitions.
SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%(table)s)
