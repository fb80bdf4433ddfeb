#include "command/cli_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/split.h"
#include "planner/request/plan_machines.h"
#include "planner/request/plan_request.h"

namespace fsdp::command {

namespace {

/// Allowed objectives, for machines and for the plans of one.
enum class AskedObjective : std::uint8_t { Time, Cost, Memory, Tokens };
constexpr EnumName<AskedObjective> kObjectives[] = {{AskedObjective::Time, "time"},
                                                    {AskedObjective::Memory, "memory"},
                                                    {AskedObjective::Cost, "cost"},
                                                    {AskedObjective::Tokens, "tokens"}};
constexpr EnumTable<AskedObjective> kObjectiveTable{"objective", kObjectives};

/// Whether the option applies to the plans of one machine.
bool is_of_plans(const CommandLine& line) {
  const std::optional<std::string> text = line.value(Option::Objective);
  return text == "memory" || text == "tokens";
}

/// The numbers of a list. Adds errors for other texts to `errors`.
std::vector<int> numbers_of(const CommandLine& line, Option option, std::int64_t most, Errors& errors) {
  std::vector<int> numbers;
  const std::optional<std::string> text = line.value(option);
  if (!text) return numbers;
  for (const std::string_view part : split(*text, ',')) {
    const Result<std::int64_t> number = render::read_count(part, flag_of(option), 1, most);
    if (number) numbers.push_back(static_cast<int>(*number));
    if (!number) append(errors, number.error());
  }
  return numbers;
}

/// "A10G=1.2" or "1.2" for any GPU.
std::vector<planner::GpuPrice> prices_of(const CommandLine& line, Errors& errors) {
  const std::optional<std::string> text = line.value(Option::Price);
  if (!text) return {};
  std::vector<planner::GpuPrice> prices;
  for (const std::string_view part : split(*text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name(equals == std::string_view::npos ? "" : part.substr(0, equals));
    const std::string_view number = equals == std::string_view::npos ? part : part.substr(equals + 1);
    const Result<double> price = render::read_number_above_zero(number, flag_of(Option::Price));
    if (!price) append(errors, price.error());
    const bool is_twice = std::any_of(prices.begin(), prices.end(),
                                      [&](const planner::GpuPrice& other) { return other.gpu_name == name; });
    if (is_twice) {
      errors.push_back({std::string(flag_of(Option::Price)),
                        name.empty() ? "There are two prices of any GPU." : fmt::format("{} has two prices.", name),
                        "Write one: --price L4=0.8,A10G=1.2."});
    }
    if (price) prices.push_back({name, *price});
  }
  // The price of any GPU applies to those without a price of their own.
  std::stable_partition(prices.begin(), prices.end(),
                        [](const planner::GpuPrice& price) { return !price.gpu_name.empty(); });
  return prices;
}

constexpr std::array kLists = {Option::Gpus, Option::Nodes, Option::GpuName};

}  // namespace

bool is_list(const CommandLine& line, Option option) {
  return line.value(option).value_or("").find(',') != std::string::npos;
}

std::vector<std::string> gpu_names_of(const CommandLine& line, Errors& errors) {
  const std::optional<std::string> text = line.value(Option::GpuName);
  if (!text) return {};
  const std::vector<std::string_view> parts = split(*text, ',');
  std::vector<std::string> names(parts.begin(), parts.end());
  if (std::find(names.begin(), names.end(), "") != names.end()) {
    errors.push_back({std::string(flag_of(Option::GpuName)), fmt::format("\"{}\" has an empty name.", *text),
                      "Write names with a comma between: --gpu L4,A10G."});
  }
  return names;
}

CommandLine without_lists(CommandLine line) {
  for (const Option option : kLists) {
    if (is_list(line, option)) line.values[static_cast<std::size_t>(option)].clear();
  }
  return line;
}

bool compares_machines(const CommandLine& line) {
  if (line.has(Option::AtMost) || line.has(Option::Price)) return true;
  if (line.has(Option::Objective) && !is_of_plans(line)) return true;
  return std::any_of(kLists.begin(), kLists.end(), [&](Option option) { return is_list(line, option); });
}

planner::SearchObjective search_objective_of(const CommandLine& line, Errors& errors) {
  const auto asked = OptionReader(line, errors).choice(Option::Objective, kObjectiveTable);
  if (asked == AskedObjective::Memory) return planner::SearchObjective::Memory;
  return asked == AskedObjective::Tokens ? planner::SearchObjective::Tokens : planner::SearchObjective::Time;
}

namespace {

/// --gpus or --nodes, if it is given and a number.
std::optional<int> number_of(const CommandLine& line, Option option, Errors& errors) {
  const std::vector<int> numbers = numbers_of(line, option, planner::kLargestWorld, errors);
  return numbers.empty() ? std::nullopt : std::optional(numbers.front());
}

/// The nodes that add up to --world-size; `nullopt`, with an error, if none do.
std::optional<planner::MachineSize> size_of_world(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader read(line, errors);
  const std::optional<std::int64_t> world = read.count(Option::WorldSize);
  for (const Option option : std::initializer_list<Option>{Option::Gpus, Option::Nodes, Option::AtMost}) {
    if (option == Option::AtMost ? !line.has(option) : !is_list(line, option)) continue;
    read.fail(Option::WorldSize, fmt::format("It is one size, and {} asks for several.", flag_of(option)),
              "Leave out one of the two.");
  }
  const planner::MachineSize said{number_of(line, Option::Gpus, errors), number_of(line, Option::Nodes, errors)};
  if (!errors.empty()) return std::nullopt;
  int usual = 8;
  if (const auto name = line.value(Option::ClusterFile)) {
    // The rest of the request prints its errors.
    const Result<Cluster> cluster = planner::resolve_machines({.cluster_file = *name}, library);
    if (cluster) usual = cluster->gpus_per_node;
  }
  return read.keep(planner::size_of_world(*world, said, usual));
}

}  // namespace

CommandLine with_world_in_nodes(const CommandLine& line, const std::string& library, Errors& errors) {
  CommandLine meant = line;
  if (!line.has(Option::WorldSize)) return meant;
  const auto size = size_of_world(line, library, errors);
  meant.values[static_cast<std::size_t>(Option::WorldSize)].clear();
  if (size) {
    meant.values[static_cast<std::size_t>(Option::Gpus)] = {std::to_string(*size->gpus)};
    meant.values[static_cast<std::size_t>(Option::Nodes)] = {std::to_string(*size->nodes)};
  } else if ((line.command == Command::Plan || line.command == Command::Fit) && !line.arguments.empty()) {
    Errors others;
    planner::PlanRequest request = read_choices(without_lists(meant), others);
    request.model = line.arguments.front();
    request.unread.push_back(
        planner::PlanChoice::Gpus);  // Prints errors of the rest of the request, but not of its machines.
    append(others, planner::check_request(request, library));
    planner::add_once(errors, others);
  }
  return meant;
}

MachineWords read_machine_words(const CommandLine& line, Errors& errors) {
  MachineWords words{.rest = line};
  words.range.gpus = numbers_of(line, Option::Gpus, planner::kLargestNode, errors);
  words.range.nodes = numbers_of(line, Option::Nodes, planner::kLargestWorld, errors);
  words.range.gpu_names = gpu_names_of(line, errors);
  OptionReader read(line, errors);
  if (const auto most = read.count(Option::AtMost)) {
    words.range.at_most = static_cast<int>(std::min<std::int64_t>(*most, planner::kLargestWorld));
  }
  const auto objective = read.choice(Option::Objective, kObjectiveTable);
  if (objective == AskedObjective::Cost) words.objective = planner::MachineObjective::Cost;
  if (is_of_plans(line)) {
    errors.push_back({std::string(flag_of(Option::Objective)),
                      fmt::format("\"{}\" applies to the plans of one machine.", *line.value(Option::Objective)),
                      "Name one machine, or write --objective time or cost."});
  }
  words.prices = prices_of(line, errors);
  for (const Option option : kLists) words.rest.values[static_cast<std::size_t>(option)].clear();
  return words;
}

}  // namespace fsdp::command
