-- Return whether a migration was ever applied.
SELECT to_regclass('schema_migrations') IS NOT NULL
