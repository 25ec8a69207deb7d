# SPDX-License-Identifier: Apache-2.0
"""The draft classes' ``load_weights`` as they were when we registered.

vllm-ascend (0.18 to 0.23 and 0.26.0rc1) folds ``Q`` into ``fc`` by itself: shortly before the draft
of a quantised target is loaded, it assigns a folding ``load_weights`` to vLLM's class. That fold
and an un-rotation at run time undo the rotation twice, which is as bad as not at all. So the
loaders are kept when a process registers plugins, which is before a worker does anything else, and
a draft that we correct is loaded through them. A draft that we leave alone keeps whatever the host
has assigned.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from typing import Any

from vllm_eagle3_quarot.integrations.architectures import replaced_classes

logger = logging.getLogger("vllm.eagle3_quarot")

Loader = Callable[..., Any]

_kept: dict[type, Loader] = {}


def keep_original_loaders() -> None:
    """Remember the loaders of all replaced classes, on a host that may exchange them later.

    Importing the classes takes time that other hosts need not spend.
    """
    if importlib.util.find_spec("vllm_ascend") is None:
        return
    for module, name in sorted(set(replaced_classes.values())):
        try:
            cls: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            logger.debug("eagle3_quarot: no class %s.%s on this host: %s", module, name, error)
            continue
        _kept.setdefault(cls, cls.load_weights)


def original_loader(cls: type) -> Loader | None:
    """The kept loader of the nearest class that ``cls`` derives from, None when none was kept."""
    return next((_kept[base] for base in cls.__mro__ if base in _kept), None)
