-- Insert one audit entry; a COPY of one row takes twice as long.
INSERT INTO audit (who, via, action, kind, thing, tenant, address, before, after, batch, reason)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
