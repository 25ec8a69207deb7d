# SPDX-License-Identifier: Apache-2.0
"""From cheap and certain to costly: file, known seeds, sign vote, Procrustes; else refuse.

Whatever a step proposes has to map the original table to the target's. A guess that does not is
thrown away, and without any that does nothing is returned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.recovery.fit import (
    EXPLAINED,
    Fit,
    explains,
    leaves_a_rotation,
    measure,
    residual,
)
from vllm_eagle3_quarot.recovery.procrustes import Progress, fit_orthogonal, snapped
from vllm_eagle3_quarot.recovery.recipe import recipe_block_sizes
from vllm_eagle3_quarot.recovery.sign_vote import ROWS, vote
from vllm_eagle3_quarot.recovery.tables import TablePair
from vllm_eagle3_quarot.rotation.msmodelslim import SEEDS, msmodelslim_rotation
from vllm_eagle3_quarot.rotation.rebuilding import rebuild
from vllm_eagle3_quarot.rotation.rotation import Rotation

logger = logging.getLogger("vllm.eagle3_quarot")

#: Rows on which a guess is tried, and rows on which the answer is measured.
TRIED_ROWS = 64
MEASURED_ROWS = 1024

#: A target counts as not rotated when its table is the original's to this relative error.
SAME_TABLE = 1e-2

#: A table counts as centred when that leaves less than this share of the residual; centring a table
#: that was not centred adds to it.
CENTRED_GAIN = 0.5


@dataclass(frozen=True)
class Recovered:
    """A rotation that explains the tables.

    Attributes:
        how: where it came from, in words.
        fit: measured on rows spread over the whole embedding.
        centred: the original table was centred row by row before it was rotated.
    """

    rotation: Rotation
    how: str
    fit: Fit
    centred: bool


def recover(
    target: TargetFacts, pairs: Sequence[TablePair], progress: Progress = lambda share: None
) -> Recovered:
    """Find the rotation that maps the original tables of ``pairs`` to ``target``'s.

    ``pairs`` begins with the token embedding.

    Raises:
        RotationError: no rotation explains them, or the target is not rotated.
    """
    embedding = pairs[0]
    errors: list[str] = []
    rough: list[tuple[float, Rotation, str, TablePair]] = []
    for centred in (False, True):
        pair = embedding.as_centred() if centred else embedding
        before, after = _usable_rows(pair, TRIED_ROWS)
        if float((before - after).norm()) < SAME_TABLE * float(after.norm()):
            raise RotationError(
                f"{target.folder}: the token embedding is the original one, so this target's "
                "residual stream is not rotated and there is nothing to recover"
            )
        for rotation, how in _guesses(target, pair):
            error = residual(rotation, before, after)
            if error < EXPLAINED:
                return _measured(rotation, how, pair)
            if explains(rotation, error):
                rough.append((error, rotation, how, pair))
            errors.append(f"{how}: residual {error:.2g}")
    nearest = min(rough, key=lambda guess: guess[0])[1:] if rough else None
    if nearest is not None and not _is_trained_further(nearest[0], nearest[2]):
        return _measured(*nearest)
    dense = _fitted(pairs, errors, progress)
    if dense is not None and (nearest is None or dense.fit.residual < EXPLAINED):
        return dense
    if nearest is not None:
        return _measured(*nearest)
    raise RotationError(
        f"{target.folder}: no orthogonal matrix maps the {embedding.what} in "
        f"{embedding.original_name} to this target's ({'; '.join(errors[-4:])}). Is the other "
        "model the one that this target was made from? If so, the target was made with a "
        "transform that is not a rotation, and an Eagle3 draft cannot be corrected for it"
    )


def _is_trained_further(rotation: Rotation, pair: TablePair) -> bool:
    """True when ``Q`` is near the Hadamard form ``rotation``, but another matrix."""
    before, after = _usable_rows(pair, MEASURED_ROWS, offset=1)
    return leaves_a_rotation(rotation, before, after)


def _guesses(target: TargetFacts, pair: TablePair) -> Iterator[tuple[Rotation, str]]:
    try:
        if target.sidecar is not None:
            rotation = Rotation.from_file(target.sidecar, hidden_size=pair.size)
            yield rotation, f"file {target.sidecar}"
    except RotationError as error:
        logger.warning("eagle3_quarot: the target's own rotation file is of no use: %s", error)
    try:
        recorded = target.recorded_rotations
        if recorded is not None and recorded.residual is not None:
            rotation = rebuild(recorded.residual, pair.size, target.folder)
            yield rotation, f"record of {recorded.tool}"
    except RotationError as error:
        logger.info("eagle3_quarot: %s", error)
    blocks = dict.fromkeys([*recipe_block_sizes(target.folder), None, 32])
    for seed in SEEDS:
        for block in blocks:
            try:
                rotation = msmodelslim_rotation(pair.size, block, seed)
            except RotationError:
                continue  # the tool has no rotation of this size
            yield rotation, f"msModelSlim seed {seed}, block {block or pair.size}"
    before, after = _usable_rows(pair, ROWS)
    voted = vote(before, after)
    if voted is not None:
        yield voted, "sign vote"


def _fitted(pairs: Sequence[TablePair], errors: list[str], progress: Progress) -> Recovered | None:
    for centred in (False, True):
        tables = [pairs[0].as_centred() if centred else pairs[0], *pairs[1:]]
        q = fit_orthogonal(tables, progress)
        if q is None:
            errors.append("too few different rows to determine a dense rotation")
            return None
        before, after = _usable_rows(tables[0], MEASURED_ROWS, offset=1)
        exact = snapped(q)
        for matrix, how in ((exact, "Procrustes, snapped"), (q.float(), "Procrustes")):
            if matrix is None:
                continue
            try:
                rotation = Rotation.from_dense(matrix, source=how)
            except RotationError:
                continue  # the iteration did not converge: the tables do not determine it
            error = residual(rotation, before, after)
            trained = exact is matrix and leaves_a_rotation(rotation, before, after)
            if error < EXPLAINED or (explains(rotation, error) and not trained):
                return _measured(rotation, how, tables[0])
            errors.append(f"{how}: residual {error:.2g}")
    return None


def _measured(rotation: Rotation, how: str, pair: TablePair) -> Recovered:
    """Measure on both assumptions: signs are found whether or not the table was centred first."""
    results = []
    for candidate in (pair, pair.as_centred()):
        before, after = _usable_rows(candidate, MEASURED_ROWS, offset=1)
        fit = measure(rotation, before, after)
        results.append(Recovered(rotation, how, fit, candidate.centred))
    plain, centred = results
    return centred if centred.fit.residual < CENTRED_GAIN * plain.fit.residual else plain


def _usable_rows(
    pair: TablePair, wanted: int, offset: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of both tables without those that are zero (padding of the vocabulary).

    Raises:
        RotationError: NaN or infinite entries, or nothing but zeros.
    """
    before, after = pair.spread(wanted, offset)
    if not bool(torch.isfinite(before).all()) or not bool(torch.isfinite(after).all()):
        raise RotationError(
            f"the {pair.what} has NaN or infinite entries, in '{pair.original_name}' or in the "
            "target; download the checkpoint again"
        )
    kept = (before.norm(dim=1) > 0) & (after.norm(dim=1) > 0)
    if not bool(kept.any()):
        raise RotationError(f"the {pair.what} is zero in all rows that were looked at")
    return before[kept], after[kept]
