#!/usr/bin/env python3
"""A memory snapshot of a gigabyte, made on the fly, laid over a prediction.

    big_snapshot_test.py PROGRAM [MEBIBYTES]

Not part of the ordinary tests: it writes a gigabyte into the folder for temporary files and takes half a minute. Says how
long the window took and how much memory, and fails where it could not read the snapshot, or took more than 60 s or 4
times the file's size.
"""

import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(8, "little", signed=True)
    return b"\x8a\x08" + data


def mapping(pairs):
    return b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u"


def write_snapshot(path, size):
    """Blocks that are allocated and freed, each with a stack of ten frames as PyTorch records them. Protocol 2."""
    frames = b"](" + b"".join(
        mapping([("filename", text(f"/site-packages/torch/nn/modules/module_{i}.py")), ("line", number(100 + i)),
                 ("name", text("_call_impl"))]) for i in range(10)) + b"e"
    events = 0
    with open(path, "wb") as file:
        file.write(b"\x80\x02}(" + text("segments") + b"]" + text("device_traces") + b"](](")
        while file.tell() < size - (1 << 16):
            block = []
            for i in range(16):
                for action in ("alloc", "free_requested", "free_completed"):
                    block.append(mapping([
                        ("action", text(action)), ("addr", number(0x7F0000000000 + i * 4194304)),
                        ("size", number(1048576 * (i + 1))), ("stream", number(0)),
                        ("time_us", number(1_700_000_000_000_000 + events)), ("frames", frames)]))
                    events += 1
            file.write(b"".join(block))
        file.write(b"ee" + b"u.")
    return events


def main(program, mebibytes="1023"):
    size = int(mebibytes) << 20
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "big.pickle")
        picture = os.path.join(folder, "big.png")
        events = write_snapshot(path, size)
        begin = time.monotonic()
        done = subprocess.run([program, "--screenshot", picture, "--measured", path, "mlp"], capture_output=True,
                              text=True, timeout=900, env=dict(os.environ, QT_QPA_PLATFORM="offscreen"))
        took = time.monotonic() - begin
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"{os.path.getsize(path) / GIB:.2f} GiB, {events} events: {took:.1f} s, {most / GIB:.2f} GiB of memory")
        if done.returncode != 0 or not os.path.exists(picture):
            print(done.stdout + done.stderr)
            return 1
        return 0 if most < 4 * size else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
