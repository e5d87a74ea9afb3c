-- Return whether the schema has a table, a view or the like with the name of our table of migrations.
SELECT EXISTS (SELECT FROM pg_class
               WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace(quote_ident(%(schema)s)))
