-- Estimated rows and bytes of a table without indexes, including partitions.
SELECT sum(greatest(reltuples, 0))::bigint, sum(pg_table_size(oid))::bigint
FROM pg_class
WHERE relkind IN ('r', 'p')
  AND oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)) UNION SELECT to_regclass(%(table)s))
