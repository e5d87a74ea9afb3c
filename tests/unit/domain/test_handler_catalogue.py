"""The handler catalogue fits its header, and hostile headers are rejected."""

import json

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.handler_catalogue import (
    HANDLERS_BYTES,
    MAX_HANDLERS,
    HandlerOffer,
    merge_offers,
    read_catalogue,
    write_catalogue,
)


def offers(count, size=0):
    return [HandlerOffer(job_type=f"type.{number}", parameters={"title": "x" * size}) for number in range(count)]


def test_a_catalogue_is_read_as_it_was_written():
    assert write_catalogue([]) is None
    assert read_catalogue(None) is None
    stored = json.loads(read_catalogue(write_catalogue(offers(3))))
    assert [merge_offers([stored, stored])[f"type.{n}"] for n in range(3)] == [(offer, 2) for offer in offers(3)]


SIZES = [(MAX_HANDLERS, 0), (MAX_HANDLERS + 5, 100), (3, 60_000), (10, 10_000)]


@pytest.mark.parametrize(("count", "size"), SIZES)
def test_parameters_that_do_not_fit_are_left_out(count, size):
    header = write_catalogue(offers(count, size))
    assert len(header) <= HANDLERS_BYTES
    entries = json.loads(read_catalogue(header))
    assert [entry["job_type"] for entry in entries] == [f"type.{n}" for n in range(min(count, MAX_HANDLERS))]
    assert entries[0]["parameters"]["title"] == "x" * size


@pytest.mark.parametrize("header", [
    7, b"[]", "", "{}", "[1]", '[{"job_type": ""}]', '[{"job_type": "a\\u0000"}]', "[" * 5000, "x" * 70_000,
    json.dumps([{"job_type": str(n)} for n in range(MAX_HANDLERS + 1)]),
])
def test_a_hostile_header_is_rejected(header):
    with pytest.raises(Rejected):
        read_catalogue(header)
