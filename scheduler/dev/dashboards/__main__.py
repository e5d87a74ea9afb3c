"""Writes grafana/dashboards/*.json: `python -m scheduler.dev.dashboards`."""

import json
from pathlib import Path

from scheduler.dev.dashboards import internals, overview

FOLDER = Path(__file__).resolve().parents[3] / "grafana" / "dashboards"


def texts() -> dict[str, str]:
    """Return each dashboard's file name and text."""
    built = {"overview.json": overview.build(), "internals.json": internals.build()}
    return {name: json.dumps(each, indent=2) + "\n" for name, each in built.items()}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
