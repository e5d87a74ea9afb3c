-- The one clock that decides.
SELECT now()
