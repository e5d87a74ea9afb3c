-- Begin a transaction and claim in it, in one round trip; it stays open until the claim is settled. The lock fails at
-- once if another session's table lock would prevent settling.
BEGIN; {lock}EXECUTE claim_{kind} ({values})
