"""Loaded by every Python that a test starts: no connection beyond this machine, save pip's for the embedded model."""

import socket
import sys

_ALLOWED = ("127.", "::1", "localhost", "0.0.0.0")


class NetworkUsed(BaseException):
    """A test, or a program that it started, tried to leave the machine. No `except Exception` hides it."""


def _check(address):
    if isinstance(address, tuple) and not str(address[0]).startswith(_ALLOWED):
        raise NetworkUsed(f"a test tried to reach {address[0]}")


_connect, _connect_ex, _lookup = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def _guarded_connect(self, address):
    _check(address)
    return _connect(self, address)


def _guarded_connect_ex(self, address):
    _check(address)
    return _connect_ex(self, address)


def _guarded_lookup(host, *args, **kwargs):
    if host is not None:
        _check((host if isinstance(host, str) else host.decode(),))
    return _lookup(host, *args, **kwargs)


def install():
    socket.socket.connect = _guarded_connect
    socket.socket.connect_ex = _guarded_connect_ex
    socket.getaddrinfo = _guarded_lookup


if "pip" not in sys.orig_argv:
    install()
