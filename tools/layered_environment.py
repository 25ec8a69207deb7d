# SPDX-License-Identifier: Apache-2.0
"""A virtual environment that sees the packages of the one this interpreter runs in.

What it installs itself comes first, so it can have other releases of some packages; the environment
underneath is left as it is. pip counts what is underneath as installed.
"""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

PATH_FILE = "main_environment.pth"

_PRINT_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def make_layered_environment(folder: Path) -> Path:
    """Make the environment in ``folder``, which is emptied; return its site-packages."""
    venv.create(folder, clear=True, symlinks=True)
    command = [str(folder / "bin" / "python"), "-c", _PRINT_PURELIB]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    site_packages = Path(result.stdout.strip())
    # A path file, not --system-site-packages: that would show the base interpreter's packages.
    # addsitedir also reads the path files there, which an editable installation is made of.
    below = sysconfig.get_path("purelib")
    (site_packages / PATH_FILE).write_text(f"import site; site.addsitedir({below!r})\n")
    return site_packages
