"""One tenant's costly requests are charged to its token and do not keep others waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from api_support import start_api
from support import until

COSTLY = {"cron": "59 23 29 2 *", "timezone": "Africa/Casablanca", "count": 1000}


def test_a_large_response_costs_a_token_its_next_requests(shared):
    api = start_api(shared, SCHEDULER_API_RATE="1")
    for number in range(20):
        api.as_("operator", "acme", jti=str(number)).job(job_type="large", payload={"text": "x" * 250_000})

    def next_after_a_large_one():
        acme, globex = (api.as_("viewer", tenant, jti=str(uuid4())) for tenant in ("acme", "globex"))
        large = acme.get("/jobs", job_type="large", limit=200)
        assert (large.status, len(large.body) > 3_000_000) == (200, True)
        assert globex.get("/jobs").status == 200  # is not charged for it
        return acme.get("/jobs", limit=1)

    # The debt is repaid after ten seconds: on a machine that was slower than that the second request is allowed.
    rejected = until(lambda: _if_rejected(next_after_a_large_one()), "a rejected request")
    assert 1 <= int(rejected.headers["Retry-After"]) <= 11
    assert "SCHEDULER_API_RATE" in rejected.json["detail"]


def _if_rejected(response):
    return response if response.status == 429 else None


def test_lists_of_200_small_jobs_are_never_rejected(shared):
    api = start_api(shared, SCHEDULER_API_RATE="50")
    for number in range(200):
        api.as_("operator", "small", jti=str(number)).job(payload={"text": "x" * 100})
    viewer = api.as_("viewer", "small")
    assert {viewer.get("/jobs", limit=200).status for _ in range(100)} == {200}


def test_a_cheap_request_is_served_while_costly_ones_of_another_tenant_wait(served):
    acme, globex = served.as_("viewer", "acme"), served.as_("viewer", "globex")
    statuses, first = [], threading.Event()

    def ask(_):
        statuses.append(acme.post("/preview", COSTLY).status)
        first.set()

    with ThreadPoolExecutor(100) as pool:
        answers = pool.map(ask, range(100))
        first.wait()
        assert globex.post("/preview", {"every": 60}).status == 200
        served_before = len(statuses)
        list(answers)
    assert served_before < 90
    assert set(statuses) == {200}
