"""The reference engine: Hugging Face `tokenizers`, with the library's own threads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import tokenizers

from packer.errors import TokenizerError
from packer.plan import Int32Array, Int64Array, offsets_of
from packer.tokenizer import Tokenizer


class HfEngine:
    name = "hf"

    def __init__(self, tokenizer: Tokenizer, *, special_in_text: str = "parse") -> None:
        self.backend = tokenizer.backend
        if special_in_text == "literal":
            self.backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())  # the loaded one is shared
            self.backend.encode_special_tokens = True
            self._check_literal(tokenizer.source)

    def _check_literal(self, source: str) -> None:
        """A model that has control tokens among its own pieces (Unigram) finds them in a text by itself."""
        unknown = getattr(self.backend.model, "unk_token", None)
        control = {i: t.content for i, t in self.backend.get_added_tokens_decoder().items() if t.special}
        for i, text in control.items():
            if text != unknown and i in self.backend.encode(text, add_special_tokens=False).ids:
                raise TokenizerError(
                    f"tokenizer {source}: its model itself makes {text!r} of that text, so --special-in-text literal "
                    "cannot be done; leave it out"
                )

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        offsets = offsets_of(np.fromiter(map(len, encodings), np.int64, len(encodings)))
        ids = np.empty(offsets[-1], np.int32)
        for encoding, start, stop in zip(encodings, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            ids[start:stop] = np.frombuffer(array("I", encoding.ids), np.uint32)  # three times as fast as from the list
        return ids, offsets
