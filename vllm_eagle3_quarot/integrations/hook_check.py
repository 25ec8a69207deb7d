# SPDX-License-Identifier: Apache-2.0
"""Comparing the table of hooks with the source of a host, which is parsed and never imported.

Importing would do harm: parts of vllm-ascend cannot be the first to be imported (a circle in
0.23.0), and most processes of a server have no use for a proposer or a draft class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from vllm_eagle3_quarot.integrations.hooks import Hook

Definition = ast.AST


class HostSource:
    """The Python files of one host.

    Args:
        folder: what contains the package's folder, e.g. ``site-packages``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees: dict[str, ast.Module | None] = {}

    def problem_with(self, hook: Hook) -> str | None:
        """What is wrong with ``hook`` here, None when it is as the table says."""
        tree = self._tree(hook.module)
        if tree is None:
            return f"there is no module {hook.module}"
        outer, _, attribute = hook.name.partition(".")
        found = self._definition(hook.module, outer)
        if found is not None and attribute:
            found = _attribute(tree, found, attribute)
        if found is None:
            return f"{hook.module} has no {hook.name}"
        if hook.parameters is None:
            return None
        if not isinstance(found, ast.FunctionDef):
            return f"{hook.label} is no function"
        return _parameter_problem(found.args, hook)

    def _definition(self, module: str, name: str) -> Definition | None:
        """What binds ``name`` in ``module``: its own code, a star import, or a submodule."""
        tree = self._tree(module)
        if tree is None:
            return None
        found = _definition(tree.body, name) or self._tree(f"{module}.{name}")
        for statement in tree.body:
            if (
                found is None
                and isinstance(statement, ast.ImportFrom)
                and statement.names[0].name == "*"
                and statement.level == 1
            ):
                found = self._definition(f"{module}.{statement.module}", name)
        return found

    def _tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            path = self._folder.joinpath(*module.split("."))
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self._trees[module] = ast.parse(file.read_bytes()) if file.is_file() else None
        return self._trees[module]


def problems(hooks: Iterable[Hook], source: HostSource, version: Version) -> Iterator[str]:
    """A sentence for each of ``hooks`` that ``version`` should have and ``source`` lacks."""
    for hook in hooks:
        if hook.exists_in(version):
            problem = source.problem_with(hook)
            if problem is not None:
                yield f"{problem} ({hook.kind}: {hook.why})"


def _definition(body: list[ast.stmt], name: str) -> Definition | None:
    """The last statement of ``body``, conditional parts included, that binds ``name``."""
    found: Definition | None = None
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            for part in (statement.body, statement.orelse):
                found = _definition(part, name) or found
        elif name in _bound_names(statement):
            found = statement
    return found


def _bound_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _attribute(tree: ast.Module, cls: Definition, name: str) -> Definition | None:
    """``name`` of a class: in its body, set on ``self``, or in a base class of the same file."""
    if not isinstance(cls, ast.ClassDef):
        return None
    found = _definition(cls.body, name) or _set_on_self(cls, name)
    if found is not None:
        return found
    for base in cls.bases:
        if isinstance(base, ast.Name) and base.id != cls.name:
            base_class = _definition(tree.body, base.id)
            found = _attribute(tree, base_class, name) if base_class is not None else None
            if found is not None:
                return found
    return None


def _set_on_self(cls: ast.ClassDef, name: str) -> Definition | None:
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == name
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    return node
    return None


def _parameter_problem(arguments: ast.arguments, hook: Hook) -> str | None:
    """Compare with ``hook.parameters``: they come first, and anything further has a default."""
    expected = list(hook.parameters or ())
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    seen = [(a.arg, i >= required) for i, a in enumerate(positional)]
    seen += [
        (a.arg, default is not None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    names = [name for name, _ in seen]
    surplus = [name for name, has_default in seen[len(expected) :] if not has_default]
    if names[: len(expected)] == expected and not surplus:
        return None
    return f"{hook.label} takes ({', '.join(names)}) where ({', '.join(expected)}) is expected"
