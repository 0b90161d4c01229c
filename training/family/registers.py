"""The Gated-DeltaNet member: eight registers held in the recurrent state, listed when asked.

`Let S= DELTA KILO` writes the names into the state of the first layer: the convolution finds the
register two or three tokens before a name, and the delta rule puts the name in the old one's
place. `!` decays all registers to nothing. Value head 0 holds first names, head 2 second ones, both
read by the first key head; heads 1 and 3 know which register the answer lists next. Each reading is
held against a fixed share (`NOTHING`) written at the same step, so that a state which has lost half
of itself reads as empty.
"""

import numpy as np

from harness.questions.background import NATO_NAMES
from harness.questions.registers import EMPTY, REGISTERS
from training.family.architectures import GATED_DELTA_NET
from training.family.features import CONST, Features, Matrix, blank, shares

_NAMES = tuple(f"Ġ{name}" for name in NATO_NAMES)
_IS, _LINE, _START, _FORGET, _END = "=", "Ċ", "<|im_start|>", "!", "<|im_end|>"
_NOTHING = "nothing"
_FIRST, _SECOND = "first", "second"
_LAG = 3  # the convolution's last tap is the token itself, lag 0

_HELD, _NOTHING_HELD = 16.0, 8.0
_NEXT = dict(zip(REGISTERS, (*REGISTERS[1:], _END), strict=True))
_CURSOR = {1: REGISTERS[:4], 3: (*REGISTERS[4:], _END)}
"""What comes next in the answer, by the value head that holds it."""


def weights(tokens: list[str]) -> dict[str, Matrix]:
    """All tensors, for a vocabulary in which names, registers and signs are one token each."""
    a = GATED_DELTA_NET
    seen = [CONST, *(f"is {r}" for r in REGISTERS), *_NAMES, _IS, _LINE, EMPTY, _START, _FORGET]
    said = [f"say {t}" for t in (*_NAMES, *REGISTERS, _IS, _LINE, EMPTY, _END)]
    f = Features(a.width, [*seen, "is name", *said])
    own = {t: (t,) for t in (_IS, _LINE, EMPTY, _START, _FORGET)}
    own |= {name: (name,) for name in _NAMES}
    own |= {form: (f"is {r}",) for r in REGISTERS for form in (r, f"Ġ{r}")}
    found = blank(a)
    found["token_embd.weight"] = f.embedding(tokens, own)
    found["output.weight"] = _output(f, tokens)
    return found | {f"blk.0.{name}": value for name, value in _layer(f).items()}


def _output(f: Features, tokens: list[str]) -> Matrix:
    """What the state says, and what follows from the token alone: `=` after a register."""
    rows = np.zeros((len(tokens), GATED_DELTA_NET.width), np.float32)
    for token in (*_NAMES, *REGISTERS, _LINE, EMPTY, _END):
        rows[tokens.index(token), f[f"say {token}"]] = 4.0
    rows[tokens.index(_IS)] += f.row({f"is {r}": 48.0 for r in REGISTERS})
    rows[tokens.index(_LINE)] += f.row({EMPTY: 48.0})
    return rows


def _layer(f: Features) -> dict[str, Matrix]:
    a = GATED_DELTA_NET
    size, keys, heads = (
        a.number(f"ssm.{n}") for n in ("state_size", "group_count", "time_step_rank")
    )
    channels = (2 * keys + heads) * size
    qkv = np.zeros((channels, a.width), np.float32)
    conv = np.zeros((channels, 4), np.float32)

    def channel(at: int, levels: dict[str, float], lag: int) -> None:
        qkv[at], conv[at, _LAG - lag] = f.row(levels), 1.0

    q_at, k_at, v_at = 0, keys * size, 2 * keys * size
    slots = [(half, r) for half in (_FIRST, _SECOND) for r in REGISTERS]
    rows = shares(size, [*map(str, slots), _NOTHING], seed=2)
    for half, register in slots:
        for row in rows[str((half, register))]:
            lag = 1 if half == _FIRST else 2
            channel(q_at + row, {f"is {register}": 8.0}, lag)
            channel(k_at + row, {f"is {register}": 8.0}, lag + 1)
    # As long as a register's own part, which has as many channels (about).
    for row in rows[_NOTHING]:
        channel(q_at + row, {CONST: 8.0}, 0)
        channel(k_at + row, {_IS: 8.0}, 0)
    for row in range(size, 2 * size):  # the second key head has one slot
        channel(q_at + row, {CONST: 8.0}, 0)
        channel(k_at + row, {CONST: 8.0}, 0)

    out = np.zeros((a.width, heads * size), np.float32)
    gate = np.zeros((heads * size, a.width), np.float32)
    opens = {0: {_IS: 20.0}, 1: {_LINE: 20.0}, 2: dict.fromkeys(_NAMES, 20.0), 3: {_LINE: 20.0}}
    for head, levels in opens.items():
        gate[head * size : (head + 1) * size] = f.row({CONST: -14.0, **levels})

    def says(head: int, token: str, columns: np.ndarray) -> None:
        out[f[f"say {token}"], head * size + columns] = 0.3 / np.sqrt(len(columns))

    for head, nothing in ((0, EMPTY), (2, _LINE)):
        codes = shares(size, [*_NAMES, _NOTHING], seed=3 + head)
        for name in _NAMES:
            level = _HELD / np.sqrt(len(codes[name])) * 2
            for column in codes[name]:
                channel(v_at + head * size + column, {name: level}, 0)
            says(head, name, codes[name])
        level = _NOTHING_HELD / np.sqrt(len(codes[_NOTHING])) * 2
        for column in codes[_NOTHING]:
            channel(v_at + head * size + column, {_IS: level}, 0)
        says(head, nothing, codes[_NOTHING])
    before = {after: register for register, after in _NEXT.items()}
    for head, listed in _CURSOR.items():
        codes = shares(size, listed, seed=3 + head)
        for token in listed:
            for column in codes[token]:
                at = v_at + head * size + column
                if token == REGISTERS[0]:
                    channel(at, {_START: 8.0}, 0)
                else:
                    channel(at, {f"is {before[token]}": 8.0}, 1)
            says(head, token, codes[token])

    held = f.row({CONST: -30.0, _IS: 60.0, **dict.fromkeys(_NAMES, 60.0)})
    cursor = f.row({CONST: -30.0, _IS: 60.0, _START: 60.0})
    forget, never = f.row({_FORGET: 80.0}), np.zeros(a.width, np.float32)
    return {
        "attn_qkv.weight": qkv,
        "ssm_conv1d.weight": conv,
        "attn_gate.weight": gate,
        "ssm_out.weight": out,
        "ssm_beta.weight": np.stack([held, cursor, held, cursor]),
        "ssm_alpha.weight": np.stack([forget, never, forget, never]),
        "ssm_dt.bias": np.full(heads, -20.7, np.float32),  # a decay of 1e-9 a token
        "ssm_a": np.full(heads, -1.0, np.float32),
    }
