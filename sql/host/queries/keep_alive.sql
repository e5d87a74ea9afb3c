-- Keep the transaction from being idle while the broker is slow.
SELECT 1
