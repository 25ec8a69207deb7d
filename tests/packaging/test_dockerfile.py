# SPDX-License-Identifier: Apache-2.0
"""``docker/Dockerfile``, without Docker and without an image: every instruction that can be carried
out in a folder is, with a stand-in for the CANN toolkit and the real torch_npu wheel."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.packaging import cann_toolkit
from tests.packaging.conftest import ROOT
from tests.packaging.dockerfile import Container, instructions, stages
from tests.packaging.environments import (
    Environment,
    our_requirements,
    programs,
    with_requirements,
)
from tests.support.other_environment import interpreter_of

TEXT = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")

#: Tags of vllm-ascend 0.23.0's images: no suffix for A2, -a3 for A3.
TAGS = ("v0.23.0", "v0.23.0-a3")


def test_both_stages_come_from_the_public_image() -> None:
    heads = [stage[0].arguments for stage in stages(TEXT)]
    assert heads == ["${IMAGE}:${TAG} AS build", "${IMAGE}:${TAG}"]
    arguments = [each.arguments for each in instructions(TEXT) if each.name == "ARG"]
    assert arguments == ["IMAGE=quay.io/ascend/vllm-ascend", f"TAG={TAGS[0]}"]
    assert f"TAG={TAGS[1]}" in TEXT


def test_every_copied_file_exists() -> None:
    copied = [each.arguments.split() for each in stages(TEXT)[0] if each.name == "COPY"]
    assert copied
    for *sources, _ in copied:
        for source in sources:
            assert (ROOT / source).exists(), source


@pytest.mark.packaging
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("cmake", path=programs()) is None, reason="needs cmake")
def test_the_commands_make_a_wheel_that_runs_on_the_npu(tmp_path: Path) -> None:
    """A3's chip, a torch_npu that cannot be imported while building, then an operator on `npu`."""
    npu = interpreter_of(
        "EAGLE3_QUAROT_NPU_VENV", ".venv-npu", "torch_npu", "test-npu", "the library"
    )
    torch_npu = Path(sysconfig.get_path("purelib", "venv", {"base": str(npu.parents[1])}))
    packages = with_requirements("torch", "hatchling", "pip", *our_requirements())
    image = Environment(tmp_path / "image", packages, beside=[torch_npu])
    container = Container(
        tmp_path,
        ROOT,
        {
            "PATH": f"{image.python.parent}:{programs()}",
            "HOME": str(tmp_path),
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "SOC_VERSION": "ascend910_9391",
        },
        {"/usr/local/Ascend": cann_toolkit.install(tmp_path / "Ascend").parent},
    )
    building, final = stages(TEXT)
    container.carry_out(building)
    (wheel,) = (tmp_path / "build" / "dist").glob("*.whl")
    assert "-py3-none-linux_" in wheel.name
    container.carry_out(final)
    assert not (tmp_path / "tmp" / "dist").exists()
    done = image.run(
        "python",
        "-c",
        "import sys; sys.path.append(sys.argv[1])\n"
        "from tests.packaging.on_npu import main; main(sys.argv[2])",
        ROOT,
        tmp_path / "fake_cann",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # torch_npu has something to say first.
    assert f"native kernels, AscendC ({image.site}/" in done.stdout.splitlines()[-1], done.stdout
