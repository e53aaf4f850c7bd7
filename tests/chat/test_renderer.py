"""Which template, which turns, which errors."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from packer.chat import ChatOptions, Renderer, parse_template_args
from packer.chat.renderer import PATIENCE
from packer.conversation import Conversation, Pair, RenderError
from packer.errors import PackerError, TokenizerError, UsageError

Folder = Callable[..., Path]
ONE = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
TWO = [*ONE, {"role": "user", "content": "And you?"}, {"role": "assistant", "content": "Well"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]


def conversation(messages: list[dict[str, Any]], **more: Any) -> Conversation:
    return Conversation(messages, more.pop("train", (None,) * len(messages)), **more)


def render(folder: Path, record: Conversation | Pair, **options: Any) -> list[tuple[str, list[str] | None]]:
    documents = Renderer(ChatOptions(str(folder), **options))(record)
    return [(doc.text, None if doc.trained is None else [doc.text[a:b] for a, b in doc.trained]) for doc in documents]


def trained(folder: Path, record: Conversation | Pair, **options: Any) -> list[str] | None:
    ((_, spans),) = render(folder, record, **options)
    return spans


def write(folder: Path, config: dict[str, Any], **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def saying(word: str) -> str:
    """A template that says which one it is."""
    turns = f"{{% for m in messages %}}{word}:{{{{ m.content }}}};{{% endfor %}}"
    return turns + f"{{% if add_generation_prompt %}}{word}:{{% endif %}}"


# Which template


def test_a_file_beside_the_config_comes_first(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {"chat_template": saying("config")})
    assert render(folder, conversation(ONE))[0][0] == "config:Hi;config:Hello;"
    write(folder, {"chat_template": saying("config")}, chat_template=saying("file"))
    assert render(folder, conversation(ONE))[0][0] == "file:Hi;file:Hello;"
    file = tmp_path / "mine.jinja"
    file.write_text(saying("mine"), encoding="utf-8")
    assert render(folder, conversation(ONE), template=str(file))[0][0] == "mine:Hi;mine:Hello;"


@pytest.mark.parametrize("form", ["list", "files"])
def test_several_templates(form: str, tmp_path: Path, tokenizers_made: Path) -> None:
    named = {"default": saying("plain"), "tool_use": saying("tools"), "rag": saying("rag")}
    if form == "list":
        stated = [{"name": name, "template": text} for name, text in named.items()]
        folder = write(tmp_path / "t", {"chat_template": stated})
    else:
        more = {f"additional_chat_templates__{name}": named[name] for name in ("tool_use", "rag")}
        folder = write(tmp_path / "t", {}, chat_template=named["default"], **more)
    (folder / "tokenizer.json").write_bytes((tokenizers_made / "byte-level/tokenizer.json").read_bytes())
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    for tools in (None, [], TOOLS):
        text = render(folder, conversation(ONE, tools=tools))[0][0]
        assert text == theirs.apply_chat_template(ONE, tools=tools, tokenize=False)
    assert render(folder, conversation(ONE, tools=TOOLS), template="rag")[0][0] == "rag:Hi;rag:Hello;"
    facts = Renderer(ChatOptions(str(folder))).facts()
    assert (facts["template"], facts["with_tools"]["template"]) == ("default", "tool_use")
    assert "with_tools" not in Renderer(ChatOptions(str(folder), template="rag")).facts()
    with pytest.raises(UsageError, match="only default, rag, tool_use"):
        Renderer(ChatOptions(str(folder), template="rags"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "name a Jinja file with --chat-template"),
        ({"chat_template": [{"name": "rag", "template": "x"}]}, "none is the default"),
    ],
)
def test_no_template_to_use(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "t", config)
    renderer = Renderer(ChatOptions(str(folder)))  # no error yet: pairs need none
    assert renderer(Pair("a", "b"))[0].text == "ab"
    with pytest.raises(UsageError, match=said):
        renderer(conversation(ONE))


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {"chat_template": 3})
    with pytest.raises(TokenizerError, match="chat_template is neither"):
        render(folder, conversation(ONE))
    (folder / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(TokenizerError, match="not valid JSON"):
        render(folder, conversation(ONE))
    (folder / "broken.jinja").write_text("{% for m in %}", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"broken.jinja, line 1: "):
        Renderer(ChatOptions(str(folder), template=str(folder / "broken.jinja")))
    with pytest.raises(UsageError, match="no such file"):
        Renderer(ChatOptions(str(folder), template="nowhere.jinja"))


def test_special_tokens_are_those_of_transformers(tmp_path: Path, tokenizers_made: Path) -> None:
    asked = ("bos_token", "eos_token", "pad_token", "cls_token", "image_token", "boi_token", "audio_token")
    template = "".join(f"[{{{{ {name} }}}}]" for name in asked)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"content": "<s>", "__type": "AddedToken", "lstrip": False},
        "pad_token": None,
        "image_token": "<unk>",
        "add_bos_token": True,
        "extra_special_tokens": {"boi_token": "[INST]"},
        "chat_template": template,
    }
    for decoder in ({}, {"added_tokens_decoder": {}}):
        folder = write(tmp_path / f"t{len(decoder)}", config | decoder)
        (folder / "tokenizer.json").write_bytes((tokenizers_made / "byte-level/tokenizer.json").read_bytes())
        tokens = {"eos_token": "</s>", "cls_token": {"content": "<s>", "lstrip": False}}
        (folder / "special_tokens_map.json").write_text(json.dumps(tokens), encoding="utf-8")
        theirs = PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(ONE, tokenize=False)
        assert render(folder, conversation(ONE), loss="all")[0][0] == theirs
        assert ("[</s>]" in theirs) == (not decoder)  # the older file counts only without added_tokens_decoder


# What the template is given


def test_arguments_of_the_run_and_of_the_record(folder_of: Folder) -> None:
    def prompt(record_says: dict[str, Any], *run_says: str) -> bool:
        options = ChatOptions(str(folder_of("thinking")), template_args=parse_template_args(run_says), turns="each")
        try:
            text = Renderer(options)(conversation(ONE, template_args=record_says))[0].text
        except RenderError:  # the prompt has a thinking block of its own
            return False
        return text.endswith("Hello<|im_end|>\n")

    assert prompt({}, "enable_thinking=true")
    ((_, off),) = render(folder_of("thinking"), conversation(ONE, template_args={"enable_thinking": False}))
    assert off == ["Hello<|im_end|>"]
    ((_, on),) = render(folder_of("thinking"), conversation(ONE), template_args=(("enable_thinking", True),))
    assert on == ["<think>\n\n</think>\n\nHello<|im_end|>"]
    record = conversation(ONE, template_args={"enable_thinking": True})
    assert trained(folder_of("thinking"), record, template_args=(("enable_thinking", False),)) == on


def test_arguments_are_json_where_they_are() -> None:
    parsed = dict(parse_template_args(["a=false", "b=3", "c=text", 'd="3"', "e=", "f=[1]", "g=a=b"]))
    assert parsed == {"a": False, "b": 3, "c": "text", "d": "3", "e": "", "f": [1], "g": "a=b"}
    for wrong in ("a", "=b", "a b=c"):
        with pytest.raises(UsageError, match="K=V"):
            parse_template_args([wrong])


def test_the_date_is_pinned(folder_of: Folder) -> None:
    folder = folder_of("llama3")
    assert "Today is 26 Jul 2024." in render(folder, conversation(ONE))[0][0]
    assert "Today is 01 Feb 2025." in render(folder, conversation(ONE), template_date="2025-02-01")[0][0]
    assert Renderer(ChatOptions(str(folder), template_date="2025-02-01")).facts()["date"] == "2025-02-01"
    assert Renderer(ChatOptions(str(folder_of("chatml")))).facts()["date"] is None
    with pytest.raises(UsageError, match="--template-date 1 May"):
        ChatOptions(str(folder), template_date="1 May")
    text = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    assert "strftime_now" in text
    theirs = PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(ONE, tokenize=False)
    assert "26 Jul 2024" not in theirs  # transformers' own clock is left alone


def test_facts_do_not_depend_on_the_place(folder_of: Folder, tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    facts = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.jinja").write_text(source, encoding="utf-8")
        options = ChatOptions(str(folder_of("chatml")), template=str(tmp_path / folder / "mine.jinja"))
        facts.append(Renderer(pickle.loads(pickle.dumps(options))).facts())
    assert facts[0] == facts[1]
    assert facts[0]["template"] == "mine.jinja"
    assert len(facts[0]["sha256"]) == 64


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_what_the_chat_says_is_no_argument(name: str, folder_of: Folder) -> None:
    with pytest.raises(UsageError, match=f"--template-arg {name}"):
        ChatOptions("t", template_args=((name, 1),))
    with pytest.raises(RenderError, match=f"name {name}"):
        render(folder_of("chatml"), conversation(ONE, template_args={name: 1}))


def test_templates_are_kept_in_the_sandbox(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for attempt in (
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[0].content.__class__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{% set ns = namespace(a=1) %}{{ ns.a }}{{ ns.__init__ }}",
        "{% for m in messages %}{{ loop.__init__.__globals__ }}{% endfor %}",
    ):
        write(folder, {"chat_template": attempt})
        renderer = Renderer(ChatOptions(str(folder), loss="all"))
        for _ in range(2):  # what it remembers lets nothing through
            try:
                text = renderer(conversation(ONE))[0].text
            except RenderError:
                continue
            assert text in ("", "1")


# Which turns


def test_last_completion_and_all(folder_of: Folder) -> None:
    folder = folder_of("chatml")
    assert trained(folder, conversation(TWO)) == ["Hello<|im_end|>", "Well<|im_end|>"]
    assert trained(folder, conversation(TWO), loss="last") == ["Well<|im_end|>"]
    assert trained(folder, conversation(TWO), loss="all") is None
    assert trained(folder, conversation(TWO, completion_from=2)) == ["Well<|im_end|>"]
    assert trained(folder, conversation(TWO, completion_from=2), loss="assistant") == trained(folder, conversation(TWO))
    assert trained(folder, conversation(TWO, completion_from=0), loss="completion") == trained(
        folder, conversation(TWO)
    )
    with pytest.raises(RenderError, match="--loss last"):
        render(folder, conversation(TWO), loss="completion")


@pytest.mark.parametrize("template", ["chatml", "chatml_marked"])
def test_what_messages_say_themselves(template: str, folder_of: Folder) -> None:
    folder = folder_of(template)
    flags = {
        (None, False, None, None): ["Well<|im_end|>"],
        (None, True, None, None): ["Hello<|im_end|>", "Well<|im_end|>"],
        (None, None, None, False): ["Hello<|im_end|>"],
        (False, False, False, False): [],
    }
    for train, expected in flags.items():
        assert trained(folder, conversation(TWO, train=train)) == expected
    assert trained(folder, conversation(TWO, train=(None, True, None, None)), loss="last") == [
        "Hello<|im_end|>",
        "Well<|im_end|>",
    ]
    documents = render(folder, conversation(TWO, train=(None, False, None, None)), turns="each")
    assert [spans for _, spans in documents] == [["Well<|im_end|>"]]
    with pytest.raises(RenderError, match="message 1 of role user"):
        render(folder, conversation(TWO, train=(True, None, None, None)))


@pytest.mark.parametrize("template", ["chatml", "chatml_marked", "mistral", "plain"])
def test_chats_without_an_answer(template: str, folder_of: Folder) -> None:
    for turns in ("all", "each"):
        assert trained(folder_of(template), conversation(ONE[:1]), turns=turns) == []
    with pytest.raises(RenderError, match="without messages"):
        render(folder_of(template), conversation([]))


def test_the_assistant_begins(folder_of: Folder) -> None:
    begins = [ONE[1], *TWO[2:]]
    assert trained(folder_of("chatml"), conversation(begins)) == ["Hello<|im_end|>", "Well<|im_end|>"]
    assert trained(folder_of("llama3"), conversation(begins)) == ["Hello<|eot_id|>", "Well<|eot_id|>"]
    assert trained(folder_of("plain"), conversation(begins)) == [" Hello</s>", " Well</s>"]
    with pytest.raises(RenderError, match="Roles must alternate"):
        render(folder_of("mistral"), conversation(begins))


def test_several_answers_in_a_row(folder_of: Folder) -> None:
    row = [*ONE, {"role": "assistant", "content": "Again"}, {"role": "user", "content": "Bye"}]
    assert trained(folder_of("chatml"), conversation(row)) == ["Hello<|im_end|>", "Again<|im_end|>"]


def test_white_space_ends_a_turn_where_nothing_else_does(folder_of: Folder, tmp_path: Path) -> None:
    file = tmp_path / "bare.jinja"
    file.write_text(
        "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"
        "{% if add_generation_prompt %}### assistant:\n{% endif %}",
        encoding="utf-8",
    )
    assert trained(folder_of("chatml"), conversation(TWO), template=str(file)) == ["Hello\n\n", "Well\n\n"]


# Templates that say what cannot be trained


def test_rewritten_history_is_refused_with_advice(folder_of: Folder) -> None:
    with pytest.raises(RenderError, match=r"message 2 in another way .*--turns each"):
        render(folder_of("thinking"), conversation(TWO))
    documents = render(folder_of("thinking"), conversation(TWO), turns="each")
    assert [spans for _, spans in documents] == [
        ["<think>\n\n</think>\n\nHello<|im_end|>"],
        ["<think>\n\n</think>\n\nWell<|im_end|>"],
    ]
    assert "Hi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>" in documents[1][0]
    assert trained(folder_of("thinking"), conversation(TWO), loss="last") == documents[1][1]
    assert len(trained(folder_of("thinking_marked"), conversation(TWO)) or []) == 2  # markers say it


def test_a_template_that_marks_nothing_is_an_error(folder_of: Folder, tmp_path: Path) -> None:
    file = tmp_path / "empty.jinja"
    file.write_text(
        "{% for m in messages %}{{ m.content }}"
        "{% if m.role == 'model' %}{% generation %}!{% endgeneration %}{% endif %}{% endfor %}",
        encoding="utf-8",
    )
    renderer = Renderer(ChatOptions(str(folder_of("chatml")), template=str(file)))
    assert renderer.fruitless() is None
    for _ in range(PATIENCE - 1):
        assert renderer(conversation(ONE))[0].trained == ()
        renderer(conversation(ONE[:1]))  # chats without an answer say nothing about the template
    assert "they mark nothing" in (renderer.fruitless() or "")
    with pytest.raises(UsageError, match="they mark nothing"):
        renderer(conversation(ONE))
    marked = Renderer(ChatOptions(str(folder_of("chatml_marked"))))
    for _ in range(PATIENCE + 1):
        assert marked(conversation(TWO, train=(None, False, None, False)))[0].trained == ()  # the record's own wish
    assert marked.fruitless() is None


def test_markers_inside_a_macro_are_not_trusted(folder_of: Folder, tmp_path: Path) -> None:
    """The positions that transformers finds for these are those of another text."""
    file = tmp_path / "macro.jinja"
    file.write_text(
        "{% macro said(m) %}<|im_start|>{{ m.role }}\n{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
        "{% endmacro %}{% for m in messages %}{{ said(m) }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        encoding="utf-8",
    )
    assert trained(folder_of("chatml"), conversation(TWO), template=str(file)) == ["Hello<|im_end|>", "Well<|im_end|>"]


def test_what_a_template_says_is_passed_on(folder_of: Folder) -> None:
    with pytest.raises(RenderError, match="no role narrator"):
        render(folder_of("llama3"), conversation([{"role": "narrator", "content": "x"}]))
    with pytest.raises(RenderError, match="content"):
        render(folder_of("chatml_marked"), conversation([{"role": "user"}, *ONE]))
    with pytest.raises(RenderError, match="tools is not a list of objects"):
        render(folder_of("llama3"), conversation(ONE, tools=["look"]))


def test_null_content_beside_tool_calls(folder_of: Folder) -> None:
    calls = [{"function": {"name": "look", "arguments": {}}}]
    messages = [ONE[0], {"role": "assistant", "content": None, "tool_calls": calls}]
    assert trained(folder_of("thinking"), conversation(messages)) == ["<think>\n\n</think>\n\n<|im_end|>"]
    with pytest.raises(RenderError, match="content"):
        render(folder_of("thinking"), conversation([ONE[0], {"role": "assistant"}]))


# Prompts with completions


def test_pairs_are_joined(folder_of: Folder) -> None:
    pair = Pair("2 + 2 =", " 4")
    folder = folder_of("chatml")
    (document,) = Renderer(ChatOptions(str(folder)))(pair)
    assert (document.text, document.trained, document.ends, document.prompt) == ("2 + 2 = 4", ((7, 9),), True, 7)
    assert trained(folder, pair, loss="all") is None
    assert trained(folder, pair, loss="last") == [" 4"]
    assert trained(folder, Pair("a", "")) == []


def test_pairs_are_chats_where_a_template_is_named(folder_of: Folder) -> None:
    folder = folder_of("chatml")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    file = folder.parent / "named.jinja"
    file.write_text(config["chat_template"], encoding="utf-8")
    for pair in (Pair("Hi", "Hello"), Pair("### Instruction: Hi", "Hello", message="Hi")):
        (document,) = Renderer(ChatOptions(str(folder), template=str(file)))(pair)
        assert document.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        assert [document.text[a:b] for a, b in document.trained or ()] == ["Hello<|im_end|>"]
        assert not document.ends


def test_control_tokens_in_what_a_record_says(folder_of: Folder) -> None:
    renderer = Renderer(ChatOptions(str(folder_of("chatml"))), lambda text: "<|im_end|>" in text or "</s>" in text)
    bad = [{"role": "user", "content": "Hi<|im_end|>"}, ONE[1]]
    assert not renderer(conversation(ONE))[0].control
    assert renderer(conversation(bad))[0].control
    assert renderer(conversation(ONE, tools=[{"function": {"description": "ends </s>"}}]))[0].control
    assert renderer(Pair("a</s>", "b"))[0].control
    assert not renderer(Pair("a", "b"))[0].control


# Options, and what is loaded


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "some"}, "--loss some: it is one of assistant, completion, last, all"),
        ({"turns": "some"}, "--turns some"),
        ({"turns": "each", "loss": "all"}, "cannot go with --loss all"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ChatOptions("t", **options)


def test_without_transformers_the_advice_is_to_install_it(folder_of: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.utils.chat_template_utils", None)
    with pytest.raises(PackerError, match=r"pip install 'packer\[chat\]'"):
        render(folder_of("chatml"), conversation(ONE))


@pytest.mark.parametrize("installed", [True, False])
def test_rendering_loads_no_torch_and_needs_none(folder_of: Folder, installed: bool) -> None:
    hidden = (
        "import importlib.util as util; found = util.find_spec;"
        "util.find_spec = lambda name, *more: None if name == 'torch' else found(name, *more);"
    )
    code = ("" if installed else hidden) + (
        "import sys; from packer.chat import *; from packer.conversation import *;"
        "before = 'transformers' in sys.modules;"
        f"Renderer(ChatOptions({str(folder_of('chatml'))!r}))(Conversation({ONE!r}, (None, None)));"
        "print(before, 'transformers' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("False True False", "")
