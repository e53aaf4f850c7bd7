"""The command line: exit codes, one line on stderr, options from files, what `inspect` shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from packer import __version__
from packer.cli import cli, main
from packer.cli.options import OTHER_TOOLS
from packer.packing import STRATEGIES

ROOT = Path(__file__).parents[1]
TOKENIZER = ROOT / "sample_data" / "tokenizer"


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return call


def write_lines(path: str | Path, records: list[Any]) -> str:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture
def ids(tmp_path: Path) -> str:
    """Ready-made ids: 12 documents, one of them longer than a row of 8, one empty."""
    docs = [[n + 1] * (n % 5 + 1) for n in range(10)] + [[7] * 11, []]
    write_lines(tmp_path / "ids.jsonl", [{"input_ids": doc} for doc in docs])
    return "ids.jsonl"


@pytest.fixture
def texts(tmp_path: Path) -> str:
    write_lines(tmp_path / "texts.jsonl", [{"text": "one fish"}, {"text": "two fish"}])
    return "texts.jsonl"


def fails(done: Done, code: int) -> str:
    """One line on stderr, nothing on stdout. Returns what follows `packer: `."""
    assert done.code == code, done
    assert done.out == ""
    assert re.fullmatch(r"packer: [^\n]+\n", done.err), done.err
    assert "Traceback" not in done.err
    assert "unexpected" not in done.err
    return done.err.removeprefix("packer: ").strip()


def manifest(out: str = "out") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Path(out, "manifest.json").read_bytes())
    return body


PACK = ["--max-length", "8", "--out", "out"]

# --- wrong usage -----------------------------------------------------------------------------------------------------


def test_no_arguments(run: Run) -> None:
    """The help, as lines."""
    done = run()
    assert done.code == 2
    assert "Usage: packer" in done.err
    assert all(f"\n  {command} " in done.err for command in ("pack", "window", "verify", "inspect"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pakc"], ["pakc", "packer --help"]),
        (["pack"], ["INPUT", "packer pack --help"]),
        (["pack", "x.jsonl", "--max-length", "8"], ["--out"]),
        (["pack", "x.jsonl", "--out", "out"], ["--max-length"]),
        (["pack", "x.jsonl", *PACK, "--no-such"], ["--no-such"]),
        (["pack", "x.jsonl", *PACK, "--strategy", "best"], ["best", "bfd", "wrapped"]),
        (["pack", "x.jsonl", "--max-length", "0", "--out", "out"], ["--max-length", "0"]),
        (["pack", "x.jsonl", "--max-length", "many", "--out", "out"], ["--max-length", "many"]),
        (["pack", "x.jsonl", *PACK, "--seed", "-1"], ["--seed"]),
        (["pack", "x.jsonl", *PACK, "--strategy", "bfd_split", "--overlong", "drop"], ["--overlong", "drop"]),
        (["pack", "x.jsonl", *PACK, "--strategy", "wrapped", "--max-segments", "2"], ["--max-segments"]),
        (["pack", "x.jsonl", *PACK, "--tokenizer", "t", "--eos-token", "x", "--no-eos"], ["--eos-token", "--no-eos"]),
        (["pack", "-", "-", *PACK], ["stdin"]),
        (["pack", "nosuch://user:secret@host/x.jsonl", *PACK], ["nosuch://host/x.jsonl", "not known"]),
        (["verify"], ["OUT", "packer verify --help"]),
        (["verify", "out", "--tokenizer", "t"], ["--tokenizer"]),
        (["inspect"], ["OUT"]),
        (["inspect", "out", "--row", "-1"], ["--row"]),
        (["pack", "x.jsonl", *PACK, "--config", "nowhere.toml"], ["nowhere.toml"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_wrong_usage(run: Run, arguments: list[str], words: list[str]) -> None:
    line = fails(run(*arguments), 2)
    for word in words:
        assert word in line
    assert "secret" not in line
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--append-eod", "--eos"),
        ("--seq-length", "--max-length"),
        ("--sequence-len", "--max-length"),
        ("--concat-tokens", "--strategy wrapped"),
        ("--json-keys", "--text-field"),
        ("--append_eod", "--eos"),
        ("--doc-stride", "--overlap"),
        ("--seq_length=8", "--max-length"),
    ],
)
def test_options_of_other_tools(run: Run, ids: str, option: str, ours: str) -> None:
    line = fails(run("pack", ids, *PACK, option), 2)
    assert option.split("=")[0] in line
    assert ours in line.split(": ", 1)[1]


def test_advice_names_options_that_exist() -> None:
    ours = {
        name
        for command in ("pack", "window")
        for parameter in cli.commands[command].params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for option, advice in OTHER_TOOLS.items():
        assert option not in ours
        assert set(re.findall(r"--[a-z-]+", advice)) <= ours


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_no_data_set(run: Run, command: str) -> None:
    assert "no manifest.json" in fails(run(command, "nowhere"), 1)


def test_missing_file(run: Run) -> None:
    assert fails(run("pack", "nowhere.jsonl", *PACK), 1) == "nowhere.jsonl: no such file or folder"
    assert "no file matches" in fails(run("pack", "no*.jsonl", *PACK), 1)


def test_no_known_field(run: Run) -> None:
    write_lines("x.jsonl", [{"body": "one", "title": "two"}])
    line = fails(run("pack", "x.jsonl", *PACK, "--tokenizer", TOKENIZER), 1)
    for word in ("x.jsonl", "body", "title", "--text-field"):
        assert word in line


@pytest.mark.parametrize("content", ["", "\n\n", '{"input_ids": []}\n'])
def test_no_documents(run: Run, content: str) -> None:
    Path("x.jsonl").write_text(content)
    assert "there is nothing to pack" in fails(run("pack", "x.jsonl", *PACK), 1)
    assert not Path("out").exists()


def test_no_documents_left(run: Run, ids: str) -> None:
    line = fails(run("pack", ids, *PACK, "--min-tokens", 100), 1)
    assert "there is nothing to pack" in line
    assert "11" in line


def test_text_needs_a_tokenizer(run: Run, texts: str) -> None:
    assert "--tokenizer" in fails(run("pack", texts, *PACK), 2)


def test_tokenizer_that_does_not_load(run: Run, texts: str) -> None:
    Path("empty").mkdir()
    Path("broken.json").write_text("{")
    assert "tokenizer.json" in fails(run("pack", texts, *PACK, "--tokenizer", "empty"), 1)
    assert "broken.json" in fails(run("pack", texts, *PACK, "--tokenizer", "broken.json"), 1)


def test_wanted_eos_is_missing(run: Run, texts: str) -> None:
    shutil.copy(TOKENIZER / "tokenizer.json", "tokenizer.json")
    assert "--eos-token" in fails(run("pack", texts, *PACK, "--tokenizer", "tokenizer.json", "--eos"), 1)
    wanted = fails(run("pack", texts, *PACK, "--tokenizer", TOKENIZER, "--eos-token", "<none>"), 1)
    assert "<none>" in wanted
    assert "--bos" in fails(run("pack", texts, *PACK, "--tokenizer", TOKENIZER, "--bos"), 1)
    assert not Path("out").exists()
    assert run("pack", texts, *PACK, "--tokenizer", "tokenizer.json").code == 0
    assert manifest()["tokenizer"]["suffix"] == []


def test_ids_beyond_the_tokenizer(run: Run) -> None:
    write_lines("x.jsonl", [{"input_ids": [1, 4096]}])
    assert "4096" in fails(run("pack", "x.jsonl", *PACK, "--tokenizer", TOKENIZER), 1)


def test_overlong_error(run: Run, ids: str) -> None:
    line = fails(run("pack", ids, *PACK, "--overlong", "error"), 1)
    assert "11 tokens" in line
    assert "8" in line


def test_bad_record(run: Run, ids: str) -> None:
    with open(ids, "a") as file:
        file.write('{"input_ids": [1, -5]}\n')
    line = fails(run("pack", ids, *PACK), 1)
    assert line.startswith("ids.jsonl, line 13: ")
    assert "--on-error skip" in line


def test_message_of_several_lines_is_one(run: Run) -> None:
    Path("two\nlines.jsonl").write_text("{\n")
    assert "two lines.jsonl" in fails(run("pack", "two\nlines.jsonl", *PACK), 1)


def test_debug_gives_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "packer", "pack", "nowhere.jsonl", *PACK]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, cwd=tmp_path)
    assert (plain.returncode, debug.returncode) == (1, 1)
    assert "Traceback" not in plain.stderr
    assert debug.stderr.startswith("Traceback")
    assert "InputError: nowhere.jsonl: no such file or folder" in debug.stderr


# --- on-error skip ---------------------------------------------------------------------------------------------------


def test_skipped_records_are_counted_and_shown(run: Run) -> None:
    bad = ['{"input_ids": [1, -5]}', "not json", '{"input_ids": null}', '{"ids": [1]}']
    Path("x.jsonl").write_text("\n".join(['{"input_ids": [1, 2]}', *bad, '{"input_ids": [3]}']) + "\n")
    done = run("pack", "x.jsonl", *PACK, "--on-error", "skip")
    assert done.code == 0
    body = manifest()
    assert body["totals"]["skipped"] == 4
    assert body["totals"]["records"] == 6
    assert body["totals"]["documents"] == 2
    assert [record["where"] for record in body["skipped_records"]] == [f"line {n}" for n in (2, 3, 4, 5)]
    assert [record["path"] for record in body["skipped_records"]] == ["x.jsonl"] * 4
    for record, word in zip(body["skipped_records"], ["-5", "JSON", "null", "missing"], strict=True):
        assert word in record["reason"]
    assert "4 bad records skipped" in done.out
    first = body["skipped_records"][0]
    assert f"{first['path']}, {first['where']}: {first['reason']}" in done.out
    assert run("verify", "out", "x.jsonl").code == 0


def test_only_the_first_hundred_reasons_are_kept(run: Run) -> None:
    Path("x.jsonl").write_text('{"input_ids": [1]}\n' + "x\n" * 150)
    assert run("pack", "x.jsonl", *PACK, "--on-error", "skip", "--partition-bytes", 50).code == 0
    body = manifest()
    assert body["totals"]["skipped"] == 150
    assert [record["where"] for record in body["skipped_records"]] == [f"line {n}" for n in range(2, 102)]


# --- options from a file ---------------------------------------------------------------------------------------------


def test_config_and_the_command_line_wins(run: Run, ids: str) -> None:
    Path("c.toml").write_text('max-length = 6\nseed = 3\nstrategy = "ffd"\nout = "from-config"\nquiet = true\n')
    assert run("pack", ids, "--config", "c.toml") == Done(0, "", "")
    body = manifest("from-config")
    assert (body["max_length"], body["seed"], body["options"]["strategy"]) == (6, 3, "ffd")
    assert run("pack", ids, "--config", "c.toml", "--max-length", 9, "--out", "out", "--strategy", "bfd").code == 0
    body = manifest()
    assert (body["max_length"], body["seed"], body["options"]["strategy"]) == (9, 3, "bfd")
    assert run("pack", ids, "--out", "before", "--seed", 4, "--config", "c.toml").code == 0
    assert (manifest("before")["max_length"], manifest("before")["seed"]) == (6, 4)


def test_config_by_command_and_by_any_name_of_an_option(run: Run, ids: str, texts: str) -> None:
    Path("c.toml").write_text('[pack]\nmax_length = 6\nformat = "arrow"\nno-eos = true\n[inspect]\nrow = 1\n')
    assert run("pack", ids, "--out", "out", "--config", "c.toml").code == 0
    assert manifest()["file_format"] == "arrow"
    assert "\nrow 1 (" in run("inspect", "out", "--config", "c.toml").out
    assert run("pack", texts, "--out", "text", "--tokenizer", TOKENIZER, "--config", "c.toml").code == 0
    assert manifest("text")["tokenizer"]["suffix"] == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("no-such = 1", "no-such"),
        ("[pack]\nno-such = 1", "no-such"),
        ("max-length = ", "c.toml"),
        ('max-length = "many"', "many"),
        ("max-length = 0", "max-length"),
        ('strategy = "best"', "best"),
        ("pack = 3", "c.toml"),
    ],
)
def test_config_that_is_wrong(run: Run, ids: str, content: str, word: str) -> None:
    Path("c.toml").write_text(content)
    given = [] if "max-length" in content else ["--max-length", "8"]
    assert word in fails(run("pack", ids, "--out", "out", "--config", "c.toml", *given), 2)
    assert not Path("out").exists()


def test_config_with_invalid_utf8(run: Run, ids: str) -> None:
    Path("c.toml").write_bytes(b'split = "\xff"\n')
    assert "c.toml" in fails(run("pack", ids, *PACK, "--config", "c.toml"), 2)


# --- what is printed -------------------------------------------------------------------------------------------------


def test_quiet_is_silent(run: Run, ids: str) -> None:
    assert run("pack", ids, *PACK, "--quiet") == Done(0, "", "")
    assert run("verify", "out", ids, "--quiet") == Done(0, "", "")


def test_module_runs_and_shows_no_bar_when_piped(ids: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "packer", "pack", ids, *PACK]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\r" not in done.stdout
    assert done.stdout.startswith("documents ")
    version = subprocess.run([sys.executable, "-m", "packer", "--version"], capture_output=True, text=True)
    assert version.stdout == f"packer, version {__version__}\n"


def test_bar_on_a_terminal_unless_quiet(ids: str, tmp_path: Path) -> None:
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")

    def stderr_of(*options: str) -> str:
        main_end, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (25, 100))
        command = [sys.executable, "-m", "packer", "pack", ids, *PACK, "--overwrite", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, cwd=tmp_path)
        os.write(terminal, b"end")
        shown = os.read(main_end, 1 << 16).decode()
        os.close(terminal)
        os.close(main_end)
        assert done.returncode == 0
        return shown

    assert "tokens" in stderr_of()
    assert stderr_of("--quiet") == "end"


def test_summary_has_the_figures_of_the_manifest(run: Run, ids: str) -> None:
    done = run("pack", ids, *PACK, "--rows-per-shard", 2)
    assert (done.code, done.err) == (0, "")
    body = manifest()
    totals = body["totals"]
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert f"{totals['documents']} with {totals['tokens']} tokens (1 empty left out)" in lines["documents"]
    assert f"{totals['rows']} of at most 8 tokens, by bfd" in lines["rows"]
    assert f"{body['efficiency']:.2%}" in lines["full"]
    assert totals["rows"] == body["lower_bound"]
    assert "as few rows as can be" in lines["full"]
    assert f"{totals['segments']}, {body['packing_factor']:.1f} a row, 1 document cut" in lines["segments"]
    assert "nothing: every token is in a row" in lines["lost"]
    assert f"{totals['loss_tokens']} of {totals['placed_tokens']} tokens, labels aligned" in lines["trained"]
    assert f"{len(body['shards'])} shards" in lines["written"]
    more = run("pack", ids, *PACK, "--overwrite", "--strategy", "none").out
    above = manifest()["totals"]["rows"] - body["lower_bound"]
    assert f", {above} rows above the bound of {body['lower_bound']}\n" in more
    assert totals["documents"] == 11
    assert totals["tokens"] == sum(n % 5 + 1 for n in range(10)) + 11


@pytest.mark.parametrize(
    ("options", "text", "field"),
    [
        (["--overlong", "truncate"], "3 tokens: 1 documents? truncated", "truncated"),
        (["--overlong", "drop"], "11 tokens: 1 documents? dropped as too long", "dropped"),
        (["--min-tokens", "2"], "2 tokens: 2 documents left out as too short", "short"),
    ],
)
def test_summary_says_what_was_lost(run: Run, ids: str, options: list[str], text: str, field: str) -> None:
    done = run("pack", ids, *PACK, *options)
    assert re.search(rf"^lost +{text}$", done.out, re.MULTILINE)
    tokens, documents = map(int, re.findall(r"\d+", text))
    losses = manifest()["losses"]
    assert (losses[f"{field}_documents"], losses[f"{field}_tokens"]) == (documents, tokens)
    assert sum(losses.values()) == documents + tokens


def test_summary_says_what_was_added(run: Run, texts: str) -> None:
    done = run("pack", texts, *PACK, "--tokenizer", TOKENIZER)
    assert re.search(r"^added +EOS <\|endoftext\|> after$", done.out, re.MULTILINE)
    done = run("pack", texts, *PACK, "--tokenizer", TOKENIZER, "--no-eos", "--overwrite")
    assert re.search(r"^added +no EOS \(--no-eos\)$", done.out, re.MULTILINE)


def test_report(run: Run, ids: str) -> None:
    assert run("pack", ids, *PACK, "--report", "r.json", "--quiet") == Done(0, "", "")
    facts, body = json.loads(Path("r.json").read_bytes()), manifest()
    for name in ("totals", "losses", "efficiency", "lower_bound", "packing_factor"):
        assert facts[name] == body[name]
    assert facts["shards"] == len(body["shards"])
    assert facts["out"] == "out"
    assert facts["seconds"] >= facts["staging_seconds"] >= 0
    assert "seconds" not in Path("out", "manifest.json").read_text()


def test_files_left_out_of_a_folder_are_named(run: Run, ids: str) -> None:
    Path("folder").mkdir()
    shutil.move(ids, "folder/ids.jsonl")
    Path("folder/README.md").write_text("# About")
    assert re.search(r"^not read +1 file: folder/README.md$", run("pack", "folder", *PACK).out, re.MULTILINE)


def test_stdin(ids: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "packer", "pack", "-", *PACK, "--quiet"]
    done = subprocess.run(command, input=(tmp_path / ids).read_bytes(), capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["inputs"][0]["documents"] == 12


def test_limit(run: Run, ids: str) -> None:
    assert run("pack", ids, *PACK, "--limit", 3).code == 0
    assert manifest()["totals"]["records"] == 3
    assert run("verify", "out", ids).code == 0


# --- help ------------------------------------------------------------------------------------------------------------


def options_of(command: click.Command) -> list[str]:
    return [name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)]


@pytest.mark.parametrize("name", ["pack", "window", "verify", "inspect"])
def test_help_has_every_option(run: Run, name: str) -> None:
    done = run(name, "--help")
    assert (done.code, done.err) == (0, "")
    for option in options_of(cli.commands[name]):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", done.out), option
    for option in cli.commands[name].params:
        assert not isinstance(option, click.Option) or not option.hidden
    assert run(name, "-h").out == done.out


def test_help_names_commands_and_strategies(run: Run) -> None:
    assert all(name in run("--help").out for name in cli.commands)
    text = " ".join(run("pack", "--help").out.split())
    assert all(name in text for name in STRATEGIES)


def test_help_and_import_load_nothing_heavy() -> None:
    code = (
        "import sys, packer.cli\n"
        "try: packer.cli.main(['pack', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'pyarrow', 'tokenizers', 'tqdm', 'datasets', 'torch') if m in sys.modules],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"


# --- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect_a_row(run: Run) -> None:
    write_lines("a.jsonl", [{"input_ids": [1, 2, 3, 4, 5, 6, 7]}, {"input_ids": [8, 9]}])
    write_lines("b.jsonl", [{"input_ids": [20]}, {"input_ids": [21, 22, 23]}])
    arguments = ["--strategy", "first-fit", "--order", "plan", "--rows-per-shard", "1", "--max-length", "5"]
    assert run("pack", "a.jsonl", "b.jsonl", "--out", "out", *arguments).code == 0
    shown = run("inspect", "out", "--row", 1)
    assert (shown.code, shown.err) == (0, "")
    assert "out: 3 rows of at most 5 tokens, by first-fit, 86.67% full" in shown.out
    assert "13 tokens in 5 segments of 4 documents (1 cut); 0 tokens lost" in shown.out
    assert "of parquet in 3 shards" in shown.out
    assert "from 2 files, 4 records (0 skipped, 0 empty)" in shown.out
    row = shown.out.split("\n\n", 1)[1]
    assert row.splitlines() == [
        "row 1 (data/train-00001-of-00003.parquet, row 0): 5 of at most 5 tokens, 2 trained, longest sequence 2",
        "",
        "  segment 0: document 0 (a.jsonl, record 0), [5:7] of 7, 2 tokens, 1 trained",
        "    6 ⟦7⟧",
        "",
        "  segment 1: document 1 (a.jsonl, record 1), whole, 2 tokens, 1 trained",
        "    8 ⟦9⟧",
        "",
        "  segment 2: document 2 (b.jsonl, record 0), whole, 1 token, 0 trained",
        "    20",
        "",
        "⟦ trained ⟧",
    ]
    assert run("inspect", "out").out.split("\n\n", 1)[1].startswith("row 0 (data/train-00000-of-00003.parquet, row 0)")
    assert "document 3 (b.jsonl, record 1), whole, 3 tokens" in run("inspect", "out", "--row", 2, "--quiet").out


@pytest.mark.parametrize("options", [[], ["--labels", "shifted"], ["--columns", "compact"]], ids=" ".join)
def test_inspect_tells_trained_from_masked(run: Run, options: list[str]) -> None:
    write_lines("x.jsonl", [{"input_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 0, 1, 0, 1]}])
    assert run("pack", "x.jsonl", *PACK, *options).code == 0
    assert "\n    1 2 ⟦3⟧ 4 ⟦5⟧\n" in run("inspect", "out").out


def test_inspect_row_out_of_range(run: Run, ids: str) -> None:
    assert run("pack", ids, *PACK).code == 0
    rows = manifest()["totals"]["rows"]
    assert run("inspect", "out", "--row", rows - 1).code == 0
    done = run("inspect", "out", "--row", rows, "--quiet")
    assert f"rows 0 to {rows - 1}" in fails(done, 2)


def test_inspect_decodes_with_control_characters_escaped(run: Run) -> None:
    write_lines("x.jsonl", [{"text": "red\x1b[31m\r\nfish é"}])
    assert run("pack", "x.jsonl", "--max-length", 64, "--out", "out", "--tokenizer", TOKENIZER).code == 0
    shown = run("inspect", "out", "--decode")
    assert (shown.code, shown.err) == (0, "")
    text = " ".join(shown.out.splitlines()[-4:-2])
    assert re.fullmatch(r" {4}[red]+⟦[red]*\\x1b\[31m\\r\\n⟧     ⟦fish é⟨<\|endoftext\|>⟩⟧", text), text
    assert "\x1b" not in shown.out
    assert "\r" not in shown.out


def test_inspect_decodes_trained_tokens_in_brackets(run: Run) -> None:
    from tokenizers import Tokenizer

    encode = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).encode
    question, answer = encode("What fish?\n").ids, encode("A red fish").ids
    mask = [0] * len(question) + [1] * len(answer)
    write_lines("x.jsonl", [{"input_ids": question + answer, "loss_mask": mask}])
    assert run("pack", "x.jsonl", "--max-length", 64, "--out", "out").code == 0
    assert "--tokenizer" in fails(run("inspect", "out", "--decode", "--quiet"), 2)
    assert "\n    What fish?\\n\n    ⟦A red fish⟧\n" in run("inspect", "out", "--decode", "--tokenizer", TOKENIZER).out


def test_inspect_with_another_tokenizer(run: Run, texts: str) -> None:
    assert run("pack", texts, *PACK, "--tokenizer", TOKENIZER).code == 0
    Path("other.json").write_text(json.dumps(json.loads((TOKENIZER / "tokenizer.json").read_bytes())))
    done = run("inspect", "out", "--decode", "--quiet", "--tokenizer", "other.json")
    assert "not the one" in fails(done, 1)
