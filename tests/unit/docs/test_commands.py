# SPDX-License-Identifier: Apache-2.0
"""Every command of the documentation is run, or parsed by the program that it is for.

A command of a kind that no test here knows fails: add a test for it, not an exception.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from tests.support import reference_pair as pair
from tests.support.documented import ROOT, Command, commands, pages
from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.settings import Settings

COMMANDS = commands()
SUBCOMMANDS = get_command(app).commands  # type: ignore[attr-defined]

#: What a path in the documentation stands for: made of the reference pair, in a folder of the test.
PLACEHOLDERS: Mapping[str, Callable[[Path], Path]] = {
    "/models/target-w8a8-quarot": lambda _: pair.ROTATED_TARGET,
    "/models/target-w8a8": lambda _: pair.PAIR / "target-w8a8",
    "/models/target": lambda folder: _without_rotation_file(folder / "target"),
    "/models/original": lambda _: pair.FLOAT_TARGET,
    "/models/eagle3-draft": lambda _: pair.DRAFT,
    "/models/eagle3-draft-aligned": lambda folder: folder / "aligned",
    "/models/original-quarot": lambda folder: folder / "rotated",
    "/models/q.safetensors": lambda folder: folder / "q.safetensors",
}

#: Subcommands that need a running server, and where they are run; here only their parser is.
SERVER_NEEDED: Mapping[str, str] = {"watch": "tests/serving", "bench": "tests/serving"}

#: What ``vllm serve`` parses: the whole command, or options to be added to one.
SERVED = ("vllm", "--additional-config", "--speculative-config")

#: Programs of the installation page; `test_install_commands.py` compares what they are given.
INSTALLATION = ("docker", "rm", "source")

#: Targets of the Makefile that neither .ci/run nor another target runs, with what stands for them.
MAKE_ELSEWHERE: Mapping[str, str] = {
    "demo": "its steps are the tests in tests/demo; the servers are those of tests/e2e",
    "test-contract-all": "downloads every release; those of every run are tests/contract/wheels",
}


def _without_rotation_file(folder: Path) -> Path:
    """The rotated target as a version of msModelSlim before March 2026 wrote it."""
    if not folder.exists():
        shutil.copytree(pair.ROTATED_TARGET, folder, ignore=shutil.ignore_patterns("optional"))
        description = folder / "quant_model_description.json"
        document = json.loads(description.read_text())
        del document["optional"]
        description.write_text(json.dumps(document))
    return folder


def _real(word: str, folder: Path) -> str:
    """``word`` with the path in it replaced; an unknown path under /models is an error."""
    if not word.startswith("/models/"):
        return word
    return str(PLACEHOLDERS[word](folder))


def _named(*programs: str) -> pytest.MarkDecorator:
    found = [command for command in COMMANDS if command.program in programs]
    return pytest.mark.parametrize("command", found, ids=[_label(command) for command in found])


def _label(command: Command) -> str:
    return re.sub(r"[^\w.-]+", " ", command.line)[:60].strip()


@_named("eagle3-quarot")
def test_command_of_ours_succeeds(command: Command, tmp_path: Path) -> None:
    name, *arguments = (_real(word, tmp_path) for word in command.words[1:])
    if name in SERVER_NEEDED:
        SUBCOMMANDS[name].make_context(name, arguments)
        return
    result = CliRunner().invoke(app, [name, *arguments])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_page_of_a_subcommand_names_every_option(name: str, language: str) -> None:
    page = (ROOT / "docs" / language / f"{name}.md").read_text(encoding="utf-8")
    options = [each for each in SUBCOMMANDS[name].params if each.param_type_name == "option"]
    missing = [each.opts for each in options if not any(option in page for option in each.opts)]
    assert missing == []


@_named("make")
def test_target_of_the_makefile_is_run_somewhere(command: Command) -> None:
    makefile = (ROOT / "Makefile").read_text()
    ci = (ROOT / ".ci/run").read_text()
    for word in command.words[1:]:
        variable = re.match(r"(\w+)=", word)
        if variable:
            assert re.search(rf"^{variable[1]} \?=|\$\({variable[1]}\)", makefile, re.MULTILINE)
            continue
        assert re.search(rf"^{word}:", makefile, re.MULTILINE), f"no target {word}"
        needed = re.findall(r"^([\w-]+):(.*)$", makefile, re.MULTILINE)
        run = {name for name, _ in needed if re.search(rf"^make {name}\b", ci, re.MULTILINE)}
        run |= {each for name, others in needed if name in run for each in others.split()}
        stamps = {f"$({each})" for each in ("STAMP", "NPU_STAMP", "ASCEND_STAMP", "DOCS_STAMP")}
        prepares = {name for name, others in needed if set(others.split()) <= stamps and others}
        assert word in run | prepares or word in MAKE_ELSEWHERE, f"nothing runs make {word}"


def test_vllm_and_the_plugin_understand() -> None:
    """vLLM's own parser of ``vllm serve``; the JSON options against what reads them.

    One test for all of them: importing the parser takes longer than everything else here.
    """
    from vllm.config.speculative import SpeculativeConfig
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    served = [command for command in COMMANDS if command.program in SERVED]
    assert served
    for command in served:
        words = list(command.words)
        if command.program == "vllm":
            assert words[1] == "serve", command.line
            words = words[2:]
        arguments, unknown = parser.parse_known_args(words)
        assert unknown == [], command.line
        speculation = arguments.speculative_config
        if speculation is not None:
            assert speculation["method"] == "eagle3", command.line
            known = {field.name for field in fields(SpeculativeConfig)}
            assert speculation.keys() <= known, command.line
        if arguments.additional_config:
            assert arguments.additional_config.keys() == {"eagle3_quarot"}, command.line
            Settings.from_additional_config(arguments.additional_config)


PARSED_BY_PIP = """
import json, sys
from pip._internal.commands import create_command
print(json.dumps(create_command(sys.argv[1]).parse_args(sys.argv[2:])[1]))
"""


@_named("pip")
def test_pip_understands(command: Command) -> None:
    """Installing is what ``make venv`` does. In a process of its own: pip changes ``distutils``."""
    parsed = subprocess.run(
        [sys.executable, "-c", PARSED_BY_PIP, *command.words[1:]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert parsed.returncode == 0, parsed.stderr
    for package in json.loads(parsed.stdout):
        name = package.partition("[")[0]
        built = name in ("hatchling>=1.27", "dist/vllm_eagle3_quarot-*.whl")
        assert name == "vllm-eagle3-quarot" or built or (ROOT / name / "pyproject.toml").is_file()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # of other tests
@_named("python")
def test_module_knows_its_options(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.words[1] == "-m", command.line
    monkeypatch.setattr(sys, "argv", [command.words[2], "--help"])
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(command.words[2], run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for word in command.words[3:]:
        if word.startswith("--"):
            assert word.partition("=")[0] in told, word


@_named("msmodelslim")
def test_recipe_is_the_one_that_the_tool_ran(command: Command) -> None:
    """The tool is not installed here; the reference pair was made by it, with the same recipe."""
    assert command.words[1] == "quant"
    recipe = command.words[command.words.index("--config_path") + 1]
    page = (ROOT / command.page).read_text(encoding="utf-8")
    assert f"`{recipe}`" in page
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = yaml.safe_load(block)
    ran = yaml.safe_load((ROOT / "tools/reference_pair/recipes/w8a8.yaml").read_text())
    for part in ("process", "save"):
        assert shown["spec"][part] == ran["spec"][part]


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.words], ids=_label)
def test_allow_list_names_every_entry_point(command: Command) -> None:
    """One that is left out would not be loaded, without a word."""
    for assignment in command.assignments:
        name, _, value = assignment.partition("=")
        if name != "VLLM_PLUGINS":
            pytest.fail(f"no test for the variable {name}")
        text = (ROOT / "pyproject.toml").read_text()
        ours = re.findall(r"^(\w+) = \"vllm_eagle3_quarot\.[\w.]+:\w+\"", text, re.MULTILINE)
        assert {"ascend", "eagle3_quarot"} <= set(value.split(","))
        assert set(ours) <= set(value.split(","))


def test_every_command_has_a_test() -> None:
    tested = {"", "eagle3-quarot", "make", "msmodelslim", "pip", "python", *SERVED}
    tested |= set(INSTALLATION)
    untested = [f"{each.page}: {each.line}" for each in COMMANDS if each.program not in tested]
    assert untested == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_stand_in_fenced_blocks(page: Path) -> None:
    """An indented one would escape the tests."""
    indented = re.findall(
        r"^    (?:eagle3-quarot|make|vllm|pip|VLLM_\w+=|--\w).*$",
        re.sub(
            r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        ),
        re.MULTILINE,
    )
    assert indented == []
