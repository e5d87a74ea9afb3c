-- Plan a claim once for a session: to plan it anew took longer than to run it.
PREPARE claim_{kind} AS {claim}
