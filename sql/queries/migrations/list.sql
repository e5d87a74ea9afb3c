-- List what was applied.
SELECT version, name, checksum, applied_at FROM schema_migrations
