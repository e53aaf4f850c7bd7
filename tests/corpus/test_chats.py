"""Chats and pairs: from records of every shape and format to what a template is given, or the reason why not."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.conversation import Conversation, Pair, Rendered, RenderError
from packer.corpus.chats import ChatError, conversation_of
from packer.corpus.sources import ReadOptions, Schema
from packer.errors import RecordError, UsageError

MESSAGES, SHAREGPT = Schema("messages", "messages"), Schema("messages", "conversations")
PAIR = Schema("prompt_completion", "prompt", "completion")
ALPACA = Schema("alpaca", "instruction", "output")
HI = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
EXPECTED_ROLES = ["system", "user", "assistant", "assistant", "tool", "user", "assistant", "tool"]


def render(record: Conversation | Pair) -> list[Rendered]:
    """A document that tells what it was given."""
    return [Rendered(json.dumps({type(record).__name__: asdict(record)}, ensure_ascii=False), ((0, 1),), False, 1)]


def told(result: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result.documents]


def messages_of(record: Any, schema: Schema = MESSAGES) -> list[dict[str, Any]]:
    found = conversation_of(record, schema)
    assert isinstance(found, Conversation)
    return found.messages


def test_messages_stay_as_they_are() -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U", "name": "ann"},
        {"role": "assistant", "content": "", "reasoning_content": "R", "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "x"},
        {"role": "assistant", "content": "two"},
    ]
    record = {"id": 7, "messages": messages, "tools": [{"type": "function"}], "chat_template_kwargs": {"think": False}}
    assert conversation_of(record, MESSAGES) == Conversation(
        messages, (None,) * 5, [{"type": "function"}], {"think": False}
    )


def test_a_bare_list_is_a_chat() -> None:
    assert messages_of(HI) == HI


def test_sharegpt() -> None:
    turns = [("system", "s"), ("human", "u"), ("gpt", "a"), ("function_call", json.dumps(CALL["function"]))]
    turns += [("observation", "o"), ("user", "v"), ("assistant", "b"), ("tool", "t")]
    found = messages_of({"conversations": [{"from": role, "value": text} for role, text in turns]}, SHAREGPT)
    assert [message["role"] for message in found] == EXPECTED_ROLES
    assert found[3] == {"role": "assistant", "tool_calls": [CALL]}
    assert [message.get("content") for message in found] == ["s", "u", "a", None, "o", "v", "b", "t"]


def test_both_spellings_of_keys_are_read_from_either_field() -> None:
    assert messages_of({"conversations": HI}, SHAREGPT) == HI
    assert messages_of({"messages": [{"from": "human", "value": "Hi"}]}) == HI[:1]


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"text": "c"}, {"type": "text", "text": "d", "image_url": None}]
    assert messages_of({"messages": [{"role": "user", "content": parts}]}) == [{"role": "user", "content": "abcd"}]


def test_null_keys_count_as_absent() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], "name": None}
    assert messages_of({"messages": [message]}) == [{"role": "assistant", "tool_calls": [CALL]}]
    assert messages_of({"messages": [{**HI[1], "tool_calls": None}]}) == HI[1:]


def test_the_old_spelling_of_calls() -> None:
    record = {
        "messages": [{"role": "assistant", "content": None, "function_call": CALL["function"]}],
        "functions": [{"name": "add"}],
    }
    found = conversation_of(record, MESSAGES)
    assert isinstance(found, Conversation)
    assert found.messages == [{"role": "assistant", "tool_calls": [CALL]}]
    assert found.tools == [{"type": "function", "function": {"name": "add"}}]


def test_a_system_field_comes_first() -> None:
    record = {"prompt": HI[:1], "completion": HI[1:], "system": "S"}
    assert conversation_of(record, PAIR) == Conversation(
        [{"role": "system", "content": "S"}, *HI], (None, None, None), completion_from=2
    )


def test_tools_as_json() -> None:
    found = conversation_of({"messages": HI, "tools": '[{"name": "f"}]'}, MESSAGES)
    assert isinstance(found, Conversation)
    assert found.tools == [{"name": "f"}]
    assert conversation_of({"messages": HI, "tools": "[]"}, MESSAGES) == Conversation(HI, (None, None))


def test_train_and_weight() -> None:
    values: list[dict[str, Any]] = [{"train": True}, {"train": 0}, {"weight": 1}, {"weight": 0.0}, {"train": None}, {}]
    found = conversation_of({"messages": [{**HI[1], **value} for value in values]}, MESSAGES)
    assert isinstance(found, Conversation)
    assert found.train == (True, False, True, False, None, None)
    assert found.messages == [HI[1]] * 6


def test_pairs() -> None:
    assert conversation_of({"prompt": "1 +", "completion": " 1"}, PAIR) == Pair("1 +", " 1")
    assert conversation_of({"prompt": HI[:1], "completion": HI[1:]}, PAIR) == Conversation(
        HI, (None, None), completion_from=1
    )


def test_alpaca_is_worded_as_stanford_did() -> None:
    found = conversation_of({"instruction": "Add {x}.", "input": "", "output": "2"}, ALPACA)
    assert found == Pair(
        "Below is an instruction that describes a task. Write a response that appropriately completes the request."
        "\n\n### Instruction:\nAdd {x}.\n\n### Response:\n",
        "2",
        "Add {x}.",
    )
    dolly = conversation_of(
        {"instruction": "Add.", "context": "1, 1", "response": "2"}, Schema("alpaca", "instruction", "response")
    )
    assert dolly == Pair(
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1, 1\n\n"
        "### Response:\n",
        "2",
        "Add.\n\n1, 1",
    )


IMAGE = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x.png"}}]


def said(**message: Any) -> dict[str, Any]:
    return {"messages": [HI[0], {"role": "assistant", **message}]}


@pytest.mark.parametrize(
    ("record", "schema", "reason"),
    [
        ({"messages": []}, MESSAGES, "field messages holds no message"),
        ({"messages": None}, MESSAGES, "field messages is null"),
        ({"text": "x"}, MESSAGES, r"field messages is missing \(keys: text\)"),
        ({"messages": "no JSON"}, MESSAGES, "field messages is a string that is not JSON"),
        ({"messages": {"role": "user"}}, MESSAGES, "field messages is an object, not an array"),
        ({"messages": [*HI, "text"]}, MESSAGES, "message 3: is a string, not an object"),
        ({"messages": [{"content": "x"}]}, MESSAGES, r"message 1: has no role \(keys: content\)"),
        ({"messages": [{"role": "pretrain", "content": "x"}]}, MESSAGES, "message 1: role 'pretrain' is not known"),
        ({"messages": [{"role": 1, "content": "x"}]}, MESSAGES, "role 1 is not known"),
        (said(content=IMAGE), MESSAGES, "message 2: part 2 is image_url, not text"),
        (said(content=[{"type": "text"}]), MESSAGES, "message 2: part 1 has no text"),
        (said(content=None), MESSAGES, "message 2: content is null"),
        (said(content=None, tool_calls=[]), MESSAGES, "message 2: content is null"),
        (said(), MESSAGES, "message 2: has no content"),
        (said(content=3), MESSAGES, "message 2: content is a number, not a string or a list of text parts"),
        (said(content="x", images=["a.png"]), MESSAGES, "message 2: images is not text"),
        (said(content="x", weight=0.5), MESSAGES, "message 2: weight is 0.5; a message is trained"),
        (said(content="x", train="yes"), MESSAGES, 'message 2: train is "yes"'),
        (said(content="x", train=1, weight=0), MESSAGES, "train and weight contradict each other"),
        (said(content="x", tool_calls=[{"function": {}}]), MESSAGES, "tool call 1 names no function"),
        (said(content="x", tool_calls={"a": 1}), MESSAGES, "tool_calls is an object, not an array"),
        ({"messages": HI, "images": ["a.png"]}, MESSAGES, "field images holds what is not text"),
        ({"messages": HI, "tools": "{"}, MESSAGES, "field tools is a string that is not JSON"),
        ({"messages": HI, "tools": [3]}, MESSAGES, "field tools holds a number, not an object"),
        ({"messages": HI, "system": 3}, MESSAGES, "field system is a number"),
        ({"messages": [{"role": "system", "content": "a"}, *HI], "system": "b"}, MESSAGES, "both a field system and"),
        ({"messages": HI, "chat_template_kwargs": [1]}, MESSAGES, "field chat_template_kwargs is an array"),
        ({"conversations": [{"from": "function_call", "value": "add"}]}, SHAREGPT, "its value is not JSON"),
        ({"prompt": "a", "completion": None}, PAIR, "field completion is null"),
        ({"prompt": "a", "completion": HI}, PAIR, "field prompt is a string that is not JSON"),
        ({"prompt": 1, "completion": "a"}, PAIR, "field completion is a string that is not JSON"),
        ({"prompt": HI, "completion": []}, PAIR, "field completion holds no message"),
        ({"prompt": "a", "completion": "b", "system": "S"}, PAIR, "field system is not empty, and a pair of texts"),
        ({"instruction": "a", "output": "b", "history": [["x", "y"]]}, ALPACA, "field history is not empty"),
        ({"instruction": "a", "output": 1}, ALPACA, "field output is a number, not a string"),
        ("text", MESSAGES, "is a string, not an object"),
    ],
)
def test_what_is_refused(record: Any, schema: Schema, reason: str) -> None:
    with pytest.raises(ChatError, match=reason):
        conversation_of(record, schema)


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"messages": [], "text": "a"}, Schema("messages", "messages")),
        ({"conversations": [], "prompt": "a", "completion": "b"}, Schema("messages", "conversations")),
        ({"prompt": "a", "completion": "b", "text": "c"}, Schema("prompt_completion", "prompt", "completion")),
        ({"prompt": "a", "response": "b"}, Schema("prompt_completion", "prompt", "response")),
        ({"instruction": "a", "input": "", "output": "b"}, Schema("alpaca", "instruction", "output")),
        ({"instruction": "a", "context": "", "response": "b"}, Schema("alpaca", "instruction", "response")),
        (HI, Schema("messages", "")),
        ({"prompt": "a", "text": "b"}, Schema("text", "text")),
    ],
)
def test_what_is_found(tmp_path: Path, lines_of: Any, record: Any, schema: Schema) -> None:
    from packer.corpus import find_sources

    path = lines_of(tmp_path / "x.jsonl", [record])
    if isinstance(record, list):
        path = lines_of(tmp_path / "x.jsonl", [record, record])  # alone it would be an array of records
    [source] = find_sources([str(path)], ReadOptions()).sources
    assert source.schema == schema


def test_named_fields(tmp_path: Path, lines_of: Any, read: Any) -> None:
    record = {"chosen": HI, "rejected": [], "question": "q", "answer": "a", "text": "t", "prompt": "p"}
    path = lines_of(tmp_path / "x.jsonl", [record])
    assert told(read(path, render=render, messages_field="chosen"))[0]["Conversation"]["messages"] == HI
    pair = told(read(path, render=render, prompt_field="question", completion_field="answer"))[0]["Pair"]
    assert (pair["prompt"], pair["completion"]) == ("q", "a")
    assert told(read(path, render=render, completion_field="answer"))[0]["Pair"]["prompt"] == "p"
    alpaca = told(read(path, render=render, schema="alpaca", prompt_field="question", completion_field="answer"))
    assert alpaca[0]["Pair"]["message"] == "q"
    assert read(path, render=render, text_field="text").documents == ["t"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_field": "a", "messages_field": "b"}, "records of two kinds"),
        ({"text_field": "a", "schema": "messages"}, "--text-field is for records of another kind"),
        ({"schema": "chat"}, "--schema chat: must be one of input_ids, messages"),
    ],
)
def test_options_that_contradict(tmp_path: Path, lines_of: Any, read: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(lines_of(tmp_path / "x.jsonl", [{"text": "a"}]), **options)


TOOLS = [{"type": "function", "function": {"name": "add", "description": None}}]
RECORDS = [
    {"messages": HI, "tools": None, "system": None},
    {"messages": [*HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}], "tools": TOOLS, "system": "S"},
]
EXPECTED = [
    {"messages": HI, "tools": None},
    {
        "messages": [{"role": "system", "content": "S"}, *HI, {"role": "assistant", "tool_calls": [CALL]}],
        "tools": [{"type": "function", "function": {"name": "add"}}],
    },
]


def save(path: Path, records: list[dict[str, Any]], kind: str) -> Path:
    table = pa.Table.from_pylist(records)
    path = path / f"x.{kind.removesuffix('-json').removesuffix('-stream')}"
    if kind == "parquet-json":
        table = pa.Table.from_pylist([{k: v and json.dumps(v) for k, v in r.items() if k != "system"} for r in records])
    if kind == "large":
        lists = pa.large_list(table.schema.field("messages").type.value_type)
        table = table.set_column(0, "messages", table["messages"].cast(lists))
        path = path.with_suffix(".parquet")
    if kind in ("arrow", "feather", "arrow-stream"):
        make = pa.ipc.new_stream if kind == "arrow-stream" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, 1)
    else:
        pq.write_table(table, path, row_group_size=1)
    return path


@pytest.mark.parametrize("kind", ["parquet", "parquet-json", "large", "arrow", "feather", "arrow-stream"])
def test_columns(tmp_path: Path, read: Any, kind: str) -> None:
    found = [one["Conversation"] for one in told(read(save(tmp_path, RECORDS, kind), render=render))]
    expected = EXPECTED
    if kind == "parquet-json":
        without = [{"messages": r["messages"][-len(RECORDS[i]["messages"]) :], **r} for i, r in enumerate(EXPECTED)]
        expected = [{**r, "messages": [m for m in r["messages"] if m["role"] != "system"]} for r in without]
        expected[1]["tools"] = TOOLS  # JSON can tell null from absent
    assert [{name: one[name] for name in ("messages", "tools")} for one in found] == expected


@pytest.mark.parametrize("kind", ["jsonl", "json", "array"])
def test_json(tmp_path: Path, lines_of: Any, read: Any, kind: str) -> None:
    path = tmp_path / ("x.jsonl" if kind == "jsonl" else "x.json")
    if kind == "jsonl":
        lines_of(path, RECORDS)
    else:
        path.write_text(json.dumps(RECORDS if kind == "array" else RECORDS[1], indent=1), encoding="utf-8")
    found = [one["Conversation"]["messages"] for one in told(read(path, render=render))]
    assert found == [one["messages"] for one in EXPECTED[1 if kind == "json" else 0 :]]


def test_csv(tmp_path: Path, read: Any) -> None:
    with open(tmp_path / "x.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows(
            [["instruction", "input", "output", "other"], ["Add.", "1, 1", "2", "é"], ["Say é.", "", "é", ""]]
        )
    pairs = [one["Pair"] for one in told(read(tmp_path / "x.csv", render=render))]
    assert [(pair["message"], pair["completion"]) for pair in pairs] == [("Add.\n\n1, 1", "2"), ("Say é.", "é")]
    (tmp_path / "y.csv").write_text("messages\n" + '"' + json.dumps(HI).replace('"', '""') + '"\n', encoding="utf-8")
    assert told(read(tmp_path / "y.csv", render=render))[0]["Conversation"]["messages"] == HI


def test_stdin(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    import io
    import sys

    data = b"\n".join(json.dumps(record).encode() for record in RECORDS)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert [one["Conversation"]["messages"] for one in told(read("-", render=render))] == [
        one["messages"] for one in EXPECTED
    ]


def test_bad_records_are_named_and_counted(tmp_path: Path, lines_of: Any, read: Any) -> None:
    path = lines_of(tmp_path / "x.jsonl", [{"messages": HI}, said(content=IMAGE), {"messages": HI}, said()])
    with pytest.raises(RecordError, match=r"x\.jsonl, line 2: message 2: part 2 is image_url, not text"):
        read(path, render=render)
    result = read(path, render=render, on_error="skip")
    assert result.ordinals == [0, 2]
    assert result.faults == [
        ("line 2", "message 2: part 2 is image_url, not text"),
        ("line 4", "message 2: has no content"),
    ]


def test_bad_rows_are_named(tmp_path: Path, read: Any) -> None:
    records = [{"messages": [{"role": "user", "content": text}]} for text in ("a", None, "b")]
    path = save(tmp_path, records, "parquet")
    result = read(path, render=render, on_error="skip")
    assert (result.ordinals, result.faults) == ([0, 2], [("row 1", "message 1: content is null")])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_text_in_structs_that_is_not_utf8_is_that_rows_fault(tmp_path: Path, read: Any, kind: str) -> None:
    good = save(tmp_path, [{"messages": [{"role": "user", "content": text}]} for text in ("aaaaaaaa", "bbbb")], kind)
    data = good.read_bytes()
    at = data.rindex(b"aaaaaaaa") if kind == "arrow" else None
    if at is None:
        table = pq.read_table(good)
        pq.write_table(table, good, compression="none", use_dictionary=False, write_statistics=False)
        data = good.read_bytes()
        at = data.index(b"aaaaaaaa")
    good.write_bytes(data[:at] + b"\xe9" + data[at + 1 :])
    result = read(good, render=render, on_error="skip")
    assert result.faults == [
        ("row 0", "is not UTF-8 (invalid continuation byte); convert the file first, e.g. with iconv")
    ]
    assert len(result.documents) == 1


def test_lone_surrogates(tmp_path: Path, read: Any) -> None:
    (tmp_path / "x.jsonl").write_text('{"messages": [{"role": "user", "content": "a\\ud800"}]}\n', encoding="utf-8")
    [(where, reason)] = read(tmp_path / "x.jsonl", render=render, on_error="skip").faults
    assert where == "line 1"
    assert "holds a lone surrogate \\ud800" in reason


def test_a_record_may_become_several_documents(tmp_path: Path, lines_of: Any, read: Any) -> None:
    def each(record: Conversation | Pair) -> list[Rendered]:
        assert isinstance(record, Conversation)
        if record.messages[0]["content"] == "bad":
            raise RenderError("the template says no")
        return [Rendered(str(i), (), False, 1) for i in range(len(record.messages))]

    bad = {"messages": [{"role": "user", "content": "bad"}]}
    path = lines_of(tmp_path / "x.jsonl", [{"messages": HI}, bad, {"messages": HI[:1]}])
    result = read(path, render=each, on_error="skip")
    assert (result.documents, result.ordinals, result.records) == (["0", "1", "0"], [0, 1, 3], [4])
    assert result.faults == [("line 2", "the template says no")]


def test_without_a_tokenizer(tmp_path: Path, lines_of: Any, read: Any) -> None:
    with pytest.raises(UsageError, match="the records are to be rendered as text, so --tokenizer is needed"):
        read(lines_of(tmp_path / "x.jsonl", [{"messages": HI}]))
