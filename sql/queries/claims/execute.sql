-- Begin a transaction and claim in it, on one round trip; it stays open until what is claimed is settled.
BEGIN; EXECUTE claim_{kind} ({values})
