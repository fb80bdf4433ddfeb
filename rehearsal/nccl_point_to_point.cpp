// NCCL's send, recv and groups. PyTorch makes an all-to-all of them: in one group, a send to each rank and a receive
// from each, including itself. Such a group is logged as an all-to-all. Any other sends and receives (pipelines,
// gather, scatter) are logged one by one.
//
// PyTorch 2.15 makes an all-gather into a list of broadcasts: in one group, one from each rank. Such a group is logged
// as an all-gather, and every rank is assumed to send our data.
#include <nccl.h>

#include <algorithm>
#include <optional>
#include <string>
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

struct Broadcast {
  uint64_t from;
  uint64_t to;
  uint64_t elements;
  ncclDataType_t type;
  int root;
  const Communicator* communicator;
  cudaStream_t stream;

  uint64_t bytes() const { return elements * bytes_of(type); }
};

/// Groups belong to a thread, and nest.
thread_local int open_groups = 0;
thread_local std::vector<Transfer> grouped;
thread_local std::vector<Broadcast> grouped_broadcasts;

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
  // Each rank is assumed to send us our own data.
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

void pass_on(const std::optional<std::string>& contents, uint64_t to, uint64_t bytes) {
  contents && contents->size() == bytes ? remember(to, contents->data(), contents->size()) : forget(to, bytes);
}

/// All broadcasts of one communicator in one group.
void log_together(const std::vector<Broadcast>& broadcasts) {
  const Communicator& communicator = *broadcasts.front().communicator;
  const auto own = std::ranges::find(broadcasts, communicator.rank, &Broadcast::root);
  std::vector<int> roots;
  for (const Broadcast& one : broadcasts) roots.push_back(one.root);
  std::ranges::sort(roots);
  const bool is_gather = own != broadcasts.end() && roots.size() == static_cast<size_t>(communicator.ranks) &&
                         std::ranges::adjacent_find(roots) == roots.end();
  uint64_t elements = 0;
  for (const Broadcast& one : broadcasts) {
    const uint64_t from = is_gather ? own->from : one.from;
    if (from != 0 && one.to != 0 && from != one.to) pass_on(recall(from, one.bytes()), one.to, one.bytes());
    elements += one.elements;
    if (!is_gather) log_collective(Counter::Broadcast, one.elements, one.type, communicator, one.stream);
  }
  if (is_gather) log_collective(Counter::AllGather, elements, own->type, communicator, own->stream);
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

/// Logs the contents of a group, for each communicator separately.
template <class Entry>
void log_all(std::vector<Entry>& of_group) {
  std::vector<Entry> open;
  open.swap(of_group);
  while (!open.empty()) {
    const Communicator* const first = open.front().communicator;
    const auto others =
        std::stable_partition(open.begin(), open.end(), [&](const Entry& e) { return e.communicator == first; });
    log_together(std::vector<Entry>(open.begin(), others));
    open.erase(open.begin(), others);
  }
}

}  // namespace

bool fsdp::rehearsal::keep_in_group(uint64_t from, uint64_t to, size_t elements, ncclDataType_t type, int root,
                                    ncclComm_t handle, cudaStream_t stream) {
  if (open_groups == 0) return false;
  grouped_broadcasts.push_back({from, to, elements, type, root, &behind(handle), stream});
  return true;
}

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
  log_all(grouped);
  log_all(grouped_broadcasts);
  return ncclSuccess;
}
FSDP_STUB ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return ncclGroupEnd();
}
