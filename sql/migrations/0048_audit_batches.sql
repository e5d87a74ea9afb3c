-- Bulk actions are undone and followed by what they changed: each of their entries names the action. A pause may have a
-- reason.
ALTER TABLE audit
    ADD COLUMN batch  uuid,
    ADD COLUMN reason text;

-- A reason may be about the content of the job: a purge erases it.
CREATE OR REPLACE FUNCTION erase_audit_content(things text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE audit SET before = NULL, after = NULL, address = NULL, reason = NULL, batch = NULL
    WHERE thing = ANY (things) AND kind IN ('job', 'run')
      AND (before IS NOT NULL OR after IS NOT NULL OR address IS NOT NULL OR reason IS NOT NULL OR batch IS NOT NULL)
$$;
