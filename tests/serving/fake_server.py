# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `vllm serve` that starts in no time: a parent, a child, and /health.

Usage: fake_server.py PORT BEHAVIOUR, where BEHAVIOUR is one of

* ``good``: ends itself and its child on SIGTERM and SIGINT;
* ``leaves-child``: ends on SIGTERM without its child, which ignores SIGTERM;
* ``stubborn``: parent and child ignore SIGTERM and SIGINT;
* ``dies``: logs a traceback as vLLM does and exits with 1 before it answers;
* ``never-healthy``: runs, but answers 503;
* ``speculates``: as ``good``, and its /metrics counts 100 drafts more at every look: accepted are
  90 at position 1, 70 at 2, 40 at 3;
* ``collapsed``: the same, with 1 accepted at position 1 and none behind;
* ``no-speculation``: /metrics of a vLLM without it;
* ``not-vllm``: /metrics of another program, which refuses every request.
"""

from __future__ import annotations

import http.server
import itertools
import signal
import subprocess
import sys

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
LOG_OF_A_FAILURE = """\
(EngineCore pid=12) ERROR 11-29 14:37:20 [core.py:1140] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-29 14:37:20 [core.py:1140] RotationError: no rotation in /t: re-export
(APIServer pid=10) RuntimeError: Engine core initialization failed. See root cause above.
"""

LABELS = 'engine="0",model_name="reference"'

WITHOUT_SPECULATION = f"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{LABELS}}} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{LABELS}}} 1.0
"""

ACCEPTED = {"speculates": (90, 70, 40), "collapsed": (1, 0, 0)}
"""Of 100 drafts, per position."""


def metrics(behaviour: str, look: int) -> str:
    """The page at the look of this number, 1 for the first."""
    if behaviour == "not-vllm":
        return "# TYPE python_info gauge\npython_info 1.0\n"
    if behaviour not in ACCEPTED:
        return WITHOUT_SPECULATION
    accepted = [look * count for count in ACCEPTED[behaviour]]
    counters = {
        "spec_decode_num_drafts": [("", 100 * look)],
        "spec_decode_num_draft_tokens": [("", 300 * look)],
        "spec_decode_num_accepted_tokens": [("", sum(accepted))],
        "spec_decode_num_accepted_tokens_per_pos": [
            (f',position="{position}"', count) for position, count in enumerate(accepted)
        ],
        "generation_tokens": [("", 100 * look + sum(accepted))],
    }
    lines = [
        line
        for name, samples in counters.items()
        for line in (
            f"# TYPE vllm:{name} counter",
            *(f"vllm:{name}_total{{{LABELS}{label}}} {count}.0" for label, count in samples),
        )
    ]
    return WITHOUT_SPECULATION + "\n".join(lines) + "\n"


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

    looks = itertools.count(1)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if behaviour == "never-healthy" else 200)
            self.end_headers()
            if self.path == "/metrics":
                self.wfile.write(metrics(behaviour, next(looks)).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400 if behaviour == "not-vllm" else 200)
            self.end_headers()

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
