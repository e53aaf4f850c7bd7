"""An estimate as a table for a person."""

from __future__ import annotations

from packer.dryrun.estimate import Estimate, Figure

WIDTH = 12


def table(found: Estimate) -> str:
    """One line a figure, with how far off it may be."""
    speed = f", {found.tokens_per_second:,} tokens/s by {found.engine}" if found.tokens_per_second else ""
    inputs = _counted(found.inputs, "source")
    lines = [
        ("input", f"{inputs}, {size(found.stored_bytes)}, {_counted(found.partitions, 'partition')}"),
        ("sample", f"{found.sampled_documents:,} documents, {found.sampled_tokens:,} tokens{speed}"),
        ("documents", _figure(found.documents)),
        ("tokens", _figure(found.tokens)),
        ("rows", _figure(found.rows) + (", and more: groups are not counted" if found.grouped else "")),
        ("memory", f"about {size(found.memory_bytes)} at the peak of a process"),
        ("disk", f"{_bytes(found.data_bytes)} of data; {_bytes(found.staging_bytes)} more while the run lasts"),
        ("time", _time(found.seconds)),
    ]
    lines += [("unknown", f"{path} does not say how much it holds: not counted") for path in found.unknown]
    if found.left_out:
        named = ", ".join(found.left_out[:5]) + (" ..." if len(found.left_out) > 5 else "")
        lines.append(("not read", f"{_counted(len(found.left_out), 'file')}: {named}"))
    lines.append(("", "a dry run: nothing was written"))
    return "\n".join(f"{label:<{WIDTH}} {text}" for label, text in lines)


def size(count: float) -> str:
    """1234567 -> "1.2 MB" """
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return "unknown"
    return f"{figure.value:,}" + (f" (± {figure.error:,})" if figure.error else "")


def _bytes(figure: Figure) -> str:
    if figure.value is None or figure.error is None:
        return "unknown"
    return f"{size(figure.value)} (± {size(figure.error)})"


def _time(figure: Figure) -> str:
    if figure.value is None or figure.error is None:
        return "unknown"
    unit, one = ("hours", 3600) if figure.value > 7200 else ("minutes", 60) if figure.value > 180 else ("s", 1)
    return f"{figure.value / one:,.1f} {unit} (± {figure.error / one:,.1f}) in one process of this machine"
