#!/usr/bin/env python3
"""Recordings of real GPUs, replayed.

usage: real_gpus.py FSDP_PLAN FOLDER_OR_FILE...

FOLDER holds checkouts (or bare repositories) of what tests/golden/real_gpu/recordings.jsonl names, wherever below it; recordings are
found by the hash that git gives their contents, so that no name matters. FILE is any memory snapshot. Each is put through
`fsdp-plan replay` with its own settings, and must come to what the card did: the peak of reserved memory, and how often memory was
taken from the driver and given back. A FILE is held against what it says itself about its peak.

Exit: 0 all that were found came to the same, 1 one did not, 2 nothing was found.
"""

from __future__ import annotations

import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command

GOLDEN = command.ROOT / "tests" / "golden" / "real_gpu" / "recordings.jsonl"
KEYS = {"reserved_peak_bytes": "reserved", "cuda_malloc": "cudaMalloc", "cuda_free": "cudaFree"}
# What is known to differ, by how much in reserved bytes, and why.
KNOWN = {
    "e171b6812ed38e1a075e041528cbb61a609b2df6": (411_041_792, "two segments more in each of 14 rounds, and why was not found"),
    "ec5be1109788adfbaa29f392f75f6e8477d7e701": (4 << 20, "two segments of 2 MiB at a moment in which the cache was emptied, which has no stack"),
}


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def is_git_folder(path: pathlib.Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir()


def contents(folder: pathlib.Path, wanted: set[str]) -> dict[str, bytes]:
    """What lies below the folder, in files or in git's own store, of the hashes that are wanted."""
    found: dict[str, bytes] = {}
    stores = [p.parent for p in folder.rglob("HEAD") if is_git_folder(p.parent)] + [folder] * is_git_folder(folder)
    for store in stores:
        asked = "\n".join(sorted(wanted - found.keys()))
        listed = subprocess.run(["git", "--git-dir", store, "cat-file", "--batch-check"], input=asked, text=True, capture_output=True,
                                env={"GIT_NO_LAZY_FETCH": "1", "PATH": "/usr/bin:/bin"}).stdout  # fmt: skip
        for line in listed.splitlines():
            if line.split()[1:2] == ["blob"]:
                name = line.split()[0]
                found[name] = subprocess.run(["git", "--git-dir", store, "cat-file", "blob", name], capture_output=True).stdout
    for path in sorted(folder.rglob("*.p*kl*")) + sorted(folder.rglob("*.pickle")):
        if path.is_file() and (name := git_hash(path.read_bytes())) in wanted:
            found[name] = path.read_bytes()
    return found


def replay(program: pathlib.Path, data: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "snapshot.pickle"
        path.write_bytes(data)
        return command.answer(program, "replay", path, "--json")


def difference(row: dict[str, Any], recorded: dict[str, Any]) -> str:
    """Empty where all is equal or differs as is known."""
    now = {"reserved_peak_bytes": recorded["reserved_peak_bytes"], "cuda_malloc": recorded["num_cuda_malloc"],
           "cuda_free": recorded["num_cuda_free"]}  # fmt: skip
    words = [f"{KEYS[key]} {now[key]:,} for {row[key]:,}" for key in KEYS if key in row and now[key] != row[key]]
    known = KNOWN.get(row.get("blob", ""))
    if known and words and abs(now["reserved_peak_bytes"] - row["reserved_peak_bytes"]) == known[0]:
        return ""
    return ", ".join(words)


def main() -> int:
    program, *places = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    total: dict[str, list[str]] = collections.defaultdict(list)
    steps = num_known = 0
    for place in places:
        if place.is_file():
            answer = replay(program, place.read_bytes())
            own = {"reserved_peak_bytes": answer["recording"]["reserved_peak_bytes"]}
            total[str(place)].append(difference(own, answer["recorded"]))
            continue
        found = contents(place, {row["blob"] for row in rows})
        for row in rows:
            if row["blob"] not in found:
                continue
            answer = replay(program, found[row["blob"]])
            steps += answer["recording"]["steps"]
            num_known += row["blob"] in KNOWN
            text = difference(row, answer["recorded"])
            total[row["repository"]].append(text and f"{row['path']}: {text}")
    print("| source | recordings | equal |\n|---|---:|---:|")
    for name, differences in sorted(total.items()):
        print(f"| {name} | {len(differences)} | {sum(not text for text in differences)} |")
    wrong = [text for differences in total.values() for text in differences if text]
    print(f"\n{sum(map(len, total.values()))} recordings, {steps:,} steps; {num_known} of them differ as is known.")
    print("\n".join(wrong))
    return 2 if not total else 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
