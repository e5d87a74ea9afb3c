-- List the partitions without a part of this index.
SELECT partition.relname
FROM pg_inherits
JOIN pg_class AS partition ON partition.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = to_regclass(%(table)s)
  AND NOT EXISTS (
      SELECT FROM pg_index
      JOIN pg_inherits AS attached ON attached.inhrelid = pg_index.indexrelid
      WHERE pg_index.indrelid = partition.oid AND attached.inhparent = to_regclass(%(index)s))
ORDER BY partition.relname
