# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.engine_matrix [VERSION ...]``: serve the reference pair with each release.

Makes the environments, runs the end-to-end tests marked ``matrix`` in each, writes the results and
the pages that show them. Named versions only: the rows of the others stay as they are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.docs import engine_matrix
from tools.engine_matrix.environment import interpreter
from tools.engine_matrix.measure import measure
from tools.engine_matrix.releases import ENGINE_RELEASES
from tools.engine_matrix.results import read_results, write_results


def main() -> int:
    """Return the exit code: 1 when a release did not do what the table says."""
    known = [release.version for release in ENGINE_RELEASES]
    parser = argparse.ArgumentParser(prog="python -m tools.engine_matrix", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(known))
    parser.add_argument("--environments", type=Path, default=Path(".matrix"), metavar="FOLDER")
    arguments = parser.parse_args()
    unknown = set(arguments.versions) - set(known)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in tools/engine_matrix/releases.py")

    failed = []
    for release in ENGINE_RELEASES:
        if arguments.versions and release.version not in arguments.versions:
            continue
        print(f"== vLLM {release.version}", flush=True)
        python = interpreter(release, arguments.environments.absolute())
        result = measure(release, python)
        if not result.passed:
            failed.append(release.version)
        rows = {row.versions["vllm"]: row for row in read_results()} | {release.version: result}
        write_results([rows[version] for version in known if version in rows])
        engine_matrix.write_pages()
    if failed:
        print(f"error: not as expected on vLLM {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
