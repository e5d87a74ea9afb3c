-- Store the messages of accepted triggers.
INSERT INTO trigger_messages (job_id, message)
SELECT DISTINCT job_id, message
FROM unnest(%(jobs)s::uuid[], %(messages)s::uuid[]) AS named (job_id, message)
ON CONFLICT DO NOTHING
