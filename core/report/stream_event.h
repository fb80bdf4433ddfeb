#pragma once

// The work of a GPU's stream during a step, for timelines: predicted by the simulator or measured by an executor, drawn
// by the explorer, and written as a trace (core/formats/trace_json.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/report/report.h"

namespace fsdp {

/// The streams of FSDP2's communication context, and the compute stream.
enum class Stream : std::uint8_t {
  Compute,
  AllGather,
  ReduceScatter,
  AllReduce,
  Copy,    ///< Copies shards into the buffer of an all-gather, with CPU offload from the host.
  ToHost,  ///< Copies gradients, with CPU offload.
};
inline constexpr int kNumStreams = static_cast<int>(Stream::ToHost) + 1;
/// "all_gather".
std::string_view name_of(Stream stream);

/// The payload of a collective.
struct StreamPayload {
  CollectiveKind kind = CollectiveKind::AllGather;
  Dtype dtype = Dtype::Float32;
  Bytes bytes;  ///< Bytes of the full tensor: all-gather output, reduce-scatter input, all-reduce buffer.
  MeshDimension group = MeshDimension::Shard;
  std::int64_t group_size = 1;

  bool operator==(const StreamPayload&) const = default;
};

struct StreamEvent {
  Stream stream = Stream::Compute;
  std::string name;  ///< "model.layers.3", "copy-out model.layers.3", "optimizer".
  std::string unit;  ///< Its FSDP unit; "" for the root, or none.
  StepPhase phase = StepPhase::Unknown;
  Seconds start{0};  ///< Since the step began.
  Seconds end{0};
  Seconds exposed{0};                    ///< Time that the compute stream waits for it.
  std::optional<StreamPayload> payload;  ///< For a collective.
  std::int32_t instruction = -1;         ///< In the schedule; -1 if unknown.
  std::int32_t micro_batch = 0;
  std::vector<std::int32_t> waits_for;  ///< Earlier events of other streams, by their index in the list.

  bool operator==(const StreamEvent&) const = default;
};

/// Bytes of the full tensor over the event's time, like nccl-tests' algbw; 0 if it is no collective.
BytesPerSecond bandwidth_of(const StreamEvent& event);

}  // namespace fsdp
