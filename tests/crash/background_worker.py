"""A server without requests: it does background jobs until it is killed, or until its input ends.

The first line of its input is its settings; it says when it has begun.
"""

from __future__ import annotations

import json
import sys

from wtb.bootstrap import bootstrap
from wtb.server_bootstrap import ServerServices
from wtb.settings import settings_from

with bootstrap(settings_from(json.loads(sys.stdin.readline()))) as services:
    background = ServerServices(services=services).background
    background.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    background.stop()
