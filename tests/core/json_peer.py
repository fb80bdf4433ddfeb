"""Reads each line as the hexadecimal bytes of a JSON text, and prints what Python's json makes of it: "no", or its values.

For json_peer_hostile_test.cpp. Stricter than Python where ours is: keys are unique, numbers are finite, and strings are text.
"""

import json
import struct
import sys


class Refused(Exception):
    pass


def refuse(*_):
    raise Refused


class Members(list):
    """The keys and values of an object, in the order of the text."""


def members(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused
    return Members(pairs)


def values(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return f"i{value}"
    if isinstance(value, (int, float)):
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise Refused
        return "r" + struct.pack(">d", number).hex()
    if isinstance(value, str):
        return "s" + value.encode().hex()
    if isinstance(value, Members):
        return "{" + ",".join(f"{values(key)}:{values(each)}" for key, each in value) + "}"
    return "[" + ",".join(values(each) for each in value) + "]"


def read(text):
    whole = text.decode().removeprefix("\ufeff")
    return values(json.loads(whole, parse_constant=refuse, object_pairs_hook=members))


for line in sys.stdin:
    try:
        print(read(bytes.fromhex(line)))
    except (ValueError, OverflowError, Refused):  # UnicodeError is a ValueError
        print("no")
