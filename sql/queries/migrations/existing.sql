-- List the tables and types of these names in the schema.
SELECT relname::text FROM pg_class
WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND relname = ANY (%(names)s)
UNION
SELECT typname::text FROM pg_type
WHERE typnamespace = to_regnamespace(quote_ident(%(schema)s)) AND typname = ANY (%(names)s)
ORDER BY 1
