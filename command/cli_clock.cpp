// clock: the time of one collective, one product or one attention.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "core/base/split.h"
#include "core/formats/nccl_tests_log.h"
#include "core/report/report_names.h"
#include "render/render_clock.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

constexpr std::array kKinds = {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce,
                               CollectiveKind::Broadcast};
constexpr std::string_view kProduct = "matmul";
constexpr std::string_view kAttention = "attention";

constexpr Bytes kFirstSize(std::int64_t{64} << 10);
constexpr Bytes kLastSize(std::int64_t{1} << 30);

enum class ClockDtype { BFloat16, Float16, Float32, TensorFloat32 };
constexpr EnumName<ClockDtype> kDtypes[] = {{ClockDtype::BFloat16, "bf16"},
                                            {ClockDtype::Float16, "fp16"},
                                            {ClockDtype::Float32, "fp32"},
                                            {ClockDtype::TensorFloat32, "tf32"}};
constexpr EnumTable<ClockDtype> kDtypeTable{"dtype", kDtypes};

Dtype dtype_of(ClockDtype dtype) {
  if (dtype == ClockDtype::BFloat16) return Dtype::BFloat16;
  return dtype == ClockDtype::Float16 ? Dtype::Float16 : Dtype::Float32;
}

std::optional<CollectiveKind> kind_of(std::string_view word) {
  for (const CollectiveKind kind : kKinds) {
    if (render::is_same_name(word, name_of(kCollectiveKindTable, kind))) return kind;
  }
  return std::nullopt;
}

Error unknown_what(std::string_view word) {
  std::vector<std::string_view> names;
  for (const CollectiveKind kind : kKinds) names.push_back(name_of(kCollectiveKindTable, kind));
  names.insert(names.end(), {kProduct, kAttention});
  return {"", fmt::format("clock cannot time {}.", json_quoted(word)), suggest_name(word, names)};
}

/// "4096x4096x4096": as many sizes as in the example. Adds errors in the text to `errors`.
std::vector<std::int64_t> read_shape(const CommandLine& line, std::string_view example, std::string_view meaning,
                                     Errors& errors) {
  const std::string hint = fmt::format("Write {}, such as {}.", meaning, example);
  if (line.arguments.size() < 2) {
    errors.push_back({"", fmt::format("Missing argument: the shape of {}.", line.arguments[0]), hint});
    return {};
  }
  const std::string& text = line.arguments[1];
  const auto wanted = static_cast<std::size_t>(std::count(example.begin(), example.end(), 'x')) + 1;
  std::vector<std::int64_t> sizes;
  for (const std::string_view part : split(text, 'x')) {
    const std::optional<std::int64_t> size = parse_integer(part);
    if (size && *size >= 1 && *size < render::kLargestCount) sizes.push_back(*size);
  }
  if (sizes.size() != wanted || split(text, 'x').size() != wanted) {
    errors.push_back(
        {"", fmt::format("{} is not {} sizes from 1 to {}.", json_quoted(text), wanted, render::kLargestCount - 1),
         hint});
    return {};
  }
  return sizes;
}

void refuse(const CommandLine& line, std::initializer_list<Option> refused, std::string_view what, Errors& errors) {
  for (const Option option : refused) {
    if (line.has(option)) {
      errors.push_back(
          {std::string(flag_of(option)), fmt::format("clock {} does not take this option.", what), "Leave it out."});
    }
  }
}

std::optional<Cluster> machines_of(const CommandLine& line, const Output& output, Errors& errors) {
  if (!line.has(Option::GpuName) && !line.has(Option::ClusterFile)) {
    errors.push_back({"", "The machines are missing.", "Write --gpu H100 --gpus 8, or --cluster \"DGX H100\"."});
    return std::nullopt;
  }
  return OptionReader(line, errors).keep(read_machines(line, output.console.library));
}

std::string name_of_machines(const Cluster& cluster) {
  const std::string node = fmt::format("{}x {}", cluster.gpus_per_node, cluster.gpu.name);
  return cluster.nodes == 1 ? node : fmt::format("{} nodes of {}", cluster.nodes, node);
}

/// The sizes to print: one, those of a log, or a table.
std::vector<render::ClockedSize> sizes_of(const CommandLine& line, CollectiveKind kind,
                                          const std::optional<Cluster>& cluster, Errors& errors) {
  const std::optional<std::string> path = line.value(Option::CompareWith);
  std::vector<render::ClockedSize> sizes;
  if (line.arguments.size() > 1) {
    if (path) errors.push_back({"--compare-with", "The log has its own sizes.", "Leave the size out."});
    const auto size = OptionReader(line, errors).keep(parse_size(line.arguments[1], "SIZE"));
    if (size && *size <= Bytes(0))
      errors.push_back({"SIZE", "There is nothing to send.", "Write a size such as 256M."});
    if (size) sizes.push_back({*size});
    return sizes;
  }
  if (!path) {
    for (Bytes size = kFirstSize; size <= kLastSize; size = 2 * size) sizes.push_back({size});
    return sizes;
  }
  Result<std::string> text = read_text_file(*path);
  const auto log =
      OptionReader(line, errors).keep(text ? read_nccl_tests_log(*text, *path) : tl::unexpected(text.error()));
  if (!log) return sizes;
  if (!log->collective.empty() && kind_of(log->collective) != kind) {
    errors.push_back({*path, fmt::format("The log measures {}.", log->collective),
                      fmt::format("Write fsdp-plan clock {}.", log->collective)});
  }
  if (log->ranks && cluster && *log->ranks != world_size(*cluster)) {
    errors.push_back({*path,
                      fmt::format("The log has {}, the machines have {}.", text::counted(*log->ranks, "rank"),
                                  text::counted(world_size(*cluster), "GPU")),
                      "Write --gpus and --nodes as they were."});
  }
  for (const NcclTestsRow& row : log->rows) {
    if (row.time > Seconds(0)) sizes.push_back({Bytes(row.bytes), row.time});
  }
  return sizes;
}

template <class Answer>
CommandResult print_clock(const Answer& answer, const Output& output) {
  if (output.format == text::Format::Json) {
    output.console.out << to_json(answer);
  } else {
    output.print(render::document_of(answer, output.quiet));
  }
  return kExitYes;
}

CommandResult clock_collective(const CommandLine& line, const Output& output, CollectiveKind kind) {
  Errors errors;
  refuse(line, {Option::ClockDtype, Option::Causal}, line.arguments[0], errors);
  const std::optional<Cluster> cluster = machines_of(line, output, errors);
  const std::vector<render::ClockedSize> sizes = sizes_of(line, kind, cluster, errors);
  if (cluster && world_size(*cluster) < 2) {
    errors.push_back({"--gpus", "A collective needs at least two GPUs.", "Write --gpus 8."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  const render::CollectiveClock clock{
      kind, name_of_machines(*cluster),
      simulator::collective_cost(simulator::group_shape(*cluster, world_size(*cluster))), sizes, cluster->assumptions};
  return print_clock(clock, output);
}

/// The card and the dtype of a kernel. Adds errors to `errors`, also if the card has no such products.
std::optional<std::pair<Gpu, ClockDtype>> read_card(const CommandLine& line, const Output& output, Errors& errors) {
  const std::optional<Cluster> cluster = machines_of(line, output, errors);
  const auto dtype = OptionReader(line, errors).choice(Option::ClockDtype, kDtypeTable);
  if (!cluster || (line.has(Option::ClockDtype) && !dtype)) return std::nullopt;
  const ClockDtype asked = dtype.value_or(ClockDtype::BFloat16);
  const bool has_tf32 = asked != ClockDtype::TensorFloat32 || cluster->gpu.tf32;
  if (!has_tf32 || !peak_rate(cluster->gpu, dtype_of(asked))) {
    errors.push_back({"--dtype",
                      fmt::format("{} does not support {} matmuls.", cluster->gpu.name, name_of(kDtypeTable, asked)),
                      cluster->gpu.fp16 ? "Write --dtype fp16 or fp32." : "Write --dtype fp32."});
    return std::nullopt;
  }
  return std::pair{cluster->gpu, asked};
}

CommandResult clock_product(const CommandLine& line, const Output& output) {
  Errors errors;
  refuse(line, {Option::Causal, Option::CompareWith}, kProduct, errors);
  const std::vector<std::int64_t> sizes = read_shape(line, "4096x4096x4096", "MxNxK", errors);
  const auto card = read_card(line, output, errors);
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto& [gpu, dtype] = *card;
  const simulator::KernelClock clock = simulator::clock_product(
      gpu, dtype_of(dtype), dtype == ClockDtype::TensorFloat32, {.m = sizes[0], .n = sizes[1], .k = sizes[2]});
  return print_clock(
      render::KernelClockAnswer{fmt::format("{} {} in {}", kProduct, line.arguments[1], name_of(kDtypeTable, dtype)),
                                gpu.name, clock},
      output);
}

CommandResult clock_attention(const CommandLine& line, const Output& output) {
  Errors errors;
  refuse(line, {Option::CompareWith}, kAttention, errors);
  const std::vector<std::int64_t> sizes =
      read_shape(line, "1x32x4096x128", "batch x heads x sequence x head_dim", errors);
  const auto card = read_card(line, output, errors);
  if (card && size_of(dtype_of(card->second)) != Bytes(2)) {
    errors.push_back({"--dtype", "Fused attention runs in 16 bits.", "Write --dtype bf16 or fp16."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto& [gpu, dtype] = *card;
  const bool causal = line.has(Option::Causal);
  const simulator::KernelClock clock = simulator::clock_attention(
      gpu, dtype_of(dtype),
      {.batch = sizes[0], .heads = sizes[1], .sequence = sizes[2], .head_size = sizes[3], .causal = causal});
  return print_clock(render::KernelClockAnswer{fmt::format("{} {}{} in {}, forward", kAttention, line.arguments[1],
                                                           causal ? ", causal," : "", name_of(kDtypeTable, dtype)),
                                               gpu.name, clock},
                     output);
}

}  // namespace

CommandResult clock_command(const CommandLine& line, const Output& output) {
  const std::string& what = line.arguments[0];
  if (render::is_same_name(what, kProduct)) return clock_product(line, output);
  if (render::is_same_name(what, kAttention)) return clock_attention(line, output);
  if (const std::optional<CollectiveKind> kind = kind_of(what)) return clock_collective(line, output, *kind);
  Errors errors = {unknown_what(what)};
  machines_of(line, output, errors);
  return input_failure(std::move(errors));
}

}  // namespace fsdp::command
