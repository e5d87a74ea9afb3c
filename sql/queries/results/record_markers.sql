-- Record that markers were read: their reader has committed everything delivered to it before them.
WITH old_markers AS (
    DELETE FROM result_markers WHERE read_at < now() - interval '10 minutes'
), returned AS (
    UPDATE result_readers SET returned_at = clock_timestamp() WHERE id = %(id)s AND %(returned)s
)
INSERT INTO result_markers (id, reader_id)
SELECT unnest(%(markers)s::uuid[]), %(id)s
ON CONFLICT (id) DO NOTHING
