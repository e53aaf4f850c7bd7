"""Documents put together again from the rows, in temporary files: 4 bytes a token, so that memory stays bounded.

Rows hold documents in random order, and cut; here they lie end to end in the order of INPUT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from packer.corpus.packed import ABSENT, UNKNOWN
from packer.manifest import Manifest
from packer.plan import BoolArray, Int64Array, runs
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, all_groups, labelled, raise_at

Tells = Callable[[Group, BoolArray], BoolArray]
AT_ONCE = 1 << 24  # tokens of a table looked at together


class Documents:
    """lengths: int64 (records,), 0 where no row holds any of a document; starts: int64 (records+1,), where each begins
    among `tokens`: int32 (t,), ids or ABSENT; trained: int8 (t,), 0, 1 or UNKNOWN, None where all tokens are trained.

    A token may lie in several windows; that they agree is checked on the way.
    """

    def __init__(self, folder: Path, out: Place, splits: Sequence[Manifest], records: int) -> None:
        self._folder, self._out, self._splits = folder, out, splits
        self.lengths = np.memmap(folder / "lengths", np.int64, "w+", shape=(records,))
        for group in all_groups(out, *splits):
            self._take_lengths(group)
        self.starts = np.memmap(folder / "starts", np.int64, "w+", shape=(records + 1,))
        np.cumsum(self.lengths, out=self.starts[1:])

    @property
    def total(self) -> int:
        return int(self.starts[-1])

    def fill(self, *, next_tokens: bool = False, tells: Tells | None = None, spans: bool = False) -> None:
        """Puts the tokens of all rows in their place; with `next_tokens` also those that only a label tells of. tells:
        says better which labels tell whether the next token is trained; spans: loss spans, where there are some, tell
        it of every token."""
        self.tells, self.spans = tells, spans
        self.tokens = np.memmap(self._folder / "tokens", np.int32, "w+", shape=(self.total + 1,))  # never empty
        masked = sum(split.totals.masked_documents for split in self._splits)
        self.trained = np.memmap(self._folder / "trained", np.int8, "w+", shape=(self.total + 1,)) if masked else None
        for start in range(0, self.total + 1, AT_ONCE):
            self.tokens[start : start + AT_ONCE] = ABSENT
            if self.trained is not None:
                self.trained[start : start + AT_ONCE] = UNKNOWN
        for group in all_groups(self._out, *self._splits):
            self._place(group)
            if next_tokens:
                self._place_next(group)

    def held(self) -> int:
        """Tokens that `fill` has put in their place, each counted once."""
        parts = range(0, self.total, AT_ONCE)
        return sum(int((self.tokens[a : min(a + AT_ONCE, self.total)] != ABSENT).sum()) for a in parts)

    def places(self, group: Group) -> Int64Array:
        """Where among `tokens` each token of a group lies: int64 (T,)."""
        return runs(self.starts[group.flat["doc_ids"]] + group.flat["doc_starts"], group.segment_lengths)

    def _take_lengths(self, group: Group) -> None:
        ids, lengths = group.flat["doc_ids"], group.flat["doc_lengths"]
        known = self.lengths[ids]
        self.lengths[ids] = lengths
        differ = (self.lengths[ids] != lengths) | ((known != 0) & (known != lengths))
        if differ.any():
            at = int(np.argmax(differ))
            raise_at(group, group.row_of("doc_ids")[at], f"doc_lengths differ between rows of document {ids[at]}")

    def _place(self, group: Group) -> None:
        ids, places = group.flat["input_ids"], self.places(group)
        before = self.tokens[places]
        self.tokens[places] = ids
        differ = (self.tokens[places] != ids) | ((before != ABSENT) & (before != ids))
        if differ.any():
            at = int(np.argmax(differ))
            row = int(group.row_of("input_ids")[at])
            raise_at(group, row, f"the token at position {at - group.at['input_ids'][row]} is another in another row")
        if self.trained is None:
            return
        if self.spans and "loss_spans" in group.flat:
            window = group.manifest.options.window
            if window is None or not window.mask_overlap:
                self._mark(places, group.trained)
                return
            # Left out of the spans may also be what an earlier window predicts, but not a window's first token.
            firsts = group.at["input_ids"][:-1]
            self._mark(places[firsts], group.trained[firsts])
            self._mark(places[group.trained], group.trained[group.trained])
        ends = group.sequence_starts + group.sequence_lengths - 1
        target = np.append(places[1:], 0)
        target[ends] = places[ends] + 1
        tells = np.ones(len(places), np.bool_)  # whether the label of the next token says if that is trained
        tells[ends] = self.goes_on(group)[np.searchsorted(group.segment_starts, ends, side="right") - 1]
        if self.tells is not None:
            tells = self.tells(group, tells)
        self._mark(target[tells], labelled(group)[tells] != IGNORE_INDEX)

    def _mark(self, places: Int64Array, trained: BoolArray) -> None:
        """A token is trained if any window says so: the others may mask it as one that was there before."""
        if self.trained is not None:
            untrained = places[~trained]
            self.trained[untrained[self.trained[untrained] == UNKNOWN]] = 0
            self.trained[places[trained]] = 1

    def goes_on(self, group: Group) -> BoolArray:
        """Segments after which their document has more tokens: bool (S,)."""
        result: BoolArray = group.flat["doc_starts"] + group.segment_lengths < group.flat["doc_lengths"]
        return result

    def _place_next(self, group: Group) -> None:
        tokens = group.flat["next_tokens"]
        places = self.starts[group.flat["doc_ids"]] + group.flat["doc_starts"] + group.segment_lengths
        chosen = np.flatnonzero(self.goes_on(group) & (tokens != IGNORE_INDEX))
        chosen = chosen[self.tokens[places[chosen]] == ABSENT]
        self.tokens[places[chosen]] = tokens[chosen]
        if self.trained is not None:
            self.trained[places[chosen]] = 1  # or its label would not be there
