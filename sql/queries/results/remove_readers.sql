-- Remove readers that stopped, or were silent for so long that the broker has dropped them: their unacknowledged
-- results are in the queue again.
UPDATE result_readers SET gone = true, returned_at = clock_timestamp()
WHERE id = ANY (%(ids)s::uuid[]) AND NOT gone
