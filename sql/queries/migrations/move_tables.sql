-- Return the statements that move tables with these names and their partitions; indexes and sequences follow.
SELECT format('ALTER TABLE %%I.%%I SET SCHEMA %%I', %(source)s, relname, %(target)s)
FROM pg_class
WHERE relnamespace = to_regnamespace(quote_ident(%(source)s)) AND relkind IN ('r', 'p')
  AND (relname = ANY (%(names)s) OR relname = 'schema_migrations'
       OR oid IN (SELECT inhrelid FROM pg_inherits
                  JOIN pg_class AS parent ON parent.oid = inhparent
                  WHERE parent.relnamespace = pg_class.relnamespace AND parent.relname = ANY (%(names)s)))
ORDER BY relname
