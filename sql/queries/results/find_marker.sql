-- Return the time if another consumer has read a marker since this reader last confirmed that it is clean.
SELECT clock_timestamp()
FROM result_markers
WHERE read_at > %(clean_at)s AND reader_id <> %(id)s
LIMIT 1
