-- Add entries to the audit.
COPY audit (who, via, action, kind, thing, tenant, address, before, after, batch, reason) FROM STDIN
