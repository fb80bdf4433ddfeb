"""Does the stub GPU do what a card does? Calls CUDA, NCCL and NVML as a program would, without PyTorch.

    stub_api_test.py LIBFSDP-STUB-GPU.SO [unittest's options]

Each case is a function that runs in a process of its own, with the stub preloaded and the environment that it names.
"""

import ctypes
import os
import subprocess
import sys
import unittest
from collections.abc import Callable

STUB = os.path.realpath(sys.argv[1]) if len(sys.argv) > 1 else ""
MIB = 1 << 20
NOT_READY, OUT_OF_MEMORY, INVALID_VALUE, INVALID_DEVICE, NOT_SUPPORTED = 600, 2, 1, 101, 801
UINT8, INT32, INT64, FLOAT32, BFLOAT16 = 1, 2, 4, 7, 9  # ncclDataType_t
SUM, MAXIMUM = 0, 2  # ncclRedOp_t
CASES: dict[str, tuple[Callable[[], None], dict[str, str]]] = {}

cuda = ctypes.CDLL(None)


def case(**environment: str) -> Callable:
    """Declares a case with its STUB_GPU_ variables, their names without that beginning and in small letters."""
    def declare(function: Callable[[], None]) -> Callable[[], None]:
        variables = {f"STUB_GPU_{name.upper()}": value for name, value in environment.items()}
        CASES[function.__name__] = (function, variables)
        return function
    return declare


def counter(name: str) -> int:
    cuda.stub_gpu_counter.restype = ctypes.c_uint64
    return cuda.stub_gpu_counter(name.encode())


def malloc(size: int) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer


def copy(to, source, size: int) -> None:
    assert cuda.cudaMemcpy(to, source, ctypes.c_size_t(size), 4) == 0


def read(pointer, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(b"\xff" * size, size)
    copy(buffer, pointer, size)
    return buffer.raw


def at(pointer: ctypes.c_void_p, offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(pointer.value + offset)


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def launch(grid: int = 1, threads: int = 32) -> int:
    return cuda.cudaLaunchKernel(None, Dim3(grid, 1, 1), Dim3(threads, 1, 1), None, ctypes.c_size_t(0), None)


def new(create: Callable) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert create(ctypes.byref(handle)) == 0
    return handle


@case(bytes=str(10 * MIB), context_bytes=str(3 * MIB))
def memory_is_used_up_when_the_card_is_full() -> None:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    assert (free.value, total.value) == (7 * MIB, 10 * MIB), "the context is taken from the start"
    first = malloc(2 * MIB + 1)  # two pages
    pointer = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * MIB)) == OUT_OF_MEMORY
    assert cuda.cudaGetLastError() == OUT_OF_MEMORY and cuda.cudaGetLastError() == 0
    second = malloc(2 * MIB)
    assert counter("used_bytes") == counter("peak_used_bytes") == 9 * MIB
    assert cuda.cudaFree(first) == 0 and cuda.cudaFree(first) == INVALID_VALUE
    assert (counter("used_bytes"), counter("peak_used_bytes")) == (5 * MIB, 9 * MIB)
    cuda.stub_gpu_reset_peak()
    assert counter("peak_used_bytes") == 5 * MIB and counter("malloc_failed") == 1
    assert malloc(2 * MIB).value > second.value > first.value, "addresses rise and are not given out twice"


@case(addresses="down")
def addresses_fall_when_asked_to() -> None:
    assert malloc(1).value > malloc(1).value


@case(count="2", bytes=str(8 * MIB))
def each_card_has_memory_of_its_own() -> None:
    malloc(8 * MIB)
    assert cuda.cudaSetDevice(1) == 0 and cuda.cudaSetDevice(2) == INVALID_DEVICE
    malloc(6 * MIB)
    assert counter("used_bytes") == 8 * MIB, "of the card that holds most"
    device = ctypes.c_int()
    assert cuda.cudaGetDevice(ctypes.byref(device)) == 0 and device.value == 1


@case(bytes=str(8 * MIB))
def virtual_memory_is_given_back_when_it_is_released_and_unmapped() -> None:
    properties = (ctypes.c_uint64 * 16)()  # CUmemAllocationProp: device 0
    address, piece, other = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    size, zero = ctypes.c_size_t(6 * MIB), ctypes.c_size_t(0)
    flags = ctypes.c_ulonglong(0)
    assert cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(1 << 40), zero, flags, flags) == 0
    assert cuda.cuMemCreate(ctypes.byref(piece), size, properties, flags) == 0
    assert cuda.cuMemCreate(ctypes.byref(other), size, properties, flags) == OUT_OF_MEMORY
    assert cuda.cuMemMap(address, size, zero, piece, flags) == 0
    assert cuda.cuMemMap(address, size, zero, piece, flags) != 0, "mapped already"
    assert cuda.cuMemRelease(piece) == 0 and counter("used_bytes") == 6 * MIB
    assert cuda.cuMemUnmap(address, size) == 0 and counter("used_bytes") == 0


@case()
def contents_that_the_host_sent_come_back_until_a_kernel_runs() -> None:
    seen = []
    listen = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)(lambda what, size: seen.append((what, size)))
    cuda.stub_gpu_on_readback(listen)
    card, other = malloc(MIB), malloc(MIB)
    copy(card, b"01234567", 8)
    copy(at(card, 8), b"89", 2)
    assert read(at(card, 6), 4) == b"6789", "sent in two parts, read in one"
    copy(at(card, 2), b"xx", 2)
    copy(other, card, 8)
    assert read(other, 8) == b"01xx4567"
    assert cuda.cudaMemset(at(card, 4), 1, ctypes.c_size_t(2)) == 0
    assert read(card, 8) == b"01xx\1\00167" and seen == []
    assert read(card, 12) == bytes(12) and seen == [(b"copy", 12)], "two bytes are unknown, so all are zeros"
    assert launch() == 0
    assert read(card, 4) == bytes(4) and seen[1:] == [(b"copy", 4)]
    big = ctypes.create_string_buffer(b"1" * 70000, 70000)
    copy(card, big, 70000)
    assert read(card, 2) == bytes(2), "large contents are not kept"
    assert counter("readback") == 3


@case()
def a_launch_that_no_card_takes_is_refused() -> None:
    assert launch(threads=1024) == 0 and launch(threads=1025) == 9 and launch(grid=0) == 9 and counter("kernel") == 3


def recorded(stream: ctypes.c_void_p) -> ctypes.c_void_p:
    event = new(cuda.cudaEventCreate)
    assert cuda.cudaEventRecord(event, stream) == 0
    return event


def work_on(stream: ctypes.c_void_p) -> None:
    assert cuda.cudaMemsetAsync(malloc(1), 0, ctypes.c_size_t(1), stream) == 0


@case()
def work_is_done_at_once() -> None:
    stream = new(cuda.cudaStreamCreate)
    work_on(stream)
    assert cuda.cudaEventQuery(recorded(stream)) == 0


@case(events="hold")
def held_work_is_done_when_the_host_has_waited_for_it() -> None:
    first, second, third = (new(cuda.cudaStreamCreate) for _ in range(3))
    work_on(first)
    work_on(third)
    assert cuda.cudaEventQuery(new(cuda.cudaEventCreate)) == 0, "never recorded"
    on_first, on_third = recorded(first), recorded(third)
    assert cuda.cudaStreamWaitEvent(second, on_first, 0) == 0
    work_on(first)
    after = recorded(first)
    assert cuda.cudaStreamQuery(second) == NOT_READY
    assert [cuda.cudaEventQuery(event) for event in (on_first, after, on_third)] == [NOT_READY] * 3
    assert cuda.cudaStreamSynchronize(second) == 0
    assert cuda.cudaEventQuery(on_first) == 0, "the second stream waited for it"
    assert [cuda.cudaEventQuery(event) for event in (after, on_third)] == [NOT_READY] * 2
    assert cuda.cudaEventSynchronize(on_third) == 0 and cuda.cudaEventQuery(on_third) == 0
    assert cuda.cudaFree(malloc(1)) == 0 and cuda.cudaEventQuery(after) == 0, "cudaFree waits for the device"


@case(events="hold")
def a_stream_without_work_has_nothing_left_to_finish() -> None:
    stream, other = new(cuda.cudaStreamCreate), new(cuda.cudaStreamCreate)
    assert cuda.cudaEventQuery(recorded(stream)) == 0, "never given any"
    work_on(stream)
    assert cuda.cudaEventQuery(recorded(stream)) == NOT_READY
    assert cuda.cudaStreamSynchronize(stream) == 0
    assert cuda.cudaEventQuery(recorded(stream)) == 0, "given none since the host waited"
    assert cuda.cudaEventQuery(recorded(None)) == NOT_READY, "libraries run on the default stream"
    assert cuda.cudaStreamWaitEvent(stream, recorded(other), 0) == 0
    assert cuda.cudaEventQuery(recorded(stream)) == 0, "the event of an idle stream is none"
    work_on(other)
    assert cuda.cudaStreamWaitEvent(stream, recorded(other), 0) == 0
    assert cuda.cudaEventQuery(recorded(stream)) == NOT_READY


@case(events="lag:2")
def lagging_work_is_done_after_so_many_kernels() -> None:
    stream = new(cuda.cudaStreamCreate)
    work_on(stream)
    event = recorded(stream)
    assert launch() == 0 and cuda.cudaEventQuery(event) == NOT_READY
    assert launch() == 0 and cuda.cudaEventQuery(event) == 0


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Collective(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char * 16), ("dtype", ctypes.c_char * 16), ("elements", ctypes.c_uint64),
                ("payload_bytes", ctypes.c_uint64), ("group_size", ctypes.c_int32), ("communicator", ctypes.c_int32),
                ("group_rank", ctypes.c_int32), ("reserved", ctypes.c_int32), ("sequence", ctypes.c_uint64)]


def communicator(ranks: int, rank: int, wanted: int = 0) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert cuda.ncclCommInitRank(ctypes.byref(handle), ranks, UniqueId(), rank) == wanted
    return handle


def collectives(first: int = 0) -> list[tuple]:
    records = (Collective * 16)()
    cuda.stub_gpu_collectives.restype = ctypes.c_uint64
    total = cuda.stub_gpu_collectives(records, ctypes.c_uint64(first), ctypes.c_uint64(16))
    return [(r.kind.decode(), r.dtype.decode(), r.elements, r.payload_bytes, r.group_size, r.communicator, r.group_rank)
            for r in records[:total - first]]


@case()
def collectives_are_recorded_by_their_full_tensor() -> None:
    world, pair = communicator(8, 3), communicator(2, 1)
    n = ctypes.c_size_t(100)
    card, out = malloc(MIB), malloc(MIB)
    assert cuda.ncclAllGather(card, out, n, BFLOAT16, world, None) == 0
    assert cuda.ncclReduceScatter(card, out, n, FLOAT32, SUM, world, None) == 0
    assert cuda.ncclAllReduce(card, out, n, FLOAT32, SUM, pair, None) == 0
    assert cuda.ncclBroadcast(card, out, n, UINT8, 0, pair, None) == 0
    assert cuda.ncclReduce(card, out, n, INT64, SUM, 0, pair, None) == 0
    assert collectives() == [
        ("all_gather", "bfloat16", 800, 1600, 8, 0, 3), ("reduce_scatter", "float32", 800, 3200, 8, 0, 3),
        ("all_reduce", "float32", 100, 400, 2, 1, 1), ("broadcast", "uint8", 100, 100, 2, 1, 1),
        ("reduce", "int64", 100, 800, 2, 1, 1)]
    assert collectives(4) == collectives()[4:] and collectives(5) == []
    assert (counter("collective"), counter("all_gather"), counter("communicator")) == (5, 1, 2)


@case()
def sends_and_receives_of_one_group_are_the_all_to_all_that_they_make() -> None:
    world = communicator(4, 1)
    send, receive = malloc(MIB), malloc(MIB)
    copy(send, b"abcd" * 4, 16)
    assert cuda.ncclGroupStart() == 0
    for peer in range(4):
        assert cuda.ncclSend(at(send, 4 * peer), ctypes.c_size_t(1), INT32, peer, world, None) == 0
        assert cuda.ncclRecv(at(receive, 4 * peer), ctypes.c_size_t(1), INT32, peer, world, None) == 0
    assert cuda.ncclGroupEnd() == 0
    assert collectives() == [("all_to_all", "int32", 4, 16, 4, 0, 1)]
    assert read(receive, 16) == b"abcd" * 4, "each rank sends us what we send ourselves"
    assert cuda.ncclGroupStart() == 0
    assert cuda.ncclSend(send, ctypes.c_size_t(5), INT32, 2, world, None) == 0
    assert cuda.ncclRecv(receive, ctypes.c_size_t(6), INT32, 0, world, None) == 0
    assert cuda.ncclGroupEnd() == 0
    assert collectives(1) == [("send", "int32", 5, 20, 4, 0, 1), ("recv", "int32", 6, 24, 4, 0, 1)], "a pipeline"


@case()
def small_known_contents_pass_through_collectives() -> None:
    world = communicator(3, 0)
    card, out = malloc(MIB), malloc(MIB)
    copy(card, (5).to_bytes(8, "little"), 8)
    one = ctypes.c_size_t(1)
    assert cuda.ncclAllReduce(card, out, one, INT64, SUM, world, None) == 0
    assert int.from_bytes(read(out, 8), "little") == 15
    assert cuda.ncclAllReduce(card, out, one, INT64, MAXIMUM, world, None) == 0
    assert int.from_bytes(read(out, 8), "little") == 5
    assert cuda.ncclAllGather(card, out, one, INT64, world, None) == 0
    assert read(out, 24) == (5).to_bytes(8, "little") * 3 and counter("readback") == 0
    assert cuda.ncclReduceScatter(card, card, one, INT64, SUM, world, None) == 0
    assert read(card, 8) == bytes(8) and counter("readback") == 1


def capture_of(stream: ctypes.c_void_p) -> int:
    status, number = ctypes.c_int(), ctypes.c_ulonglong()
    assert cuda.cudaStreamGetCaptureInfo_v2(stream, ctypes.byref(status), ctypes.byref(number), None, None, None) == 0
    assert status.value == (number.value > 0), "active or none"
    return number.value


@case()
def a_graph_issues_its_collectives_when_it_is_launched() -> None:
    stream, forked, outside = (new(cuda.cudaStreamCreate) for _ in range(3))
    world, card, graph, executable = communicator(2, 0), malloc(MIB), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cudaStreamBeginCapture(stream, 0) == 0 and capture_of(stream) > 0 == capture_of(forked)
    assert cuda.cudaStreamWaitEvent(forked, recorded(stream), 0) == 0 and capture_of(forked) == capture_of(stream)
    assert cuda.ncclAllReduce(card, card, ctypes.c_size_t(4), FLOAT32, SUM, world, forked) == 0
    assert collectives() == [] and capture_of(outside) == 0
    assert cuda.cudaStreamSynchronize(forked) == cuda.cudaDeviceSynchronize() == 900, "cudaErrorStreamCaptureUnsupported"
    assert cuda.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0 and capture_of(forked) == capture_of(stream) == 0
    assert cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) != 0, "it has ended"
    assert cuda.cudaGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    assert cuda.cudaGraphDestroy(graph) == 0
    assert cuda.cudaGraphLaunch(executable, outside) == cuda.cudaGraphLaunch(executable, outside) == 0
    assert collectives() == [("all_reduce", "float32", 4, 16, 2, 0, 0)] * 2 and counter("graph_launch") == 2
    assert cuda.cudaGraphExecDestroy(executable) == 0


@case(bytes=str(10 * MIB), nccl_bytes=f"2:{MIB},8:{4 * MIB},*:{6 * MIB}")
def communicators_take_device_memory() -> None:
    communicator(1, 0)
    assert counter("nccl_bytes") == 0
    communicator(2, 0)
    world = communicator(8, 0)
    assert counter("nccl_bytes") == counter("used_bytes") == 5 * MIB
    communicator(16, 0, wanted=1)  # ncclUnhandledCudaError: out of memory
    assert cuda.ncclCommDestroy(world) == 0 and counter("nccl_bytes") == MIB
    communicator(16, 0)
    assert counter("used_bytes") == 7 * MIB


@case()
def a_split_has_the_ranks_that_it_was_said_to_have() -> None:
    world, half, unsaid, ranks = communicator(8, 5), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    cuda.stub_gpu_next_split(4)
    assert cuda.ncclCommSplit(world, 7, 1, ctypes.byref(half), None) == 0
    assert cuda.ncclCommCount(half, ctypes.byref(ranks)) == 0 and ranks.value == 4
    assert missing() == ""
    assert cuda.ncclCommSplit(world, 7, 1, ctypes.byref(unsaid), None) == 0
    assert cuda.ncclCommCount(unsaid, ctypes.byref(ranks)) == 0 and ranks.value == 8
    assert missing() == "the size of a group made by ncclCommSplit"


def missing(room: int = 1000) -> str:
    text = ctypes.create_string_buffer(room)
    cuda.stub_gpu_missing(text, ctypes.c_uint64(room))
    return text.value.decode()


@case()
def what_is_not_there_is_named() -> None:
    assert cuda.cudaMallocAsync(None, 0, None) == NOT_SUPPORTED and cuda.cudaFreeAsync(None, None) == NOT_SUPPORTED
    function = ctypes.c_void_p()
    assert cuda.cudaGetDriverEntryPointByVersion(b"cuFly", ctypes.byref(function), 12000, ctypes.c_uint64(0), None) == 0
    assert missing() == "cudaFreeAsync\ncudaMallocAsync", "asking for a function of the driver is not calling it"
    assert ctypes.CFUNCTYPE(ctypes.c_int)(function.value)() == NOT_SUPPORTED
    assert missing() == "cuFly\ncudaFreeAsync\ncudaMallocAsync" and missing(6) == "cuFly"


@case(name="Tesla T4", compute_capability="75", sms="40", count="2", bytes=str(100 * MIB), context_bytes=str(MIB))
def cuda_12_and_nvml_say_the_same_of_the_card() -> None:
    properties = ctypes.create_string_buffer(1032)
    assert cuda.cudaGetDeviceProperties_v2(properties, 1) == 0
    integer = lambda offset: int.from_bytes(properties.raw[offset:offset + 4], "little")  # noqa: E731
    assert properties.raw.startswith(b"Tesla T4\0") and integer(288) == 100 * MIB
    assert (integer(360), integer(364), integer(388)) == (7, 5, 40)
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle, number, memory = ctypes.c_void_p(), ctypes.c_uint(), (ctypes.c_uint64 * 3)()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) == 0 and number.value == 2
    assert nvml.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:02:00.0", ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetIndex(handle, ctypes.byref(number)) == 0 and number.value == 1
    assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0 and list(memory) == [100 * MIB, 99 * MIB, MIB]
    assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(handle)) != 0


class StubTest(unittest.TestCase):
    def run_python(self, arguments: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess:
        env = {name: value for name, value in os.environ.items() if not name.startswith("STUB_GPU_")}
        env.update(variables, LD_PRELOAD=STUB)
        return subprocess.run([sys.executable, "-S", *arguments], env=env, text=True, capture_output=True, timeout=900)

    def test_every_wrong_option_is_reported(self) -> None:
        result = self.run_python(["-c", "print('ran')"], {
            "STUB_GPU_SMS": "many", "STUB_GPU_BYTES": "80G", "STUB_GPU_EVENTS": "lag:0", "STUB_GPU_ADDRESSES": "left",
            "STUB_GPU_NCCL_BYTES": "8:1,x:2", "STUB_GPU_TRACE": "memory,all", "STUB_GPU_COUNT": "0"})
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        for name, found in (("SMS", "many"), ("BYTES", "80G"), ("EVENTS", "lag:0"), ("ADDRESSES", "left"),
                            ("NCCL_BYTES", "8:1,x:2"), ("TRACE", "memory,all"), ("COUNT", "0")):
            self.assertIn(f'stub GPU: STUB_GPU_{name} is "{found}", but it takes ', result.stderr)

    def test_cases(self) -> None:
        for name, (_, variables) in CASES.items():
            with self.subTest(name):
                result = self.run_python([__file__, STUB, "--inside", name], variables)
                self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    if not os.path.isfile(STUB):
        sys.exit(__doc__)
    if sys.argv[2:3] == ["--inside"]:
        CASES[sys.argv[3]][0]()
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:])
