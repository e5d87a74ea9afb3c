-- Forget the plan of a statement.
DEALLOCATE {name}
