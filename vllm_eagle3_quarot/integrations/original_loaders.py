# SPDX-License-Identifier: Apache-2.0
"""The draft classes' ``load_weights`` as vLLM wrote them, whatever was assigned to them since.

vllm-ascend (0.18 to 0.26) folds ``Q`` into ``fc`` by itself: shortly before the draft of a
quantised target is loaded, it assigns a folding ``load_weights`` to vLLM's class. That fold and
ours would undo the rotation twice, which is as bad as not at all. A draft that we correct is
therefore loaded by vLLM's own method, taken from the source of vLLM's module, so that it does not
matter who assigned what and when. A draft that we leave alone keeps what the host has assigned.

From 0.27 on, vllm-ascend registers a class of its own that folds while its ``is_quarot_used`` is
true; a draft that we correct gets false.
"""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any

from vllm_eagle3_quarot.errors import UnsupportedPairError

logger = logging.getLogger("vllm.eagle3_quarot")

Loader = Callable[..., Any]

METHOD = "load_weights"

#: Attribute by which a draft of vllm-ascend's registered class decides whether to fold.
FOLD_SWITCH = "is_quarot_used"


def switch_off_host_fold(draft: Any) -> None:
    """Tell a draft of vllm-ascend's own class not to fold; for any other this does nothing."""
    if getattr(draft, FOLD_SWITCH, False):
        setattr(draft, FOLD_SWITCH, False)
        logger.debug("eagle3_quarot: the host's own fold is switched off for this draft")


def original_loader(cls: type) -> Loader | None:
    """vLLM's ``load_weights`` where a class under ``cls`` has a foreign one, None where none has.

    Raises:
        UnsupportedPairError: there is a foreign one, and vLLM's cannot be had.
    """
    for base in cls.__mro__:
        assigned = vars(base).get(METHOD)
        if assigned is None or not base.__module__.startswith("vllm."):
            continue
        code = getattr(assigned, "__code__", None)  # a callable of another kind has none
        if code is not None and code.co_filename == sys.modules[base.__module__].__file__:
            return None
        logger.debug(
            "eagle3_quarot: %s.%s is from %s; this draft is loaded by vLLM's own",
            base.__qualname__,
            METHOD,
            code.co_filename if code is not None else type(assigned).__name__,
        )
        return _as_written(base)
    return None


@functools.cache
def _as_written(cls: type) -> Loader:
    """``cls.load_weights`` compiled from the source of the module that defines ``cls``."""
    module = sys.modules[cls.__module__]
    try:
        source = ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError) as error:
        raise _not_available(cls) from error
    method = next(
        (
            node
            for statement in source.body
            if isinstance(statement, ast.ClassDef) and statement.name == cls.__name__
            for node in statement.body
            if isinstance(node, ast.FunctionDef) and node.name == METHOD
        ),
        None,
    )
    if method is None:
        raise _not_available(cls)
    # A function around it supplies the cell that `super()` without arguments looks for.
    around = ast.parse(f"def around(__class__):\n    return {METHOD}")
    assert isinstance(around.body[0], ast.FunctionDef)
    around.body[0].body.insert(0, method)
    names: dict[str, Any] = {}
    exec(compile(around, str(module.__file__), "exec", dont_inherit=True), vars(module), names)
    loader: Loader = names["around"](cls)
    return loader


def _not_available(cls: type) -> UnsupportedPairError:
    return UnsupportedPairError(
        f"{cls.__module__}.{cls.__qualname__}.{METHOD} was replaced by the host, and the original "
        "cannot be read from the module's source. The draft would be corrected twice, which is as "
        "bad as not at all. Set mode to 'off' to leave the correction to the host"
    )
