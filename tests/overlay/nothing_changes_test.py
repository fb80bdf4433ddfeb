#!/usr/bin/env python3
"""A rehearsal leaves the user's files byte for byte as they were, whatever the script does.

    nothing_changes_test.py BINARY

Every attack of attacks.py is rehearsed with the real command and the real library, and the world around it is compared before
and after: names, contents, modes, times, owners and inodes.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BINARY = LIBRARY = ""
sys.dont_write_bytecode = True
sys.path.append(str(HERE))
import attacks  # noqa: E402

STATIC = r"""
#include <errno.h>
#include <fcntl.h>
int main(int argc, char** argv) { return argc > 1 && open(argv[1], O_WRONLY | O_TRUNC) >= 0 ? 0 : errno; }
"""


def picture(world):
    """All that can be told of the files below a folder without reading changing it."""
    result = {}
    for path in [world, *sorted(world.rglob("*"))]:
        status = path.lstat()
        contents = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        result[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_nlink,
                             status.st_uid, status.st_gid, status.st_size, contents)
    return result


def kernel_stops_calls():
    """Whether this kernel has filters of system calls."""
    return "Seccomp:" in pathlib.Path("/proc/self/status").read_text()


def kernel_scopes_signals():
    """Whether this kernel's Landlock has a scope of signals."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6


def flags_of(path):
    """Those of chattr; nothing where the file system has none."""
    with open(path, "rb") as file:
        try:
            return fcntl.ioctl(file, 0x80086601, bytes(8))
        except OSError:
            return b""


class NothingChanges(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.base)
        self.world = self.base / "world"
        self.world.mkdir()
        attacks.build(self.world)
        (self.world / "home" / ".cache" / "fsdp-plan").mkdir()
        self.temporary = self.base / "temporary"
        hook = self.base / "python" / "hook"
        for folder in (self.temporary, hook):
            folder.mkdir(parents=True)
        (hook / "sitecustomize.py").write_text("")
        (self.base / "stub.so").write_text("")
        self.share()

    def share(self):
        """What the user has below /dev/shm."""
        shared = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, shared)
        (shared / "x").write_text("shared")
        self.shared = [shared, shared.with_name(shared.name + ".bin")]
        self.shared[1].write_bytes(b"precious" * 512)
        self.addCleanup(self.shared[1].unlink)

    def picture(self):
        """For all that is the user's."""
        result = picture(self.world)
        for path in self.shared:
            result.update(picture(path))
        return result

    def rehearse(self, attack, *options, **environment):
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.world / "home"), "TMPDIR": str(self.temporary),
            "FSDP_PLAN_STUB_GPU": str(self.base / "stub.so"), "FSDP_PLAN_PYTHON_PATH": str(self.base / "python"),
            "PYTHONDONTWRITEBYTECODE": "1", "SHARED_NAME": self.shared[0].name, **environment}
        command = [BINARY, "rehearse", *options, "--", "python3", str(HERE / "attacks.py"), attack]
        return subprocess.run(command, cwd=self.world / "work", env=environment, capture_output=True, text=True,
                              timeout=120, check=False)

    def check_unchanged(self, attack, **environment):
        before = self.picture()
        done = self.rehearse(attack, **environment)
        after = self.picture()
        self.assertEqual(done.returncode, 0, f"{attack}: {done.stderr}")
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        self.assertEqual(changed, [], f"{attack} reaches the user's files.")
        self.assertEqual(list(self.temporary.iterdir()), [], f"{attack} leaves something in TMPDIR.")
        return done.stdout

    def test_under_any_attack(self):
        for attack in attacks.ATTACKS:
            with self.subTest(attack):
                self.check_unchanged(attack)

    def test_with_the_library_alone(self):
        for attack in attacks.ATTACKS:
            overlay = self.base / "overlay" / attack
            for folder in ("files", "removed", "copies", "tmp"):
                (overlay / folder).mkdir(parents=True)
            (overlay / "used").write_bytes(b"\0")
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.world / "home"), "TMPDIR": str(overlay / "tmp"),
                           "LD_PRELOAD": str(LIBRARY), "FSDP_OVERLAY": str(overlay), "FSDP_OVERLAY_FREE": str(overlay),
                           "FSDP_REHEARSAL_RECORD": str(overlay / "record"), "PYTHONDONTWRITEBYTECODE": "1",
                           "SHARED_NAME": self.shared[0].name}
            before = self.picture()
            done = subprocess.run([sys.executable, HERE / "attacks.py", attack], cwd=self.world / "work",
                                  env=environment, capture_output=True, text=True, timeout=120, check=False)
            with self.subTest(attack):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(before, self.picture())

    def test_folder_below_the_temporary_one_is_protected(self):
        """People work in /tmp."""
        before = picture(self.world)
        self.rehearse("overwrite", TMPDIR=str(self.world))
        self.assertEqual({k: v[8] for k, v in before.items()}, {k: v[8] for k, v in picture(self.world).items()})

    @unittest.skipUnless(kernel_stops_calls(), "this kernel does not filter system calls")
    def test_kernel_stops_what_the_library_does_not_see(self):
        if platform.machine() == "x86_64":
            self.check_unchanged("raw_calls")
        compiler = shutil.which("cc")
        program = self.base / "static"
        (self.base / "static.c").write_text(STATIC)
        if compiler and subprocess.run([compiler, "-static", "-o", program, self.base / "static.c"],
                                       capture_output=True, check=False).returncode == 0:
            self.check_unchanged("static_program", STATIC_PROGRAM=str(program))

    @unittest.skipUnless(kernel_scopes_signals(), "this kernel's Landlock has no scope of signals")
    def test_other_programs_get_no_signal(self):
        with subprocess.Popen(["/bin/sleep", "300"]) as victim:
            self.check_unchanged("signals", VICTIM=str(victim.pid))
            self.assertIsNone(victim.poll())
            self.assertIn("\nState:\tS", pathlib.Path(f"/proc/{victim.pid}/status").read_text())
            victim.kill()

    @unittest.skipUnless(kernel_stops_calls(), "this kernel does not filter system calls")
    def test_objects_without_a_path_are_protected(self):
        libc = ctypes.CDLL(None, use_errno=True)
        segment = libc.shmget(0, 4096, 0o1600)
        self.check_unchanged("without_paths", SEGMENT=str(segment))
        self.assertEqual(libc.shmctl(segment, 0, None), 0, "The rehearsal has removed the segment.")
        before = [flags_of(self.world / "work" / name) for name in ("best.pt", "notes.txt")]
        self.check_unchanged("file_flags")
        self.assertEqual([flags_of(self.world / "work" / name) for name in ("best.pt", "notes.txt")], before)
        if platform.machine() == "x86_64":
            self.check_unchanged("foreign_calls")

    def test_answer_lists_written_files(self):
        out = self.check_unchanged("overwrite")
        self.assertIn("wrote    1 file (10 B): best.pt.", out)
        out = self.check_unchanged("remove")
        self.assertIn("It removed or moved best.pt, checkpoints, empty, which are still there.", " ".join(out.split()))
        out = self.check_unchanged("shared_memory")
        self.assertIn(f"It removed or moved /dev/shm/{self.shared[0].name}, ", " ".join(out.split()))
        self.assertNotIn("wrote", self.check_unchanged("nothing"))
        warnings = json.loads(self.rehearse("append", "--json").stdout)["rehearsal"]["warnings"]
        self.assertEqual([w["kind"] for w in warnings], ["writes"])

    def test_writes_can_be_allowed(self):
        done = self.rehearse("append", "--allow-writes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.world / "work" / "notes.txt").read_text(), "first\nsecond\n")
        self.assertIn("--allow-writes: the script wrote, moved or removed 1 path on your disk: notes.txt.",
                      " ".join(done.stdout.split()))

    def test_missing_library_prevents_the_start(self):
        before = picture(self.world)
        done = self.rehearse("overwrite", FSDP_PLAN_OVERLAY="/no/overlay.so")
        self.assertEqual((done.returncode, picture(self.world)), (2, before))
        self.assertIn("--allow-writes", done.stderr)
        done = self.rehearse("append", "--allow-writes", FSDP_PLAN_OVERLAY="/no/overlay.so")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("what the script wrote is on your disk", " ".join(done.stdout.split()))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    LIBRARY = pathlib.Path(BINARY).parent.parent / "lib" / "fsdp-plan" / "libfsdp-overlay.so"
    unittest.main(verbosity=2)
