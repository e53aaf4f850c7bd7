"""What `scripts/bench.py`, `bench_check.py` and `bench_strategies.py` measure, and how it is shown.

inputs      corpora and chats, generated where none are given
clock       a process timed as a whole: wall, CPU, peak memory
alone       the raw tokenizer call, in a process of its own
peers/      what users do otherwise, each a script of its own
contest     contenders taking turns, round after round
end_to_end  packer, the raw call and the peers on a corpus;   chats  the same on short chats
planning    plans beside TRL's;   memory  the peak by size of the input
page        sections of the documentation;   plot  bars as SVG
strategies  the same documents by every strategy, for `scripts/bench_strategies.py`
gate        ratios held against those that were recorded
"""
