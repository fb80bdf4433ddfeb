"""Writes files that a reader finds complete or not at all."""

from __future__ import annotations

import os


def write_whole(path: str, contents: bytes) -> None:
    unfinished = f"{path}.{os.getpid()}.part"
    with open(unfinished, "wb") as out:
        out.write(contents)
    os.replace(unfinished, path)
