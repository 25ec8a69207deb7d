# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `vllm serve` that starts in no time: a parent, a child, and /health.

Usage: fake_server.py PORT BEHAVIOUR, where BEHAVIOUR is one of

* ``good``: ends itself and its child on SIGTERM and SIGINT;
* ``leaves-child``: ends on SIGTERM without its child, which ignores SIGTERM;
* ``stubborn``: parent and child ignore SIGTERM and SIGINT;
* ``dies``: logs a traceback as vLLM does and exits with 1 before it answers;
* ``never-healthy``: runs, but answers 503.
"""

from __future__ import annotations

import http.server
import signal
import subprocess
import sys

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
LOG_OF_A_FAILURE = """\
(EngineCore pid=12) ERROR 11-29 14:37:20 [core.py:1140] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-29 14:37:20 [core.py:1140] RotationError: no rotation in /t: re-export
(APIServer pid=10) RuntimeError: Engine core initialization failed. See root cause above.
"""


def main() -> None:
    port, behaviour = int(sys.argv[1]), sys.argv[2]
    if behaviour == "dies":
        print(LOG_OF_A_FAILURE, end="", flush=True)
        sys.exit(1)

    child = subprocess.Popen([sys.executable, "-c", IGNORES])

    def end(_signum: int, _frame: object) -> None:
        if behaviour != "leaves-child":
            child.kill()
            child.wait()
        sys.exit(0)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN if behaviour == "stubborn" else end)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if behaviour == "never-healthy" else 200)
            self.end_headers()

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
