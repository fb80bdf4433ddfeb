// replay: a recorded run under other allocator settings.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string_view>
#include <system_error>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_values.h"
#include "render/render_replay.h"
#include "replay/replay_snapshot_settings.h"

namespace fsdp::command {

namespace {

/// The changes of the command line; `nullopt` if there are none.
std::optional<replay::ReplayRequest> read_request(const CommandLine& line, const replay::Recording& recording,
                                                  Errors& errors) {
  const std::optional<std::string> settings = line.value(Option::AllocConf);
  OptionReader reader(line, errors);
  const std::optional<Bytes> memory = reader.size(Option::DeviceMemory);
  replay::ReplayRequest request = replay::as_recorded(recording);
  if (settings) {
    request.settings_text = replay::without_blanks(*settings);
    const Result<simulator::AllocatorSettings> read = simulator::parse_allocator_settings(*settings);
    if (read) request.settings = *read;
    for (const Error& error : read ? Errors() : read.error()) {
      reader.fail(Option::AllocConf, fmt::format("{}: {}", error.where, error.what), error.hint);
    }
  }
  if (memory) request.device.total = *memory;
  if (!settings && !memory) return std::nullopt;
  return request;
}

/// The text with the headers of another device and other settings, which makes it a trace of the replay.
std::string with_headers(std::string_view text, const replay::ReplayRequest& request) {
  std::string changed = fmt::format("!device_bytes {}\n", request.device.total.count());
  if (!request.settings_text.empty()) changed += fmt::format("!config {}\n", request.settings_text);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("!device_bytes") || line.starts_with("!config")) continue;
    changed += line;
    changed += '\n';
  }
  return changed;
}

void print_trace(const replay::Recording& recording, const std::optional<replay::ReplayRequest>& request,
                 std::ostream& out) {
  if (!request) {
    out << simulator::replay_to_text(recording.trace, recording.text);
  } else {
    out << simulator::replay_to_text(recording.trace, with_headers(recording.text, *request), request->device,
                                     request->settings);
  }
}

}  // namespace

CommandResult replay_command(const CommandLine& line, const Output& output) {
  Errors errors;
  // Checks the options even if the file is unreadable.
  Result<replay::Recording> recording = replay::read_recording(line.arguments.front());
  if (!recording) errors = recording.error();
  std::optional<replay::ReplayRequest> request =
      read_request(line, recording ? *recording : replay::Recording(), errors);
  if (!errors.empty()) return input_failure(std::move(errors));

  if (output.format == text::Format::Trace) {
    print_trace(*recording, request, output.console.out);
    return kExitYes;
  }
  render::ReplayAnswer answer{.recording = *recording,
                              .as_was = replay::as_recorded(*recording),
                              .recorded = replay::replay(*recording, replay::as_recorded(*recording)),
                              .request = std::move(request),
                              .replayed = std::nullopt,
                              .knows_device = recording->knows_device || line.has(Option::DeviceMemory)};
  if (answer.request) answer.replayed = replay::replay(*recording, *answer.request);
  if (output.format == text::Format::Json) {
    output.console.out << to_json(answer);
  } else if (output.quiet) {
    output.print({render::replay_verdict(answer)});
  } else {
    std::error_code ignored;
    output.print(render::document_of(answer, output.view(), std::filesystem::current_path(ignored).string()));
  }
  return answer.answer().first_refusal ? kExitNo : kExitYes;
}

}  // namespace fsdp::command
