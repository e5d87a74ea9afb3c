"""A tenant sees only its own figures, in the API, on the overview and in its stream."""

import http.client
import json
import re
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from api_support import start_api, token
from support import DEADLINE, iso, until, utc

from scheduler.api.console.formatting import NOTHING
from scheduler.api.console.session import COOKIE

OTHERS = 7  # of each: a number that the small tenant has of nothing


@pytest.fixture(scope="module")
def crowded(shared):
    """A tenant with dead runs, open runs and a backlog, and one with a single job."""
    shared.start("producer").ready()
    made = start_api(shared)
    busy, quiet = made.as_("operator", "busy"), made.as_("operator", "quiet")
    quiet.job(job_type="quiet.job")
    for index in range(2 * OTHERS):
        busy.job(job_type="busy.job", run={"max_attempts": 1}, run_at=iso(utc()), name=f"busy {index}")
    runs = until(lambda: len(found := busy.get("/runs").json["items"]) == 2 * OTHERS and found, "their runs")
    for run in runs[:OTHERS]:
        assert busy.post(f"/runs/{run['event_id']}/result", {"attempt": 1, "status": "failed"}).status == 200
    for _ in range(OTHERS):
        busy.job(job_type="busy.late", run_at=iso(utc()), route="nobody.listens")  # refused: it stays due
    until(lambda: busy.get("/stats").json["backlog"] == OTHERS, "due jobs that are not emitted")
    return made


def tiles(page: str) -> dict[str, tuple[str, str]]:
    spans = r'class="what">([^<]+)</span><span class="value[^"]*">([^<]+)</span> <span class="more">([^<]*)'
    matches = re.findall(spans, page)
    return {what: (value, more) for what, value, more in matches}


def test_api_statistics_are_limited_to_the_tenant(crowded):
    quiet = crowded.as_("viewer", "quiet").get("/stats").json
    assert quiet["jobs"] == {"pending": 1, "paused": 0, "done": 0, "cancelled": 0}
    assert set(quiet["runs"].values()) == {0}
    assert (quiet["backlog"], quiet["oldest_due_seconds"], quiet["lag_ms"]) == (0, 0, {"p50": None, "p99": None})
    assert crowded.as_("viewer", "busy").get("/stats").json["runs"]["dead"] == OTHERS


def test_the_overview_is_limited_to_the_tenant(crowded):
    page = crowded.as_("viewer", "quiet").page("/")
    shown_tiles = tiles(page)
    assert shown_tiles["Backlog"] == ("0", "nothing waits")
    assert shown_tiles["Dead"][0] == "0"
    assert shown_tiles["Succeeded"][1] == "0 open"
    assert shown_tiles["Lag, p50"] == (NOTHING, f"p99 {NOTHING}")
    assert "Out" not in shown_tiles
    assert "On time: nothing was due" in page
    for of_the_whole in ("busy.", "producer", "consumer", "/processes", "data-samples"):
        assert of_the_whole not in page
    busy = tiles(crowded.as_("viewer", "busy").page("/"))
    assert busy["Dead"][0] == str(OTHERS)
    assert busy["Succeeded"][1] == f"{OTHERS} open"
    assert busy["Backlog"][0] == str(OTHERS)
    assert {"Out", "Backlog", "Dead"} <= tiles(crowded.as_("viewer").page("/")).keys()


def first_message(url: str, mine: str) -> dict:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE)) as asked:
        asked.request("GET", "/live?topic=overview", headers={"Cookie": f"{COOKIE}={mine}"})
        answer = asked.getresponse()
        assert answer.status == 200
        while True:
            line = answer.readline()
            if line.startswith(b"data: "):
                return json.loads(line[6:])


def test_the_stream_is_limited_to_the_tenant(crowded):
    message = first_message(crowded.url, token("viewer", "quiet"))
    assert "sample" not in message
    assert "roles" not in message["parts"]
    shown_tiles = tiles(message["parts"]["tiles"])
    assert (shown_tiles["Backlog"], shown_tiles["Dead"][0]) == (("0", "nothing waits"), "0")
    assert "Out" not in shown_tiles
    assert "busy." not in json.dumps(message)
    whole = first_message(crowded.url, token("viewer"))
    assert {"tiles", "roles", "status"} <= whole["parts"].keys()
