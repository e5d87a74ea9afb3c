"""Other commits of the system under test, unpacked once into .releases/."""

import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".releases"


def unpacked(commit: str | None) -> Path:
    """Return a folder with that commit's files, or this checkout; its dependencies are from this environment."""
    if commit is None:
        return ROOT
    name = subprocess.run(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if name.returncode:
        raise SystemExit(f"no such commit: {commit}")
    target = KEPT / f"{name.stdout.strip()}-source"
    if not target.is_dir():
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        KEPT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as fresh:
            inside = Path(fresh) / "files"
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
                files.extractall(inside, filter="data")
            inside.rename(target)
    return target
