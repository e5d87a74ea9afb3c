-- Return the run of an event, whether its end was published, the number of live producers and the database's time. An
-- open run precedes a finished one, and the newer of two finished runs comes first.
SELECT found.*, live.producers, now() AS now
FROM (
    (SELECT {selected}, false AS announced FROM runs WHERE event_id = %(event_id)s::uuid)
    UNION ALL
    (SELECT {selected_of_history}, true FROM run_history WHERE event_id = %(event_id)s::uuid)
) AS found,
     (SELECT count(*) AS producers
      FROM replicas
      WHERE role = 'producer' AND last_seen_at > now() - make_interval(secs => %(stale_after)s)) AS live
ORDER BY announced, finished_at DESC NULLS LAST
LIMIT 1
