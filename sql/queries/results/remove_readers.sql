-- Record that readers have stopped or were silent for so long that the broker has dropped them: what they had not
-- acknowledged is in the queue again.
UPDATE result_readers SET gone = true, returned_at = clock_timestamp()
WHERE id = ANY (%(ids)s::uuid[]) AND NOT gone
