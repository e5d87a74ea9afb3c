"""Several processes' metrics as those of one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from scheduler.ops.merging import counted, merged, read, written


def told(requests, seconds=(), up=1.0, backlog=0.0, memory=1.0):
    registry = CollectorRegistry()
    count = Counter("scheduler_api_requests_total", "Requests.", ["route", "status"], registry=registry)
    for route, number in requests.items():
        count.labels(route, "200").inc(number)
    timed = Histogram("scheduler_api_seconds", "Took.", ["route"], registry=registry, buckets=(0.1, 1))
    for each in seconds:
        timed.labels("/a b").observe(each)
    for name, value in (("scheduler_dependency_up", up), ("scheduler_backlog_jobs", backlog),
                        ("process_resident_memory_bytes", memory)):
        Gauge(name, "A gauge.", registry=registry).set(value)
    return read(generate_latest(registry).decode())


def values(families):
    return {sample: value for family in families.values() for sample, value in family.samples.items()}


def test_what_was_counted_adds_up_and_what_all_see_alike_is_told_once():
    whole = merged([told({"/a b": 2, "/c": 1}, (0.05, 5.0), up=1, backlog=7, memory=10),
                    told({"/a b": 3}, (0.5,), up=0, backlog=7, memory=20)])
    found = values(whole)
    assert found['scheduler_api_requests_total{route="/a b",status="200"}'] == 5
    assert found['scheduler_api_requests_total{route="/c",status="200"}'] == 1
    assert found['scheduler_api_seconds_bucket{le="0.1",route="/a b"}'] == 1
    assert found['scheduler_api_seconds_bucket{le="1.0",route="/a b"}'] == 2
    assert found['scheduler_api_seconds_count{route="/a b"}'] == 3
    assert found['scheduler_api_seconds_sum{route="/a b"}'] == 5.55
    assert found["scheduler_dependency_up"] == 0
    assert found["scheduler_backlog_jobs"] == 7
    assert found["process_resident_memory_bytes"] == 30


def test_it_is_written_as_it_was_read():
    one = told({"/a b": 2}, (0.05,))
    assert values(read(written(one))) == values(one)
    assert "# TYPE scheduler_api_requests_total counter" in written(one).splitlines()


def test_what_was_counted_outlives_who_counted():
    gone = counted(told({"/a b": 2}, up=0, memory=99))
    found = values(merged([told({"/a b": 1}), gone]))
    assert found['scheduler_api_requests_total{route="/a b",status="200"}'] == 3
    assert (found["scheduler_dependency_up"], found["process_resident_memory_bytes"]) == (1, 1)
