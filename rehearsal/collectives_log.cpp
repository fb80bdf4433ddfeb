#include "rehearsal/collectives_log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <vector>

#include "rehearsal/captures.h"
#include "rehearsal/options.h"
#include "rehearsal/stub_gpu.h"
#include "rehearsal/work.h"

namespace fsdp::rehearsal {
namespace {

struct Log {
  std::mutex mutex;
  std::vector<stub_gpu_collective> records;
};

Log& log() {
  static Log* const instance = new Log;  // never destroyed: static destructors still call us
  return *instance;
}

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return "int8";
    case ncclUint8:
      return "uint8";
    case ncclInt32:
      return "int32";
    case ncclUint32:
      return "uint32";
    case ncclInt64:
      return "int64";
    case ncclUint64:
      return "uint64";
    case ncclFloat16:
      return "float16";
    case ncclFloat32:
      return "float32";
    case ncclFloat64:
      return "float64";
    case ncclBfloat16:
      return "bfloat16";
    case ncclFloat8e4m3:
      return "float8_e4m3fn";
    case ncclFloat8e5m2:
      return "float8_e5m2";
    default:
      return "unknown";
  }
}

}  // namespace

void log_collective(Counter kind, uint64_t elements, ncclDataType_t type, const Communicator& communicator,
                    cudaStream_t stream) {
  stub_gpu_collective record{};
  std::snprintf(record.kind, sizeof(record.kind), "%s", name_of(kind));
  std::snprintf(record.dtype, sizeof(record.dtype), "%s", name_of(type));
  record.elements = elements;
  record.payload_bytes = elements * bytes_of(type);
  record.group_size = communicator.ranks;
  record.communicator = communicator.number;
  record.group_rank = communicator.rank;
  if (captured(stream, record)) return;
  // In NCCL each kernel of a communicator waits for the one before it (ncclLaunchPrepare in its enqueue.cc); a rank
  // that is alone launches a copy instead.
  if (communicator.ranks > 1) submit_in_order(communicator.number, stream);
  log_collective(record);
  static std::atomic<uint64_t> collectives{0};
  if (++collectives == options().fault_at && options().fault == Fault::Hang) hang(stream);
}

void log_collective(stub_gpu_collective record) {
  count(Counter::Collective);
  count(counter_named(record.kind));
  trace(Trace::Nccl, "%s of %lu %s, communicator %d of %d ranks", record.kind, record.elements, record.dtype,
        record.communicator, record.group_size);
  Log& l = log();
  const std::lock_guard lock(l.mutex);
  record.sequence = l.records.size();
  l.records.push_back(record);
}

}  // namespace fsdp::rehearsal

uint64_t stub_gpu_collectives(struct stub_gpu_collective* out, uint64_t from, uint64_t room) {
  auto& l = fsdp::rehearsal::log();
  const std::lock_guard lock(l.mutex);
  const uint64_t total = l.records.size();
  const uint64_t first = std::min(from, total);
  std::copy_n(l.records.begin() + static_cast<std::ptrdiff_t>(first), std::min(room, total - first), out);
  return total;
}
