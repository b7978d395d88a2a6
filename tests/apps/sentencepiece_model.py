"""The format of SentencePiece's models, without the package protobuf."""
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number, value):
    """A field: an int, a float, or bytes."""
    if isinstance(value, int): return varint(number << 3) + varint(value)
    if isinstance(value, float): return varint(number << 3 | 5) + struct.pack('<f', value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score=0.0, kind=NORMAL): return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


def fields(message):
    """(number, value) of each field, in order."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128: return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or number()
        yield key >> 3, message[at:at + size]
        at += size


def charsmap(model):
    """precompiled_charsmap of the normalizer_spec."""
    spec = next(value for number, value in fields(model) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def small(characters):
    """A BPE model of these characters, and of bytes for all others."""
    pieces = piece('<unk>', kind=UNKNOWN) + piece('<s>', kind=CONTROL) + piece('</s>', kind=CONTROL) + b''.join(piece(f'<0x{i:02X}>', kind=BYTE) for i in range(256))
    pieces += b''.join(piece(c, -1.0 - i) for i, c in enumerate('\u2581' + characters))
    return pieces + field(2, field(3, 2) + field(35, 1)) + field(3, field(4, 0))
