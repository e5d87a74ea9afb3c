"""Small histories of commands for one job, for the tests of order and idempotence."""

import os

from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("SCHEDULER_TEST_EXAMPLES", "0")) or None

_requests = st.fixed_dictionaries({
    "job_type": st.sampled_from(["a", "b"]),
    "run_at": st.sampled_from(["2027-06-01T00:00:00Z", "2028-06-01T00:00:00Z"]),
})


@st.composite
def histories(draw, most=4):
    """Draw (kind, second, fields) in the order in which the host issued them; seconds may tie."""
    count = draw(st.integers(1, most))
    seconds = sorted(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count, unique=draw(st.booleans()))))
    history = []
    for second in seconds:
        kind = draw(st.sampled_from(["request", "request", "cancel", "pause", "resume", "trigger"]))
        history.append((kind, second, draw(_requests) if kind == "request" else {}))
    return history
