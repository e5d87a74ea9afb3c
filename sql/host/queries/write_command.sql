-- Write a command, to be relayed once this transaction has committed.
INSERT INTO scheduler_outbox (kind, body, correlation_id, headers)
VALUES (%s, %s::json, %s, %s::json)
