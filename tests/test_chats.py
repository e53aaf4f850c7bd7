"""Chats and pairs through the command line: what is trained in the rows is what the assistant wrote, however packed.

The reference knows nothing of the product: it writes ChatML by hand, encodes with `tokenizers`, and marks the tokens
whose first character the assistant wrote.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tokenizers
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from packer.cli import cli

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "sample_data" / "tokenizer"
BACKEND = tokenizers.Tokenizer.from_file(str(SAMPLE / "tokenizer.json"))
EOS = BACKEND.token_to_id("<|endoftext|>")
IGNORED = -100
UNMARKED = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
FORGETFUL = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}\
{{ m.content.split('</think>')[-1] if not loop.last else m.content }}{{ '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
Message = dict[str, Any]
Tokens = tuple[list[int], list[bool]]  # ids and whether each is trained


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def bot(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


HI = [user("Hi there"), bot("Hello, you."), user("And now?"), bot("Nothing more.")]


def written(messages: list[Message]) -> Tokens:
    """A chat's tokens by the reference: what the assistant says and its end of turn are trained."""
    text, spans = "", []
    for message in messages:
        text += f"<|im_start|>{message['role']}\n"
        start = len(text)
        text += f"{message['content']}<|im_end|>"
        spans += [(start, len(text))] if message["role"] == "assistant" else []
        text += "\n"
    return marked(text, spans)


def marked(text: str, spans: list[tuple[int, int]]) -> Tokens:
    encoding = BACKEND.encode(text, add_special_tokens=False)
    return encoding.ids, [any(a <= at < b for a, b in spans) for at, _ in encoding.offsets]


class Packer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source, self.out = folder / "in.jsonl", folder / "out"

    def run(self, *arguments: object) -> str:
        done = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def write(self, records: list[Any]) -> Path:
        records = [{"messages": record} if isinstance(record, list) else record for record in records]
        self.source.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return self.source

    def pack(self, records: list[Any], *options: object, length: int = 64, tokenizer: Path = SAMPLE) -> None:
        arguments = ["--tokenizer", tokenizer, "--max-length", length, "--out", self.out, "--overwrite", *options]
        self.output = self.run("pack", self.write(records), *arguments)
        self.manifest = json.loads((self.out / "manifest.json").read_text(encoding="utf-8"))
        self.verified = self.run("verify", self.out, self.source)

    def fails(self, records: list[Any], *options: object, tokenizer: Path = SAMPLE) -> str:
        from packer.errors import PackerError

        arguments = ["--tokenizer", tokenizer, "--max-length", 64, "--out", self.out, "--overwrite", *options]
        with pytest.raises(PackerError) as caught:
            CliRunner().invoke(cli, ["pack", str(self.write(records)), *map(str, arguments)], catch_exceptions=False)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def rows(self) -> Iterator[dict[str, Any]]:
        for shard in self.manifest["shards"]:
            yield from pq.read_table(self.out / shard["path"]).to_pylist()

    def documents(self) -> dict[int, Tokens]:
        """Each document that is whole in one row: its tokens, and which are trained. Its first never is."""
        found = {}
        for row in self.rows():
            for k, document in enumerate(row["doc_ids"]):
                a, b = row["cu_seqlens"][k], row["cu_seqlens"][k + 1]
                found[document] = row["input_ids"][a:b], [label != IGNORED for label in row["labels"][a:b]]
        return dict(sorted(found.items()))


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    return Packer(tmp_path)


def folder_with(path: Path, template: str | None, *, bos: bool = False) -> Path:
    """The sample's tokenizer with another template, and with a BOS that its post-processor adds."""
    path.mkdir()
    backend = tokenizers.Tokenizer.from_file(str(SAMPLE / "tokenizer.json"))
    config = json.loads((SAMPLE / "tokenizer_config.json").read_text(encoding="utf-8"))
    del config["chat_template"]
    if template:
        config["chat_template"] = template
    if bos:
        config["bos_token"] = "<|pad|>"
        number = backend.token_to_id("<|pad|>")
        backend.post_processor = processors.TemplateProcessing(
            single="<|pad|> $A", special_tokens=[("<|pad|>", number)]
        )
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def text_of(tokens: Tokens, *, trained: bool) -> str:
    ids = [i for i, flag in zip(*tokens, strict=True) if flag == trained]
    return str(BACKEND.decode(ids, skip_special_tokens=False))


def test_what_the_assistant_wrote_is_trained(packer: Packer) -> None:
    chats = [HI, [user("Who?"), bot("Me")], [{"role": "system", "content": "S"}, *HI]]
    packer.pack(chats)
    assert packer.documents() == {i: written(chat) for i, chat in enumerate(chats)}
    assert text_of(packer.documents()[0], trained=True) == "Hello, you.<|im_end|>Nothing more.<|im_end|>"
    assert packer.manifest["chats"]["turns"] == 5
    assert packer.manifest["totals"]["masked_documents"] == 3
    assert "to train" in packer.output


words = st.text(st.sampled_from("ab é\n.🙂<|im_end|>"), max_size=12)
turn = st.tuples(words.map(user), words.map(bot))
chats = st.lists(
    st.lists(turn, min_size=1, max_size=4).map(lambda pairs: [m for pair in pairs for m in pair]), max_size=8
)
OVERLONG = ("split", "truncate", "truncate-left", "drop", None)


@given(
    chats.filter(bool),
    st.sampled_from(["bfd", "ffd", "first-fit", "wrapped", "none"]),
    st.sampled_from(OVERLONG),
    st.integers(8, 80),
    st.sampled_from(["aligned", "shifted"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_packing_never_changes_what_is_trained(
    records: list[list[Message]], strategy: str, overlong: str | None, length: int, labels: str
) -> None:
    expected = {i: written(chat) for i, chat in enumerate([[user("a"), bot("b")], *records])}
    if overlong in ("drop", "truncate-left"):
        length = max(length, len(expected[0][0]))
    with tempfile.TemporaryDirectory() as folder:
        packer = Packer(Path(folder))
        options = ["--strategy", strategy, "--labels", labels, *(["--overlong", overlong] if overlong else [])]
        packer.pack([[user("a"), bot("b")], *records], *options, length=max(length, 12))
        seen = dict.fromkeys(expected, 0)
        for row in packer.rows():
            for k, document in enumerate(row["doc_ids"]):
                a, b, start = row["cu_seqlens"][k], row["cu_seqlens"][k + 1], row["doc_starts"][k]
                ids, trained = expected[document]
                assert row["input_ids"][a:b] == ids[start : start + b - a]
                assert row["doc_lengths"][k] == len(ids)
                told = [label != IGNORED for label in row["labels"][a:b]]
                if labels == "aligned":
                    assert told == [False, *trained[start + 1 : start + b - a]]
                else:
                    assert told[:-1] == trained[start + 1 : start + b - a]
                assert row["next_tokens"][k] in (IGNORED, *ids[start + b - a : start + b - a + 1])
                seen[document] += b - a
        losses = packer.manifest["losses"]
        lost = sum(len(ids) for ids, _ in expected.values()) - sum(seen.values())
        assert lost == sum(losses[f"{why}_tokens"] for why in ("truncated", "dropped", "short", "untrained"))
        assert packer.manifest["chats"]["trained_tokens"] == sum(sum(trained) for _, trained in expected.values())


def test_windows_of_chats(packer: Packer) -> None:
    source = packer.write([HI, [user("Who?"), bot("Me")]])
    arguments = ["--tokenizer", SAMPLE, "--context-size", 8, "--stride", 4, "--out", packer.out]
    packer.run("window", source, *arguments)
    assert "right:" in packer.run("verify", packer.out, source)


def test_trl_5075_no_tail_of_a_chat_becomes_a_row(packer: Packer) -> None:
    ids, trained = written(HI)
    packer.pack([HI], length=len(ids) - 3)
    assert packer.documents() == {0: (ids[:-3], trained[:-3])}
    losses = packer.manifest["losses"]
    assert (losses["truncated_tokens"], losses["truncated_trained_tokens"]) == (3, sum(trained[-3:]))
    assert "(2 to train): 1 documents truncated" in packer.output


def test_a_chat_truncated_to_its_prompt_is_dropped_and_counted(packer: Packer) -> None:
    long = [user("word " * 100), bot("short")]
    packer.pack([HI, long])
    losses, (ids, trained) = packer.manifest["losses"], written(long)
    assert (losses["untrained_documents"], losses["untrained_tokens"]) == (1, len(ids))
    assert losses["untrained_trained_tokens"] == sum(trained)
    assert "dropped with nothing to train on" in packer.output


def test_overlong_split_says_what_it_does(packer: Packer) -> None:
    packer.pack([[user("word " * 100), bot("short answer")]], "--overlong", "split")
    assert "what comes after a cut is trained without what came before it" in packer.output
    assert packer.manifest["losses"]["truncated_tokens"] == 0


def test_a_chat_without_the_assistant_is_dropped_and_counted(packer: Packer) -> None:
    packer.pack([HI, [user("Anyone?")]])
    assert [*packer.documents()] == [0]
    assert packer.manifest["chats"]["untrained_documents"] == packer.manifest["losses"]["untrained_documents"] == 1
    assert "1 chat has none" in packer.output


def test_nothing_to_train_at_all_is_an_error(packer: Packer) -> None:
    assert "1 with nothing to train on" in packer.fails([[user("Anyone?")]])


@pytest.mark.parametrize("loss", ["assistant", "last", "all"])
def test_loss(packer: Packer, loss: str) -> None:
    packer.pack([HI], "--loss", loss)
    (ids, found), (_, all_turns) = packer.documents()[0], written(HI)
    text = text_of((ids, found), trained=True)
    if loss == "all":
        assert found == [False, *[True] * (len(ids) - 1)]
        assert packer.manifest["totals"]["masked_documents"] == 0
    elif loss == "last":
        assert text == "Nothing more.<|im_end|>"
    else:
        assert found == all_turns


def test_each_message_may_say_whether_it_is_trained(packer: Packer) -> None:
    packer.pack([[HI[0], bot("Hello, you.", train=False), HI[2], bot("Nothing more.", weight=1)]])
    assert text_of(packer.documents()[0], trained=True) == "Nothing more.<|im_end|>"
    assert "is trained (1) or not (0)" in packer.fails([[HI[0], bot("x", weight=0.5)]])
    assert "only what the assistant writes can be" in packer.fails([[{**HI[0], "train": True}, bot("x")]])


def test_loss_completion_of_a_chat_that_has_none(packer: Packer) -> None:
    assert "does not say which part of it is the completion" in packer.fails([HI], "--loss", "completion")


def test_messages_as_prompt_and_completion(packer: Packer) -> None:
    packer.pack([{"prompt": HI[:3], "completion": HI[3:]}])
    assert text_of(packer.documents()[0], trained=True) == "Nothing more.<|im_end|>"


def test_a_template_that_rewrites_history(packer: Packer, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "t", FORGETFUL)
    chat = [user("1"), bot("<think>hm</think>one"), user("2"), bot("<think>so</think>two")]
    assert "--turns each makes one document" in packer.fails([chat], tokenizer=folder)
    packer.pack([[user("0"), bot("zero")], chat, HI[:2]], "--turns", "each", tokenizer=folder)
    found = packer.documents()
    assert [text_of(one, trained=True) for one in found.values()] == [
        "zero<|im_end|>",
        "<think>hm</think>one<|im_end|>",
        "<think>so</think>two<|im_end|>",
        "Hello, you.<|im_end|>",
    ]
    assert [*found] == [0, 1, 2, 3]
    assert "<think>hm" not in text_of(found[2], trained=False)
    assert packer.manifest["totals"]["records"] == 4


@pytest.mark.parametrize("explicit", [False, True])
def test_openrlhf_393_one_bos(packer: Packer, tmp_path: Path, explicit: bool) -> None:
    """The template writes BOS, the tokenizer's post-processor would add one, and --bos asks for one."""
    folder = folder_with(tmp_path / "t", "{{ bos_token }}" + UNMARKED, bos=True)
    packer.pack([HI, HI[:2]], *(["--bos"] if explicit else []), tokenizer=folder)
    bos, (ids, trained) = BACKEND.token_to_id("<|pad|>"), written(HI)
    assert packer.documents()[0] == ([bos, *ids], [False, *trained])
    assert packer.manifest["chats"]["begin_with_bos"] == 2
    assert packer.manifest["chats"]["double_bos"] == 0
    assert "each begins with BOS" in packer.output


def test_ends_are_put_around_chats_only_if_asked_for(packer: Packer, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "t", UNMARKED, bos=True)
    packer.pack([HI], tokenizer=folder)
    assert packer.documents()[0][0] == written(HI)[0]
    assert "nothing: chats have the ends that their template writes" in packer.output
    packer.pack([HI], "--bos", "--eos", tokenizer=folder)
    ids, trained = packer.documents()[0]
    assert ids == [BACKEND.token_to_id("<|pad|>"), *written(HI)[0], EOS]
    assert trained == [False, *written(HI)[1], False]  # the template's last line feed is not trained, so EOS is not


def test_pairs_are_joined_and_end_in_a_trained_eos(packer: Packer) -> None:
    """PAD equal to EOS changes nothing (trl 976): masks follow positions."""
    packer.pack([{"prompt": "One and one is", "completion": " two"}, {"prompt": "", "completion": "alone"}])
    text = "One and one is two"
    ids, trained = marked(text, [(len("One and one is"), len(text))])
    assert packer.documents()[0] == ([*ids, EOS], [*trained, True])
    assert packer.documents()[1][1] == [False, *[True] * (len(packer.documents()[1][0]) - 1)]
    assert packer.manifest["chats"]["pairs"] == 2
    assert packer.manifest["chats"]["end_with_eos"] == 2


def test_a_token_across_the_boundary_is_counted_and_belongs_where_it_begins(packer: Packer) -> None:
    words = ("th", "e"), ("on", "e"), ("an", "d")
    assert [len(BACKEND.encode(a + b).ids) for a, b in words] == [1, 1, 1]
    packer.pack([{"prompt": f"x {a}", "completion": f"{b} y"} for a, b in words])
    assert packer.manifest["chats"]["straddling_tokens"] == 3
    assert packer.manifest["chats"]["retokenized_pairs"] == packer.manifest["chats"]["compared_pairs"] == 3
    assert text_of(packer.documents()[0], trained=True) == " y<|endoftext|>"
    assert "3 of 3 prompts looked at have other tokens alone" in packer.output


def test_an_empty_completion_trains_nothing(packer: Packer) -> None:
    packer.pack([{"prompt": "a b", "completion": ""}, {"prompt": "a b", "completion": " c"}])
    assert [*packer.documents()] == [1]
    assert packer.manifest["losses"]["untrained_documents"] == 1


def test_alpaca_with_and_without_a_template(packer: Packer, tmp_path: Path) -> None:
    record = {"instruction": "Add.", "input": "1, 1", "output": "Two."}
    packer.pack([record], length=128)
    assert text_of(packer.documents()[0], trained=False).endswith("### Input:\n1, 1\n\n### Response:\n")
    assert text_of(packer.documents()[0], trained=True) == "Two.<|endoftext|>"
    (tmp_path / "chatml.jinja").write_text(UNMARKED, encoding="utf-8")
    packer.pack([record], "--chat-template", tmp_path / "chatml.jinja")
    assert packer.documents()[0] == written([user("Add.\n\n1, 1"), bot("Two.")])


def test_texts_and_chats_together(packer: Packer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A plain text.", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"prompt": "p", "completion": " c"}\n', encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('{"input_ids": [1, 2], "loss_mask": [0, 1]}\n', encoding="utf-8")
    files = [tmp_path / "a.txt", packer.write([HI]), tmp_path / "b.jsonl", tmp_path / "c.jsonl"]
    packer.run("pack", *files, "--tokenizer", SAMPLE, "--max-length", 64, "--out", packer.out)
    packer.manifest = json.loads((packer.out / "manifest.json").read_text(encoding="utf-8"))
    found = packer.documents()
    plain = BACKEND.encode("A plain text.").ids
    assert found[0] == ([*plain, EOS], [False, *[True] * len(plain)])
    assert found[1] == written(HI)
    assert found[2] == ([*BACKEND.encode("p c").ids, EOS], [False, True, True])
    assert found[3] == ([1, 2], [False, True])
    assert (packer.manifest["chats"]["documents"], packer.manifest["totals"]["masked_documents"]) == (2, 3)
    assert "right:" in packer.run("verify", packer.out, *files)


def test_the_manifest_names_what_rendered(packer: Packer, tmp_path: Path) -> None:
    template = tmp_path / "dated.jinja"
    template.write_text("{{ strftime_now('%d %b %Y') }} {{ word }} " + UNMARKED, encoding="utf-8")
    options = ["--chat-template", template, "--template-arg", "word=7", "--template-date", "2025-01-02"]
    packer.pack([HI], *options, length=128)
    chat = packer.manifest["options"]["chat"]
    assert chat["rendered_by"]["date"] == "2025-01-02"
    assert chat["template_args"] == {"word": 7}
    assert chat["template"] == str(template)
    assert text_of(packer.documents()[0], trained=False).startswith("02 Jan 2025 7 <|im_start|>user")
    assert "by template dated.jinja with word=7, its date 2025-01-02" in packer.output
    assert {"transformers", "jinja2"} <= packer.manifest["versions"].keys()


def test_pairs_alone_need_no_template(packer: Packer, tmp_path: Path) -> None:
    packer.pack([{"prompt": "a", "completion": " b"}], tokenizer=folder_with(tmp_path / "t", None))
    assert packer.manifest["options"]["chat"]["rendered_by"] is None
    assert "transformers" not in packer.manifest["versions"]
    assert "has no chat template" in packer.fails([HI], tokenizer=tmp_path / "t")


def test_verify_finds_another_template_and_another_mask(packer: Packer, tmp_path: Path) -> None:
    from packer.errors import DatasetError

    template = tmp_path / "t.jinja"
    template.write_text(UNMARKED, encoding="utf-8")
    packer.pack([HI, HI[:2]], "--chat-template", template)

    def refused(*arguments: object) -> str:
        with pytest.raises(DatasetError) as caught:
            CliRunner().invoke(cli, ["verify", *map(str, arguments)], catch_exceptions=False)
        return str(caught.value)

    moved = template.rename(tmp_path / "moved.jinja")
    assert "equal:" in packer.run("verify", packer.out, packer.source, "--chat-template", moved)
    moved.write_text(UNMARKED + " ", encoding="utf-8")
    assert "is not the one the data set was made with" in refused(packer.out, packer.source, "--chat-template", moved)
    template.write_text(UNMARKED, encoding="utf-8")
    packer.write([[HI[0], {**HI[1], "train": False}, *HI[2:]], HI[:2]])
    assert "the loss mask is not that of INPUT" in refused(packer.out, packer.source)


def test_control_tokens_in_what_a_chat_says_are_counted(packer: Packer) -> None:
    packer.pack([HI, [user("Say <|im_end|> twice"), bot("No.")]])
    assert packer.manifest["chats"]["control_documents"] == 1
    assert "1 chat has a control token written in what it says" in packer.output


def test_literal_control_tokens_and_templates_exclude_each_other(packer: Packer) -> None:
    assert "--special-in-text literal would make text" in packer.fails([HI], "--special-in-text", "literal")
    packer.pack([{"prompt": "<|im_end|>", "completion": " b"}], "--special-in-text", "literal")
    assert BACKEND.token_to_id("<|im_end|>") not in packer.documents()[0][0]


CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
WITH_CALLS = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}\
{% for c in m.tool_calls or [] %}{{ c.function.name + ARGUMENTS }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


@pytest.mark.parametrize(
    ("written_as", "expected"),
    [("c.function.arguments", 'add{"a":1}'), ("c.function.arguments | tojson", 'add{"a": 1}')],
)
def test_arguments_of_tool_calls_are_never_quoted_twice(
    packer: Packer, tmp_path: Path, written_as: str, expected: str
) -> None:
    folder = folder_with(tmp_path / "t", WITH_CALLS.replace("ARGUMENTS", written_as))
    packer.pack([[user("1?"), {"role": "assistant", "content": None, "tool_calls": [CALL]}]], tokenizer=folder)
    assert text_of(packer.documents()[0], trained=True) == f"{expected}<|im_end|>"


def test_what_a_template_leaves_out_is_told(packer: Packer, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "t", UNMARKED)
    said = packer.fails([[user("1?"), bot("", tool_calls=[CALL])]], tokenizer=folder)
    assert "message 2 (assistant): the chat template leaves its tool calls out" in said
    deaf = folder_with(
        tmp_path / "deaf",
        UNMARKED.replace("{{ '<|im", "{% if m.role != 'tool' %}{{ '<|im", 1).replace(
            "{% endfor %}", "{% endif %}{% endfor %}"
        ),
    )
    result = {"role": "tool", "content": "the sum is 2"}
    assert "message 2 (tool): the chat template leaves it out" in packer.fails(
        [[user("1?"), result, bot("2")]], tokenizer=deaf
    )


def test_a_bad_chat_is_skipped_with_its_reason(packer: Packer) -> None:
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    packer.pack([HI, [user("see"), {"role": "user", "content": image}], HI[:2]], "--on-error", "skip")
    [skipped] = packer.manifest["skipped_records"]
    assert (skipped["where"], skipped["reason"]) == ("line 2", "message 2: part 1 is image_url, not text")
    assert [*packer.documents()] == [0, 2]


def test_stats_of_chats(packer: Packer) -> None:
    source = packer.write([HI, [user("<|im_end|>?"), bot("No.")], [user("Anyone?")]])
    printed = packer.run("stats", source, "--tokenizer", SAMPLE, "--max-length", 64, "--json", packer.folder / "s.json")
    found = json.loads((packer.folder / "s.json").read_text(encoding="utf-8"))
    chats = found["source"]["chats"]
    assert (chats["documents"], chats["turns"], chats["untrained_documents"]) == (3, 3, 1)
    assert chats["tokens"] == found["tokens"]
    assert chats["trained_tokens"] == sum(written(HI)[1]) + sum(written([user("?"), bot("No.")])[1])
    assert found["source"]["special_documents"] == chats["control_documents"] == 1
    assert found["source"]["chat"]["rendered_by"]["template"] == "default"
    assert "chats" in printed
    assert "1 chat has none" in printed


def test_stats_price_chats_as_pack_packs_them(packer: Packer) -> None:
    records: list[Any] = [HI] * 9 + [[user("word " * 100), bot("short answer")]] * 3
    packer.pack(records)
    source = packer.write(records)
    packer.run("stats", source, "--tokenizer", SAMPLE, "--max-length", 64, "--json", packer.folder / "s.json")
    found = json.loads((packer.folder / "s.json").read_text(encoding="utf-8"))
    assert found["terms"]["overlong"] == "truncate"
    assert "raise max_length, for pack truncates what has a loss mask" in found["recommendation"]["reason"]
    packer.run("stats", source, "--tokenizer", SAMPLE, "--loss", "all", "--json", packer.folder / "s.json")
    assert json.loads((packer.folder / "s.json").read_text(encoding="utf-8"))["terms"]["overlong"] is None


def test_the_same_bytes_again(packer: Packer) -> None:
    packer.pack([HI, HI[:2]] * 5)
    first = (packer.out / "manifest.json").read_bytes()
    shutil.rmtree(packer.out)
    packer.pack([HI, HI[:2]] * 5)
    assert (packer.out / "manifest.json").read_bytes() == first


def test_a_limit(packer: Packer) -> None:
    packer.pack([HI, HI[:2], HI], "--limit", 2)
    assert [*packer.documents()] == [0, 1]
    assert packer.manifest["chats"]["documents"] == 2
