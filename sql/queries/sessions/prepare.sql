-- Prepare a statement for the session.
PREPARE {name} AS {statement}
