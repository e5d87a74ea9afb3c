-- Return the first applied migration.
SELECT name, checksum FROM {schema}.schema_migrations WHERE version = 1
