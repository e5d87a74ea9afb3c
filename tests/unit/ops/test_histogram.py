"""A histogram counts a batch like its single values."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from scheduler.ops.histogram import BatchHistogram

BUCKETS = (0.125, 0.25, 1, 60)


def test_a_batch_counts_as_each_of_its_values():
    values = [0.0625, 0.125, 0.1875, 0.25, 0.5, 1, 59.5, 60, 61, 3600, -0.25, 0]  # whose sum is exact
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    batch = BatchHistogram("lag", "How late.", buckets=BUCKETS, registry=ours)
    single = Histogram("lag", "How late.", buckets=BUCKETS, registry=theirs)
    for some in (values, [], values[:3]):
        batch.observe_all(some)
        for each in some:
            single.observe(each)
    assert shown(ours) == shown(theirs)


def shown(registry):
    return [line for line in generate_latest(registry).splitlines() if b"_created" not in line]
