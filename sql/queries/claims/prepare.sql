-- Prepare a claim for the session; planning takes longer than running it.
PREPARE claim_{kind} AS {claim}
