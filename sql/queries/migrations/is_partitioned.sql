-- Tell whether a table is partitioned: then no index can be made on it concurrently, only on each partition.
SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%(table)s)
