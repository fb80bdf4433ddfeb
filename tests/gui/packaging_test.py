#!/usr/bin/env python3
"""What a desktop is told of the explorer is valid, and its parts agree with each other.

    packaging_test.py ROOT PROGRAM

Skipped (77) where desktop-file-validate or appstreamcli is not installed; the parts must agree in any case.
"""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as tree


def valid(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    print(done.stdout + done.stderr, end="")
    return done.returncode == 0 and not done.stdout.strip().startswith("error")


def disagreements(root, program):
    packaging = root / "gui" / "packaging"
    desktop_file = next(packaging.glob("*.desktop"))
    entry = configparser.ConfigParser(interpolation=None)
    entry.optionxform = str
    entry.read(desktop_file)
    entry = entry["Desktop Entry"]
    info = tree.parse(next(packaging.glob("*.metainfo.xml"))).getroot()
    mime = tree.parse(packaging / "fsdp-plan.xml").getroot()
    named = {t.get("type") for t in mime.iter() if t.tag.endswith("}mime-type")}
    opened = {t for t in entry["MimeType"].split(";") if t}
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=900,
                             env={"QT_QPA_PLATFORM": "offscreen", "PATH": "/usr/bin:/bin"}).stdout.split()[-1]
    if entry["Exec"].split()[0] != pathlib.Path(program).name:
        yield f"The entry starts {entry['Exec']}, the program is {program}."
    if info.findtext("launchable") != desktop_file.name:
        yield f"The metainfo launches {info.findtext('launchable')}, the entry is {desktop_file.name}."
    if opened != named:
        yield f"The entry opens {sorted(opened)}, the MIME file names {sorted(named)}."
    if opened != {m.text for m in info.iter("mediatype")}:
        yield "The metainfo names other media types than the entry."
    if not (root / "gui" / "icons" / f"{entry['Icon']}.svg").is_file():
        yield f"There is no icon {entry['Icon']}."
    if info.find("releases")[0].get("version") != version:
        yield f"The newest release is {info.find('releases')[0].get('version')}, the program says {version}."
    main = (root / "gui" / "main.cpp").read_text()
    name = re.search(r'setDesktopFileName\("([^"]+)"\)', main).group(1)
    if name + ".desktop" != desktop_file.name:
        yield f"The program says that its entry is {name}."


def main(root, program):
    root = pathlib.Path(root)
    wrong = list(disagreements(root, program))
    for line in wrong:
        print(line)
    if wrong:
        return 1
    if not shutil.which("desktop-file-validate") or not shutil.which("appstreamcli"):
        print("Skipped: desktop-file-validate or appstreamcli is not installed.")
        return 77
    packaging = root / "gui" / "packaging"
    good = valid(["desktop-file-validate", *map(str, packaging.glob("*.desktop"))])
    good = valid(["appstreamcli", "validate", "--no-net", "--no-color", *map(str, packaging.glob("*.metainfo.xml"))]) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
