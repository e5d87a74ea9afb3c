"""The nightly report: any program will do. The event is on standard input, what it prints is kept with the run."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--for", dest="customer")
parser.add_argument("--at")
arguments = parser.parse_args()
event = json.load(sys.stdin)

Path("report.began").touch()
if os.environ["SCHEDULER_ATTEMPT"] == "1":
    time.sleep(3600)  # a long night; this machine does not live to see its end
print(f"report for {arguments.customer}, due at {arguments.at}, occurrence {event['occurrence']}")
