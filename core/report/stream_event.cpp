#include "core/report/stream_event.h"

#include <array>

namespace fsdp {

namespace {

constexpr std::array<std::string_view, kNumStreams> kStreams = {"compute",    "all_gather", "reduce_scatter",
                                                                "all_reduce", "copy",       "to_host"};

}  // namespace

std::string_view name_of(Stream stream) {
  return kStreams[static_cast<std::size_t>(stream)];
}

BytesPerSecond bandwidth_of(const StreamEvent& event) {
  const double time = (event.end - event.start).count();
  if (!event.payload || time <= 0) return BytesPerSecond(0);
  return BytesPerSecond(static_cast<double>(event.payload->bytes.count()) / time);
}

}  // namespace fsdp
