#pragma once

// A replay, for people and for programs.

#include <optional>
#include <string>

#include "render/render_report.h"
#include "replay/replay.h"
#include "text/document.h"

namespace fsdp::render {

/// The results of a replay: the recording, its own figures, and the figures under other settings if requested.
struct ReplayAnswer {
  const replay::Recording& recording;
  replay::ReplayRequest as_was;
  replay::ReplayResult recorded;
  std::optional<replay::ReplayRequest> request;
  std::optional<replay::ReplayResult> replayed;
  bool knows_device = false;  ///< The recording or the command line gave the memory.

  const replay::ReplayRequest& asked() const { return request ? *request : as_was; }
  const replay::ReplayResult& answer() const { return replayed ? *replayed : recorded; }
};

text::Entry replay_verdict(const ReplayAnswer& answer);
/// The verdict, the peaks, the moment that ran out of memory, and memory over time. Removes `folder` from paths.
text::Document document_of(const ReplayAnswer& answer, const View& view, const std::string& folder);
std::string to_json(const ReplayAnswer& answer);

}  // namespace fsdp::render
