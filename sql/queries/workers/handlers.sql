-- List what the handlers of live workers serve, the newest worker last.
SELECT handlers FROM workers
WHERE handlers IS NOT NULL AND last_seen_at > now() - %s * interval '1 second'
ORDER BY started_at, id
