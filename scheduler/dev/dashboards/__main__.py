"""Write grafana/dashboards/*.json: `python -m scheduler.dev.dashboards`."""

import json
from pathlib import Path

from scheduler.dev.dashboards import internals, overview

FOLDER = Path(__file__).resolve().parents[3] / "grafana" / "dashboards"


def texts() -> dict[str, str]:
    """Return the JSON of each dashboard by file name."""
    built = {"overview.json": overview.build(), "internals.json": internals.build()}
    return {name: json.dumps(board, indent=2) + "\n" for name, board in built.items()}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
