"""Tokenizer folders for chats: a small byte-level one and a small SentencePiece-like one, with templates of our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEMPLATES = Path(__file__).parent / "templates"
CONTROL = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("[INST]", "[/INST]", "<unk>"),
]
CORPUS = ["Hello there, how are you? The answer is 42.\n\nassistant user system tool think " * 2, "naïve café 東京 🙂"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    blanks = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    tokenizer.normalizer = normalizers.Sequence(blanks)
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(CONTROL)
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] |= {f"<0x{byte:02X}>": 1000 + byte for byte in range(256)}
    return Tokenizer.from_str(json.dumps(state))


MAKERS = {"byte-level": byte_level, "sentencepiece": sentencepiece}


@pytest.fixture(scope="session")
def tokenizers_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tokenizers")
    for kind, make in MAKERS.items():
        (root / kind).mkdir()
        make().save(str(root / kind / "tokenizer.json"))
    return root


@pytest.fixture(scope="session")
def folder_of(tokenizers_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A tokenizer folder whose own template is one of tests/chat/templates."""
    made: dict[tuple[str, str], Path] = {}

    def of(template: str, kind: str = "byte-level") -> Path:
        if (template, kind) not in made:
            folder = tmp_path_factory.mktemp(template)
            (folder / "tokenizer.json").write_bytes((tokenizers_made / kind / "tokenizer.json").read_bytes())
            config = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": {"content": "</s>", "__type": "AddedToken"},
                "unk_token": "<unk>",
                "clean_up_tokenization_spaces": False,
                "chat_template": (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8"),
            }
            (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
            made[template, kind] = folder
        return made[template, kind]

    return of
