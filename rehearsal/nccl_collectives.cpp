// NCCL's collectives. They move nothing except small known contents (known_contents.h), as if every other rank had sent
// the same. So the shapes that DDP compares are equal, and the sizes of gathered objects are sizes.
#include <nccl.h>

#include <cstring>
#include <string>

#include "rehearsal/collectives_log.h"
#include "rehearsal/device_memory.h"
#include "rehearsal/exported.h"
#include "rehearsal/known_contents.h"
#include "rehearsal/nccl_communicator.h"

using namespace fsdp::rehearsal;

namespace {

/// Copies the known values of the `size` bytes at `from` to `to`, `copies` times. Unknown bytes stay unknown.
void pass_on(void* to, const void* from, size_t size, int copies) {
  const std::optional<std::string> bytes = recall(address_of(from), size);
  for (int i = 0; i < copies; ++i) {
    const uint64_t target = address_of(to) + size * static_cast<size_t>(i);
    bytes ? remember(target, bytes->data(), size) : forget(target, size);
  }
}

template <class Number>
void multiply(std::string& bytes, int factor) {
  for (size_t at = 0; at + sizeof(Number) <= bytes.size(); at += sizeof(Number)) {
    Number value;
    std::memcpy(&value, &bytes[at], sizeof(Number));
    value = static_cast<Number>(value * static_cast<Number>(factor));
    std::memcpy(&bytes[at], &value, sizeof(Number));
  }
}

/// Multiplies equal contents by the number of ranks. False for types that programs do not count in.
bool add_up(std::string& bytes, ncclDataType_t type, int ranks) {
  switch (type) {
    case ncclInt32:
    case ncclUint32:
      multiply<uint32_t>(bytes, ranks);
      return true;
    case ncclInt64:
    case ncclUint64:
      multiply<uint64_t>(bytes, ranks);
      return true;
    case ncclFloat32:
      multiply<float>(bytes, ranks);
      return true;
    case ncclFloat64:
      multiply<double>(bytes, ranks);
      return true;
    default:
      return false;
  }
}

/// The result of a reduction at `to`: a sum is multiplied by the ranks; the mean, the largest and the smallest of equal
/// values are that value.
void reduce(void* to, const void* from, size_t elements, ncclDataType_t type, ncclRedOp_t operation, int ranks) {
  const size_t size = elements * bytes_of(type);
  std::optional<std::string> bytes = recall(address_of(from), size);
  const bool same = operation == ncclMax || operation == ncclMin || operation == ncclAvg;
  if (bytes && (same || (operation == ncclSum && add_up(*bytes, type, ranks)))) {
    remember(address_of(to), bytes->data(), size);
  } else {
    forget(address_of(to), size);
  }
}

uint64_t full(const Communicator& communicator, size_t elements) {
  return elements * static_cast<uint64_t>(communicator.ranks);
}

}  // namespace

FSDP_STUB ncclResult_t ncclAllReduce(const void* from, void* to, size_t elements, ncclDataType_t type,
                                     ncclRedOp_t operation, ncclComm_t handle, cudaStream_t stream) {
  log_collective(Counter::AllReduce, elements, type, behind(handle), stream);
  reduce(to, from, elements, type, operation, behind(handle).ranks);
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclReduce(const void* from, void* to, size_t elements, ncclDataType_t type,
                                  ncclRedOp_t operation, int root, ncclComm_t handle, cudaStream_t stream) {
  log_collective(Counter::Reduce, elements, type, behind(handle), stream);
  if (behind(handle).rank == root) reduce(to, from, elements, type, operation, behind(handle).ranks);
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclReduceScatter(const void*, void* to, size_t elements, ncclDataType_t type, ncclRedOp_t,
                                         ncclComm_t handle, cudaStream_t stream) {
  log_collective(Counter::ReduceScatter, full(behind(handle), elements), type, behind(handle), stream);
  forget(address_of(to), elements * bytes_of(type));
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclAllGather(const void* from, void* to, size_t elements, ncclDataType_t type,
                                     ncclComm_t handle, cudaStream_t stream) {
  log_collective(Counter::AllGather, full(behind(handle), elements), type, behind(handle), stream);
  pass_on(to, from, elements * bytes_of(type), behind(handle).ranks);
  return ncclSuccess;
}

// The root's data is assumed to equal ours.
FSDP_STUB ncclResult_t ncclBroadcast(const void* from, void* to, size_t elements, ncclDataType_t type, int root,
                                     ncclComm_t handle, cudaStream_t stream) {
  if (keep_in_group(address_of(from), address_of(to), elements, type, root, handle, stream)) return ncclSuccess;
  log_collective(Counter::Broadcast, elements, type, behind(handle), stream);
  if (from != nullptr && to != nullptr && from != to) pass_on(to, from, elements * bytes_of(type), 1);
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclBcast(void*, size_t elements, ncclDataType_t type, int, ncclComm_t handle,
                                 cudaStream_t stream) {
  log_collective(Counter::Broadcast, elements, type, behind(handle), stream);
  return ncclSuccess;
}

// Each rank is assumed to send us our own data.
FSDP_STUB ncclResult_t ncclAlltoAll(const void* from, void* to, size_t elements, ncclDataType_t type, ncclComm_t handle,
                                    cudaStream_t stream) {
  const Communicator& communicator = behind(handle);
  log_collective(Counter::AllToAll, full(communicator, elements), type, communicator, stream);
  const size_t size = elements * bytes_of(type);
  pass_on(to, static_cast<const char*>(from) + size * static_cast<size_t>(communicator.rank), size, communicator.ranks);
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclGather(const void* from, void* to, size_t elements, ncclDataType_t type, int root,
                                  ncclComm_t handle, cudaStream_t stream) {
  log_collective(Counter::Gather, full(behind(handle), elements), type, behind(handle), stream);
  if (behind(handle).rank == root) pass_on(to, from, elements * bytes_of(type), behind(handle).ranks);
  return ncclSuccess;
}

FSDP_STUB ncclResult_t ncclScatter(const void*, void* to, size_t elements, ncclDataType_t type, int, ncclComm_t handle,
                                   cudaStream_t stream) {
  log_collective(Counter::Scatter, full(behind(handle), elements), type, behind(handle), stream);
  forget(address_of(to), elements * bytes_of(type));
  return ncclSuccess;
}

// A reduction with a factor: a separate operation, whose results are unknown.
FSDP_STUB ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* operation, void*, ncclDataType_t, ncclScalarResidence_t,
                                                ncclComm_t) {
  *operation = ncclNumOps;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  return ncclSuccess;
}
