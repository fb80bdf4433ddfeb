// The largest micro-batch and the longest sequence that fit each kind of GPU.
//
// A size fits where some plan of the whole space (planner/space.h) does, which memory alone decides
// (docs/decisions/0030): a yes is a plan that was predicted, a no is a proof. Memory rises with both sizes, so the
// largest is found by bisection. GPUs are asked by rising memory, each from where the one before it ended: neighbors
// hold about the same, and a guess that is right takes two questions.
//
// Not modeled: that a shorter step or a larger batch is worth more; what fits says nothing of speed.

#include "planner/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "core/spec/captured_model.h"
#include "planner/predictors.h"
#include "planner/search.h"

namespace fsdp::planner {

namespace {

constexpr const char* kSequenceDimension = "seq";
constexpr std::int64_t kMostSamples = 4096;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;

/// What is asked: the request with one size.
using WithSize = PlanChoices (*)(PlanChoices, std::int64_t);

PlanChoices with_batch_of(PlanChoices choices, std::int64_t samples) {
  choices.batch = samples;
  return choices;
}

PlanChoices with_sequence_of(PlanChoices choices, std::int64_t tokens) {
  choices.sequence = tokens;
  return choices;
}

/// One size that is looked for, whatever the GPU.
struct SizeQuestion {
  std::string what;                 ///< "micro-batch"
  std::vector<std::int64_t> sizes;  ///< Ascending.
  WithSize with_size = nullptr;
};

std::vector<std::int64_t> multiples(std::int64_t step, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = step; size <= most; size += step) sizes.push_back(size);
  return sizes;
}

std::vector<std::int64_t> captured_batches(const ModelSpec& spec) {
  std::set<std::int64_t> batches;
  if (spec.captured) {
    for (const Model& point : spec.captured->points) batches.insert(batch_of(point));
  }
  return {batches.begin(), batches.end()};
}

std::vector<std::string> gpu_names_of(const PlanChoices& choices, const ClusterLibrary& shipped,
                                      const FitOptions& options) {
  if (!options.gpu_names.empty()) return options.gpu_names;
  if (choices.gpu_name || choices.memory || choices.cluster_file) return {};
  std::vector<std::string> names;
  for (const Gpu& gpu : shipped.gpus) names.push_back(gpu.name);
  return names;
}

/// Whether a machine is asked that nobody named: what is wrong with it is a word in its row.
bool are_unnamed(const PlanChoices& choices, const FitOptions& options) {
  return options.gpu_names.empty() && !choices.gpu_name && !choices.memory && !choices.cluster_file;
}

/// What can be changed without another answer about what was asked.
PlanChoices with_defaults(PlanChoices choices) {
  if (!choices.cpu_offload) choices.cpu_offload = false;
  if (!choices.accumulation) choices.accumulation = 1;
  return choices;
}

void add_new(Errors& errors, const Errors& more) {
  for (const Error& error : more) {
    if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
  }
}

class FitSearch {
 public:
  FitSearch(const PlanRequest& request, const ModelSpec& spec, const std::string& library, const FitOptions& options)
      : request_(request), spec_(spec), library_(library), options_(options) {}

  /// By rising memory.
  Result<std::vector<FitRow>> rows() const;
  Result<FitTable> table(std::vector<FitRow> rows) const;

 private:
  Result<ResolvedRequest> resolved(const PlanChoices& choices) const {
    PlanRequest asked = request_;
    asked.choices = choices;
    return resolve(asked, library_, &spec_);
  }
  Result<MemoryAnswer> ask(const PlanChoices& choices) const;
  Result<LargestSize> largest(const PlanChoices& choices, const SizeQuestion& question, const FitRow& row,
                              std::size_t& guess) const;
  Result<void> fill(FitTable& table, const SizeQuestion& question, std::vector<LargestSize> FitRow::*column) const;
  /// Those that a model can be built with: it may have fewer positions than a sequence has tokens.
  std::vector<std::int64_t> buildable(SizeQuestion question, const PlanChoices& choices) const;

  const PlanRequest& request_;
  const ModelSpec& spec_;
  const std::string& library_;
  const FitOptions& options_;
};

Result<MemoryAnswer> FitSearch::ask(const PlanChoices& choices) const {
  FSDP_TRY(const ResolvedRequest request, resolved(choices));
  SearchOptions options;
  options.should_stop = options_.should_stop;
  return ask_memory(request.spec, request.workload, request.cluster, request.space, options);
}

Result<std::vector<FitRow>> FitSearch::rows() const {
  FSDP_TRY(const ClusterLibrary shipped, read_cluster_library(library_ + "/clusters"));
  const PlanChoices choices = with_defaults(request_.choices);
  std::vector<PlanChoices> all;
  for (const std::string& name : gpu_names_of(choices, shipped, options_)) {
    all.push_back(with_change(choices, {.gpu_name = name}));
  }
  if (all.empty()) all.push_back(choices);
  std::vector<FitRow> rows;
  Errors errors;
  for (PlanChoices& machine : all) {
    const Result<ResolvedRequest> request = resolved(machine);
    FitRow row;
    if (request) {
      row = {.gpu = request->cluster.gpu.name, .machine = request->cluster.name};
      row.memory = request->cluster.gpu.usable_memory.value;
    } else {
      const std::string name = machine.gpu_name.value_or("");
      row = {.gpu = name, .machine = name, .why_not = request.error().front().what};
      add_new(errors, request.error());
    }
    const bool is_known =
        std::any_of(rows.begin(), rows.end(), [&](const FitRow& other) { return other.machine == row.machine; });
    row.choices = std::move(machine);
    if (!is_known) rows.push_back(std::move(row));
  }
  // What one GPU of the library cannot be asked is no matter of the others.
  const bool has_any = std::any_of(rows.begin(), rows.end(), [](const FitRow& row) { return row.why_not.empty(); });
  if (!errors.empty() && (!has_any || !are_unnamed(choices, options_))) return tl::unexpected(errors);
  std::stable_sort(rows.begin(), rows.end(), [](const FitRow& a, const FitRow& b) { return a.memory < b.memory; });
  return rows;
}

Result<LargestSize> FitSearch::largest(const PlanChoices& choices, const SizeQuestion& question, const FitRow& row,
                                       std::size_t& guess) const {
  std::vector<Bytes> needed(question.sizes.size());
  const auto fits = [&](std::size_t index) -> Result<bool> {
    const std::int64_t size = question.sizes[index];
    if (options_.on_question) options_.on_question(fmt::format("{}: {} {}", row.machine, question.what, size));
    FSDP_TRY(const MemoryAnswer answer, ask(question.with_size(choices, size)));
    needed[index] = answer.least;
    return answer.fits;
  };
  FSDP_TRY(const std::optional<std::size_t> found, largest_that_fits(question.sizes.size(), guess, fits));
  guess = found.value_or(0);
  if (!found) return LargestSize{};
  return LargestSize{question.sizes[*found], *found + 1 == question.sizes.size(), needed[*found]};
}

Result<void> FitSearch::fill(FitTable& table, const SizeQuestion& question,
                             std::vector<LargestSize> FitRow::*column) const {
  for (const FitMode& mode : table.modes) {
    std::size_t guess = 0;
    for (FitRow& row : table.rows) {
      if (!row.why_not.empty()) continue;
      PlanChoices choices = row.choices;
      if (column == &FitRow::sequence) choices.batch = table.micro_batch;
      choices.checkpoint = mode.checkpoint;
      const Result<LargestSize> size = largest(choices, question, row, guess);
      if (size) {
        (row.*column).push_back(*size);
      } else if (are_unnamed(request_.choices, options_) && !(options_.should_stop && options_.should_stop())) {
        row.why_not = size.error().front().what;
      } else {
        return tl::unexpected(size.error());
      }
    }
  }
  return {};
}

std::vector<std::int64_t> FitSearch::buildable(SizeQuestion question, const PlanChoices& choices) const {
  const auto builds = [&](std::size_t index) -> Result<bool> {
    Errors none;
    const Workload workload = workload_of(question.with_size(choices, question.sizes[index]), none);
    return none.empty() && build_model(spec_, workload).has_value();
  };
  const auto last = largest_that_fits(question.sizes.size(), question.sizes.size() - 1, builds);
  question.sizes.resize(last && *last ? **last + 1 : 0);
  return question.sizes;
}

Result<FitTable> FitSearch::table(std::vector<FitRow> rows) const {
  const auto able = std::find_if(rows.begin(), rows.end(), [](const FitRow& row) { return row.why_not.empty(); });
  const PlanChoices choices = able->choices;
  FSDP_TRY(const ResolvedRequest first, resolved(choices));
  FitTable table{.model = spec_.name, .rows = std::move(rows)};
  const auto offers = [&](CheckpointMode mode) {
    const auto& modes = first.space.checkpoint_modes;
    return std::find(modes.begin(), modes.end(), mode) != modes.end();
  };
  if (choices.checkpoint) {
    table.modes.push_back({to_text(*choices.checkpoint), *choices.checkpoint});
  } else {
    table.modes.push_back({"none", {}});
    const CheckpointChoice full{CheckpointMode::Full, std::nullopt};
    if (offers(CheckpointMode::Full)) table.modes.push_back({to_text(full), full});
  }

  table.only_captured = captured_batches(spec_);
  const std::vector<std::int64_t> batches =
      table.only_captured.empty() ? multiples(1, kMostSamples) : table.only_captured;
  if (auto filled = fill(table, {"micro-batch", batches, with_batch_of}, &FitRow::micro_batch); !filled) {
    return tl::unexpected(filled.error());
  }

  FSDP_TRY(const Model model, build_model(spec_, first.workload));
  const Dimension* sequence = find_dimension(model.dimensions, kSequenceDimension);
  if (sequence == nullptr || !table.only_captured.empty()) return table;
  table.sequence = static_cast<std::int64_t>(sequence->value);
  table.micro_batch = choices.batch.value_or(1);
  SizeQuestion question{"tokens per sample", multiples(kSequenceStep, kMostTokens), with_sequence_of};
  question.sizes = buildable(question, with_batch_of(choices, table.micro_batch));
  if (question.sizes.empty()) return table;
  if (auto filled = fill(table, question, &FitRow::sequence); !filled) {
    return tl::unexpected(filled.error());
  }
  return table;
}

}  // namespace

Result<std::optional<std::size_t>> largest_that_fits(std::size_t num_sizes, std::size_t guess,
                                                     const std::function<Result<bool>(std::size_t)>& fits) {
  // All below `lower` fit, and none from `upper` on.
  std::size_t lower = 0;
  std::size_t upper = num_sizes;
  std::size_t next = std::min(guess, num_sizes - 1);
  std::size_t stride = 1;
  while (lower < upper) {
    FSDP_TRY(const bool does, fits(next));
    (does ? lower : upper) = does ? next + 1 : next;
    if (lower == upper) break;
    const bool is_open_above = upper == num_sizes && lower > 0;
    const bool is_open_below = lower == 0;
    if (is_open_above) {
      next = std::min(lower - 1 + stride, num_sizes - 1);
    } else if (is_open_below) {
      next = upper - std::min(stride, upper);
    } else {
      next = lower + (upper - lower) / 2;
    }
    if (is_open_above || is_open_below) stride *= 2;
  }
  if (lower == 0) return std::optional<std::size_t>();
  return std::optional(lower - 1);
}

Result<FitTable> what_fits(const PlanRequest& request, const std::string& library, const FitOptions& options) {
  FSDP_TRY(const ModelSpec spec, read_spec(request, library));
  const FitSearch search(request, spec, library, options);
  FSDP_TRY(std::vector<FitRow> rows, search.rows());
  return search.table(std::move(rows));
}

}  // namespace fsdp::planner
