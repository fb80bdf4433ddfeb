// NCCL's send, recv and groups. PyTorch makes an all-to-all of them: in one group, a send to each rank and a receive
// from each, itself included. Such a group is logged as the all-to-all that it is. Any other sends and receives
// (pipelines, gather, scatter) stay what they are.
#include <nccl.h>

#include <algorithm>
#include <vector>

#include "rehearsal/collectives_log.h"
#include "rehearsal/device_memory.h"
#include "rehearsal/exported.h"
#include "rehearsal/known_contents.h"
#include "rehearsal/nccl_communicator.h"

using namespace fsdp::rehearsal;

namespace {

struct Transfer {
  bool is_send;
  uint64_t buffer;
  uint64_t elements;
  ncclDataType_t type;
  int peer;
  const Communicator* communicator;
  cudaStream_t stream;

  uint64_t bytes() const { return elements * bytes_of(type); }
};

/// Groups belong to a thread, and nest.
thread_local int open_groups = 0;
thread_local std::vector<Transfer> grouped;

void log_single(const Transfer& transfer) {
  log_collective(transfer.is_send ? Counter::Send : Counter::Recv, transfer.elements, transfer.type,
                 *transfer.communicator, transfer.stream);
}

const Transfer* with_ourselves(const std::vector<Transfer>& transfers, bool is_send) {
  const auto found = std::ranges::find_if(
      transfers, [&](const Transfer& t) { return t.is_send == is_send && t.peer == t.communicator->rank; });
  return found == transfers.end() ? nullptr : &*found;
}

/// All transfers of one communicator in one group.
void log_together(const std::vector<Transfer>& transfers) {
  const Transfer* const own_send = with_ourselves(transfers, true);
  if (own_send == nullptr || with_ourselves(transfers, false) == nullptr) {
    std::ranges::for_each(transfers, log_single);
    return;
  }
  uint64_t sent = 0;
  // Each rank is taken to send us what we send ourselves.
  const std::optional<std::string> contents = recall(own_send->buffer, own_send->bytes());
  for (const Transfer& transfer : transfers) {
    if (transfer.is_send) {
      sent += transfer.elements;
    } else if (contents && contents->size() == transfer.bytes()) {
      remember(transfer.buffer, contents->data(), contents->size());
    }
  }
  log_collective(Counter::AllToAll, sent, own_send->type, *own_send->communicator, own_send->stream);
}

ncclResult_t transfer(const Transfer& which) {
  if (!which.is_send) forget(which.buffer, which.bytes());
  if (open_groups > 0) {
    grouped.push_back(which);
  } else {
    log_single(which);
  }
  return ncclSuccess;
}

}  // namespace

FSDP_STUB ncclResult_t ncclSend(const void* from, size_t elements, ncclDataType_t type, int peer, ncclComm_t handle,
                                cudaStream_t stream) {
  return transfer({true, address_of(from), elements, type, peer, &behind(handle), stream});
}
FSDP_STUB ncclResult_t ncclRecv(void* to, size_t elements, ncclDataType_t type, int peer, ncclComm_t handle,
                                cudaStream_t stream) {
  return transfer({false, address_of(to), elements, type, peer, &behind(handle), stream});
}

FSDP_STUB ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclGroupEnd() {
  if (open_groups == 0) return ncclInvalidUsage;
  if (--open_groups > 0) return ncclSuccess;
  std::vector<Transfer> open;
  open.swap(grouped);
  while (!open.empty()) {
    const Communicator* const first = open.front().communicator;
    const auto others =
        std::stable_partition(open.begin(), open.end(), [&](const Transfer& t) { return t.communicator == first; });
    log_together(std::vector<Transfer>(open.begin(), others));
    open.erase(open.begin(), others);
  }
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return ncclGroupEnd();
}
