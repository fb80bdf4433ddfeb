#pragma once

// Queries of a program to the stub GPU: counters, the collectives that were issued, what was read back.
//
// Plain C, so that Python reaches it with ctypes.CDLL(None) in a process into which the stub is preloaded. Every
// function may be called from any thread.

#include <cstdint>

#include "rehearsal/exported.h"

extern "C" {

/// One collective, in the order in which the program issued it.
struct stub_gpu_collective {
  char kind[16];      ///< all_gather, reduce_scatter, all_reduce, broadcast, reduce, all_to_all, send, recv, gather,
                      ///< scatter.
  char dtype[16];     ///< As torch calls it: float32, bfloat16, int64, uint8, ...
  uint64_t elements;  ///< Elements of the full tensor: the output of an all-gather, the input of a reduce-scatter.
  uint64_t payload_bytes;  ///< The same in bytes.
  int32_t group_size;      ///< Ranks of the communicator.
  int32_t communicator;    ///< 0, 1, ... in the order in which communicators were made.
  int32_t group_rank;      ///< Our rank in it.
  int32_t reserved;        ///< 0.
  uint64_t sequence;       ///< 0, 1, ... over all communicators.
};

/// The value of one counter, 0 for a name that never moved. Bytes: used_bytes, peak_used_bytes (of the device that
/// holds most), context_bytes, nccl_bytes. Calls: the names of counters.cpp.
FSDP_STUB_API uint64_t stub_gpu_counter(const char* name);

/// From here on peak_used_bytes is the largest use since now.
FSDP_STUB_API void stub_gpu_reset_peak(void);

/// Copies the records from index `from`, at most `room` of them, and returns how many there are in all.
FSDP_STUB_API uint64_t stub_gpu_collectives(struct stub_gpu_collective* out, uint64_t from, uint64_t room);

/// Says how many ranks the group of the next ncclCommSplit has. NCCL learns it from the other ranks, which are not
/// there; who makes the group (torch.distributed) knows. Not said: as many as the parent, and stub_gpu_missing has a
/// line about it.
FSDP_STUB_API void stub_gpu_next_split(int32_t ranks);

/// Has `callback` called, outside every lock, each time that unknown device contents are copied to the host: with the
/// operation that asked ("nonzero", "item", "copy", ...) and the bytes. Null: no more.
FSDP_STUB_API void stub_gpu_on_readback(void (*callback)(const char* operation, uint64_t bytes));

/// Leaves a value for the next read of unknown device contents by this thread, of at most `bytes` bytes; several are
/// handed out in order.
FSDP_STUB_API void stub_gpu_answer_readback(const void* value, uint64_t bytes);

/// Takes back the answers of this thread that nobody asked for.
FSDP_STUB_API void stub_gpu_forget_answers(void);

/// The functions that were called although the stub does not have them, sorted, separated by newlines, as much as fits
/// with a final 0. Returns the bytes of the whole list without the 0.
FSDP_STUB_API uint64_t stub_gpu_missing(char* out, uint64_t room);

/// The version of the stub.
FSDP_STUB_API const char* stub_gpu_version(void);
}
