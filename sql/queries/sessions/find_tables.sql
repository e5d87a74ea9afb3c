-- Return the schemas that contain our table of migrations, by name and columns, and whether this role may read it.
SELECT nspname::text
FROM pg_namespace
JOIN pg_class ON relnamespace = pg_namespace.oid
WHERE nspname = ANY (%(schemas)s) AND relname = 'schema_migrations' AND relkind = 'r'
  AND has_schema_privilege(pg_namespace.oid, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT')
  AND (SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attnum)
       FROM pg_attribute
       WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped)
      = 'version integer, name text, checksum text, applied_at timestamp with time zone'
