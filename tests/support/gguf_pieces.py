"""GGUF files cut into their pieces, changed in one place or several, and put together again."""

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

ALIGNMENT = 32
STRING, ARRAY = 8, 9
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

# What numbers go wrong at.
EDGES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 255, 256,
         4096, 4097, 65_535, 65_536, 2**20, 2**22 + 1, 2**26 + 1, 2**31 - 1, 2**31, 2**32 - 1,
         2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-5, 0.5, 3e38, -3e38, float("inf"), float("-inf"),
         float("nan"))  # fmt: skip
# float16: infinite, no number, the greatest, the smallest; of both signs.
HALVES = (0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7BFF, 0xFBFF, 0x0001, 0x8001, 0x7000, 0xF000, 0x0000)
TEXTS = (b"", b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"a" * 300, b"general.alignment", b"<0x41>",
         "\u2581\U0001f331".encode(), b"llama", b"qwen3", b"gpt2", b"$A", b"$B:3", b"{{ x", b" ",
         b"[:1", b"{% for i in x %}", b"{{ 1" + b"0" * 5000 + b" }}", b"a:b:c",
         b"{{" + b"(" * 900 + b"}}", b"\xef\xbf\xbd" * 40)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes that belong together, and what they are."""

    what: str
    raw: bytes


@dataclass(slots=True)
class Pieces:
    """A file; `fields` and `tensors` hold the pieces of each entry."""

    head: list[Piece]
    fields: list[list[Piece]] = field(default_factory=list)
    tensors: list[list[Piece]] = field(default_factory=list)
    data: bytes = b""
    counts_hold: bool = True

    def header(self) -> list[Piece]:
        """All pieces before the data; what is counted is what is there, if `counts_hold`."""
        head = list(self.head)
        if self.counts_hold:
            counts = (len(self.tensors), len(self.fields))
            head[2:4] = [Piece("count", struct.pack("<Q", count)) for count in counts]
        return [*head, *(p for entry in (*self.fields, *self.tensors) for p in entry)]

    def join(self) -> bytes:
        """The bytes of the file, padded to where the data begin."""
        header = b"".join(piece.raw for piece in self.header())
        return header + bytes(-len(header) % ALIGNMENT) + self.data


class _Knife:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def cut(self, what: str, size: int) -> Piece:
        self.at += size
        return Piece(what, self.raw[self.at - size : self.at])

    def number(self, what: str, size: int = 8) -> tuple[Piece, int]:
        piece = self.cut(what, size)
        return piece, int.from_bytes(piece.raw, "little")

    def text(self, what: str) -> list[Piece]:
        length, size = self.number("length")
        return [length, self.cut(what, size)]

    def value(self) -> list[Piece]:
        type_piece, type_id = self.number("type", 4)
        if type_id == STRING:
            return [type_piece, *self.text("text")]
        if type_id != ARRAY:
            return [type_piece, self.cut("number", WIDTHS[type_id])]
        inner, inner_id = self.number("type", 4)
        length, size = self.number("length")
        found = [type_piece, inner, length]
        for _ in range(size):
            if inner_id == STRING:
                found += self.text("text")
            else:
                found.append(self.cut("number", WIDTHS[inner_id]))
        return found

    def tensor(self) -> list[Piece]:
        found = self.text("name")
        dimensions, count = self.number("dimensions", 4)
        found.append(dimensions)
        found += [self.cut("dimension", 8) for _ in range(count)]
        return [*found, self.cut("type", 4), self.cut("offset", 8)]


def take_apart(raw: bytes) -> Pieces:
    """Cut a good file into its pieces."""
    knife = _Knife(raw)
    head = [knife.cut("magic", 4), knife.cut("version", 4)]
    tensors, num_tensors = knife.number("count")
    fields, num_fields = knife.number("count")
    pieces = Pieces([*head, tensors, fields])
    pieces.fields = [[*knife.text("name"), *knife.value()] for _ in range(num_fields)]
    pieces.tensors = [knife.tensor() for _ in range(num_tensors)]
    pieces.data = raw[knife.at + -knife.at % ALIGNMENT :]
    return pieces


def spoil(pieces: Pieces, random: Random) -> bytes:
    """Change a copy in one place or several; the bytes of what has become of it."""
    changed = dataclasses.replace(
        pieces,
        head=list(pieces.head),
        fields=[list(entry) for entry in pieces.fields],
        tensors=[list(entry) for entry in pieces.tensors],
    )
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_CHANGES)(changed, random)
    raw = changed.join()
    return random.choice(_LAST)(changed, raw, random) if random.random() < 0.3 else raw


def _one_number(pieces: Pieces, random: Random) -> None:
    """A count, length, type, dimension, offset or value of its own width, whatever that breaks."""
    entries = [pieces.head, *pieces.fields, *pieces.tensors]
    entry = random.choice(entries)
    places = [n for n, piece in enumerate(entry) if piece.what not in ("name", "text", "magic")]
    place = random.choice(places)
    old = entry[place]
    if entry is pieces.head and place > 1:
        pieces.counts_hold = False
    near = int.from_bytes(old.raw, "little") + random.choice((-1, 1))
    value = random.choice((near, random.choice(EDGES))) % (1 << 8 * len(old.raw))
    entry[place] = Piece(old.what, value.to_bytes(len(old.raw), "little"))


def _one_text(pieces: Pieces, random: Random) -> None:
    """A name or text that is another one, of the length that it says, or nearly."""
    entry = random.choice([*pieces.fields, *pieces.tensors])
    places = [n for n, piece in enumerate(entry) if piece.what in ("name", "text")]
    place = random.choice(places)
    others = [e[1].raw for e in (*pieces.fields, *pieces.tensors)]
    raw = random.choice((random.choice(TEXTS), random.choice(others), entry[place].raw[:-1]))
    _put_text(entry, place, raw, random.choice((0, 0, 0, 0, 1)))


def _put_text(entry: list[Piece], place: int, raw: bytes, beyond: int = 0) -> None:
    entry[place - 1] = Piece("length", struct.pack("<Q", len(raw) + beyond))
    entry[place] = Piece(entry[place].what, raw)


def _one_value(pieces: Pieces, random: Random) -> None:
    """A field whose value is of any type, and whole."""
    entry = random.choice(pieces.fields)
    entry[2:] = _any_value(random)


def _alignment(pieces: Pieces, random: Random) -> None:
    """A field for the alignment, of any type."""
    name = [Piece("length", struct.pack("<Q", 17)), Piece("name", b"general.alignment")]
    pieces.fields.append([*name, *_any_value(random)])


def _any_value(random: Random) -> list[Piece]:
    type_id = random.choice((*WIDTHS, STRING, ARRAY, ARRAY))
    if type_id != ARRAY:
        return [Piece("type", struct.pack("<I", type_id)), *_any_scalar(type_id, random)]
    found, depth = [], random.choice((1, 1, 1, 2, 9))
    for _ in range(depth):
        count = random.choice((0, 1, 2, 3, 40, 5000)) if depth == 1 else 1
        inner = ARRAY if depth > 1 else random.choice((*WIDTHS, STRING))
        found += [Piece("type", struct.pack("<I", ARRAY)), Piece("type", struct.pack("<I", inner))]
        found.append(Piece("length", struct.pack("<Q", count)))
        found += [p for _ in range(count) if inner != ARRAY for p in _any_scalar(inner, random)]
    return found


def _any_scalar(type_id: int, random: Random) -> list[Piece]:
    if type_id == STRING:
        raw = random.choice(TEXTS)
        return [Piece("length", struct.pack("<Q", len(raw))), Piece("text", raw)]
    width = WIDTHS[type_id]
    if type_id in (6, 12):
        return [Piece("number", struct.pack("<f" if width == 4 else "<d", random.choice(REALS)))]
    value = random.choice(EDGES) % (1 << 8 * width)
    return [Piece("number", value.to_bytes(width, "little"))]


def _entries(pieces: Pieces, random: Random) -> None:
    """An entry that is gone, there twice, or elsewhere."""
    entries = random.choice((pieces.fields, pieces.tensors))
    if not entries:
        return
    entry = random.choice(entries)
    match random.choice(("gone", "twice", "moved")):
        case "gone":
            entries.remove(entry)
        case "twice":
            entries.append(list(entry))
        case "moved":
            entries.remove(entry)
            entries.insert(random.randrange(len(entries) + 1), entry)
    pieces.counts_hold = random.choice((True, True, True, False))


def _place_of_tensor(pieces: Pieces, random: Random) -> None:
    """A tensor that lies where another does, beside its place, or outside of the file."""
    if not pieces.tensors:
        return
    entry = random.choice(pieces.tensors)
    old = int.from_bytes(entry[-1].raw, "little")
    other = int.from_bytes(random.choice(pieces.tensors)[-1].raw, "little")
    places = (other, old + 1, old + 32, old - 32, len(pieces.data) - 1, len(pieces.data), 2**64 - 1)
    entry[-1] = Piece("offset", struct.pack("<Q", random.choice(places) % 2**64))


def _shape_of_tensor(pieces: Pieces, random: Random) -> None:
    """A tensor of other dimensions, of as many values or not, or of another type."""
    if not pieces.tensors:
        return
    entry = random.choice(pieces.tensors)
    dimensions = entry[3:-2]
    match random.choice(("turned", "longer", "edge", "type")):
        case "turned":
            dimensions = dimensions[::-1]
        case "longer":
            dimensions = [*dimensions, Piece("dimension", struct.pack("<Q", 1))]
        case "edge":
            place = random.randrange(max(1, len(dimensions)))
            dimensions[place : place + 1] = [
                Piece("dimension", struct.pack("<Q", random.choice(EDGES)))
            ]
        case "type":
            entry[-2] = Piece("type", struct.pack("<I", random.randrange(42)))
    entry[2:-2] = [Piece("dimensions", struct.pack("<I", len(dimensions))), *dimensions]


def _scales(pieces: Pieces, random: Random) -> None:
    """Numbers of 16 bits that are infinite, none, or at an end, all over the data or in part."""
    data = bytearray(pieces.data)
    for _ in range(random.choice((1, 20, 2000))):
        at = random.randrange(max(1, len(data) // 2)) * 2
        data[at : at + 2] = struct.pack("<H", random.choice(HALVES))
    pieces.data = bytes(data[: len(pieces.data)])


def _cut(pieces: Pieces, raw: bytes, random: Random) -> bytes:
    """Short of the end of a piece by a byte, at it, or behind it."""
    borders = [0]
    for piece in pieces.header():
        borders.append(borders[-1] + len(piece.raw))
    border = random.choice((*borders, len(raw))) + random.choice((-1, 0, 1))
    return raw[: max(0, border)]


def _flipped(pieces: Pieces, raw: bytes, random: Random) -> bytes:
    """Some bytes changed, in the header or anywhere."""
    changed = bytearray(raw)
    end = random.choice((len(raw), len(raw) - len(pieces.data)))
    for _ in range(random.randint(1, 8)):
        changed[random.randrange(max(1, min(end, len(raw))))] = random.randrange(256)
    return bytes(changed)


def _longer(pieces: Pieces, raw: bytes, random: Random) -> bytes:
    """Bytes behind the end."""
    return raw + bytes(random.choice((1, 31, 4096)))


_CHANGES: tuple[Callable[[Pieces, Random], None], ...] = (
    _one_number,
    _one_number,
    _one_text,
    _one_value,
    _alignment,
    _entries,
    _place_of_tensor,
    _shape_of_tensor,
    _scales,
)
_LAST: tuple[Callable[[Pieces, bytes, Random], bytes], ...] = (_cut, _flipped, _longer)
