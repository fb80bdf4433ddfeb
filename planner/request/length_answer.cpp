// A run of batches that differ in length.
//
// The batches of some GPUs are drawn (planner/request/drawn_lengths.h): those of one job if it has so many, otherwise
// of several jobs with seeds of their own. Each run goes through one allocator with the device's memory
// (simulator/lengths/length_run.h), in the schedule of the plan at each batch's own length.
//
//   fits                      no GPU returns its cache, and the safety margin is left beside the peak of reserved
//                             memory
//   fits, tight               all GPUs come to the end, but some return their cache, or the margin is not left
//   does not fit              a GPU runs out of memory, or would with the longest batch, which a longer run draws. If a
//                             part p of the drawn GPUs does, one of n GPUs does with probability 1 - (1 - p)^n
//
// The safety margin is that of a plan of one length (decision 0105): a share of reserved memory, which the run's own
// peak takes the place of. What lengths add is in the peak and no longer in the margin.
//
// The remedies are the run of the drawn GPU that needs most, with one change each: settings of the allocator, and ways
// to batch.
//
// Not modeled: as in simulator/lengths/recorded_lengths.cpp.

#include "planner/request/length_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/rounding.h"
#include "core/library/model_library.h"
#include "core/plan/torch_version.h"
#include "planner/request/drawn_lengths.h"
#include "planner/search/expandable_segments.h"
#include "planner/space/batches.h"
#include "simulator/lengths/length_run.h"
#include "simulator/memory/device_terms.h"

namespace fsdp::planner {

namespace {

/// A run with one change.
struct Trial {
  std::string what;
  std::string how;
  Batching batching;
  std::string settings;  ///< The allocator's.
};

LengthSpread spread_of(std::vector<std::int64_t> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](std::int64_t percent) {
    const auto count = static_cast<std::int64_t>(values.size());
    return values[static_cast<std::size_t>(std::max<std::int64_t>(1, div_up(percent * count, 100)) - 1)];
  };
  return {values.front(), at(50), at(95), values.back()};
}

/// The runs of the drawn GPUs: those of one job, or of several small ones.
std::vector<DrawnRun> draw(const std::vector<std::int64_t>& lengths, const Batching& batching, std::int64_t gpus,
                           const LengthOptions& options) {
  const std::int64_t ranks = std::min(gpus, kDrawnGpus);
  std::vector<DrawnRun> all;
  for (std::int64_t job = 0; job < kDrawnGpus / ranks; ++job) {
    const auto seed = static_cast<std::uint64_t>(options.seed + job);
    for (DrawnRun& run : draw_job(lengths, batching, ranks, options.steps, seed)) all.push_back(std::move(run));
  }
  return all;
}

/// The parts of an answer's work.
class LengthRuns {
 public:
  LengthRuns(const ModelSpec& spec, const Plan& plan, const Cluster& cluster, const MemoryReport& predicted,
             const LengthSamples& samples)
      : spec_(spec),
        plan_(plan),
        cluster_(cluster),
        predicted_(predicted),
        where_(samples.where),
        workload_(workload_of(plan)),
        terms_(simulator::outside_terms(cluster, plan)),
        recorded_(cluster, plan, predicted.rank) {
    for (const DeviceTerm& term : terms_) outside_ += term.bytes;
  }

  /// Errors: those of own_sizes_of.
  Result<void> prepare() {
    if (!plan_.also.empty()) {
      return failure(where_, "Lengths are not predicted with models beside the trained one.", "Leave --also out.");
    }
    FSDP_TRY(workload_.dimensions, own_sizes_of(plan_, spec_));
    return {};
  }

  /// Runs the drawn batches. Errors: a length that the model cannot be built with.
  Result<std::vector<simulator::LengthRun>> run(const std::vector<DrawnRun>& drawn, const std::string& settings_text) {
    FSDP_TRY(const simulator::AllocatorSettings settings, simulator::parse_allocator_settings(settings_text));
    if (auto made = record(drawn); !made) return tl::unexpected(std::move(made).error());
    std::vector<simulator::LengthRun> runs;
    for (const DrawnRun& each : drawn) {
      runs.push_back(run_lengths(recorded_, each.lengths, settings, device(), allocators_));
    }
    return runs;
  }

  /// A run whose batches all have this length, without a limit and within the device. Errors: those of run.
  Result<void> run_longest(std::int64_t length, LengthAnswer& answer) {
    FSDP_TRY(const simulator::AllocatorSettings settings,
             simulator::parse_allocator_settings(plan_.runtime.allocator_settings));
    const DrawnRun same{.lengths = std::vector<std::int64_t>(static_cast<std::size_t>(3 * plan_.accumulation), length)};
    if (auto made = record({same}); !made) return tl::unexpected(std::move(made).error());
    const auto run_within = [&](const simulator::AllocatorDevice& device) {
      return run_lengths(recorded_, same.lengths, settings, device, allocators_);
    };
    answer.longest = length;
    answer.at_longest = run_within({.total = simulator::kEndlessMemory}).peak_reserved;
    answer.longest_is_out = run_within(device()).is_out_of_memory;
    return {};
  }

  LengthRow row_of(const Trial& trial, const std::vector<DrawnRun>& drawn,
                   const std::vector<simulator::LengthRun>& runs) const {
    LengthRow row{.what = trial.what, .how = trial.how};
    std::int64_t tokens = 0;
    std::int64_t padded = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      tokens += drawn[i].tokens;
      padded += drawn[i].padded;
      row.peak_reserved = std::max(row.peak_reserved, runs[i].peak_reserved);
      row.peak_allocated = std::max(row.peak_allocated, runs[i].peak_allocated);
      row.flushes = std::max(row.flushes, runs[i].flushes);
      if (!runs[i].is_out_of_memory) continue;
      ++row.num_out;
      const auto step = std::max<std::int64_t>(1, std::ssize(runs[i].steps));
      row.first_out = row.first_out == 0 ? step : std::min(row.first_out, step);
    }
    row.padding = 1 - static_cast<double>(tokens) / static_cast<double>(padded);
    row.device = verdict_of_row(row, trial.settings);
    return row;
  }

  /// The safety margin beside this much reserved memory.
  Bytes margin_at(Bytes reserved, const std::string& settings) const {
    Plan plan = plan_;
    const Bytes further = predicted_.margin - simulator::margin(predicted_.peaks.reserved, terms_, plan);
    plan.runtime.allocator_settings = settings;
    return simulator::margin(reserved, terms_, plan) + std::max(Bytes(0), further);
  }

  Bytes outside() const { return outside_; }

 private:
  simulator::AllocatorDevice device() const {
    return {.total = cluster_.gpu.usable_memory.value, .used_by_others = outside_};
  }

  DeviceVerdict verdict_of_row(const LengthRow& row, const std::string& settings) const {
    if (row.num_out > 0) return {Verdict::DoesNotFit, Tightness::None};
    if (row.flushes > 0) return {Verdict::Fits, Tightness::Flushes};
    return verdict_of({.budget = cluster_.gpu.usable_memory.value,
                       .peak = row.peak_reserved + outside_,
                       .margin = margin_at(row.peak_reserved, settings),
                       .held = predicted_.held});
  }

  Result<void> record(const std::vector<DrawnRun>& runs) {
    std::set<std::int64_t> first;
    std::set<std::int64_t> all;
    for (const DrawnRun& run : runs) {
      const auto num_first =
          std::min<std::size_t>(run.lengths.size(), static_cast<std::size_t>(2 * plan_.accumulation));
      first.insert(run.lengths.begin(), run.lengths.begin() + static_cast<std::ptrdiff_t>(num_first));
      all.insert(run.lengths.begin(), run.lengths.end());
    }
    // Longest first: a length that the model lacks positions for is the first error.
    for (auto length = all.rbegin(); length != all.rend(); ++length) {
      const bool is_first = first.contains(*length);
      if (recorded_.has(*length, is_first)) continue;
      Result<Model> model =
          build_model(spec_, with_dimension(workload_, kSequenceDimension, static_cast<double>(*length)));
      if (!model) return refused(*length, std::move(model).error());
      if (auto made = recorded_.record(*length, *model, is_first); !made)
        return tl::unexpected(std::move(made).error());
    }
    return {};
  }

  tl::unexpected<Errors> refused(std::int64_t length, const Errors& reasons) const {
    const std::string why = reasons.empty() ? "" : " " + reasons.front().what;
    return failure(where_, fmt::format("A batch of {} tokens a row cannot be trained.{}", length, why),
                   "Leave such samples out, or cut them with --seq, as a trainer's max_length does.");
  }

  const ModelSpec& spec_;
  const Plan& plan_;
  const Cluster& cluster_;
  const MemoryReport& predicted_;
  std::string where_;
  Workload workload_;
  std::vector<DeviceTerm> terms_;
  Bytes outside_;
  simulator::RecordedLengths recorded_;
  simulator::LengthAllocators allocators_;
};

Trial with_setting(const Trial& planned, const Runtime& runtime, std::string_view setting, std::string what) {
  Trial trial = planned;
  trial.what = std::move(what);
  trial.settings += planned.settings.empty() ? std::string(setting) : fmt::format(",{}", setting);
  Runtime changed = runtime;
  changed.allocator_settings = trial.settings;
  trial.how = allocator_environment(changed);
  return trial;
}

/// The run with one change each.
std::vector<Trial> remedies_of(const Trial& planned, const Runtime& runtime) {
  std::vector<Trial> trials;
  const auto is_set = [&](std::string_view name) { return planned.settings.find(name) != std::string::npos; };
  if (!is_set("expandable_segments:True")) {
    trials.push_back(with_setting(planned, runtime, kExpandableSegments, "expandable segments"));
    if (!is_set("max_split_size_mb")) {
      trials.push_back(with_setting(planned, runtime, "max_split_size_mb:512", "blocks above 512 MiB stay whole"));
    }
  }
  // A single row has no padding, and no mask of it, unless it is padded further.
  const bool may_pad = planned.batching.batch > 1 || runtime.implementations.padding_mask;
  for (const std::int64_t multiple : {64, 256}) {
    if (!may_pad) break;
    Trial trial = planned;
    trial.batching.multiple = multiple;
    trial.what = fmt::format("pad to a multiple of {}", multiple);
    trial.how = fmt::format("TRL: pad_to_multiple_of={}", multiple);
    trials.push_back(std::move(trial));
  }
  Trial grouped = planned;
  grouped.batching.groups_lengths = true;
  grouped.what = "group samples by length";
  grouped.how = "transformers: train_sampling_strategy=\"group_by_length\" (before 5.0: group_by_length=True)";
  trials.push_back(std::move(grouped));
  Trial longest = planned;
  longest.batching.pads_to_longest = true;
  longest.what = "pad all to the longest";
  longest.how = "tokenizer: padding=\"max_length\"; axolotl: pad_to_sequence_len: true";
  if (may_pad) trials.push_back(std::move(longest));
  return trials;
}

/// Errors: a plan whose lengths cannot vary.
Errors check_plan(const ModelSpec& spec, const Plan& plan, const Cluster& cluster, const std::string& where) {
  Errors errors;
  if (find_dimension(plan.dimensions, kSequenceDimension) == nullptr) {
    errors.push_back({where, fmt::format("{} has no size \"seq\" that samples could differ in.", spec.name),
                      "Lengths are those of sequences of tokens."});
  } else if (spec.captured != nullptr) {
    errors.push_back({where, "The model is a capture, which has the lengths that its script was captured with.",
                      "Plan a shipped model or a Hugging Face folder, or replay a recording of the script."});
  }
  if (plan.cuda_graphs) {
    errors.push_back(
        {where, "A CUDA graph replays batches of one length.", "Give one of --lengths and --cuda-graphs."});
  }
  if (cluster.gpu.compute_capability == 0) {
    errors.push_back({where, "On a CPU there is no caching allocator.", "Name a GPU."});
  }
  return errors;
}

/// The run that needs most: it runs out first, or returns its cache most often, or reserves most.
std::size_t worst_of(const std::vector<simulator::LengthRun>& runs) {
  const auto key = [](const simulator::LengthRun& run) {
    const std::int64_t sooner = run.is_out_of_memory ? -std::ssize(run.steps) : 0;
    return std::tuple(run.is_out_of_memory, sooner, run.flushes, run.peak_reserved.count());
  };
  const auto worst =
      std::max_element(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return static_cast<std::size_t>(worst - runs.begin());
}

/// The spreads of the planned runs.
void add_spreads(const std::vector<DrawnRun>& drawn, const std::vector<simulator::LengthRun>& runs,
                 LengthAnswer& answer) {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> reserved;
  std::vector<std::int64_t> allocated;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    tokens.insert(tokens.end(), drawn[i].lengths.begin(), drawn[i].lengths.end());
    for (const simulator::LengthStep& step : runs[i].steps) {
      reserved.push_back(step.reserved.count());
      allocated.push_back(step.allocated.count());
    }
  }
  answer.batch_tokens = spread_of(std::move(tokens));
  answer.reserved = spread_of(std::move(reserved));
  answer.allocated = spread_of(std::move(allocated));
}

/// The facts of a request, without a run. Cuts the lengths.
LengthAnswer facts_of(const Plan& plan, const Cluster& cluster, const LengthSamples& samples,
                      const LengthOptions& options, std::vector<std::int64_t>& lengths) {
  LengthAnswer answer{.samples = std::ssize(lengths), .limit = samples.limit};
  for (std::int64_t& length : lengths) {
    if (samples.limit == 0 || length <= samples.limit) continue;
    length = samples.limit;
    ++answer.num_cut;
  }
  answer.sample_tokens = spread_of(lengths);
  const Dimension* batch = find_dimension(plan.dimensions, kBatchDimension);
  answer.batch = batch == nullptr ? 1 : static_cast<std::int64_t>(batch->value);
  answer.accumulation = plan.accumulation;
  answer.has_mask = plan.runtime.implementations.padding_mask;
  answer.gpus = world_size(cluster);
  answer.steps = options.steps;
  answer.seed = options.seed;
  answer.budget = cluster.gpu.usable_memory.value;
  return answer;
}

}  // namespace

std::int64_t longest_of(const LengthSamples& samples) {
  const std::int64_t longest = *std::max_element(samples.lengths.begin(), samples.lengths.end());
  return samples.limit > 0 ? std::min(longest, samples.limit) : longest;
}

DeviceVerdict LengthAnswer::verdict() const {
  return longest_is_out ? DeviceVerdict{Verdict::DoesNotFit, Tightness::None} : planned.device;
}

double LengthAnswer::probability() const {
  const double share = static_cast<double>(planned.num_out) / static_cast<double>(drawn_gpus);
  return 1 - std::pow(1 - share, static_cast<double>(gpus));
}

Result<LengthAnswer> answer_lengths(const ModelSpec& spec, const Plan& plan, const Cluster& cluster,
                                    const MemoryReport& predicted, const LengthSamples& samples,
                                    const LengthOptions& options) {
  if (Errors errors = check_plan(spec, plan, cluster, samples.where); !errors.empty()) {
    return tl::unexpected(std::move(errors));
  }
  std::vector<std::int64_t> lengths = samples.lengths;
  LengthAnswer answer = facts_of(plan, cluster, samples, options, lengths);
  LengthRuns runs(spec, plan, cluster, predicted, samples);
  if (auto made = runs.prepare(); !made) return tl::unexpected(std::move(made).error());
  const Trial planned{.what = "as planned",
                      .batching = {.batch = answer.batch, .accumulation = plan.accumulation},
                      .settings = plan.runtime.allocator_settings};
  const auto tell = [&](const std::string& what) {
    if (options.on_run) options.on_run(what);
  };
  tell(planned.what);
  const std::vector<DrawnRun> drawn = draw(lengths, planned.batching, answer.gpus, options);
  FSDP_TRY(const std::vector<simulator::LengthRun> done, runs.run(drawn, planned.settings));
  answer.drawn_gpus = std::ssize(drawn);
  add_spreads(drawn, done, answer);
  answer.planned = runs.row_of(planned, drawn, done);
  if (auto made = runs.run_longest(answer.sample_tokens.most, answer); !made) {
    return tl::unexpected(std::move(made).error());
  }
  answer.outside = runs.outside();
  answer.margin = runs.margin_at(answer.planned.peak_reserved, planned.settings);
  if (!options.tries_remedies) return answer;
  const std::size_t worst = worst_of(done);
  answer.rows = {runs.row_of(planned, {drawn[worst]}, {done[worst]})};
  for (const Trial& trial : remedies_of(planned, plan.runtime)) {
    tell(trial.what);
    const std::vector<DrawnRun> changed = {draw(lengths, trial.batching, answer.gpus, options)[worst]};
    // A multiple may be above the model's positions: then there is no such run.
    const auto ran = runs.run(changed, trial.settings);
    if (ran) answer.rows.push_back(runs.row_of(trial, changed, *ran));
  }
  return answer;
}

}  // namespace fsdp::planner
