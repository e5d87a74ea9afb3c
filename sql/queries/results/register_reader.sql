-- Register a consumer before its first delivery, and delete old readers and markers.
WITH old_readers AS (
    DELETE FROM result_readers WHERE seen_at < now() - interval '10 minutes'
), old_markers AS (
    DELETE FROM result_markers WHERE read_at < now() - interval '10 minutes'
)
INSERT INTO result_readers (id, connected_at, seen_at, silent_after, clean_at)
VALUES (%(id)s, coalesce(%(connected_at)s, clock_timestamp()), clock_timestamp(), %(silent_after)s, clock_timestamp())
RETURNING connected_at, clean_at
