# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whoever asks the daemon for its metrics."""

import re
import socket

OPENMETRICS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def listen(address=("127.0.0.1", 0)):
    """As the service manager would; a Unix socket where the address is a path."""
    listener = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    listener.bind(address)
    listener.listen(16)
    return listener


def connect(listener):
    peer = socket.socket(listener.family)
    peer.settimeout(20)
    peer.connect(listener.getsockname())
    return peer


def scrape(listener, path="/metrics", accept="", method="GET", body="\r\n"):
    """(status, headers, body); @body: header lines that announce it, an empty line, and it"""
    with connect(listener) as peer:
        header = f"Accept: {accept}\r\n" if accept else ""
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}{body}".encode())
        answer = b""
        while chunk := peer.recv(65536):
            answer += chunk
    head, _, body = answer.decode().partition("\r\n\r\n")
    first, *headers = head.split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in headers), body


def samples(text):
    """{name with labels: value}"""
    return {name: float(value) for name, value in re.findall(r"^([a-z][^ \n]*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def names(text):
    return {re.match(r"\w+", name)[0] for name in samples(text)}
