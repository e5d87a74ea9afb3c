-- Erase the content of audit entries; the owner's function does it, since the runtime role only adds entries.
SELECT erase_audit_content(%s)
