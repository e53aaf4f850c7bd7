"""What a run was like, for its report: never part of the data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from packer import engines, tokenizer
from packer.job import TokenizerOptions
from packer.packing.equalized import Trade


@dataclass(frozen=True)
class Facts:
    """What a run was like; never part of the data set. Seconds of wall time.

    Before staging proper: loading (finding the sources, loading the tokenizer), the fast engine's trial, and waiting
    for its native code to load, during which the sample is encoded already. Sampling is counted over threads."""

    seconds: float
    staging_seconds: float  # all before finishing
    finishing_seconds: float
    left_out: list[str]  # files of folders that were not read
    engine_note: str | None = None  # why the tokenizer's engine is not the one that might be expected
    partitions: int = 1
    resumed: int = 0  # of these, those that --resume found done
    loading_seconds: float = 0.0
    trial_seconds: float = 0.0
    waiting_seconds: float = 0.0
    sampling_seconds: float = 0.0
    trades: list[Trade] = field(default_factory=list)  # what --equalize could choose among


class Start:
    """Seconds that the beginning of a run took, by what they were for. Made when the engine has been chosen."""

    def __init__(self, began: float, options: TokenizerOptions | None, choice: engines.Choice | None) -> None:
        self._chosen = perf_counter()
        self._loaded: list[float] = []
        self.trial = choice.trial_seconds if choice else 0.0
        self.loading = self._chosen - began - self.trial
        if options is not None and choice is not None and choice.name == "fast":
            engines.when_loaded(tokenizer.find(options.source), lambda: self._loaded.append(perf_counter()))

    @property
    def waiting(self) -> float:
        return max(0.0, self._loaded[0] - self._chosen) if self._loaded else 0.0
