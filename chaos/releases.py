"""Build other releases from their commits, for upgrades and rollbacks."""

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from scheduler.dev.servers.ledger import default_base, exclusive

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".releases"  # built once
PREVIOUS = "bda1c27"


def build_release(commit: str) -> Path:
    """Return a folder with the installed release. Its dependencies come from the current environment."""
    base = default_base()
    with exclusive(base.with_name(f"{base.name}-releases")):
        target = FOLDER / commit
        if not target.is_dir():
            _build(commit, target)
    return target


def _build(commit: str, target: Path) -> None:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise RuntimeError(f"commit {commit} is not in this clone: {archive.stderr.decode().strip()}")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=FOLDER) as fresh:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(name, filter="data")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
             "--no-build-isolation", "--target", fresh, name], check=True,
        )
        (Path(fresh) / "commit").write_text(commit, encoding="utf-8")
        Path(fresh).rename(target)
        Path(fresh).mkdir()  # TemporaryDirectory removes it
