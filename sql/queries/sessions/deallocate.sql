-- Drop a prepared statement.
DEALLOCATE {name}
