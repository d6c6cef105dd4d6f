"""Runs a command that Linux refuses AMX, as a strict container does:

python -m tests.engine.cpu.without_amx COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM = 158, 0x1023
_LOAD, _SKIP_UNLESS_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of classic BPF, see seccomp(2)
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_ALLOW, _PERMISSION_DENIED = 0x7FFF0000, 0x00050001
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl(2)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_amx() -> None:
    """Raises OSError where the system has no such filters."""
    steps = (
        (_LOAD, 0, 0, _NUMBER),
        (_SKIP_UNLESS_EQUAL, 0, 3, ARCH_PRCTL),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_SKIP_UNLESS_EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
        (_RETURN, 0, 0, _PERMISSION_DENIED),
        (_RETURN, 0, 0, _ALLOW),
    )
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(packed))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse_amx()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the test's own command
