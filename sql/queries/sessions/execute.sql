-- Run a statement that is planned.
EXECUTE {name}
