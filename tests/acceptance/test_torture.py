"""`make torture` in short: about two minutes of stable themes with fixed seeds against this checkout."""

import pytest

from scheduler.dev.servers import start_stack
from torture.__main__ import DURABLE, Attacks
from torture.releases import ROOT
from torture.themes import draw


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    """Servers of this module's own: their settings are changed here."""
    with start_stack(purpose="torture", fast=True, postgres_settings=DURABLE) as stack:
        yield Attacks(stack, ROOT, tmp_path_factory.mktemp("torture"))


@pytest.mark.parametrize(("theme", "seed"), [("calm", 1), ("past", 4), ("locks", 303)])
def test_a_theme_finds_nothing(attacks, theme, seed):
    violations = attacks.run(draw(theme, seed))
    assert not violations, "\n".join(f"{violation.rule}: {violation.text}" for violation in violations)
