-- Plan a statement once for a session.
PREPARE {name} AS {statement}
