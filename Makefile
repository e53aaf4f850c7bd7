# Each target makes the virtual environment it needs: nothing but Python 3.11 or newer has to be there.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
DEMO := .venv/demo
DEV := .venv/dev
BENCH := .venv/bench
READING := .venv/bench-reading
PYTEST := $(DEV)/bin/python -m pytest

.PHONY: demo test test-all check bench bench-check bench-record bench-reading handed clean

demo: $(DEMO)/ready
	$(DEMO)/bin/packer stats sample_data/articles.jsonl --tokenizer sample_data/tokenizer --max-length 1024
	$(DEMO)/bin/packer pack sample_data/articles.jsonl --tokenizer sample_data/tokenizer --max-length 1024 --out demo --overwrite
	$(DEMO)/bin/packer verify demo sample_data/articles.jsonl
	$(DEMO)/bin/packer inspect demo --row 19 --decode

test: $(DEV)/ready
	$(PYTEST) -n 2 -m "not slow"

test-all: test
	$(PYTEST) -n 2 -m slow

check: $(DEV)/ready
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy

bench: $(BENCH)/ready
	$(BENCH)/bin/python scripts/bench.py

# Fails when packer has become slower, beside the raw tokenizer call and beside a plain pool of processes
bench-check: $(DEV)/ready
	$(DEV)/bin/python scripts/bench_check.py

# What it compares with: run on a quiet machine when a change of speed is meant
bench-record: $(DEV)/ready
	$(DEV)/bin/python scripts/bench_check.py --record

# Needs transformers 4, which MosaicML Streaming asks for
bench-reading: $(READING)/ready
	$(READING)/bin/python scripts/bench_reader.py

# Real corpora and tokenizers with their known counts, where a copy of them is at hand: make handed DATA=FOLDER
handed: $(DEV)/ready
	PACKER_HANDED=$(abspath $(DATA)) $(PYTEST) -n 2 tests/handed

clean:
	rm -rf .venv demo build *.egg-info

$(DEMO)/ready: EXTRAS :=
$(DEV)/ready: EXTRAS := [test,check,examples]
$(BENCH)/ready: EXTRAS := [bench]
$(READING)/ready: EXTRAS := [bench-reading]
.venv/%/ready: pyproject.toml
	$(PYTHON) -m venv .venv/$*
	.venv/$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.$(EXTRAS)'
	touch $@
