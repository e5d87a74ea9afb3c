-- Record a reader's heartbeat. A reader that was considered gone may have lost results to the queue; this records its return.
UPDATE result_readers
SET seen_at = clock_timestamp(), gone = false,
    returned_at = CASE WHEN gone THEN clock_timestamp() ELSE returned_at END
WHERE id = %(id)s
