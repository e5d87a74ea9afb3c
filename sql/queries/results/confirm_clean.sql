-- Record that a reader has committed everything delivered to it before `clean_at`.
UPDATE result_readers
SET seen_at = clock_timestamp(), clean_at = %(clean_at)s, gone = false,
    returned_at = CASE WHEN gone OR %(returned)s THEN clock_timestamp() ELSE returned_at END
WHERE id = %(id)s
