-- Execute a prepared statement.
EXECUTE {name}
