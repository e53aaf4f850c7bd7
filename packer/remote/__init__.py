"""What lies in a store and is named by a URL: s3://, gs://, https://, memory:// and whatever else fsspec knows.

    urls    URLs as texts: which are shown to people, and without what
    stores  fsspec, loaded with the first URL; a failure of a store as one line
    trying  once more, where that may help
    files   a stored file to read, opened again where the network breaks off
    paths   `Place`: a folder here or in a store, for those who only read it
    copies  a tokenizer's files, fetched for as long as the process lives

`file://` and `local://` name files here, and are read as such. Nothing secret of a URL is ever shown or stored.
"""

from packer.remote.copies import fetch_tokenizer, remove_copies
from packer.remote.files import RemoteFile
from packer.remote.paths import Place, RemotePath, names_in, place, size_of
from packer.remote.stores import Stat, filesystem, listed, reason_of, stat
from packer.remote.urls import canonical, in_this_process, is_url, local_path, shown, shown_in

__all__ = [
    "Place",
    "RemoteFile",
    "RemotePath",
    "Stat",
    "canonical",
    "fetch_tokenizer",
    "filesystem",
    "in_this_process",
    "is_url",
    "listed",
    "local_path",
    "names_in",
    "place",
    "reason_of",
    "remove_copies",
    "shown",
    "shown_in",
    "size_of",
    "stat",
]
