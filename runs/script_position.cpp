// A stack is written with the innermost call first:
//
//   Current thread 0x00007f0c (most recent call first):
//     File "/env/lib/python3.11/site-packages/torch/nn/init.py", line 518 in kaiming_uniform_
//     File "/scripts/train.py", line 7 in <module>
//
// Source: Python/traceback.c (dump_traceback), CPython 3.11.

#include "runs/script_position.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace fsdp::runs {

namespace {

struct StackLine {
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

constexpr std::string_view kImportMachinery = "<frozen importlib._bootstrap>";

bool names(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<StackLine> read_line(std::string_view text) {
  constexpr std::string_view kFile = "  File \"";
  if (!text.starts_with(kFile)) return std::nullopt;
  text.remove_prefix(kFile.size());
  const std::size_t quote = text.rfind("\", line ");
  if (quote == std::string_view::npos) return std::nullopt;
  StackLine result{.file = text.substr(0, quote)};
  text.remove_prefix(quote + 8);
  const std::size_t in = text.find(" in ");
  if (in == std::string_view::npos) return std::nullopt;
  result.line = text.substr(0, in);
  result.function = text.substr(in + 4);
  return result;
}

/// The last stack, innermost call first. Omits an incomplete line.
std::vector<StackLine> last_stack(std::string_view text) {
  std::vector<StackLine> stack;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!line.starts_with("  ")) stack.clear();
    if (const auto read = read_line(line)) stack.push_back(*read);
  }
  return stack;
}

/// "transformers" for ".../site-packages/transformers/models/x.py"; for the user's own files their name.
std::string_view package_of(std::string_view file) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    if (const std::size_t at = file.find(folder); at != std::string_view::npos) {
      file.remove_prefix(at + folder.size());
      return file.substr(0, file.find_first_of("/."));
    }
  }
  file.remove_prefix(file.rfind('/') + 1);
  return file.substr(0, file.rfind('.'));
}

/// The module of the outermost import in progress; "" if its code has not begun.
std::optional<std::string_view> imported(const std::vector<StackLine>& stack) {
  const auto machinery = std::find_if(stack.rbegin(), stack.rend(), [](const StackLine& line) {
    return line.file == kImportMachinery && line.function == "_find_and_load";
  });
  if (machinery == stack.rend()) return std::nullopt;
  const auto code = std::find_if(machinery, stack.rend(), [](const StackLine& line) {
    return line.function == "<module>" && !line.file.starts_with('<');
  });
  return code == stack.rend() ? std::string_view() : package_of(code->file);
}

bool is_of_a_library(std::string_view file) {
  if (file.starts_with('<')) return true;
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3", "/fsdp_rehearsal/",
                                      "/fsdp_capture/", "/fsdp_plan_runner/", "/hook/sitecustomize"}) {
    if (names(file, part)) return true;
  }
  return false;
}

bool any_in(const std::vector<StackLine>& stack, std::string_view part) {
  return std::any_of(stack.begin(), stack.end(), [&](const StackLine& line) { return names(line.file, part); });
}

/// The running part of a step, by PyTorch's code in the stack.
std::string_view part_of_step(const std::vector<StackLine>& stack) {
  if (any_in(stack, "/torch/autograd/graph.py")) return "backward";
  if (any_in(stack, "/torch/optim/")) return "optimizer";
  if (any_in(stack, "/torch/nn/modules/module.py")) return "forward";
  return "";
}

}  // namespace

std::string position_of(std::string_view stage, std::string_view stacks, std::string_view folder) {
  const std::vector<StackLine> stack = last_stack(stacks);
  if (const auto package = imported(stack))
    return package->empty() ? "importing" : fmt::format("importing {}", *package);
  if (stage.empty()) return "starting";
  std::string place;
  const auto own =
      std::find_if(stack.begin(), stack.end(), [](const auto& line) { return !is_of_a_library(line.file); });
  if (own != stack.end()) {
    std::string_view file = own->file;
    if (!folder.empty() && file.starts_with(folder) && file.substr(folder.size()).starts_with('/')) {
      file.remove_prefix(folder.size() + 1);
    }
    place = fmt::format(", {}:{}", file, own->line);
  }
  for (const std::string_view compiler : {"/torch/_dynamo/", "/torch/_inductor/", "/triton/compiler/"}) {
    if (any_in(stack, compiler)) return fmt::format("compiling, {}{}", stage, place);
  }
  if (any_in(stack, "/torch/nn/init.py")) {
    return fmt::format("making parameters on the CPU (under \"with torch.device('cuda'):\" that takes no time here){}",
                       place);
  }
  if (stage == "initializing") return fmt::format("before the first step{}", place);
  const std::string_view part = stage.starts_with("step ") ? part_of_step(stack) : "";
  return fmt::format("{}{}{}{}", stage, part.empty() ? "" : ", ", part, place);
}

}  // namespace fsdp::runs
