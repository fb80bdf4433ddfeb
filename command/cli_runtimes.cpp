#include "command/cli_runtimes.h"

#include <algorithm>

#include "command/cli_machines.h"
#include "command/cli_values.h"
#include "core/base/split.h"
#include "core/plan/plan_names.h"
#include "render/read_value.h"

namespace fsdp::command {

namespace {

constexpr std::string_view kAll = "all";

}  // namespace

bool compares_runtimes(const CommandLine& line) {
  return line.value(Option::Runtime) == kAll || is_list(line, Option::Runtime);
}

std::vector<Framework> runtimes_of(const CommandLine& line, Errors& errors) {
  const std::string text = line.value(Option::Runtime).value_or("");
  std::vector<Framework> runtimes;
  const auto add = [&](Framework framework) {
    if (std::find(runtimes.begin(), runtimes.end(), framework) == runtimes.end()) runtimes.push_back(framework);
  };
  if (text == kAll) {
    for (const EnumName<Framework>& entry : kRuntimes) add(entry.value);
    return runtimes;
  }
  for (const std::string_view part : split(text, ',')) {
    const Result<Framework> framework = render::read_runtime(part, flag_of(Option::Runtime));
    if (framework) add(*framework);
    if (!framework) append(errors, framework.error());
  }
  return runtimes;
}

}  // namespace fsdp::command
