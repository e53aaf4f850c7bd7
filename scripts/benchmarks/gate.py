"""Ratios held against those that were recorded: is one worse by more than noise?

A ratio is a time of packer's by one of something else in the same round (the tokenizer alone, a peer), so that lower
is better and the machine's speed cancels. Each has a value a round. The noise of their median is estimated from their
range, now and when recorded; a ratio is worse when it exceeds the recorded one by more than LIMIT times that noise,
and by more than FLOOR, below which nobody would care.

    recorded 1.50 (1.45 to 1.55), now 1.58 (1.50 to 1.66)    within noise
    recorded 1.50 (1.45 to 1.55), now 1.90 (1.85 to 1.95)    worse
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

LIMIT = 3.0  # standard errors
FLOOR = 0.05  # of the recorded ratio
# Expected range of n values of a normal distribution, in standard deviations (Tippett 1925); beyond 10 the last is used
RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 7: 2.704, 8: 2.847, 9: 2.970, 10: 3.078}
MEDIAN_ERROR = 1.2533  # of a median, by that of a mean

Ratios = Mapping[str, Sequence[float]]  # by name, a value a round


@dataclass(frozen=True)
class Verdict:
    """noise: what the ratio may exceed the recorded one by without counting as worse."""

    name: str
    recorded: Sequence[float]
    found: Sequence[float]
    noise: float

    @property
    def change(self) -> float:
        return median(self.found) - median(self.recorded)

    @property
    def worse(self) -> bool:
        return self.change > self.noise

    def line(self) -> str:
        before, after = median(self.recorded), median(self.found)
        text = f"{self.name}: {after:.3f}, recorded {before:.3f} ({self.change / before:+.1%}, "
        return text + f"noise {self.noise / before:.1%})" + (" WORSE" if self.worse else "")


def standard_error(values: Sequence[float]) -> float:
    """Of the median of these. Of a single value nothing is known: infinite."""
    if len(values) < 2:
        return math.inf
    spread = (max(values) - min(values)) / RANGES[min(len(values), max(RANGES))]
    return MEDIAN_ERROR * spread / math.sqrt(len(values))


def compare(recorded: Ratios, found: Ratios) -> list[Verdict]:
    """Of the ratios that are in both, in the order recorded. Raises ValueError where none is."""
    verdicts = []
    for name, before in recorded.items():
        if after := found.get(name):
            noise = LIMIT * math.hypot(standard_error(before), standard_error(after))
            verdicts.append(Verdict(name, before, after, max(noise, FLOOR * median(before))))
    if not verdicts:
        raise ValueError("no ratio that was recorded has been measured")
    return verdicts


def pooled(first: Ratios, second: Ratios) -> dict[str, list[float]]:
    """The rounds of both."""
    names = dict.fromkeys([*first, *second])
    return {name: [*first.get(name, []), *second.get(name, [])] for name in names}


def load(path: Path) -> dict[str, Any]:
    """{"cores", "versions", "ratios"}. Raises ValueError at a file that is not one of ours."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not {"cores", "versions", "ratios"} <= found.keys():
        raise ValueError(f"{path} holds no recorded ratios")
    return found


def save(path: Path, ratios: Ratios, cores: int, versions: Mapping[str, str]) -> None:
    rounded = {name: [round(value, 4) for value in values] for name, values in ratios.items()}
    text = json.dumps({"cores": cores, "versions": versions, "ratios": rounded}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
