#pragma once

// A program's interface to the stub GPU: counters, the issued collectives, readbacks.
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
  char dtype[16];     ///< In torch's words: float32, bfloat16, int64, uint8, ...
  uint64_t elements;  ///< Elements of the full tensor: the output of an all-gather, the input of a reduce-scatter.
  uint64_t payload_bytes;  ///< The same in bytes.
  int32_t group_size;      ///< Ranks of the communicator.
  int32_t communicator;    ///< 0, 1, ... in the order in which communicators were made.
  int32_t group_rank;      ///< Our rank in it.
  int32_t reserved;        ///< 0.
  uint64_t sequence;       ///< 0, 1, ... over all communicators.
};

/// The value of one counter, 0 for a name that never moved. Bytes: used_bytes, peak_used_bytes (of the device with the
/// largest peak), context_bytes, nccl_bytes. Calls: the names of counters.cpp.
FSDP_STUB_API uint64_t stub_gpu_counter(const char* name);

/// Sets the peak to the current use.
FSDP_STUB_API void stub_gpu_reset_peak(void);

/// Copies the records from index `from`, at most `room` of them, and returns the number of all records.
FSDP_STUB_API uint64_t stub_gpu_collectives(struct stub_gpu_collective* out, uint64_t from, uint64_t room);

/// Sets how many ranks the group of the next ncclCommSplit has. NCCL learns it from the other ranks, which do not
/// exist; the caller that makes the group (torch.distributed) knows. Defaults to the parent's number, with a line in
/// stub_gpu_missing.
FSDP_STUB_API void stub_gpu_next_split(int32_t ranks);

/// Calls `callback`, outside every lock, each time that unknown device contents are copied to the host, with the
/// operation that reads ("nonzero", "item", "copy", ...) and the bytes. Null ends it.
FSDP_STUB_API void stub_gpu_on_readback(void (*callback)(const char* operation, uint64_t bytes));

/// Stores a value for the next read of unknown device contents by this thread, of at most `bytes` bytes; several are
/// used in order.
FSDP_STUB_API void stub_gpu_answer_readback(const void* value, uint64_t bytes);

/// Drops the answers of this thread that were not used.
FSDP_STUB_API void stub_gpu_forget_answers(void);

/// The functions that were called although the stub does not have them, sorted, separated by newlines, as much as fits
/// with a final 0. Returns the bytes of the whole list without the 0.
FSDP_STUB_API uint64_t stub_gpu_missing(char* out, uint64_t room);

/// The version of the stub.
FSDP_STUB_API const char* stub_gpu_version(void);
}
