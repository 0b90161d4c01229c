"""Training samples: episodes packed with background lines into fixed-length token arrays.

Positions are not made here: the arrays mark where records start, and the trainer draws the gaps
(see `training.model.draw_positions`).
"""

import random
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from harness.questions.background import Background, lines
from harness.questions.needles import Needle, Question
from training.episodes import Episode, Turn, make_episode
from training.tokenizer import IM_END, IM_START, PAD

ANSWER_ROWS = 116
"""Supervised answer tokens of one sample, at most; samples with more are drawn again."""

BACKGROUND, START, ANSWER = 1, 2, 4
"""Bits of the flags: background token, first token of a record, token of an answer."""

AUX_COLUMNS = 5
"""Query row, first and last row of the question's mark, row of the code token or -1, step.

Step 0 to 10 counts tokens within a code, 11 and 12 within a question's number."""

NUMBER_STEP = 11
STEPS = 13
_TOKENS_PER_RECORD = 26
_TAIL_TOKENS = 340


@dataclass(slots=True)
class _Pool:
    """Background lines as one flat token array with offsets; refreshed piece by piece."""

    flat: NDArray[np.int16]
    offsets: NDArray[np.int64]


@dataclass(slots=True)
class Batch:
    """`tokens` [B, T+1], `flags` [B, T+1], `aux` [B, ANSWER_ROWS, AUX_COLUMNS] (-1: no row)."""

    tokens: NDArray[np.int16]
    flags: NDArray[np.uint8]
    aux: NDArray[np.int16]


class Packer:
    """Makes samples; one per worker, a function of its seed alone."""

    def __init__(self, tokenizer: Tokenizer, seed: int, pool_lines: int = 8000) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(f"samples/{seed}")
        self._np = np.random.default_rng(seed)
        self._memo: dict[str, list[int]] = {}
        self._pool_lines = pool_lines
        self._pools: dict[Background, _Pool] = {}
        self._made = 0
        self._digit = [self._ids(d)[0] for d in "0123456789"]
        self._newline = self._ids("\n")[0]
        known = tokenizer.get_vocab(with_added_tokens=True)
        self._start, self._end, self.pad = (known[name] for name in (IM_START, IM_END, PAD))

    def batch(self, size: int, length: int, easy: float) -> Batch:
        """`size` samples of `length` inputs; `easy` is the share of easy episodes."""
        tokens = np.full((size, length + 1), self.pad, np.int16)
        flags = np.zeros((size, length + 1), np.uint8)
        aux = np.full((size, ANSWER_ROWS, AUX_COLUMNS), -1, np.int16)
        for row in range(size):
            while not self._fill(tokens[row], flags[row], aux[row], length + 1, easy):
                pass
        return Batch(tokens, flags, aux)

    def _ids(self, text: str) -> list[int]:
        found = self._memo.get(text)
        if found is None:
            found = self._tokenizer.encode(text).ids
            if len(self._memo) < 100_000:
                self._memo[text] = found
        return found

    def _code(self, code: str) -> list[int]:
        prefix, number = code.split("-")
        return [*self._ids(prefix), *self._ids("-"), *(self._digit[int(d)] for d in number)]

    def _needle(self, needle: Needle) -> tuple[list[int], int]:
        """Token ids and the index of the code's first token."""
        text = needle.text
        at = text.rindex(needle.code)
        head = self._ids(text[:at])
        return [*head, *self._code(needle.code), *self._ids(text[at + len(needle.code) :])], len(
            head
        )

    def _question(self, question: Question) -> tuple[list[int], int]:
        """Token ids and the index of the first token after the label."""
        text = question.text
        label = question.needle.label
        at = text.index(label) + len(label)
        head = self._tokenizer.encode(text[:at]).ids
        return [*head, *self._ids(text[at:])], len(head)

    def _fill(
        self,
        tokens: NDArray[np.int16],
        flags: NDArray[np.uint8],
        aux: NDArray[np.int16],
        length: int,
        easy: float,
    ) -> bool:
        rng = self._rng
        most = max(3, (length - _TAIL_TOKENS) // _TOKENS_PER_RECORD)
        episode = make_episode(rng, max_records=min(64, most), easy=rng.random() < easy)
        head = self._head(episode)
        records = [self._needle(record) for record in episode.records]
        tail = _Tail(self, episode)
        fixed = len(head) + sum(len(ids) for ids, _ in records) + len(tail.ids)
        if fixed > length or len(tail.rows) > ANSWER_ROWS:
            return False
        room = length - fixed
        if rng.random() < 0.15:
            room = rng.randint(0, room)
        background: Background = "hard" if rng.random() < 0.5 else "plain"
        document, code_rows = self._document(room, records, background, tokens, flags, len(head))
        tokens[: len(head)] = head
        base = document
        tokens[base : base + len(tail.ids)] = tail.ids
        flags[base] = START
        flags[base : base + len(tail.ids)] |= np.where(tail.is_answer, ANSWER, 0).astype(np.uint8)
        where = dict(zip((r.label for r in episode.records), code_rows, strict=True))
        for row, (query, first, last, needle, own_row, step) in enumerate(tail.rows):
            code_row = -1
            if step < NUMBER_STEP:
                code_row = (base + own_row if own_row >= 0 else where[needle.label]) + step
                assert tokens[code_row] == tokens[base + query + 1]
            aux[row] = (base + query, base + first, base + last, code_row, step)
        return True

    def _head(self, episode: Episode) -> list[int]:
        ids: list[int] = []
        if episode.system is not None:
            ids += self._message("system", episode.system)
        ids += [self._start, *self._ids("user"), self._newline]
        if episode.heading:
            ids += self._ids(episode.heading)
        return ids

    def _message(self, role: str, text: str) -> list[int]:
        body = self._ids(text)
        return [self._start, *self._ids(role), self._newline, *body, self._end, self._newline]

    def _document(
        self,
        room: int,
        records: list[tuple[list[int], int]],
        background: Background,
        tokens: NDArray[np.int16],
        flags: NDArray[np.uint8],
        at: int,
    ) -> tuple[int, list[int]]:
        """Write background and records from row `at`; the next free row and each code's row."""
        pool = self._pool(background)
        offsets = pool.offsets
        first = self._rng.randrange(len(offsets) - 202)
        count = int(np.searchsorted(offsets, offsets[first] + room, side="right")) - 1 - first
        count = max(0, min(count, 200))
        slots = sorted(self._rng.randint(0, count) for _ in records)
        code_rows = []
        done = 0
        for slot, (ids, code_at) in zip([*slots, count], [*records, ([], 0)], strict=True):
            if slot > done:
                a, b = offsets[first + done], offsets[first + slot]
                size = int(b - a)
                tokens[at : at + size] = pool.flat[a:b]
                flags[at : at + size] = BACKGROUND
                flags[at + (offsets[first + done : first + slot] - a)] |= START
                at += size
                done = slot
            if ids:
                tokens[at : at + len(ids)] = ids
                flags[at] |= START
                code_rows.append(at + code_at)
                at += len(ids)
        return at, code_rows

    def _pool(self, background: Background) -> _Pool:
        """The pool of that background; every 64th sample replaces it by fresh lines in part."""
        self._made += 1
        pool = self._pools.get(background)
        if pool is None:
            pool = self._encode(background, self._pool_lines)
            self._pools[background] = pool
        elif self._made % 64 == 0:
            fresh = self._encode(background, 400)
            cut = int(pool.offsets[400])
            flat = np.concatenate([pool.flat[cut:], fresh.flat])
            offsets = np.concatenate(
                [pool.offsets[400:] - cut, fresh.offsets[1:] + (len(pool.flat) - cut)]
            )
            pool = _Pool(flat, offsets)
            self._pools[background] = pool
        return pool

    def _encode(self, background: Background, count: int) -> _Pool:
        text = list(islice(lines(self._rng, background), count))
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(text)]
        offsets = np.cumsum([0, *map(len, ids)])
        return _Pool(np.fromiter((i for line in ids for i in line), np.int16), offsets)


class _Tail:
    """Everything after the document as tokens: turns and answers, and what supervises them.

    `rows` hold (query row, mark's first row, mark's last row, needle, the code's row when the
    record itself is in the tail or -1, step), rows counted from the tail's start.
    """

    def __init__(self, packer: Packer, episode: Episode) -> None:
        self.ids: list[int] = []
        self.is_answer: list[bool] = []
        self.rows: list[tuple[int, int, int, Needle, int, int]] = []
        self._control: tuple[Needle, int] | None = None
        self._packer = packer
        for index, turn in enumerate(episode.turns):
            if index:
                self._add([packer._newline, packer._start, *packer._ids("user"), packer._newline])
            marks = self._parts(turn)
            opening = [packer._start, *packer._ids("assistant"), packer._newline]
            self._add([packer._end, packer._newline, *opening])
            self._answer(turn, marks)

    def _add(self, ids: list[int], answer: bool = False) -> int:
        at = len(self.ids)
        self.ids += ids
        self.is_answer += [answer] * len(ids)
        return at

    def _parts(self, turn: Turn) -> list[tuple[int, int, int]]:
        """Per question: row of its number's first digit, mark's first and last row."""
        packer = self._packer
        marks = []
        for part in turn.parts:
            if isinstance(part, Needle):
                ids, code_at = packer._needle(part)
                self._control = (part, self._add(ids) + code_at)
            elif isinstance(part, Question):
                ids, mark = packer._question(part)
                at = self._add(ids)
                marks.append((at + 1, at + mark, at + min(mark + 2, len(ids) - 1)))
            else:
                self._add(packer._ids(part))
        if self.ids[-1] == packer._newline:
            self.ids.pop()
            self.is_answer.pop()
            number, first, last = marks[-1]
            marks[-1] = (number, first, min(last, len(self.ids) - 1))
        return marks

    def _answer(self, turn: Turn, marks: list[tuple[int, int, int]]) -> None:
        packer = self._packer
        for index, (question, (number_at, first, last)) in enumerate(
            zip(turn.questions, marks, strict=True)
        ):
            self._add([*([packer._newline] if index else []), *packer._ids("Q")], answer=True)
            at = len(self.ids)
            number = [packer._digit[int(d)] for d in str(question.number)]
            self._add(number, answer=True)
            for step in range(len(number)):
                mark = number_at + step
                row = (at - 1 + step, mark, mark, question.needle, -1, NUMBER_STEP + step)
                self.rows.append(row)
            self._add(packer._ids("="), answer=True)
            at = len(self.ids)
            code = packer._code(question.needle.code)
            self._add(code, answer=True)
            own = -1
            if self._control is not None and question.needle is self._control[0]:
                own = self._control[1]
            for step in range(len(code)):
                self.rows.append((at - 1 + step, first, last, question.needle, own, step))
        self._add([packer._end], answer=True)
