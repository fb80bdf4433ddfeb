"""python -m fsdp_metrics to-tensorboard METRICS LOGDIR

METRICS is the file of fsdp-exec --metrics, with one object on each line. Every number in it becomes a scalar at its step,
written by the package tensorboard. An incomplete last line, of a run in progress, is left out.

Exit: 0 written, 2 the file cannot be read, LOGDIR has events already, or tensorboard is not installed.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any


class Refused(Exception):
    """The error, in a sentence."""


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}.") from None
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
            rows.append({**row, "step": int(row["step"])})
        except (ValueError, KeyError, TypeError):
            raise Refused(f"{path}:{number}: this is not a line of fsdp-exec --metrics.") from None
    return rows


def to_tensorboard(rows: list[dict[str, Any]], folder: pathlib.Path) -> int:
    """Returns the number of written scalars."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise Refused("tensorboard is not installed. Run: pip install tensorboard") from None
    if folder.is_dir() and any(folder.glob("events.out.tfevents.*")):
        raise Refused(f"{folder}: it has events already.")
    writer = EventFileWriter(str(folder))
    written, seconds = 0, 0.0
    for row in rows:
        seconds += row.get("seconds", 0.0)
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()
                  if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)]
        writer.add_event(Event(wall_time=seconds, step=row["step"], summary=Summary(value=values)))
        written += len(values)
    writer.close()
    return written


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fsdp_metrics", description="Metrics of a run, for other programs.")
    parser.add_argument("what", choices=("to-tensorboard",))
    parser.add_argument("metrics", type=pathlib.Path, help="file of fsdp-exec --metrics")
    parser.add_argument("logdir", type=pathlib.Path, help="folder for tensorboard --logdir")
    given = parser.parse_args()
    try:
        written = to_tensorboard(read_metrics(given.metrics), given.logdir)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 2
    print(f"{written} scalars in {given.logdir}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
