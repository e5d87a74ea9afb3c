-- Keep the transaction from being idle while the broker takes its time.
SELECT 1
