-- Return the triggers whose message is already stored.
SELECT job_id::text, message::text
FROM trigger_messages
JOIN unnest(%(jobs)s::uuid[], %(messages)s::uuid[]) AS named (job_id, message) USING (job_id, message)
