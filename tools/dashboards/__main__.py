"""Write grafana/dashboards/*.json: `python -m tools.dashboards`."""

import json
from pathlib import Path

from tools.dashboards import internals, overview

FOLDER = Path(__file__).resolve().parents[2] / "grafana" / "dashboards"


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
