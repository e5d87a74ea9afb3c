"""A job's request as JSON, as a call with curl and as a command line, to copy."""

import json

from scheduler.domain.jobs.job import Job
from scheduler.views.jobs import request_text


def copied_request(job: Job) -> list[tuple[str, str]]:
    """Return the request in several formats, with labels: without its id, and with credentials masked."""
    fields = json.loads(request_text(job))
    fields.pop("id", None)
    pretty = json.dumps(fields, indent=2, ensure_ascii=False)
    quoted = json.dumps(fields, ensure_ascii=False).replace("'", "'\\''")
    call = 'curl --fail -X POST "$API_URL/api/v1/jobs" -H "Authorization: Bearer $TOKEN" \\\n'
    call += f"  -H 'Content-Type: application/json' -d '{quoted}'"
    command = f"scheduler job create --file - <<'END'\n{pretty}\nEND"
    return [("JSON", pretty), ("curl", call), ("Command line", command)]
