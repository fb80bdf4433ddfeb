// The largest micro-batch and the longest sequence that fit each kind of GPU.
//
// A size fits if some plan of the whole space (planner/space/space.h) does, which memory alone decides
// (docs/decisions/0030): a yes is a predicted plan, a no is a proof. Memory rises with both sizes, so we find the
// largest by bisection. We go through the GPUs by rising memory, and start each at the result of the one before:
// neighbors hold about the same, and a right guess takes two questions.
//
// Parameters stay on the GPUs, for a fast step. If nothing fits a machine that way, we try once more with CPU offload,
// as a search would.
//
// For a single machine we also ask how far it goes without room to spare (docs/decisions/0089): a few sizes above the
// largest with room, nearest first, and the fastest plan of the last one that runs.
//
// A question that reaches its limit of work counts as a no, and its answer reports that.
//
// Not modeled: the value of a shorter step or a larger batch; the answer does not consider speed.

#include "planner/request/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "core/spec/captured_model.h"
#include "planner/advice/explained_search.h"
#include "planner/search/predictors.h"
#include "planner/search/search.h"
#include "planner/space/batches.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kMostSamples = 4096;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;

/// A size to maximize on every GPU.
struct SizeQuestion {
  std::string what;  ///< "micro-batch"
  std::string_view dimension;
  std::vector<std::int64_t> sizes;                     ///< Ascending.
  std::vector<LargestSize> FitRow::*column = nullptr;  ///< The column of the answers.
};

/// A machine and its request without sizes and checkpointing. nullopt if it has none.
struct Asked {
  FitRow row;
  std::optional<ResolvedRequest> request;
  Workload asked_workload = {};  ///< The workload of the request, before it gets sizes.
  std::int64_t work = 0;         ///< The work on it so far.
};

std::vector<std::int64_t> multiples(std::int64_t step, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = step; size <= most; size += step) sizes.push_back(size);
  return sizes;
}

/// True if the user named no machines: then an error of one becomes a text in its row.
bool are_unnamed(const PlanChoices& choices, const FitOptions& options) {
  return options.gpu_names.empty() && !choices.gpu_name && !choices.memory && !choices.cluster_file;
}

/// Fills in the defaults of a search: parameters stay on the GPUs, and a step has one micro-batch.
PlanChoices with_defaults(PlanChoices choices) {
  if (!choices.cpu_offload) choices.cpu_offload = false;
  if (!choices.accumulation) choices.accumulation = 1;
  return choices;
}

/// The choices of each machine.
Result<std::vector<PlanChoices>> choices_of(const PlanChoices& given, const std::string& library,
                                            const FitOptions& options) {
  const PlanChoices choices = with_defaults(given);
  std::vector<std::string> names = options.gpu_names;
  if (are_unnamed(given, options)) {
    FSDP_TRY(const ClusterLibrary shipped, read_cluster_library(library + "/clusters"));
    for (const Gpu& gpu : shipped.gpus) names.push_back(gpu.name);
  }
  if (names.empty()) return std::vector<PlanChoices>{choices};
  std::vector<PlanChoices> all;
  for (const std::string& name : names) all.push_back(with_change(choices, {.gpu_name = name}));
  return all;
}

Asked asked_of(const PlanRequest& request, const PlanChoices& choices, const std::string& library,
               const ModelSpec& spec, Errors& errors) {
  PlanRequest of_machine = request;
  of_machine.choices = choices;
  Result<ResolvedRequest> resolved = resolve(of_machine, library, &spec);
  if (!resolved) {
    add_once(errors, resolved.error());
    const std::string name = choices.gpu_name.value_or("");
    return {{.gpu = name, .machine = name, .choices = choices, .why_not = resolved.error().front().what}, {}};
  }
  const Cluster& cluster = resolved->cluster;
  FitRow row{.gpu = cluster.gpu.name, .machine = cluster.name, .memory = cluster.gpu.usable_memory.value};
  row.choices = choices;
  Workload workload = resolved->workload;
  return {std::move(row), *std::move(resolved), std::move(workload)};
}

/// By rising memory, each once.
Result<std::vector<Asked>> machines_of(const PlanRequest& request, const std::string& library, const ModelSpec& spec,
                                       const FitOptions& options) {
  FSDP_TRY(const std::vector<PlanChoices> all, choices_of(request.choices, library, options));
  std::vector<Asked> machines;
  Errors errors;
  for (const PlanChoices& choices : all) {
    Asked asked = asked_of(request, choices, library, spec, errors);
    const bool is_known = std::any_of(machines.begin(), machines.end(),
                                      [&](const Asked& other) { return other.row.machine == asked.row.machine; });
    if (!is_known) machines.push_back(std::move(asked));
  }
  // An error of one GPU of the library does not affect the others.
  const bool has_any = std::any_of(machines.begin(), machines.end(), [](const Asked& each) { return each.request; });
  if (!errors.empty() && (!has_any || !are_unnamed(request.choices, options))) return tl::unexpected(errors);
  std::stable_sort(machines.begin(), machines.end(),
                   [](const Asked& a, const Asked& b) { return a.row.memory < b.row.memory; });
  return machines;
}

/// The ways of training to compare: the user's, or with and without checkpointing if both are possible.
std::vector<FitMode> modes_of(const PlanChoices& choices, const Space& space) {
  if (choices.checkpoint) return {{to_text(*choices.checkpoint), *choices.checkpoint}};
  std::vector<FitMode> modes = {{"none", {}}};
  const auto& offered = space.checkpoint_ways;
  const CheckpointChoice full{CheckpointMode::Full, std::nullopt};
  const bool has_full = std::find(offered.begin(), offered.end(), CheckpointWay(CheckpointMode::Full)) != offered.end();
  if (has_full) modes.push_back({to_text(full), full});
  return modes;
}

Workload with_size(const Workload& workload, const SizeQuestion& question, std::size_t index) {
  return with_dimension(workload, question.dimension, static_cast<double>(question.sizes[index]));
}

/// `most_work`: the limit after which its answers are left open. 0 for no limit.
Result<LargestSize> largest(Asked& asked, const Space& space, const SizeQuestion& question, const FitOptions& options,
                            std::int64_t most_work, std::size_t& guess) {
  const ResolvedRequest& request = *asked.request;
  const std::int64_t begin = asked.work;
  bool is_open = false;
  const auto fits = [&](std::size_t index) -> Result<bool> {
    if (options.on_question) {
      options.on_question(fmt::format("{}: {} {}", asked.row.machine, question.what, question.sizes[index]));
    }
    SearchOptions search{.most_work = 0, .predictors = std::make_shared<Predictors>()};
    // At the limit, a question still tries the plans that are likely to need least.
    if (most_work > 0) search.most_work = std::max<std::int64_t>(1, most_work - (asked.work - begin));
    FSDP_TRY(
        const std::optional<bool> does,
        has_fitting_plan(request.spec, with_size(request.workload, question, index), request.cluster, space, search));
    asked.work += search.predictors->work();
    if (!does) is_open = true;
    return does.value_or(false);
  };
  FSDP_TRY(const std::optional<std::size_t> found, largest_that_fits(question.sizes.size(), guess, fits));
  guess = found.value_or(0);
  if (!found) return LargestSize{.is_open = is_open};
  return LargestSize{question.sizes[*found], *found + 1 == question.sizes.size(), is_open};
}

/// Asks every machine in every mode. With `are_unnamed`, a machine with an error gets a text in its row.
Result<void> fill(std::vector<Asked>& machines, const std::vector<FitMode>& modes, const SizeQuestion& question,
                  const FitOptions& options, bool are_unnamed) {
  for (const FitMode& mode : modes) {
    std::size_t guess = 0;
    for (Asked& asked : machines) {
      if (!asked.row.why_not.empty()) continue;
      Space space = asked.request->space;
      space.checkpoint = mode.checkpoint;
      // Each mode has two kinds of sizes.
      const std::int64_t most_work = options.most_work / (2 * static_cast<std::int64_t>(modes.size()));
      const Result<LargestSize> size = largest(asked, space, question, options, most_work, guess);
      if (!size && !are_unnamed) return tl::unexpected(size.error());
      if (size) (asked.row.*question.column).push_back(*size);
      if (!size) asked.row.why_not = size.error().front().what;
    }
  }
  return {};
}

/// Removes the sizes that the model cannot be built with: it may have fewer positions than a sequence has tokens.
void keep_buildable(SizeQuestion& question, const ModelSpec& spec, const Workload& workload) {
  const auto builds = [&](std::size_t index) -> Result<bool> {
    return build_model(spec, with_size(workload, question, index)).has_value();
  };
  const auto last = largest_that_fits(question.sizes.size(), question.sizes.size() - 1, builds);
  question.sizes.resize(last && *last ? **last + 1 : 0);
}

}  // namespace

Result<std::optional<std::size_t>> largest_that_fits(std::size_t num_sizes, std::size_t guess,
                                                     const std::function<Result<bool>(std::size_t)>& fits) {
  // All below `lower` fit, and none from `upper` on does.
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

bool FitRow::any_size(bool (*is_so)(const LargestSize&)) const {
  return std::any_of(micro_batch.begin(), micro_batch.end(), is_so) ||
         std::any_of(sequence.begin(), sequence.end(), is_so);
}

bool FitRow::trains() const {
  return any_size([](const LargestSize& size) { return size.size > 0; });
}

bool FitRow::runs_tight() const {
  return any_size([](const LargestSize& size) { return size.tight > 0; });
}

namespace {

/// The questions of all machines.
Result<void> fill(FitTable& table, std::vector<Asked>& machines, const std::vector<SizeQuestion>& questions,
                  const FitOptions& options, bool are_unnamed) {
  for (const SizeQuestion& question : questions) {
    const bool is_of_batch = question.dimension == kBatchDimension;
    for (Asked& asked : machines) {
      if (!is_of_batch && asked.request) {
        asked.request->workload = with_micro_batch(asked.request->workload, table.micro_batch);
      }
    }
    if (auto filled = fill(machines, table.modes, question, options, are_unnamed); !filled) return filled;
  }
  return {};
}

/// Repeats with CPU offload for machines where nothing fits, if the user did not decide on it.
Result<void> offload_the_rest(FitTable& table, std::vector<Asked>& machines, const std::vector<SizeQuestion>& questions,
                              const FitOptions& options, bool are_unnamed) {
  if (!table.tries_offload) return {};
  std::vector<Asked> rest;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const FitRow& row = machines[i].row;
    if (!machines[i].request || !row.why_not.empty() || row.trains() || row.choices.cpu_offload->is_on) continue;
    Asked& asked = rest.emplace_back(machines[i]);
    places.push_back(i);
    asked.row.micro_batch.clear();
    asked.row.sequence.clear();
    asked.row.choices.cpu_offload = true;
    asked.row.is_offloaded = true;
    asked.request->workload = machines[i].asked_workload;
    asked.request->space.cpu_offload = true;
  }
  if (auto filled = fill(table, rest, questions, options, are_unnamed); !filled) return filled;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i].row.trains()) machines[places[i]] = std::move(rest[i]);
  }
  return {};
}

/// The largest of the few sizes above `found` for which some plan runs, and how often that plan empties its cache.
void add_tight(const Asked& asked, const SizeQuestion& question, const CheckpointChoice& checkpoint,
               std::int64_t most_work, LargestSize& found) {
  constexpr std::size_t kMostQuestions = 6;
  const ResolvedRequest& request = *asked.request;
  Space space = request.space;
  space.checkpoint = checkpoint;
  space.room = Room::None;
  space.explain = false;
  space.pareto_points = 0;
  const SearchOptions options{.most_work = std::max<std::int64_t>(1, most_work / (2 * kMostQuestions))};
  const auto runs = [&](std::size_t index) {
    const auto does =
        has_fitting_plan(request.spec, with_size(request.workload, question, index), request.cluster, space, options);
    return does && does->value_or(false);
  };
  const auto above = std::upper_bound(question.sizes.begin(), question.sizes.end(), found.size);
  std::size_t lower = static_cast<std::size_t>(above - question.sizes.begin());  // All below run.
  const std::size_t first = lower;
  std::size_t upper = question.sizes.size();
  std::size_t stride = 1;
  for (std::size_t asked_so_far = 0; lower < upper && asked_so_far < kMostQuestions; ++asked_so_far) {
    const bool is_open_above = upper == question.sizes.size();
    const std::size_t next = is_open_above ? std::min(lower + stride, upper) - 1 : lower + (upper - lower) / 2;
    const bool does = runs(next);
    (does ? lower : upper) = does ? next + 1 : next;
    stride *= 2;
  }
  if (lower == first) return;
  // The same answer as for a user who requests that size.
  space.room = Room::Either;
  const auto plan = search(request.spec, with_size(request.workload, question, lower - 1), request.cluster, space,
                           {.most_work = std::max<std::int64_t>(1, most_work / 2)});
  if (!plan || plan->verdict != Verdict::Fits) return;
  found.tight = question.sizes[lower - 1];
  found.flushes = plan->report.memory.step_flushes;
}

/// Adds to each figure of the only machine how far it goes without room to spare.
void add_tight(const FitTable& table, const std::vector<SizeQuestion>& questions, const FitOptions& options,
               Asked& asked) {
  if (!asked.request || !asked.row.why_not.empty()) return;
  const std::int64_t most_work = options.most_work > 0 ? options.most_work / 4 : kMostWork;
  const auto parts = static_cast<std::int64_t>(2 * table.modes.size());
  for (const SizeQuestion& question : questions) {
    std::vector<LargestSize>& column = asked.row.*question.column;
    for (std::size_t i = 0; i < column.size(); ++i) {
      if (column[i].is_open || column[i].is_last) continue;
      add_tight(asked, question, table.modes[i].checkpoint, most_work / parts, column[i]);
    }
  }
}

}  // namespace

Result<FitTable> what_fits(const PlanRequest& request, const std::string& library, const FitOptions& options) {
  FSDP_TRY(const ModelSpec spec, read_spec(request, library));
  FSDP_TRY(std::vector<Asked> machines, machines_of(request, library, spec, options));
  const bool unnamed = are_unnamed(request.choices, options);
  const ResolvedRequest& first = *std::find_if(machines.begin(), machines.end(), [](const Asked& each) {
                                    return each.request.has_value();
                                  })->request;
  FitTable table{.model = spec.name, .modes = modes_of(request.choices, first.space)};
  table.tries_offload = !request.choices.cpu_offload || request.choices.cpu_offload->is_on;
  if (spec.captured) table.only_captured = batches_of(*spec.captured);

  std::vector<SizeQuestion> questions = {{"micro-batch", kBatchDimension, table.only_captured, &FitRow::micro_batch}};
  if (questions[0].sizes.empty()) questions[0].sizes = multiples(1, kMostSamples);
  FSDP_TRY(const Model model, build_model(spec, first.workload));
  const Dimension* sequence = find_dimension(model.dimensions, kSequenceDimension);
  if (sequence != nullptr && !spec.captured) {
    table.sequence = static_cast<std::int64_t>(sequence->value);
    table.micro_batch = request.choices.batch.value_or(1);
    SizeQuestion tokens{"tokens per sample", kSequenceDimension, multiples(kSequenceStep, kMostTokens),
                        &FitRow::sequence};
    keep_buildable(tokens, spec, with_micro_batch(first.workload, table.micro_batch));
    if (!tokens.sizes.empty()) questions.push_back(std::move(tokens));
  }
  if (auto filled = fill(table, machines, questions, options, unnamed); !filled) return tl::unexpected(filled.error());
  if (auto filled = offload_the_rest(table, machines, questions, options, unnamed); !filled) {
    return tl::unexpected(filled.error());
  }
  if (machines.size() == 1) add_tight(table, questions, options, machines.front());
  for (Asked& asked : machines) table.rows.push_back(std::move(asked.row));
  return table;
}

}  // namespace fsdp::planner
