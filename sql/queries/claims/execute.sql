-- Begin a transaction and claim in it, on one round trip; it stays open until what is claimed is settled. The lock fails
-- at once while another session's lock on a table would keep us from settling.
BEGIN; {lock}EXECUTE claim_{kind} ({values})
