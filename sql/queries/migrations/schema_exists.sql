-- Return whether the schema exists.
SELECT to_regnamespace(quote_ident(%(schema)s)) IS NOT NULL
