#include "text/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace fsdp::text {

namespace {

constexpr std::size_t kMostFrames = 4;
constexpr std::size_t kMostOfPath = 40;

bool is_in_torch(const PythonFrame& frame) {
  return frame.file.find("/site-packages/torch/") != std::string::npos;
}

}  // namespace

std::string short_path(const std::string& file, const std::string& folder) {
  for (const std::string_view place : {"/site-packages/", "/dist-packages/", "/share/fsdp-plan/python/"}) {
    const std::size_t at = file.rfind(place);
    if (at != std::string::npos) return file.substr(at + place.size());
  }
  if (!folder.empty() && file.starts_with(folder + "/")) return file.substr(folder.size() + 1);
  // The end of a long path outside is the most informative part.
  const std::size_t last = file.rfind('/');
  const std::size_t before = last == std::string::npos || last == 0 ? std::string::npos : file.rfind('/', last - 1);
  if (file.size() > kMostOfPath && before != std::string::npos && before > 0) return "…" + file.substr(before);
  return file;
}

std::string frame_text(const PythonFrame& frame, const std::string& folder) {
  std::string text = short_path(frame.file, folder);
  if (frame.line > 0) text += fmt::format(":{}", frame.line);
  if (!frame.function.empty()) text += " " + frame.function;
  return text;
}

std::string through_text(const std::string& through) {
  const std::size_t blank = through.rfind(' ');
  if (blank == std::string::npos) return through;
  const std::string function = through.substr(blank + 1);
  if (function != "forward" && function != "__call__") return function;
  const std::string file = through.substr(through.rfind('/', blank) + 1);
  return file.substr(0, file.find('.'));
}

void add_stack(std::vector<std::string>& lines, const PythonFrame& at, const std::vector<PythonFrame>& stack,
               const std::string& folder, bool all) {
  std::size_t shown = 0;
  if (!at.file.empty()) {
    lines.push_back(frame_text(at, folder));
    ++shown;
  }
  for (const PythonFrame& frame : stack) {
    if (!all && (is_in_torch(frame) || frame == at || shown == kMostFrames)) continue;
    lines.push_back(frame_text(frame, folder));
    ++shown;
  }
  if (shown == 0 && !stack.empty()) lines.push_back(frame_text(stack.front(), folder));
}

}  // namespace fsdp::text
