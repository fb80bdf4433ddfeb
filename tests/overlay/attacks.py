#!/usr/bin/env python3
"""A rehearsed script that does its worst to the files around it, one way for each word, and checks that it sees what it did.

Run by nothing_changes_test.py, in a folder that this file's `build` has filled. Needs no torch.
"""

import ctypes
import dbm.dumb
import errno
import fcntl
import logging
import mmap
import multiprocessing.connection
import multiprocessing.shared_memory
import os
import pathlib
import platform
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "command"))
import fake_training


def build(world):
    """What the user has: a folder to work in, data elsewhere, a home with a cache."""
    work, data, home = world / "work", world / "data", world / "home"
    for folder in (work / "checkpoints" / "step-1", work / "empty", data / "deep", home / ".cache" / "huggingface"):
        folder.mkdir(parents=True)
    (work / "best.pt").write_bytes(b"weights " * 4096)
    (work / "checkpoints" / "step-1" / "model.pt").write_text("one")
    (work / "checkpoints" / "latest").symlink_to("step-1")
    (work / "notes.txt").write_text("first\n")
    (work / "run.sh").write_text("#!/bin/sh\necho $0\n")
    (work / "run.sh").chmod(0o755)
    (work / "link.pt").symlink_to("best.pt")
    (work / "data").symlink_to(data)
    (work / "out").symlink_to(data / "deep")
    (data / "train.bin").write_bytes(bytes(range(256)) * 64)
    (data / "deep" / "x").write_text("x")
    (home / ".cache" / "huggingface" / "config.json").write_text("{}")
    connection = sqlite3.connect(work / "runs.db")
    connection.execute("create table runs (loss real)")
    connection.commit()
    connection.close()
    os.link(work / "best.pt", work / "same.pt")


def read(path):
    with open(path, encoding="latin-1") as file:
        return file.read()


def write(path, text, mode="w"):
    with open(path, mode, encoding="latin-1") as file:
        file.write(text)


def overwrite():
    write("best.pt", "zeros")
    assert read("best.pt") == "zeros" and os.path.getsize("best.pt") == 5
    write(os.path.abspath("best.pt"), "again", "a")
    assert read("best.pt") == "zerosagain" and read("link.pt") == "zerosagain"
    assert read("same.pt").startswith("weights ")


def append():
    write("notes.txt", "second\n", "a")
    assert read("notes.txt") == "first\nsecond\n"


def update():
    with open("best.pt", "r+b") as file:
        file.seek(4)
        file.write(b"XXXX")
    assert read("best.pt").startswith("weigXXXXweights ")


def truncate():
    os.truncate("best.pt", 3)
    with open("notes.txt", "r+") as file:
        file.truncate(2)
    descriptor = os.open("same.pt", os.O_RDWR)
    os.ftruncate(descriptor, 0)
    assert (read("best.pt"), read("notes.txt"), read("same.pt")) == ("wei", "fi", "")


def replace():
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        file.write(b"new")
    os.replace(file.name, "best.pt")
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"newer")
    shutil.move(file.name, "notes.txt")
    assert read("best.pt") == "new" and read("notes.txt") == "newer"
    assert not any(name.startswith("tmp") for name in os.listdir("."))


def rename():
    os.rename("checkpoints", "old")
    assert read("old/latest/model.pt") == "one" and not os.path.exists("checkpoints")
    os.mkdir("checkpoints")
    assert os.listdir("checkpoints") == [] and sorted(os.listdir("old")) == ["latest", "step-1"]
    os.rename("best.pt", "data/best.pt")
    assert "best.pt" not in os.listdir(".") and read("out/../best.pt").startswith("weights ")
    for folder in ("old", "data/deep"):
        try:
            os.rename("empty", folder)
        except OSError as error:
            assert error.errno == errno.ENOTEMPTY
        else:
            raise AssertionError("A folder was moved onto one that is not empty.")


def remove():
    os.unlink("best.pt")
    assert not os.path.exists("best.pt") and "best.pt" not in os.listdir(".")
    assert not os.path.exists("link.pt") and os.path.lexists("link.pt")
    os.rmdir("empty")
    shutil.rmtree("checkpoints")
    assert {"empty", "checkpoints"}.isdisjoint(os.listdir("."))
    os.makedirs("checkpoints/step-2")
    assert os.listdir("checkpoints") == ["step-2"]
    try:
        os.rmdir("checkpoints")
    except OSError as error:
        assert error.errno == errno.ENOTEMPTY
    else:
        raise AssertionError("A folder that is not empty was removed.")


def folders():
    os.makedirs("runs/1/events", exist_ok=True)
    os.makedirs("checkpoints/step-1", exist_ok=True)
    write("checkpoints/step-1/optimizer.pt", "o")
    assert sorted(os.listdir("checkpoints/latest")) == ["model.pt", "optimizer.pt"]
    assert sorted(e.name for e in os.scandir("checkpoints")) == ["latest", "step-1"]
    os.chdir("runs/1")
    assert os.getcwd().endswith("k/runs/1") and read("../../notes.txt") == "first\n"
    write("../../notes.txt", "here")
    write("events/a", "a")
    os.chdir("../..")
    assert read("notes.txt") == "here" and [d for d, _, _ in os.walk("runs")] == ["runs", "runs/1", "runs/1/events"]
    try:
        os.mkdir("data")
    except FileExistsError:
        return
    raise AssertionError("A folder was made where there is one.")


def links():
    write("link.pt", "through a link")
    write("out/x", "through a folder's link")
    write("out/y", "new")
    write("checkpoints/latest/model.pt", "two links")
    assert read("data/deep/x") == "through a folder's link" and sorted(os.listdir("data/deep")) == ["x", "y"]
    os.symlink(os.path.abspath("data/train.bin"), os.path.join(tempfile.gettempdir(), "trick"))
    write(os.path.join(tempfile.gettempdir(), "trick"), "trick")
    os.symlink("../data", "checkpoints/data")
    write("checkpoints/data/deep/z", "z")
    os.link("notes.txt", "name")
    write("name", "more", "a")
    assert read("data/train.bin") == "trick" and read("notes.txt") == "first\nmore"
    os.unlink("link.pt")
    os.symlink("notes.txt", "link.pt")
    assert read("link.pt") == "first\nmore" and os.readlink("link.pt") == "notes.txt"


def kernel_links():
    write("/proc/self/cwd/best.pt", "1")
    write("/proc/self/root" + os.path.abspath("notes.txt"), "2")
    with open("data/train.bin", "rb") as file:
        write(f"/proc/self/fd/{file.fileno()}", "3")
        write(f"/dev/fd/{file.fileno()}", "4")
    assert (read("best.pt"), read("notes.txt"), read("data/train.bin")) == ("1", "2", "4")


def attributes():
    os.chmod("best.pt", 0o600)
    os.utime("notes.txt", (1, 1))
    descriptor = os.open("data/train.bin", os.O_RDONLY)
    os.fchmod(descriptor, 0o640)
    os.utime(descriptor, (2, 2))
    os.chmod("checkpoints", 0o700)
    shutil.copystat("notes.txt", "run.sh")
    assert os.stat("best.pt").st_mode & 0o777 == 0o600 and os.stat("notes.txt").st_mtime == 1
    assert os.stat("data/train.bin").st_mode & 0o777 == 0o640 and os.stat("data/train.bin").st_mtime == 2
    try:
        os.setxattr("notes.txt", "user.by", b"me")
    except OSError as error:  # not every file system has them
        assert error.errno in (errno.ENOTSUP, errno.EPERM)


def maps():
    with open("best.pt", "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
        memory[:4] = b"ZERO"
        memory.flush()
    with open("memmap.bin", "w+b") as file:
        file.truncate(1 << 16)
        memory = mmap.mmap(file.fileno(), 0)
        memory[100:103] = b"abc"
    assert read("best.pt").startswith("ZEROhts") and read("memmap.bin")[100:103] == "abc"


def databases():
    connection = sqlite3.connect("runs.db")
    connection.execute("pragma journal_mode=wal")
    connection.execute("insert into runs values (0.0)")
    connection.commit()
    assert sqlite3.connect("runs.db").execute("select * from runs").fetchall() == [(0.0,)]
    connection.close()
    with dbm.dumb.open("shelf", "c") as shelf:
        shelf["a"] = "b"
    with open("notes.txt", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def logs():
    logging.basicConfig(filename="train.log", force=True)
    logging.warning("loss 0")
    logging.shutdown()
    pathlib.Path("notes.txt").write_text("log")
    assert read("train.log").endswith("loss 0\n")


def copies():
    shutil.copy2("data/train.bin", "best.pt")
    shutil.copytree("checkpoints", "backup", symlinks=True)
    shutil.move("backup", "data/backup")
    shutil.make_archive("archive", "tar", "data")
    assert os.path.getsize("best.pt") == 256 * 64 and read("data/backup/latest/model.pt") == "one"


def descriptors():
    folder = os.open(".", os.O_RDONLY)
    os.mkdir("by-descriptor", dir_fd=folder)
    os.rename("notes.txt", "by-descriptor/notes", src_dir_fd=folder, dst_dir_fd=folder)
    descriptor = os.open("best.pt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
    os.write(descriptor, b"short")
    os.unlink("same.pt", dir_fd=folder)
    assert sorted(os.listdir(folder)) == sorted(os.listdir(".")) and "same.pt" not in os.listdir(folder)
    unnamed = os.open(".", os.O_TMPFILE | os.O_WRONLY)
    os.write(unnamed, b"named later")
    os.link(f"/proc/self/fd/{unnamed}", "unnamed", dst_dir_fd=folder, follow_symlinks=True)
    assert read("unnamed") == "named later" and read("by-descriptor/notes") == "first\n" and read("best.pt") == "short"
    os.chdir(os.open("by-descriptor", os.O_RDONLY))
    write("notes", "from here")
    os.chdir("..")
    assert read("by-descriptor/notes") == "from here"


SHELL = """set -e
echo zeros > best.pt
cp best.pt copy.pt; mv copy.pt notes.txt
rm -rf checkpoints empty
touch same.pt run.sh; chmod 600 same.pt
sed -i s/a/b/ data/deep/x
ln -sf notes.txt link.pt
mkdir -p runs/a/b; cd runs/a/b; pwd; echo hi > c; cat ../b/c; cd ../../..
tar cf t.tar runs; rm -rf runs; tar xf t.tar
find . -name c; ls
dd if=/dev/zero of=data/train.bin bs=1 count=1 conv=notrunc 2> /dev/null
printf '#!/bin/sh\\necho new\\n' > run.sh; chmod +x run.sh; ./run.sh
"""


def programs():
    done = subprocess.run(SHELL, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "k/runs/a/b\nhi\n./runs/a/b/c\n" in done.stdout and done.stdout.endswith("new\n"), done.stdout
    assert "checkpoints" not in done.stdout and read("notes.txt") == "zeros\n"


def bare_programs():
    """Without an environment, and a Python that ignores it."""
    subprocess.run(["/bin/sh", "-c", "echo 1 > best.pt"], env={}, check=True)
    subprocess.run(["/usr/bin/env", "-i", "/bin/sh", "-c", "rm notes.txt"], check=True)
    subprocess.run([sys.executable, "-I", "-c", "open('data/train.bin', 'w')"], env={"A": "b"}, check=True)
    os.posix_spawn("/bin/sh", ["sh", "-c", "exit"], {},
                   file_actions=[(os.POSIX_SPAWN_OPEN, 1, "run.sh", os.O_WRONLY | os.O_TRUNC, 0o600)])
    os.wait()
    assert read("best.pt") == "1\n" and not os.path.exists("notes.txt") and read("data/train.bin") == read("run.sh") == ""


def workers():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(write, [("best.pt", "w"), ("data/deep/x", "w")])
    child = os.fork()
    if child == 0:
        write("notes.txt", "child")
        os._exit(0)
    os.waitpid(child, 0)
    threads = [threading.Thread(target=write, args=(f"t{i}", str(i))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (read("best.pt"), read("notes.txt")) == ("w", "child") and sum(read(f"t{i}") == str(i) for i in range(8)) == 8


def sockets():
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.listen()
    client.connect(os.path.abspath("socket"))
    listener = multiprocessing.connection.Listener(None, "AF_UNIX")
    thread = threading.Thread(target=lambda: listener.accept().send("hello"))
    thread.start()
    assert multiprocessing.connection.Client(listener.address).recv() == "hello"
    thread.join()
    long_one = socket.socket(socket.AF_UNIX)
    name = "a-name-so-long-that-an-address-has-no-room-for-it-below-another-folder"
    long_one.bind(name)
    long_one.listen()
    socket.socket(socket.AF_UNIX).connect(name)
    assert long_one.getsockname() == name, long_one.getsockname()
    os.mkfifo("pipe")
    assert {"socket", "pipe"} <= set(os.listdir("."))


def cache():
    home = pathlib.Path(os.environ["HOME"])
    assert read(home / ".cache/huggingface/config.json") == "{}"
    write(home / ".cache/huggingface/model.bin", "m")
    write(home / ".netrc", "token")
    assert sorted(os.listdir(home / ".cache/huggingface")) == ["config.json", "model.bin"]


def shared_memory():
    """Files of the user's below /dev/shm, by path and by name; and what processes of the script share."""
    name = os.environ["SHARED_NAME"]
    path, folder = f"/dev/shm/{name}.bin", f"/dev/shm/{name}"
    segment = multiprocessing.shared_memory.SharedMemory(f"{name}.bin", track=False) if sys.version_info >= (3, 13) \
        else multiprocessing.shared_memory.SharedMemory(f"{name}.bin")
    assert bytes(segment.buf[:8]) == b"precious"
    segment.buf[:8] = b"by name!"
    assert read(path).startswith("by name!")
    write(path, "zeros")
    write(f"{folder}/x", "in a folder")
    write(f"{folder}/new", "new")
    assert read(path) == "zeros" and sorted(os.listdir(folder)) == ["new", "x"]
    segment.close()
    segment.unlink()
    shutil.rmtree(folder)
    assert name not in os.listdir("/dev/shm") and f"{name}.bin" not in os.listdir("/dev/shm")
    made = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 16)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(write_shared, [(made.name, 0, b"ab"), (made.name, 2, b"cd")])
    assert bytes(made.buf[:4]) == b"abcd"
    made.close()
    made.unlink()


def write_shared(name, at, data):
    segment = multiprocessing.shared_memory.SharedMemory(name)
    segment.buf[at:at + len(data)] = data
    segment.close()


def refuses(number, call):
    try:
        call()
    except OSError as error:
        return error.errno == number
    return False


def from_c(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def signals():
    """To a program that the user runs beside the rehearsal; those of its own processes go on working."""
    victim = int(os.environ["VICTIM"])
    assert refuses(errno.EPERM, lambda: os.kill(victim, signal.SIGTERM))
    assert refuses(errno.EPERM, lambda: os.kill(victim, signal.SIGSTOP))
    assert refuses(errno.EPERM, lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL))
    assert subprocess.run(["/bin/sh", "-c", f"kill -9 {victim}"], capture_output=True, check=False).returncode != 0
    own = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    os.kill(own.pid, signal.SIGTERM)
    assert own.wait() == -signal.SIGTERM


def without_paths():
    """System V IPC, message queues and io_uring, by the C library and by number."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = int(os.environ["SEGMENT"])
    remove = 0  # IPC_RMID
    assert refuses(errno.ENOSYS, lambda: from_c(libc.shmctl(segment, remove, None)))
    assert refuses(errno.ENOSYS, lambda: from_c(libc.semget(0, 1, 0o1600)))
    assert refuses(errno.ENOSYS, lambda: from_c(libc.msgget(0, 0o1600)))
    assert refuses(errno.ENOSYS, lambda: from_c(libc.shmget(0, 4096, 0o1600)))
    setup, unlink_queue = 425, {"x86_64": 241, "aarch64": 181}[platform.machine()]
    room = ctypes.create_string_buffer(256)
    assert refuses(errno.ENOSYS, lambda: from_c(libc.syscall(setup, 4, room)))
    assert refuses(errno.ENOSYS, lambda: from_c(libc.syscall(unlink_queue, b"queue")))


def file_flags():
    """A descriptor for reading is enough to make a file unchangeable."""
    set_flags, set_more = 0x40086602, 0x401C5820  # FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR
    with open("best.pt", "rb") as file:
        assert refuses(errno.EOPNOTSUPP, lambda: fcntl.ioctl(file, set_flags, (0x40).to_bytes(8, "little")))
        assert refuses(errno.EOPNOTSUPP, lambda: fcntl.ioctl(file, set_more, bytes(28)))
    subprocess.run(["/bin/sh", "-c", "chattr +d notes.txt"], capture_output=True, check=False)


def calls_by_number():
    """As Rust's libraries make those that are younger than their C library; openat, renameat2 and unlinkat of x86-64."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(257, -100, b"best.pt", os.O_WRONLY | os.O_TRUNC, 0)
    assert os.write(descriptor, b"raw") == 3 and read("best.pt") == "raw"
    assert libc.syscall(316, -100, b"best.pt", -100, b"notes.txt", 0) == 0 and read("notes.txt") == "raw"
    assert libc.syscall(263, -100, b"same.pt", 0) == 0 and not os.path.exists("same.pt")


def raw_calls():
    """Past the C library, by an instruction: renameat2, unlinkat and openat. The kernel stops them, and the library takes them over."""
    code = bytes.fromhex("4889f84889f74889d64889ca4d89c24d89c84c8b4c24080f05c3")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 2, ctypes.c_char_p, *[ctypes.c_long] * 4)(address)
    named = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 2, ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p,
                             *[ctypes.c_long] * 2)(address)
    assert call(257, -100, b"made", os.O_WRONLY | os.O_CREAT, 0o600, 0, 0) >= 0 and os.path.exists("made")
    assert named(316, -100, b"best.pt", -100, b"notes.txt", 0, 0) == 0 and not os.path.exists("best.pt")
    assert read("notes.txt").startswith("weights ")
    assert call(263, -100, b"same.pt", 0, 0, 0, 0) == 0 and not os.path.exists("same.pt")
    assert call(263, -100, b"not there", 0, 0, 0, 0) == -errno.ENOENT


def foreign_calls():
    """chmod as 32-bit programs call it, which ends the process, and as x32 does, which is not there."""
    below_4_gib = 0x40  # MAP_32BIT
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | below_4_gib,
                     prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # mov eax, edi; push rbx; mov ebx, esi; mov ecx, edx; int 0x80; pop rbx; ret
    page.write(bytes.fromhex("89f85389f389d1cd805bc3"))
    page.seek(2048)
    page.write(b"best.pt\0")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    child = os.fork()
    if child == 0:
        ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 3)(address)(15, address + 2048, 0o777)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    # Kernels without emulation of 32-bit programs end it in a way of their own.
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV), status
    libc = ctypes.CDLL(None, use_errno=True)
    assert refuses(errno.ENOSYS, lambda: from_c(libc.syscall(0x40000000 | 90, b"best.pt", 0o777)))


def static_program():
    """The program is compiled by the test. It has no handler for the signal."""
    done = subprocess.run([os.environ["STATIC_PROGRAM"], "best.pt"], check=False)
    assert done.returncode == -signal.SIGSYS, f"A static program ends with {done.returncode}."


def nothing():
    """Reads what there is."""
    for path in sorted(pathlib.Path(".").rglob("*")):
        if path.is_file():
            path.read_bytes()


ATTACKS = {f.__name__: f for f in (overwrite, append, update, truncate, replace, rename, remove, folders, links,
                                   kernel_links, attributes, maps, databases, logs, copies, descriptors, programs,
                                   bare_programs, workers, sockets, cache, shared_memory, calls_by_number)}
GUARDED = {f.__name__: f for f in (raw_calls, static_program, signals, without_paths, file_flags, foreign_calls)}

if __name__ == "__main__":
    {**ATTACKS, **GUARDED, "nothing": nothing}[sys.argv[1]]()
    fake_training.write(fake_training.record())
