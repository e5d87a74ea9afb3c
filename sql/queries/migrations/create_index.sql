-- Create an index while the table is in use.
CREATE {unique} INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table} {rest}
