#include "planner/render_python.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace fsdp::planner {

namespace {

constexpr std::size_t kMostFrames = 5;

bool is_in_torch(const PythonFrame& frame) {
  return frame.file.find("/site-packages/torch/") != std::string::npos;
}

}  // namespace

std::string command_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::string short_path(const std::string& file, const std::string& folder) {
  for (const std::string_view place : {"/site-packages/", "/dist-packages/"}) {
    const std::size_t at = file.rfind(place);
    if (at != std::string::npos) return file.substr(at + place.size());
  }
  if (!folder.empty() && file.starts_with(folder + "/")) return file.substr(folder.size() + 1);
  return file;
}

std::string frame_text(const PythonFrame& frame, const std::string& folder) {
  std::string text = short_path(frame.file, folder);
  if (frame.line > 0) text += fmt::format(":{}", frame.line);
  if (!frame.function.empty()) text += " " + frame.function;
  return text;
}

void add_stack(std::vector<std::string>& lines, const std::vector<PythonFrame>& stack, const std::string& folder,
               bool all) {
  const bool hides_torch = !all && !std::all_of(stack.begin(), stack.end(), is_in_torch);
  std::size_t shown = 0;
  for (const PythonFrame& frame : stack) {
    if (hides_torch && is_in_torch(frame)) continue;
    if (!all && ++shown > kMostFrames) break;
    lines.push_back(frame_text(frame, folder));
  }
}

}  // namespace fsdp::planner
