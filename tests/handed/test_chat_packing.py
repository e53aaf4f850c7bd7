"""Every chat, pair and alpaca file of the handed corpora, packed and verified, or refused for the right reason.

They are not part of the repository: PACKER_HANDED names the folder that holds `corpora/` and `tokenizers/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from packer.cli import cli

HANDED = os.environ.get("PACKER_HANDED")
if not HANDED:
    pytest.skip("PACKER_HANDED names no folder of handed corpora", allow_module_level=True)

CORPORA, TOKENIZERS = Path(HANDED) / "corpora", Path(HANDED) / "tokenizers"
TRUTH: dict[str, Any] = json.loads((CORPORA / "truth.json").read_text(encoding="utf-8"))["files"]
TEMPLATES = Path(__file__).parent.parent / "chat" / "templates"
CHATS = [name for name, truth in TRUTH.items() if "chat" in truth and not name.startswith("sft_multimodal")]
PAIRS = {
    "sft_prompt/dolly_hhrlhf_train_small.jsonl": [],
    "sft_prompt/gsm8k_test.jsonl": ["--prompt-field", "question", "--completion-field", "answer"],
    "sft_alpaca/identity.json": [],
    "sft_seed/seed_tasks_alpaca.json": [],
    "sft_dolly/dolly.json": [],
}
REFUSED = {
    "sft_messages/pretrain_example_data.jsonl": "line 1: message 1: role 'pretrain' is not known",
    "sft_multimodal/mllm_sft_multi_image_example_data.jsonl": "line 1: message 1: part 1 is image_url, not text",
    "sft_multimodal/mllm_demo.json": "record 1: field images holds what is not text",
    "sft_messages/chatml.jsonl": "--turns each makes one document of each of the assistant's turns",
}


def packer(*arguments: str | Path) -> str:
    done = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def packed(source: Path, out: Path, tokenizer: str, *options: str | Path) -> dict[str, Any]:
    arguments = ["--tokenizer", TOKENIZERS / tokenizer, "--max-length", "16384", "--out", out, *options]
    packer("pack", source, *arguments)
    assert "equal:" in packer("verify", out, source)
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", [name for name in CHATS if "pretrain" not in name])
def test_chats(name: str, tmp_path: Path) -> None:
    truth = TRUTH[name]["chat"]
    template = TEMPLATES / "chatml_marked.jinja"
    found = packed(CORPORA / name, tmp_path / "all", "qwen3", "--chat-template", template)
    roles = truth["roles"]
    turns = sum(roles.get(role, 0) for role in ("assistant", "gpt", "function_call"))
    assert (found["chats"]["documents"], found["chats"]["turns"]) == (truth["conversations"], turns)
    assert found["totals"]["masked_documents"] == truth["conversations"]
    assert (
        found["chats"]["trained_tokens"] == found["totals"]["loss_tokens"] + found["losses"]["untrained_trained_tokens"]
    )


@pytest.mark.parametrize("name", [name for name in CHATS if "pretrain" not in name])
def test_qwen3_with_a_document_a_turn(name: str, tmp_path: Path) -> None:
    roles = TRUTH[name]["chat"]["roles"]
    turns = sum(roles.get(role, 0) for role in ("assistant", "gpt", "function_call"))
    found = packed(CORPORA / name, tmp_path / "each", "qwen3", "--turns", "each")
    assert found["chats"]["documents"] == turns
    assert found["chats"]["untrained_documents"] == 0


def test_columns_and_lines_are_the_same_chats(tmp_path: Path) -> None:
    template = TEMPLATES / "chatml.jinja"
    names = ("sft_messages/mllm_sft_text_example_data.jsonl", "columnar/messages_list_struct.parquet")
    first, second = (
        packed(CORPORA / name, tmp_path / Path(name).suffix, "gpt2", "--chat-template", template) for name in names
    )
    assert first["chats"] == second["chats"]
    assert [shard["sha256"] for shard in first["shards"]] == [shard["sha256"] for shard in second["shards"]]


@pytest.mark.parametrize("tokenizer", ["gpt2", "mistral_v3"])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str, tokenizer: str, tmp_path: Path) -> None:
    found = packed(CORPORA / name, tmp_path / "out", tokenizer, *PAIRS[name])
    assert found["chats"]["pairs"] == found["chats"]["documents"] == TRUTH[name]["rows"]
    assert found["chats"]["end_with_eos"] == TRUTH[name]["rows"]
    assert found["chats"]["double_bos"] == 0
    if tokenizer == "mistral_v3":
        assert found["chats"]["begin_with_bos"] == TRUTH[name]["rows"]


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_refused_with_a_reason(name: str, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "packer", "pack", str(CORPORA / name), "--tokenizer", str(TOKENIZERS / "qwen3")]
    command += ["--max-length", "128", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["glaive_toolcall_en_demo.json", "mistral_parallel_calls.json"])
def test_a_template_without_tools_is_told_of(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "packer", "pack", str(CORPORA / "sft_tools" / name), "--max-length", "128"]
    command += ["--tokenizer", str(TOKENIZERS / "gpt2"), "--chat-template", str(TEMPLATES / "thinking_marked.jinja")]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the chat template leaves its tool calls out" in done.stderr
