-- Drop an index while the table is in use.
DROP INDEX CONCURRENTLY IF EXISTS {index}
