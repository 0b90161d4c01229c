"""How numbers, shares, sizes, times and depths are written: once, for every room.

Three digits are enough for whatever was measured here. Signs are true ones ("−7.2 %"); a console
that lacks them gets ASCII in their place (`harness.report.text`).
"""

import math


def number(value: float) -> str:
    """Three digits and never an exponent: 1,067, 27.8, 0.0826."""
    size = abs(value)
    if size == 0.0:
        return "0"
    digits = 0 if size >= 99.95 else 2 - math.floor(math.log10(size * 1.0005))
    return f"{value:,.{min(digits, 12)}f}".replace("-", "−")


def percent(change: float, unit: str = " %", *, beside: float | None = None) -> str:
    """A change as a signed percentage: +0.8 %, −40 %; what rounds to zero has no sign.

    One decimal below 10 %; also where the number `beside` it has one.
    """
    least = abs(change) if beside is None else min(abs(change), abs(beside))
    text = f"{change * 100:+.{0 if least >= 0.0995 else 1}f}"
    return ("0.0" if float(text) == 0.0 else text.replace("-", "−")) + unit


def span(low: float, high: float, unit: str = " %") -> str:
    """Two changes between which the true one lies: −41 to −39 %."""
    return f"{percent(low, '', beside=high)} to {percent(high, unit, beside=low)}"


def share(part: float) -> str:
    """A part of a whole: 38 %, 4.2 %."""
    return f"{part * 100:.0f} %" if part >= 0.095 or part == 0 else f"{part * 100:.1f} %"


def size(size_bytes: float) -> str:
    """A size in powers of 1024: 29 MiB, 2.5 GiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size_bytes) >= unit:
            text = f"{size_bytes / unit:,.{2 if name == 'GiB' else 1}f}"
            return f"{text.rstrip('0').rstrip('.')} {name}".replace("-", "−")
    return f"{size_bytes:.0f} B"


def duration(seconds: float) -> str:
    """A time as people say it: 12 ms, 8.6 s, 35 s, 3 min 20 s, 4 h 40 min."""
    if 0 < seconds < 0.9995:
        return f"{number(seconds * 1e3)} ms"
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def depth_label(tokens: int) -> str:
    """A depth as people write it: 32768 is 32K (K = 1024); others in full."""
    for unit, letter in ((2**20, "M"), (1024, "K")):
        if tokens >= unit and tokens % unit == 0:
            return f"{tokens // unit}{letter}"
    return f"{tokens:,}"


def near(tokens: int) -> str:
    """A place in the document to three digits: 16.2K."""
    return f"{_short(tokens / 1024)}K" if tokens >= 1024 else str(tokens)


def _short(value: float) -> str:
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
