"""Background records: the lines a haystack is made of.

Two backgrounds. **plain** (default): generated sentences, inventory-like records and log lines; no
line resembles a needle. **hard** adds decoys (`CODE=` pairs, look-alike names, needle vocabulary)
and lines of random characters. Every line is a function of the random source alone.
"""

import random
from collections.abc import Iterator
from typing import Literal

Background = Literal["plain", "hard"]

NATO_NAMES: tuple[str, ...] = tuple(
    "ALPHA BRAVO CHARLIE DELTA ECHO FOXTROT GOLF HOTEL INDIA JULIETT KILO LIMA MIKE NOVEMBER "
    "OSCAR PAPA QUEBEC ROMEO SIERRA TANGO UNIFORM VICTOR WHISKEY XRAY YANKEE ZULU".split()
)
OTHER_NAMES: tuple[str, ...] = tuple(
    "OMEGA SIGMA THETA KAPPA LAMBDA GAMMA EPSILON ZETA IOTA UPSILON PHOENIX GRIFFIN HYDRA ORION "
    "VEGA SIRIUS RIGEL ALTAIR DENEB POLARIS ONYX QUARTZ TOPAZ JASPER OPAL GARNET AMBER RUBY "
    "EMERALD SAPPHIRE COBALT NICKEL ARGON NEON XENON RADON FALCON EAGLE RAVEN OSPREY HERON CONDOR "
    "TIGER PANTHER JAGUAR BADGER OTTER WALRUS MERCURY VENUS MARS JUPITER SATURN URANUS NEPTUNE "
    "PLUTO ATLAS TITAN HERMES APOLLO ARES ATHENA HERA ZEUS ODIN LOKI FREYA THOR NORTH SOUTH EAST "
    "WEST SUMMIT VALLEY CANYON RIVER ROOK BISHOP KNIGHT CASTLE".split()
)
_WORDS: tuple[str, ...] = tuple(
    "river stone cloud market engine window garden paper signal bridge copper forest harbor "
    "lantern meadow station report sector archive cabinet invoice pallet crate shelf valve pump "
    "sensor relay meter gauge filter cable panel batch order route depot carrier driver clerk "
    "officer teacher doctor farmer sailor pilot miner baker potter the a of and to in near was is "
    "were has been stored moved checked logged sealed opened counted shipped returned measured "
    "painted cleaned repaired replaced before after during under over beside between without with "
    "from by for on at green blue red yellow white black silver golden heavy light small large "
    "narrow wide quiet loud early late north south east west morning evening winter summer spring "
    "autumn monday tuesday friday sunday january march june october number value total level "
    "count code name target memory control local record entry item note line page table section "
    "chapter volume unit zone block row column level status normal pending closed active idle "
    "ready failed passed warm cold dry wet open shut full empty left right upper lower inner outer "
    "first second third last temperature pressure humidity weight length width height distance "
    "speed voltage current".split()
)
_CONSONANTS = (*"bcdfghjklmnprstvwz", "st", "tr", "ch", "sh", "pl", "gr", "th", "br")
_VOWELS = (*"aeiou", "ai", "ea", "ou", "io")
_DIGITS = "0123456789"


def digits(rng: random.Random, count: int) -> str:
    """`count` random decimal digits, leading zeros allowed."""
    return "".join(rng.choice(_DIGITS) for _ in range(count))


def _number(rng: random.Random) -> str:
    return digits(rng, rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6)))


def _syllables(rng: random.Random) -> str:
    word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3)))
    return word + (rng.choice(_CONSONANTS)[0] if rng.random() < 0.5 else "")


def _word(rng: random.Random) -> str:
    return rng.choice(_WORDS) if rng.random() < 0.75 else _syllables(rng)


def _name(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.55:
        return rng.choice(NATO_NAMES)
    if draw < 0.75:
        return rng.choice(OTHER_NAMES)
    return _syllables(rng).upper()


def _prefix(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.45:
        return "MEM"
    if draw < 0.6:
        return "CTL"
    return "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(3))


def plain_line(rng: random.Random) -> str:
    """One plain background record without its newline: never holds a name or a code."""
    draw = rng.random()

    def w() -> str:
        return _word(rng)

    if draw < 0.50:
        serial = digits(rng, rng.choice((4, 5, 6)))
        return (
            f"Record {serial}: the {w()} {w()} was {w()} near the {w()} in sector {_number(rng)}."
        )
    if draw < 0.77:
        return (
            f"{w().capitalize()} {w()} {w()} {_number(rng)} {w()} {w()}, "
            f"{w()} {_number(rng)} {w()}."
        )
    clock = ":".join(digits(rng, 2) for _ in range(3))
    return f"[{clock}] {w()} {w()} {w()}={_number(rng)} {w()}={w()} ok"


def _decoy_line(rng: random.Random) -> str:
    """One record that resembles a needle or is noise; only in the hard background."""

    def w() -> str:
        return _word(rng)

    def code() -> str:
        return f"{_prefix(rng)}-{digits(rng, 6)}"

    kind = rng.randrange(12)
    if kind == 0:
        head = f"{_name(rng)} {w()} {w()} at {_number(rng)} {w()}"
        return f"{head}; {_name(rng)} {w()} {digits(rng, 6)}."
    if kind == 1:
        return f"Item {_number(rng)} | {w()} {w()} | {code()} | {w()} | qty {_number(rng)}"
    if kind == 2:
        head = f"Log {digits(rng, 5)} {_name(rng)}-{digits(rng, 2)}"
        return f"{head}: {w()} {w()} {w()} ref {code()}."
    if kind == 3:
        head = rng.choice(("Note", "Memo", "NOTICE", "INFO"))
        return f"{head}: TARGET {_name(rng)} {w()} {w()} {w()} {_number(rng)}."
    if kind == 4:
        return f"{w().capitalize()} code {digits(rng, 6)} {w()} {w()} CODE {code()} {w()}."
    if kind == 5:
        return f"{w()} {w()} CODE={code()} {w()} {w()}"
    if kind == 6:
        return f"MEMORY {w()} {w()} {_name(rng)} {_number(rng)} {w()} LOCAL {w()} {_name(rng)}."
    if kind == 7:
        return f"{_name(rng)} {_name(rng)} {_name(rng)} {w()} {digits(rng, 3)} {_name(rng)} {w()}"
    if kind == 8:
        return f'{{"{w()}": {_number(rng)}, "{w()}": "{w()} {w()}", "id": {_number(rng)}}}'
    if kind == 9:
        count = rng.randint(8, 16)
        return " ".join(w() if rng.random() < 0.8 else _number(rng) for _ in range(count))
    if kind == 10:
        count = rng.randint(10, 24)
        noise = "".join(
            chr(rng.choice((rng.randint(33, 126), rng.randint(33, 126), rng.randint(161, 900))))
            + (" " if rng.random() < 0.2 else "")
            for _ in range(count)
        )
        return noise.strip().replace("<", "(")
    words = f"{w().upper()} {w().upper()} {_number(rng)}"
    return f"{'-' * rng.randint(3, 12)} {words} {'=' * rng.randint(2, 9)}"


def lines(rng: random.Random, background: Background) -> Iterator[str]:
    """Endless background records, each ending in one newline.

    The newline is where tokenisation can be cut: no record begins with white space, so byte-pair
    tokenizers never merge across it and token counts of records add up.
    """
    while True:
        hard = background == "hard" and rng.random() < 0.56
        yield (_decoy_line(rng) if hard else plain_line(rng)) + "\n"
