-- For each marker, return whether it was read, which live readers may still hold earlier results, which readers have
-- been silent for too long, and whether earlier results may have been requeued. Also without a marker: since when a
-- live reader has been connected to the broker without interruption (null: no live reader), and whether a consumer runs
-- that does not record markers.
WITH live AS (
    SELECT id, connected_at, clean_at
    FROM result_readers
    WHERE NOT gone AND seen_at > clock_timestamp() - make_interval(secs => silent_after)
)
SELECT sent.id::text,
       marker.read_at IS NOT NULL AS read,
       EXISTS (SELECT FROM live WHERE id <> marker.reader_id AND clean_at < marker.read_at) AS unread,
       EXISTS (SELECT FROM result_readers WHERE returned_at >= sent.sent_at) AS returned,
       ARRAY(SELECT id::text FROM result_readers
             WHERE NOT gone AND seen_at <= clock_timestamp() - make_interval(secs => silent_after)) AS silent,
       (SELECT min(connected_at) FROM live) AS connected_since,
       EXISTS (SELECT FROM replicas
               WHERE role = 'consumer' AND NOT reads_markers
                 AND last_seen_at > now() - make_interval(secs => %(stale_after)s)) AS unmarked,
       clock_timestamp() AS checked_at
FROM (SELECT) AS once
LEFT JOIN unnest(%(ids)s::uuid[], %(sent_at)s::timestamptz[]) AS sent (id, sent_at) ON true
LEFT JOIN result_markers AS marker ON marker.id = sent.id
