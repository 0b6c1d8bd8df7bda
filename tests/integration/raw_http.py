"""Raw HTTP requests that no client sends, by kind, and the answers that the service may give."""

from __future__ import annotations

import random
from collections.abc import Iterator

HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"
JSON = b"Content-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /api/route HTTP/1.1\r\n" + HOST + CLOSE + JSON
BODY = b'{"description":"x"}'
WHOLE = POST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
SMUGGLED = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)
HELLO = bytes.fromhex("16030100850100008103035555555555555555555555555555555555555555555555555555555555555555") + bytes(
    98
)


def headed(*headers: bytes, target: bytes = b"/healthz", method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request with a request line and headers."""
    return b"%b %b %b\r\n" % (method, target, version) + b"".join(line + b"\r\n" for line in headers) + CLOSE + b"\r\n"


def sized(*headers: bytes, body: bytes = BODY + SMUGGLED) -> bytes:
    """Return a request with a body whose length is in its headers."""
    return POST + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + body


REFUSED: dict[str, bytes] = {
    "RTSP": headed(HOST.rstrip(), version=b"RTSP/1.0"),
    # Lengths that two parsers would understand in two ways.
    "two lengths": sized(b"Content-Length: 19", b"Content-Length: 5"),
    "two equal lengths": sized(b"Content-Length: 19", b"Content-Length: 19"),
    "a list of lengths": sized(b"Content-Length: 19, 19"),
    "negative length": sized(b"Content-Length: -1"),
    "signed length": sized(b"Content-Length: +19"),
    "hexadecimal length": sized(b"Content-Length: 0x13"),
    "length of letters": sized(b"Content-Length: many"),
    "length with a fraction": sized(b"Content-Length: 19.0"),
    "length with a space": sized(b"Content-Length: 1 9"),
    "length of other digits": sized("Content-Length: １９".encode()),
    "empty length": sized(b"Content-Length:"),
    "length past 64 bits": sized(b"Content-Length: 99999999999999999999999"),
    "length and chunks": sized(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks and length": sized(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks that are not last": sized(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks twice": sized(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "unknown encoding": sized(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + SMUGGLED),
    "encoding behind a tab": sized(b"Transfer-Encoding:\tchunked\x0b", body=b"0\r\n\r\n" + SMUGGLED),
    "identity": sized(b"Transfer-Encoding: identity", body=BODY),
    "encoding by its older name": sized(b"Transfer_Encoding: chunked", b"Content-Length : 19"),
    "chunks in HTTP/1.0": b"POST /api/route HTTP/1.0\r\n"
    + HOST
    + JSON
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "negative chunk": CHUNKED + b"-1\r\n" + BODY,
    "huge chunk": CHUNKED + b"fffffffffffffffff\r\n" + BODY,
    "chunk of letters": CHUNKED + b"xyz\r\n" + BODY,
    "chunk with a prefix": CHUNKED + b"0x13\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk without its end": CHUNKED + b"13\r\n" + BODY + b"0\r\n\r\n",
    "chunk ended by LF": CHUNKED + b"13\n" + BODY + b"\n0\n\n",
    "chunk ended by CR": CHUNKED + b"13\r" + BODY + b"\r0\r\r",
    "chunk longer than it says": CHUNKED + b"2\r\n" + BODY + b"\r\n0\r\n\r\n",
    # Lines and headers.
    "bare LF": WHOLE.replace(b"\r\n", b"\n"),
    "bare CR": WHOLE.replace(b"\r\n", b"\r"),
    "bare CR in a header": headed(HOST.rstrip(), b"X: a\rTransfer-Encoding: chunked"),
    "folded header": headed(HOST.rstrip(), b"X: a\r\n b"),
    "folded Host": headed(b"Host:\r\n 127.0.0.1"),
    "folded first header": GET + b" Host: 127.0.0.1\r\n" + CLOSE + b"\r\n",
    "space before the colon": headed(b"Host : 127.0.0.1"),
    "header without a colon": headed(HOST.rstrip(), b"Nothing"),
    "header without a name": headed(HOST.rstrip(), b": x"),
    "NUL in a header": headed(HOST.rstrip(), b"X: a\x00b"),
    "NUL in a name": headed(HOST.rstrip(), b"X\x00Y: a"),
    "no UTF-8 in a name": headed(HOST.rstrip(), b"X\xff: a"),
    "control in a header": headed(HOST.rstrip(), b"X: a\x01\x1b[2Jb"),
    "no Host": headed(),
    "empty Host": headed(b"Host:"),
    "two Hosts": headed(HOST.rstrip(), HOST.rstrip()),
    "two Hosts in one": headed(b"Host: 127.0.0.1, 127.0.0.1"),
    "Host of another": headed(b"Host: evil.example"),
    "Host of no UTF-8": headed(b"Host: \xff\xfe"),
    "open bracket": headed(b"Host: [::1"),
    "bracket around a name": headed(b"Host: [localhost]"),
    "bracket around IPv4": headed(b"Host: [127.0.0.1]"),
    "words behind a bracket": headed(b"Host: [::1]evil.example"),
    "IPv6 without brackets": headed(b"Host: ::1"),
    "IPv6 with a zone": headed(b"Host: [::1%25lo]"),
    "user in Host": headed(b"Host: me@127.0.0.1"),
    "two ports": headed(b"Host: 127.0.0.1:80:80"),
    "port of letters": headed(b"Host: 127.0.0.1:http"),
    "port too large": headed(b"Host: 127.0.0.1:99999"),
    "address of one number": headed(b"Host: 2130706433"),
    # Targets and methods.
    "NUL in the target": headed(HOST.rstrip(), target=b"/\x00"),
    "control in the target": headed(HOST.rstrip(), target=b"/\x1b[2J"),
    "no UTF-8 in the target": headed(HOST.rstrip(), target=b"/\xff\xfe"),
    "UTF-8 in the target": headed(HOST.rstrip(), target="/ä".encode()),
    "encoded NUL": headed(HOST.rstrip(), target=b"/api/runs/%00"),
    "encoded line end": headed(HOST.rstrip(), target=b"/api/runs/%0d%0aX:%20y"),
    "encoded no UTF-8": headed(HOST.rstrip(), target=b"/api/runs/%ff%fe"),
    "broken encoding": headed(HOST.rstrip(), target=b"/api/runs/%zz%"),
    "encoded way out": headed(HOST.rstrip(), target=b"/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
    "way out": headed(HOST.rstrip(), target=b"/../../etc/passwd"),
    "two slashes": headed(HOST.rstrip(), target=b"//evil.example/healthz"),
    "broken encoding in a query": headed(HOST.rstrip(), target=b"/api/runs?limit=%zz&%ff=%00"),
    "no target": b"GET  HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n",
    "target without a slash": headed(HOST.rstrip(), target=b"healthz"),
    "whole target of another": headed(HOST.rstrip(), target=b"http://evil.example/healthz"),
    "whole target with a user": headed(HOST.rstrip(), target=b"http://me@127.0.0.1/healthz"),
    "whole target of another scheme": headed(HOST.rstrip(), target=b"ftp://127.0.0.1/healthz"),
    "whole target of a file": headed(HOST.rstrip(), target=b"file:///etc/passwd"),
    "whole target without a host": headed(HOST.rstrip(), target=b"http:///healthz"),
    "asterisk": headed(HOST.rstrip(), target=b"*", method=b"OPTIONS"),
    "CONNECT": headed(HOST.rstrip(), target=b"127.0.0.1:80", method=b"CONNECT"),
    "TRACE": headed(HOST.rstrip(), method=b"TRACE"),
    "method of others": headed(HOST.rstrip(), method=b"PROPFIND"),
    "unknown method": headed(HOST.rstrip(), method=b"BREW"),
    "small method": headed(HOST.rstrip(), method=b"get"),
    "method of no UTF-8": headed(HOST.rstrip(), method=b"G\xffT"),
    "no method": headed(HOST.rstrip(), method=b""),
    # Versions and other protocols.
    "HTTP/1.0 without Host": b"GET /healthz HTTP/1.0\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2.0": headed(HOST.rstrip(), version=b"HTTP/2.0"),
    "HTTP/9.9": headed(HOST.rstrip(), version=b"HTTP/9.9"),
    "HTTP/1.": headed(HOST.rstrip(), version=b"HTTP/1."),
    "small http": headed(HOST.rstrip(), version=b"http/1.1"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "TLS hello": HELLO,
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "SMTP": b"EHLO example\r\n",
    "NULs": bytes(1000),
    "0xff": b"\xff" * 1000,
    # Upgrades.
    "WebSocket without a key": UPGRADE.replace(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"") + b"\r\n",
    "WebSocket with a broken key": UPGRADE.replace(b"AAAA==", b"!!!!") + b"\r\n",
    "WebSocket with two keys": UPGRADE + b"Sec-WebSocket-Key: BBBBBBBBBBBBBBBBBBBBBA==\r\n\r\n",
    "WebSocket of another version": UPGRADE.replace(b"13", b"99") + b"\r\n",
    "WebSocket by POST": UPGRADE.replace(b"GET", b"POST") + b"Content-Length: 3\r\n\r\nabc",
    "WebSocket in HTTP/1.0": UPGRADE.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n",
    "WebSocket elsewhere": UPGRADE.replace(b"/ws", b"/healthz") + b"\r\n",
    "WebSocket at a target of no UTF-8": UPGRADE.replace(b"/ws", b"/\xff") + b"\r\n",
    "WebSocket at a broken target": UPGRADE.replace(b"/ws", b"/%zz%ff%00") + b"\r\n",
    "WebSocket of another Host": UPGRADE.replace(HOST, b"Host: evil.example\r\n") + b"\r\n",
    "WebSocket with two Hosts": UPGRADE + HOST + b"\r\n",
    "WebSocket of another site": UPGRADE + b"Origin: http://evil.example\r\n\r\n",
    "WebSocket with a header of no UTF-8": UPGRADE + b"Origin: \xff\xfe\r\n\r\n",
    "WebSocket with a name of others": UPGRADE + b"X(Y): z\r\n\r\n",
    "WebSocket with a length": UPGRADE + b"Content-Length: 5\r\n\r\nhello",
    "WebSocket in chunks": UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken subprotocols": UPGRADE + b"Sec-WebSocket-Protocol: ,,;\xff\r\n\r\n",
}
"""Requests that the service must not serve: it refuses them or closes the connection."""

SERVED: dict[str, bytes] = {
    "usual": WHOLE,
    "IPv6": headed(b"Host: [::1]"),
    "IPv6 with a port": headed(b"Host: [::1]:8080"),
    "IPv6 at length": headed(b"Host: [0:0:0:0:0:0:0:1]"),
    "IPv4 within IPv6": headed(b"Host: [::ffff:127.0.0.1]"),
    "IPv4 within IPv6 in hexadecimal": headed(b"Host: [::FFFF:7f00:1]:8080"),
    "trailing dot": headed(b"Host: localhost.:8080"),
    "upper case": headed(b"HOST: LOCALHOST"),
    "no port behind the colon": headed(b"Host: localhost:"),
    "whole target": headed(b"Host: evil.example", target=b"http://127.0.0.1/healthz"),
    "whole target in upper case": headed(HOST.rstrip(), target=b"HTTP://LocalHost:80/healthz"),
    "HTTP/1.0": b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n",
    "lines before": b"\r\n\r\n" + headed(HOST.rstrip()),
    "chunks": CHUNKED + b"13;x=y\r\n" + BODY + b"\r\n0\r\nTrailer: x\r\n\r\n",
    "upgrade to HTTP/2": headed(HOST.rstrip(), b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),
    "upgrade to nothing": headed(HOST.rstrip(), b"Upgrade: \xff, , websocket/99", b"Connection: Upgrade, close"),
    "expectation": POST + b"Expect: 100-continue\r\nContent-Length: 19\r\n\r\n" + BODY,
    "header of no UTF-8": headed(HOST.rstrip(), b"X: \xff\xfe"),
}
"""Unusual requests, which the service answers like usual ones."""


def changed(seed: int, count: int) -> Iterator[bytes]:
    """Yield requests in which bytes are lost, doubled, replaced, or inserted from other requests."""
    chance = random.Random(seed)
    kinds = [*REFUSED.values(), *SERVED.values()]
    for _ in range(count):
        made = bytearray(chance.choice(kinds))
        for _ in range(chance.choice((1, 1, 2, 5))):
            _change(chance, made, chance.choice(kinds))
        yield bytes(made)


def _change(chance: random.Random, made: bytearray, other: bytes) -> None:
    place, size = chance.randrange(len(made) + 1), chance.choice((1, 1, 2, 8, 40))
    match chance.randrange(6):
        case 0:
            del made[place : place + size]
        case 1:
            made[place:place] = made[place : place + size]
        case 2:
            made[place : place + 1] = bytes([chance.randrange(256)])
        case 3:
            del made[place:]
        case 4:
            cut = chance.randrange(len(other) + 1)
            made[place:place] = other[cut : cut + size]
        case _:
            made[place:place] = chance.choice(
                (b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"%", b"\xff", b"\r\n\r\n")
            )
    if not made:
        made += b"\r"
