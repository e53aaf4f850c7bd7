"""A tokenizer as its folder describes it, and what it puts around documents (`packer.engines` makes the ids).

    Tokenizer   what a tokenizer folder says: vocabulary, BOS, EOS, fingerprint
    Ends        the ids put before and after each document

The tokenizer's own post-processor only adds fixed ids around a text, so these are found once, by trying it, and put
around the documents by array operations. That is also what makes a doubled BOS or EOS impossible.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from packer.errors import TokenizerError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of
from packer.remote import fetch_tokenizer, is_url, local_path, shown

CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer. `source` is the name as the user gave it, `path` its tokenizer.json, `fingerprint` that
    file's sha256."""

    source: str
    path: Path
    fingerprint: str
    backend: tokenizers.Tokenizer
    bos_token: str | None
    eos_token: str | None

    @property
    def vocab_size(self) -> int:
        """Ids are below this: added tokens count, and so do gaps before them."""
        added = max(self.backend.get_added_tokens_decoder(), default=-1)
        return max(self.backend.get_vocab_size(with_added_tokens=True), added + 1)

    def id_of(self, token: str, what: str) -> int:
        found: int | None = self.backend.token_to_id(token)
        if found is None:
            raise TokenizerError(f"tokenizer {self.source}: {what} {token!r} is not in its vocabulary")
        return found

    def control_finder(self) -> Callable[[str], bool] | None:
        """Says whether a control token is written in a text; None if the tokenizer has none."""
        texts = {token.content for token in self.backend.get_added_tokens_decoder().values() if token.special}
        longest_first = sorted(texts - {""}, key=lambda text: (-len(text), text))
        if not longest_first:
            return None
        search, letters = (
            re.compile("|".join(map(re.escape, longest_first))).search,
            {text[0] for text in longest_first},
        )
        first = letters.pop() if len(letters) == 1 else ""  # one letter is found many times as fast
        return lambda text: first in text and search(text) is not None

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.backend.decode(ids, skip_special_tokens=False))


def find(source: str) -> Path:
    """The tokenizer.json of a file, a folder, a URL of either or a hub name. Raises TokenizerError if there is none."""
    if is_url(source):
        return fetch_tokenizer(source)
    path = Path(local_path(source))
    if path.is_dir():
        path = path / "tokenizer.json"
        if not path.exists():
            raise TokenizerError(
                f"tokenizer folder {source} has no tokenizer.json; make one with "
                "transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
    elif not path.exists():
        path = _from_hub(source)
    return path


def load(source: str) -> Tokenizer:
    """Loads a tokenizer.json, a folder that holds one, its URL, or a hub name; once a process, while the files stay as
    they are.

    Truncation and padding that a tokenizer.json may carry never take effect here.
    """
    path = find(source)
    files = [path, *(path.parent / name for name in CONFIG_FILES)]
    return _load(shown(source), path, tuple(file.stat().st_mtime_ns if file.exists() else None for file in files))


@cache
def _load(source: str, path: Path, stamps: tuple[int | None, ...]) -> Tokenizer:  # noqa: ARG001  stamps are the cache's
    data = path.read_bytes()
    name = source if is_url(source) else path
    try:
        backend = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"tokenizer {name} cannot be loaded: {error}") from error
    if getattr(backend.model, "dropout", None):
        raise TokenizerError(
            f"tokenizer {name} has BPE dropout {backend.model.dropout}: its ids differ from run to run; "
            "set model.dropout to null in tokenizer.json"
        )
    backend.no_truncation()
    backend.no_padding()
    config = _config(path.parent)
    return Tokenizer(
        source=source,
        path=path,
        fingerprint=hashlib.sha256(data).hexdigest(),
        backend=backend,
        bos_token=_token_text(config.get("bos_token")),
        eos_token=_token_text(config.get("eos_token")),
    )


@cache
def _from_hub(name: str) -> Path:
    """Downloads what a tokenizer needs from the hub, or finds it in its cache; returns the tokenizer.json."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    try:
        path = Path(huggingface_hub.hf_hub_download(name, "tokenizer.json"))
        for optional in CONFIG_FILES:
            try:
                huggingface_hub.hf_hub_download(name, optional)
            except EntryNotFoundError:
                continue
    except Exception as error:  # any of the hub's and the network's many errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TokenizerError(
            f"tokenizer {name!r} is no file or folder here, and the hub did not give it: {reason}"
        ) from error
    return path


def _config(folder: Path) -> dict[str, Any]:
    """The special tokens that the files beside a tokenizer.json name; tokenizer_config.json has the last word."""
    config: dict[str, Any] = {}
    for name in reversed(CONFIG_FILES):
        config.update({key: value for key, value in json_object(folder / name).items() if value is not None})
    return config


def json_object(path: Path) -> dict[str, Any]:
    """What a file beside a tokenizer.json says; nothing where there is none. Raises TokenizerError if it is no JSON."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{path} is not a JSON object")
    return content


def _token_text(value: object) -> str | None:
    """A token in a config is a string, or an object with its `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


@dataclass(frozen=True)
class Ends:
    """Ids put around each document that was tokenized from text. `summary` says where they come from."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    summary: str

    def add(self, ids: Int32Array, offsets: Int64Array) -> tuple[Int32Array, Int64Array]:
        """Adds them, but not to a document without tokens, nor where the document has them already."""
        result, new_offsets, _ = self.around(ids, offsets, np.True_, np.True_)
        return result, new_offsets

    def around(
        self, ids: Int32Array, offsets: Int64Array, first: BoolArray | np.bool_, last: BoolArray | np.bool_
    ) -> tuple[Int32Array, Int64Array, BoolArray]:
        """`add`, but before those documents only of which `first` and after those of which `last` says so: bool (n,).
        Returns the ids and offsets, and which of the ids were there before: bool (t,)."""
        lengths = np.diff(offsets)
        before = (lengths > 0) & first & ~_equal_at(ids, offsets[:-1], lengths, self.prefix)
        after = (lengths > 0) & last & ~_equal_at(ids, offsets[1:] - len(self.suffix), lengths, self.suffix)
        new_offsets = offsets_of(lengths + len(self.prefix) * before + len(self.suffix) * after)
        result = np.empty(new_offsets[-1], np.int32)
        own = np.ones(len(result), np.bool_)
        for places, values in (
            (new_offsets[:-1][before], self.prefix),
            (new_offsets[1:][after] - len(self.suffix), self.suffix),
        ):
            for i, value in enumerate(values):
                result[places + i] = value
                own[places + i] = False
        result[own] = ids
        return result, new_offsets, own


def _equal_at(ids: Int32Array, places: Int64Array, lengths: Int64Array, values: tuple[int, ...]) -> BoolArray:
    """Whether `values` stand at each place, for documents long enough to hold them: bool (n,)."""
    equal: BoolArray = lengths >= len(values)
    for i, value in enumerate(values):
        equal[equal] = ids[places[equal] + i] == value
    return equal


def ends_of(
    tokenizer: Tokenizer, *, bos: bool | None = None, eos: bool | None = None, eos_token: str | None = None
) -> Ends:
    """What to put around each document. None: what the tokenizer's post-processor adds, and EOS if one is named.

    A wanted token that the tokenizer does not have is a TokenizerError.
    """
    prefix, suffix = _post_processor_ends(tokenizer)
    found = [f"post-processor adds {_names(tokenizer, prefix)} before" if prefix else ""]
    found.append(f"post-processor adds {_names(tokenizer, suffix)} after" if suffix else "")
    if bos is False:
        prefix, found[0] = (), "no BOS (--no-bos)"
    elif bos:
        if tokenizer.bos_token is None:
            raise TokenizerError(f"tokenizer {tokenizer.source} names no BOS token, so --bos cannot be done")
        wanted = tokenizer.id_of(tokenizer.bos_token, "its BOS token")
        if wanted not in prefix:
            prefix, found[0] = (wanted, *prefix), f"BOS {tokenizer.bos_token} before (--bos)"
    eos_token = eos_token or tokenizer.eos_token
    if eos is False:
        suffix, found[1] = (), "no EOS (--no-eos)"
    elif eos_token is not None:
        wanted = _eos_id(tokenizer, eos_token)
        if suffix[-1:] != (wanted,):
            suffix, found[1] = (*suffix, wanted), f"EOS {eos_token} after"
    elif eos:
        raise TokenizerError(f"tokenizer {tokenizer.source} names no EOS token; name one with --eos-token")
    elif not suffix:
        found[1] = "no EOS: the tokenizer names none (--eos-token sets one)"
    return Ends(prefix, suffix, "; ".join(part for part in found if part))


def _eos_id(tokenizer: Tokenizer, token: str) -> int:
    try:
        return tokenizer.id_of(token, "EOS token")
    except TokenizerError as error:
        raise TokenizerError(f"{error}; name one that is with --eos-token, or none with --no-eos") from None


def _names(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    return " ".join(str(tokenizer.backend.id_to_token(i)) for i in ids)


def _post_processor_ends(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the post-processor puts around a text."""
    for probe in _probes(tokenizer.backend):
        try:
            own = tokenizer.backend.encode(probe, add_special_tokens=False).ids
            full = tokenizer.backend.encode(probe, add_special_tokens=True).ids
        except Exception:  # a model without an unknown token refuses what it does not know
            continue
        for before in range(len(full) - len(own) + 1):
            if own and full[before : before + len(own)] == own:
                return tuple(full[:before]), tuple(full[before + len(own) :])
    raise TokenizerError(f"tokenizer {tokenizer.source}: its post-processor does more than add tokens around a text")


def _probes(backend: tokenizers.Tokenizer) -> Iterator[str]:
    """Texts of which the tokenizer surely knows one."""
    yield from ("a", "0")
    special = {token.content for token in backend.get_added_tokens_decoder().values()}
    yield from islice((token for token in sorted(backend.get_vocab()) if token not in special), 1000)
