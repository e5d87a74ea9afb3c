-- Create the sidecar's own schema.
CREATE SCHEMA "{schema}"
