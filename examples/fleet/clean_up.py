"""The clean-up of every minute: removes what is old in its directory, and says how much that was."""

import time
from pathlib import Path

old = [path for path in Path().glob("*.tmp") if path.stat().st_mtime < time.time() - 3600]
for path in old:
    path.unlink()
print(f"removed {len(old)} old file(s)")
