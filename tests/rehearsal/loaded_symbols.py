"""Which function a loaded library really calls: reads the symbols of ELF files and the addresses that the dynamic linker
has put into this process.

A library calls an imported function through a slot in its memory, which the dynamic linker fills with an address. The file
says which slot belongs to which name, the memory says which address it holds, and /proc/self/maps says which library that
address lies in. With LD_BIND_NOW=1 all slots are filled when the library is loaded.
"""

import bisect
import ctypes
import mmap
import os
import struct
from collections.abc import Iterator

SECTION_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
SECTION_RELOCATIONS = 4  # SHT_RELA
UNDEFINED = 0  # SHN_UNDEF
# Relocations whose slot holds the address of a symbol: 64, GLOB_DAT and JUMP_SLOT of x86-64 and of AArch64.
ADDRESS_RELOCATIONS = {1, 6, 7, 257, 1025, 1026}


class ElfFile:
    """The dynamic symbols and relocations of one 64-bit little-endian library."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        section_table, = struct.unpack_from("<Q", self.bytes, 40)
        size, number = struct.unpack_from("<HH", self.bytes, 58)
        # For each section: name, type, flags, address, offset, bytes, link, info, alignment, bytes of an entry.
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, section_table + i * size) for i in range(number)]
        self.symbols = self._read_symbols()

    def _read_symbols(self) -> list[tuple[str, bool]]:
        """Name of each dynamic symbol, and whether the library defines it itself."""
        for _, kind, _, _, offset, size, link, *_ in self.sections:
            if kind == SECTION_DYNAMIC_SYMBOLS:
                names = self.sections[link][4]
                table = struct.iter_unpack("<IBBHQQ", self.bytes[offset:offset + size])
                return [(self._text(names + name), section != UNDEFINED) for name, _, _, section, _, _ in table]
        return []

    def _text(self, offset: int) -> str:
        return self.bytes[offset:self.bytes.find(b"\0", offset)].decode()

    def defined(self) -> set[str]:
        return {name for name, is_defined in self.symbols if is_defined}

    def slots(self) -> Iterator[tuple[str, int]]:
        """Each imported symbol that has a slot, with the slot's address in the library."""
        for _, kind, _, _, offset, size, *_ in self.sections:
            if kind != SECTION_RELOCATIONS:
                continue
            for slot, info, _ in struct.iter_unpack("<QQq", self.bytes[offset:offset + size]):
                if info >> 32 == 0 or info & 0xFFFFFFFF not in ADDRESS_RELOCATIONS:
                    continue
                name, is_defined = self.symbols[info >> 32]
                if not is_defined:
                    yield name, slot


class AddressMap:
    """Which library of this process an address lies in, from /proc/self/maps."""

    def __init__(self) -> None:
        self.base: dict[str, int] = {}
        ranges = []
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                if len(fields) < 6 or not fields[5].startswith("/"):
                    continue
                path = fields[5].strip()
                start, end = (int(part, 16) for part in fields[0].split("-"))
                ranges.append((start, end, path))
                self.base.setdefault(path, start)  # the first mapping of a library is its beginning
        self.ranges = sorted(ranges)
        self.starts = [start for start, _, _ in self.ranges]

    def library_at(self, address: int) -> str | None:
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0 or address >= self.ranges[index][1]:
            return None
        return self.ranges[index][2]


def bindings(path: str, where: AddressMap) -> Iterator[tuple[str, str]]:
    """Each function that the loaded library at `path` imports, with the library that it is bound to. Symbols that nobody
    defines (weak ones) are left out."""
    base = where.base[path]
    for name, slot in ElfFile(path).slots():
        address = ctypes.c_uint64.from_address(base + slot).value
        library = where.library_at(address)
        if library is not None:
            yield name, library


def main() -> None:
    """Prints the bindings of the libraries that this interpreter has loaded: for a look by hand."""
    where = AddressMap()
    for path in sorted(where.base):
        if ".so" in os.path.basename(path):
            for name, library in bindings(path, where):
                print(f"{os.path.basename(path)} {name} {library}")


if __name__ == "__main__":
    main()
