"""Which chat template is used, with which special tokens: what the files of a tokenizer folder say.

As in transformers: `chat_template.jinja` and `additional_chat_templates/NAME.jinja` come before what
tokenizer_config.json holds; where there is a template named `tool_use`, chats with tools are rendered by it.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from packer.errors import TokenizerError, UsageError
from packer.remote import fetch_tokenizer, is_url, local_path, shown
from packer.tokenizer import json_object

Loss = Literal["assistant", "completion", "last", "all"]
Turns = Literal["all", "each"]

# What `strftime_now` says unless --template-date is given: the day that Llama's own templates fall back to.
DEFAULT_DATE = "2024-07-26"
DEFAULT, WITH_TOOLS = "default", "tool_use"
CONFIG, TOKEN_MAP, TEMPLATE_FILE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
STANDARD_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True)
class ChatOptions:
    """How chats are rendered and masked.

    tokenizer: a tokenizer.json, a folder with one, or a hub name; template: a file, or the name of one of the
    tokenizer's own templates; template_args: more variables for the template; template_date: YYYY-MM-DD; loss: None is
    `assistant` for a chat, and `completion` where a record says which part that is; turns: `each` makes one document of
    each of the assistant's turns, as inference would see it. Values that make no sense are a UsageError.
    """

    tokenizer: str
    template: str | None = None
    template_args: tuple[tuple[str, Any], ...] = ()
    template_date: str | None = None
    loss: Loss | None = None
    turns: Turns = "all"

    def __post_init__(self) -> None:
        if self.loss is not None and self.loss not in get_args(Loss):
            raise UsageError(f"--loss {self.loss}: it is one of {', '.join(get_args(Loss))}")
        if self.turns not in get_args(Turns):
            raise UsageError(f"--turns {self.turns}: it is one of {', '.join(get_args(Turns))}")
        if self.turns == "each" and self.loss == "all":
            raise UsageError("--turns each trains one turn of each document, so it cannot go with --loss all")
        for name, _ in self.template_args:
            if name in RESERVED:
                raise UsageError(f"--template-arg {name}=...: the record itself says what {name} is")
        _ = self.date

    @cached_property
    def date(self) -> datetime.datetime:
        """What a template that asks for the date is told."""
        text = self.template_date or DEFAULT_DATE
        try:
            return datetime.datetime.strptime(text, "%Y-%m-%d")
        except ValueError:
            raise UsageError(f"--template-date {text}: it is a date such as {DEFAULT_DATE}") from None


def parse_template_args(texts: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """`K=V` of --template-arg; V is JSON where it is JSON, else text.   enable_thinking=false -> False"""
    parsed = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--template-arg {text}: it is K=V, K the name of one of the template's variables")
        try:
            parsed.append((name, json.loads(value)))
        except ValueError:
            parsed.append((name, value))
    return tuple(parsed)


@dataclass(frozen=True)
class TemplateSet:
    """by_name: each template's text; chosen: the one to use for every chat, None where the tokenizer's choice holds;
    special_tokens: the variables bos_token, eos_token, ..."""

    by_name: dict[str, str]
    chosen: str | None
    special_tokens: dict[str, str]

    def name_for(self, *, tools: bool) -> str:
        """The template for a chat with or without tools."""
        if self.chosen is not None:
            return self.chosen
        return WITH_TOOLS if tools and WITH_TOOLS in self.by_name else DEFAULT


def load_templates(options: ChatOptions) -> TemplateSet:
    """Reads the templates that `options` name; none that fits is a UsageError, a broken file a TokenizerError."""
    folder, tokenizer = _folder(options.tokenizer), shown(options.tokenizer)
    config = json_object(folder / CONFIG)
    special_tokens = _special_tokens(folder, config)
    if options.template is not None and Path(options.template).is_file():
        return TemplateSet({options.template: _text(Path(options.template))}, options.template, special_tokens)
    own = _own_templates(folder, config)
    names = ", ".join(sorted(own))
    if options.template is not None:
        if options.template not in own:
            raise UsageError(
                f"--chat-template {shown(options.template)}: no such file here, and tokenizer {tokenizer} has "
                + (f"no template of that name, only {names}" if own else "no chat template at all")
            )
        return TemplateSet(own, options.template, special_tokens)
    if not own:
        raise UsageError(
            f"tokenizer {tokenizer} has no chat template, so chats cannot be rendered; "
            "name a Jinja file with --chat-template"
        )
    if DEFAULT not in own:
        raise UsageError(
            f"tokenizer {tokenizer} has several chat templates and none is the default; "
            f"name one with --chat-template: {names}"
        )
    return TemplateSet(own, None, special_tokens)


def _folder(source: str) -> Path:
    if is_url(source):
        return fetch_tokenizer(source).parent
    path = Path(local_path(source))
    if path.is_dir():
        return path
    if path.exists():
        return path.parent
    import huggingface_hub

    wanted = [CONFIG, TOKEN_MAP, TEMPLATE_FILE, f"{MORE_TEMPLATES}/*.jinja"]
    try:
        return Path(huggingface_hub.snapshot_download(source, allow_patterns=wanted))
    except Exception as error:  # any of the hub's and the network's many errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TokenizerError(
            f"tokenizer {source!r} is no file or folder here, and the hub did not give its chat template: {reason}"
        ) from error


def _own_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Each of the tokenizer's own templates by name; a single one is the default."""
    found = {DEFAULT: _text(folder / TEMPLATE_FILE)} if (folder / TEMPLATE_FILE).is_file() else {}
    found |= {path.stem: _text(path) for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja"))}
    if found:
        return found
    stated = config.get("chat_template")
    if stated is None:
        return {}
    if isinstance(stated, str):
        return {DEFAULT: stated}
    if isinstance(stated, dict) and all(isinstance(text, str) for text in stated.values()):
        return stated
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in stated}
    except (TypeError, KeyError):
        raise TokenizerError(
            f"{folder / CONFIG}: chat_template is neither a text nor a list of objects with name and template"
        ) from None


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The special tokens that a template can name, as transformers' tokenizers pass them."""
    stated = dict(config)
    if "added_tokens_decoder" not in config:  # else that file is of an older time, and transformers leaves it alone
        stated |= json_object(folder / TOKEN_MAP)
    named = {key: stated.get(key) for key in STANDARD_TOKENS}
    named |= {key: value for key, value in stated.items() if key.endswith("_token")}
    extra = stated.get("extra_special_tokens")
    named |= extra if isinstance(extra, dict) else {}
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in named.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"chat template {path} cannot be read: {error}") from error
