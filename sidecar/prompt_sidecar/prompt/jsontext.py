"""JSON as text: strict decoding, a canonical form for comparison, and edits that keep all other bytes.

msgspec finds raw slices without decoding them; orjson decodes strictly (no NaN, no lone surrogates, no broken UTF-8,
bounded depth). Neither rejects duplicate keys, which are found by counting: each key has a colon outside strings, so a
text with more of those than its decoded value has keys contains a duplicate. The cost of decoding is estimated first
(`structure`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import AmbiguousJson, InvalidJson
from prompt_sidecar.prompt.items import Path
from prompt_sidecar.prompt.long_strings import decode_in_pieces
from prompt_sidecar.prompt.structure import check_decoding, shape

DIGEST_BYTES: Final = 16
"""128 bits of SHA-256: finding two messages with the same identity takes 2^64 attempts."""

MAX_DEPTH: Final = 254
"""Most levels that orjson writes; it reads four times as many, and no provider's schema needs them."""

WRITTEN_BYTES: Final = 1_048_576
"""Longest text that is written again after decoding, for comparison."""

PIECE_CHARACTERS: Final = 262_144
"""Characters of a string that are brought into canonical form at once."""

_AMBIGUOUS: Final = ("surrogate in string", "infinity when parsed as double")
"""Ends of orjson's messages for a lone surrogate, which distinguishes it from invalid UTF-8, and for a number too
large."""
_STYLE_BYTES: Final = 64
"""Bytes of a text that are searched for spaces after colons, as Python's json writes them."""
_UNUSUAL: Final = (b'\\\\":', b" :", b"\t:", b"\r:", b"\n:")
"""Keys that end with a backslash, and white space before a colon."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


class _Decoded(threading.local):
    """The last long text that was decoded in this thread, within `decoded_once`."""

    keeps = False
    text: bytes | memoryview | None = None
    value: Any = None


_DECODED: Final = _Decoded()


@contextmanager
def decoded_once() -> Iterator[None]:
    """Within this context, a long text passed to `load` twice in a row, as the same object, is decoded once.

    Decoding ten megabytes takes 40 ms. The decoded value must not be changed.
    """
    _DECODED.keeps = True
    try:
        yield
    finally:
        _DECODED.keeps, _DECODED.text, _DECODED.value = False, None, None


def load(raw: bytes | memoryview, field: str) -> Any:
    """Decode strictly. A view must be of a long text.

    Raises:
        InvalidJson: not JSON, a NaN, broken UTF-8, or nested too deeply; names `field`.
        AmbiguousJson: a lone surrogate, a duplicate key, or a number that no double holds; names `field`.
        TooLarge: decoding it would take too much memory for its size; names `field`.
    """
    if len(raw) > WRITTEN_BYTES:
        return _load_long(raw, field)
    raw = bytes(raw)
    check_decoding(raw, field)
    value = _decode(raw, field)
    # Compact JSON mostly equals its decoded value encoded again; then no duplicate key was lost in decoding.
    try:
        if raw.find(b'": ', 0, _STYLE_BYTES) >= 0 or orjson.dumps(value) != raw:
            _refuse_double_keys(raw, value, field)
    except (TypeError, RecursionError):  # too deep for orjson's writer or for Python's stack
        raise too_deep(field) from None
    return value


def _load_long(raw: bytes | memoryview, field: str) -> Any:
    """Decode a long text.

    Encoding it again would take twice its bytes, and a search for marks takes ten times as long as reading its
    structure, which limits the cost of decoding and counts the keys.
    """
    if _DECODED.text is raw:
        return _DECODED.value
    _DECODED.text = _DECODED.value = None  # not two at a time
    structure = shape(raw)
    check_decoding(raw, field, structure)
    value = decode_in_pieces(raw, structure.within)
    if value is None:
        value = _decode(raw, field)
    try:
        _refuse_other_keys(structure.colons, value, field)
    except RecursionError:
        raise too_deep(field) from None
    if _DECODED.keeps:
        _DECODED.text, _DECODED.value = raw, value
    return value


def _decode(raw: bytes | memoryview, field: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise_if_out_of_memory(error)
        kind = AmbiguousJson if error.msg.endswith(_AMBIGUOUS) else InvalidJson
        raise kind(f"{field} is not strict JSON: {_reason(error)} at byte {error.pos}", field=field) from None


def raise_if_out_of_memory(error: orjson.JSONDecodeError) -> None:
    """Raise MemoryError if the library ran out of memory, which is not an error of the text."""
    if "memory" in error.msg.lower():
        raise MemoryError from None


def load_again(raw: bytes | memoryview) -> Any:
    """Decode a text that `load` has accepted before."""
    return orjson.loads(raw)


def canonical(value: Any, field: str = "json.body") -> bytes:
    """Return the same bytes for all texts with the same decoded value: sorted keys, numbers as JavaScript's doubles.

    Raises:
        InvalidJson: nested more deeply than can be written; names `field`.
    """
    try:
        if type(value) is not dict or not all(type(member) is str for member in value.values()):
            value = _doubles(value)
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        raise too_deep(field) from None


def digest(canonical_bytes: bytes) -> bytes:
    """Return the identity of a canonical text."""
    return sha256(canonical_bytes).digest()[:DIGEST_BYTES]


def identity(value: Any) -> bytes:
    """Return `digest(canonical(value))`, without copying long strings: each would take twice its bytes.

    Raises:
        InvalidJson: nested more deeply than can be written.
    """
    try:
        if not _is_long(value):
            return digest(canonical(value))
        _keys(value)  # to check the depth
        hashed = sha256()
        long: set[int] = set()
        _find_long(value, long)
        _write_canonical(value, long, hashed.update)
    except RecursionError:
        raise too_deep("json.body") from None
    return hashed.digest()[:DIGEST_BYTES]


def _is_long(value: Any) -> bool:
    """Whether a string in a value is long."""
    kind = type(value)
    if kind is str:
        return len(value) > PIECE_CHARACTERS
    if kind is dict:
        return any(map(_is_long, value.values()))
    return kind is list and any(map(_is_long, value))


def _find_long(value: Any, found: set[int]) -> bool:
    """As `_is_long`; adds the `id` of each long part to `found`, in one walk over all of them."""
    kind = type(value)
    if kind is str:
        is_long = len(value) > PIECE_CHARACTERS
    else:
        parts = value.values() if kind is dict else value if kind is list else ()
        is_long = sum(_find_long(part, found) for part in parts) > 0
    if is_long:
        found.add(id(value))
    return is_long


def _write_canonical(value: Any, long: Collection[int], write: Callable[[bytes], object]) -> None:
    """Write the canonical text of a value, long strings in pieces; `long` has the `id` of each part with one."""
    kind = type(value)
    if id(value) not in long:
        write(canonical(value))
    elif kind is str:
        write(b'"')
        for at in range(0, len(value), PIECE_CHARACTERS):
            write(orjson.dumps(value[at : at + PIECE_CHARACTERS])[1:-1])
        write(b'"')
    else:
        between, end = (b"{", b"}") if kind is dict else (b"[", b"]")
        for key in sorted(value) if kind is dict else range(len(value)):
            write(between)
            if kind is dict:
                write(orjson.dumps(key) + b":")
            _write_canonical(value[key], long, write)
            between = b","
        write(end)


class ValuesByPath:
    """The values of a text, by their paths. Each array and object on the way is read once for all of them together."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._inside: dict[Path, Any] = {}
        """Elements or members of the arrays and objects that were read: views of the text."""

    def at(self, path: Path) -> bytes:
        """Return the raw JSON of the value at `path`."""
        return bytes(self._view(path))

    def _view(self, path: Path) -> bytes | msgspec.Raw:
        if not path:
            return self._raw
        above, step = path[:-1], path[-1]
        inside: Any = self._inside.get(above)
        if inside is None:
            decoder = _raw_array if isinstance(step, int) else _raw_object
            inside = self._inside[above] = decoder.decode(self._view(above))
        found: msgspec.Raw = inside[step]
        return found


def value_at(raw: bytes, path: Path) -> bytes:
    """Return the raw JSON of the value at `path`; for several paths, `ValuesByPath` takes less time."""
    return ValuesByPath(raw).at(path)


def array_length(raw: bytes, path: Path) -> int:
    """Return the number of elements of the array at `path`."""
    return len(_raw_array.decode(value_at(raw, path)))


def splice(raw: bytes | msgspec.Raw, edits: Mapping[Path, bytes | None]) -> bytes:
    """Return `raw` with the values at the paths replaced by the given JSON, or removed if that is None.

    Keys keep their order and all other values their bytes; only white space between them may change. Paths refer to the
    text as given, whatever is removed. No path may lead into a value that is itself replaced or removed, and the whole
    cannot be removed.
    """
    if not edits:
        return bytes(raw)
    whole = edits.get(())
    if whole is not None:
        return whole
    inner: dict[str | int, dict[Path, bytes | None]] = {}
    for path, value in edits.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    removed = {step for step, below in inner.items() if () in below and below[()] is None}
    if all(isinstance(step, int) for step in inner):
        values = _raw_array.decode(raw)
        for step in inner.keys() - removed:
            index = int(step)
            values[index] = msgspec.Raw(splice(values[index], inner[step]))
        return msgspec.json.encode([value for index, value in enumerate(values) if index not in removed])
    members = _raw_object.decode(raw)
    for step in inner.keys() - removed:
        key = str(step)
        members[key] = msgspec.Raw(splice(members[key], inner[step]))
    for step in removed:
        del members[str(step)]
    return msgspec.json.encode(members)


def too_deep(field: str) -> InvalidJson:
    """Return the error for a value that is nested more deeply than any provider's."""
    return InvalidJson(f"{field} is nested more than {MAX_DEPTH} levels deep", field=field)


def _reason(error: orjson.JSONDecodeError) -> str:
    """Return the library's reason without the position; it never quotes the input."""
    return str(error).split(": line ", 1)[0]


def _doubles(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        return {key: _doubles(member) for key, member in value.items()}
    if kind is list:
        return [_doubles(member) for member in value]
    return float(value) + 0.0  # -0.0 becomes 0.0, as JavaScript writes it


def _refuse_double_keys(raw: bytes, value: Any, field: str) -> None:
    keys = _keys(value)
    # Usually each colon after a quotation mark ends a key. Where that is uncertain, as in a text that quotes JSON, or
    # with keys that end with a backslash or are separated from their colon, colons outside strings are counted.
    plain = not any(mark in raw for mark in _UNUSUAL) and raw.count(b'":') - raw.count(b'\\":') == keys
    if not plain:
        _refuse_other_keys(shape(raw).colons, value, field)


def _refuse_other_keys(colons: int, value: Any, field: str) -> None:
    if colons != _keys(value):
        raise AmbiguousJson(f"{field} holds an object with the same key twice", field=field)


def _keys(value: Any, depth: int = 1) -> int:
    """Count the keys in a decoded value. Raises RecursionError if it is deeper than orjson writes."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return 0
    if depth > MAX_DEPTH:
        raise RecursionError
    own, members = (len(value), value.values()) if kind is dict else (0, value)
    return own + sum(_keys(member, depth + 1) for member in members if type(member) in {dict, list})
