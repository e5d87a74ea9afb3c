"""Fetches the slowest thing early: AsyncAPI's parser has more than a hundred packages."""

import pytest
from node_support import PARSER, package_soon


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.path.name == "test_asyncapi_parser.py" for item in session.items):
        package_soon(*PARSER)
