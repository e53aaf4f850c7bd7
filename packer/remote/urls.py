"""URLs as texts. What is secret in one is for the store alone: everyone else gets `shown`.

https://user:secret@host/a.jsonl?sig=abc   ->   https://host/a.jsonl
s3://KEY:SECRET@bucket/a.jsonl             ->   s3://bucket/a.jsonl
s3://bucket/a.jsonl?versionId=3            ->   the same: it says which content is meant
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
ANY_URL = re.compile(rf"{URL.pattern}[^\s'\"<>]+")
LOCAL = ("file", "local")
WEB = ("http", "https")
BUCKETS = ("s3", "s3a", "gs", "gcs")  # what follows the scheme is a bucket, which has no port
CONTAINERS = ("abfs", "abfss")  # CONTAINER@ACCOUNT: what stands before the @ is no secret
TELLING = ("versionId", "generation")  # parameters that say which content is meant
PARAMETERS = re.compile(r"\?[\w.%~-]+=")
SECRET_NAMES = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|ACCESS_KEY|ACCOUNT_KEY|API_?KEY|SAS_|CONNECTION_STRING", re.I)
SHORTEST = 4  # shorter parts of a URL are no secrets, and would be found in every text
HIDDEN = "***"


def scheme(text: str) -> str | None:
    """ "s3://bucket/key" -> "s3"; None for a path."""
    found = URL.match(text)
    return found[1].lower() if found else None


def is_url(text: str) -> bool:
    """Whether this names something that is not a file here."""
    return scheme(text) not in (None, *LOCAL)


def local_path(text: str) -> str:
    """ "file:///a/b" -> "/a/b"; any other text is given back."""
    return text.partition("://")[2] if scheme(text) in LOCAL else text


def in_this_process(text: str) -> bool:
    """Whether other processes would find nothing there."""
    return scheme(text) == "memory"


def split(url: str) -> tuple[str, str]:
    """The credentials, "" where there are none, and the URL without them. An S3 secret may hold a slash."""
    kind, _, rest = url.partition("://")
    path, question, query = rest.partition("?")
    authority, slash, key = path.partition("/")
    if kind.lower() in CONTAINERS and ":" not in authority:
        return "", url
    host = authority
    if "@" not in authority and ":" in authority and "@" in key and _has_no_port(kind, authority):
        host, slash, key = path, "", ""
    credentials, _, host = host.rpartition("@")
    return credentials, f"{kind}://{host}{slash}{key}{question}{query}"


def _has_no_port(kind: str, authority: str) -> bool:
    return kind.lower() in BUCKETS or not authority.rpartition(":")[2].isdigit()


def shown(text: str) -> str:
    """A URL without credentials, and of its parameters only those that say which content is meant."""
    kind = scheme(text)
    if kind is None:
        return text
    bare = split(text)[1]
    start = bare.find("?") if kind in WEB else at.start() if (at := PARAMETERS.search(bare)) else -1
    if kind in WEB:
        bare = bare.partition("#")[0]
    if start < 0:
        return bare
    path, query = bare[:start], bare[start + 1 :]
    kept = "&".join(part for part in query.split("&") if part.partition("=")[0] in TELLING)
    return f"{path}?{kept}" if kept else path


def shown_in(text: str, *urls: str) -> str:
    """A text, such as a store's message, without what is secret in these URLs (or arguments that hold one) and in the
    environment."""
    urls = tuple(one[found.start() :] for one in urls if (found := URL.search(one)))
    for url in urls:
        text = text.replace(url, shown(url))
    text = ANY_URL.sub(lambda found: shown(found[0]), text)
    for secret in sorted({part for url in urls for part in _secrets(url)} | _of_environment(), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(url: str) -> set[str]:
    credentials, bare = split(url)
    query = bare.partition("?")[2].partition("#")[0]
    values = [value for name, value in parse_qsl(query) if name not in TELLING]
    values += [part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] not in TELLING]
    parts = {credentials, *credentials.split(":", 1), *values}
    return {part for one in parts for part in (one, unquote(one)) if len(part) >= SHORTEST}


def _of_environment() -> set[str]:
    return {value for name, value in os.environ.items() if len(value) >= 2 * SHORTEST and SECRET_NAMES.search(name)}


def canonical(text: str) -> str:
    """One text for each place: to see whether one place is, or contains, another."""
    kind = scheme(text)
    if kind is None or kind in LOCAL:
        return os.path.realpath(local_path(text))
    bare = shown(text)
    kind = {"s3a": "s3", "gcs": "gs"}.get(kind, kind)
    parts = [part for part in bare.partition("://")[2].split("/") if part not in ("", ".")]
    return f"{kind}://{'/'.join(parts)}"
