-- Export the runs that finished in a time range, oldest first; read through a cursor, a few at a time.
SELECT {selected_of_history}
FROM run_history
WHERE finished_at >= %(since)s AND finished_at < %(until)s
ORDER BY run_history.finished_at, run_history.event_id
