-- List applied migrations.
SELECT version, name, checksum, applied_at FROM schema_migrations
