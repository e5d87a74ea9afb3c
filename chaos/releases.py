"""Other releases of this program, built from their commits: for upgrades and the way back."""

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from scheduler.dev.servers.ledger import default_base, exclusive

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".releases"  # built once
PREVIOUS = "bda1c27"


def built(commit: str) -> Path:
    """Return a folder that holds this release as pip installs it; what it depends on is the environment's own."""
    base = default_base()
    with exclusive(base.with_name(f"{base.name}-releases")):
        target = KEPT / commit
        if not target.is_dir():
            _build(commit, target)
    return target


def _build(commit: str, target: Path) -> None:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise RuntimeError(f"commit {commit} is not in this clone: {archive.stderr.decode().strip()}")
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=KEPT) as fresh:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(name, filter="data")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
             "--no-build-isolation", "--target", fresh, name], check=True,
        )
        (Path(fresh) / "commit").write_text(commit, encoding="utf-8")
        Path(fresh).rename(target)
        Path(fresh).mkdir()  # for the one that removes it
