"""The cleanup of every minute: removes old files in its directory and prints their number."""

import time
from pathlib import Path

old = [path for path in Path().glob("*.tmp") if path.stat().st_mtime < time.time() - 3600]
for path in old:
    path.unlink()
print(f"removed {len(old)} old file(s)")
