-- Create the index of a partitioned table: empty, invalid until each partition has its own, and copied to new
-- partitions.
CREATE {unique} INDEX IF NOT EXISTS {index} ON ONLY {table} {rest}
