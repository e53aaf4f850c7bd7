"""What is shown of a URL: never what is secret in it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.remote import canonical, is_url, local_path, shown, shown_in
from packer.remote.urls import split


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("a/b.jsonl", "a/b.jsonl"),
        ("s3://bucket/a.jsonl", "s3://bucket/a.jsonl"),
        ("s3://KEY:SECRET@bucket/a.jsonl", "s3://bucket/a.jsonl"),
        ("s3://KEY:SEC/R+ET@bucket/a.jsonl", "s3://bucket/a.jsonl"),
        ("s3://bucket/a@b.jsonl", "s3://bucket/a@b.jsonl"),
        ("s3://KEY:SECRET@bucket/a@b.jsonl", "s3://bucket/a@b.jsonl"),
        ("s3://bucket/a.jsonl?versionId=3", "s3://bucket/a.jsonl?versionId=3"),
        ("s3://bucket/*/a?.jsonl", "s3://bucket/*/a?.jsonl"),
        ("https://user:pw@host:8080/a.jsonl?sig=x&versionId=3#top", "https://host:8080/a.jsonl?versionId=3"),
        ("https://token@host/a", "https://host/a"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://host/a?X-Amz-Signature=abc", "https://host/a"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("az://c/a.jsonl?sv=2024&sig=abc", "az://c/a.jsonl"),
        ("sftp://user:p@ss@host/a", "sftp://host/a"),
    ],
)
def test_what_is_shown(url: str, expected: str) -> None:
    assert shown(url) == expected
    assert shown(expected) == expected


SECRET = st.text(string.ascii_letters + string.digits + "/+=%!$", min_size=6, max_size=40)


@given(SECRET, SECRET, st.sampled_from(["s3", "gs", "sftp", "ftp"]))
def test_credentials_are_never_shown(key: str, secret: str, kind: str) -> None:
    key, secret = "<" + key.replace("/", ""), "<" + secret.replace("/", "/<")
    url = f"{kind}://{key}:{secret}@host/a.jsonl"
    assert shown(url) == f"{kind}://host/a.jsonl"
    assert split(url) == (f"{key}:{secret}", f"{kind}://host/a.jsonl")
    told = shown_in(f"403 at {url}: bad secret {secret!s} of {key}", url)
    assert secret not in told
    assert key not in told


def test_secrets_of_the_environment_are_not_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENG")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert shown_in("signed with wJalrXUtnFEMIK7MDENG; false") == "signed with ***; false"


def test_arguments_that_hold_a_url() -> None:
    arguments = ["packer", "--tokenizer=s3://KEY1:SECRET@b/t", "https://h/a?sig=tellmenot"]
    assert shown_in(" ".join(arguments), *arguments) == "packer --tokenizer=s3://b/t https://h/a"


def test_files_here(tmp_path: object) -> None:
    assert local_path("file:///a/b c") == "/a/b c"
    assert local_path("local:///a") == "/a"
    assert local_path("s3://a") == "s3://a"
    assert not is_url("file:///a")
    assert is_url("memory://a")
    assert canonical(f"file://{tmp_path}/x/../y") == canonical(f"{tmp_path}/y") == f"{tmp_path}/y"


def test_one_text_for_each_place() -> None:
    assert canonical("s3a://K:S@bucket//a/./b/") == canonical("s3://bucket/a/b") == "s3://bucket/a/b"
