#include "executor/rank_run.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/base/files.h"
#include "core/cluster/cpu_cluster.h"
#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/library/model_library.h"
#include "core/plan/plan_file.h"
#include "core/report/report_json.h"
#include "core/spec/captured_model.h"
#include "core/version.h"
#include "executor/calibrate/calibrator.h"
#include "executor/checkpoint/checkpoint_save.h"
#include "executor/checkpoint/parameter_file.h"
#include "executor/measured/kernel_calls.h"
#include "executor/measured/loss_inputs.h"
#include "executor/measured/measured_report.h"
#include "executor/measured/measured_trace.h"
#include "executor/measured/progress_of_run.h"
#include "executor/network/local_address.h"
#include "executor/run_start.h"
#include "executor/training/agreement.h"
#include "executor/training/recomputation.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

namespace {

/// "report.{rank}.json" names a file for each rank.
std::string file_of_rank(std::string name, int rank) {
  constexpr std::string_view kRank = "{rank}";
  for (std::size_t at = name.find(kRank); at != std::string::npos; at = name.find(kRank)) {
    name.replace(at, kRank.size(), std::to_string(rank));
  }
  return name;
}

/// Values that are equal on all ranks.
struct Job {
  Plan plan;
  PlannedModel planned;
  ModelIndex index;
  Layout layout;
  Schedule schedule;
  RunStart start;
};

/// Every rank reads the plan; a pipe would give it to only one rank, and the others would wait.
Result<void> check_is_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (!std::filesystem::is_fifo(status) && !std::filesystem::is_socket(status)) return {};
  return failure(path, "This is a pipe, and every rank reads the plan.", "Write it into a file.");
}

bool has_scans(const Model& model) {
  for (const Block& block : model.blocks) {
    if (std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return is_scan(op.kind); })) return true;
  }
  return false;
}

Result<void> prepare(RunOptions& options, int rank, Job& job) {
  if (const Result<void> is_file = check_is_file(options.plan); !is_file) return is_file;
  FSDP_TRY(PlanFile file, read_plan_file(options.plan));
  job.plan = std::move(file.plan);
  FSDP_TRY(job.planned, model_of_plan(job.plan, options.plan, library_of_process()));
  if (auto refused = refuse_captured(job.planned.spec)) return tl::unexpected(Errors{*std::move(refused)});
  Errors errors = check(job.plan, job.planned.model);
  for (const Error& error : check_executable(job.plan)) errors.push_back(error);
  if (has_scans(job.planned.model)) {
    errors.push_back({"/model", "fsdp-exec has no kernels of linear attention and state spaces.",
                      "Write: fsdp-plan execute, which trains with PyTorch itself."});
  }
  if (!errors.empty()) return tl::unexpected(in_plan_file(std::move(errors), options.plan));
  if (options.stands_in && (rank < 0 || rank >= job.plan.mesh.world_size())) {
    return failure("--stand-in", fmt::format("The plan has no rank {}.", rank),
                   fmt::format("Its ranks are 0 to {}.", job.plan.mesh.world_size() - 1));
  }
  job.index = index_of(job.planned.model);
  FSDP_TRY(job.layout, make_layout(job.index, job.plan, job.plan.mesh.coordinate_of(MeshAxis::DpShard, rank)));
  job.schedule = lower(job.index, job.plan, job.layout);
  FSDP_TRY(job.start, read_run_start(options, job.planned.model, job.plan));
  return {};
}

std::vector<int> along(const Mesh& mesh, MeshAxis axis, int rank) {
  const std::vector<std::int64_t> ranks = mesh.group(axis, rank);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> neighbors(int first, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

std::vector<std::int64_t> smaller_sizes(const Layout& layout) {
  std::vector<std::int64_t> sizes;
  for (const ShardedUnit& unit : layout.units) {
    if (unit.reshard.kind == ReshardAfterForward::Kind::Smaller) sizes.push_back(unit.reshard.world_size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// Ranks of a shard group are neighbors; those of a smaller group are neighbors in it.
RankGroups groups_of(const GroupMaker& make, GlooNetwork* host, bool on_cuda, const Job& job, int rank) {
  const Mesh& mesh = job.plan.mesh;
  const std::vector<int> shard = along(mesh, MeshAxis::DpShard, rank);
  const std::vector<int> copies = along(mesh, MeshAxis::DpReplicate, rank);
  RankGroups groups;
  groups.rank = rank;
  groups.shard = make(fmt::format("shard/{}", shard.front()), shard);
  if (copies.size() > 1) groups.replicate = make(fmt::format("replicate/{}", copies.front()), copies);
  if (on_cuda && job.plan.cpu_offload && job.plan.optimizer.clip_grad_norm) {
    groups.norms = host != nullptr ? host->group(fmt::format("norms/{}", shard.front()), shard)
                                   : stand_in_group(rank - shard.front(), static_cast<int>(shard.size()));
  }
  for (const std::int64_t size : smaller_sizes(job.layout)) {
    const int begin = rank / static_cast<int>(size) * static_cast<int>(size);
    groups.smaller.emplace_back(
        size, make(fmt::format("smaller/{}/{}", size, begin), neighbors(begin, static_cast<int>(size))));
  }
  return groups;
}

std::string instruction_text(const Job& job, const Schedule& schedule, int current) {
  const Schedule one{{schedule.instructions[current]}};
  std::string text = to_text(one, job.index, job.layout);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return fmt::format("instruction {} of {}, {}", current, schedule.instructions.size(), text);
}

// A long run would fill the memory that it measures, so only the first and the last step keep details.
void drop_details(StepMeasurement& step) {
  step.collectives = {};
  step.collective_instructions = {};
  step.collective_times = {};
  step.stream_events = {};
  step.memory = {};
}

Result<void> write_result(const std::string& path, const std::string& text) {
  Result<void> written = write_file_atomically(path, text, Overwrite::Allow);
  if (!written) written.error().front().hint = "The steps are done, and so are their checkpoints.";
  return written;
}

MeasuredStep row_of(const StepMeasurement& step) {
  return {.number = step.number,
          .mean_of = step.mean_of,
          .loss = step.loss,
          .gradient_norm = step.gradient_norm,
          .learning_rate = step.learning_rate,
          .wall = step.wall,
          .cpu = step.cpu,
          .live = step.peak.bytes,
          .allocated = step.peak.allocated,
          .reserved = step.peak.reserved,
          .segments = step.peak.segments,
          .device = step.peak.device};
}

Result<void> write_report(const RunOptions& options, const Job& job, const std::vector<StepMeasurement>& steps,
                          const std::optional<Evaluation>& evaluation, const std::string& device) {
  if (options.report.empty() || steps.empty()) return {};
  const StepReport report = measured_report(job.index, job.plan, job.layout, steps, {.device = device});
  ReportAdditions additions;
  additions.steps.emplace();
  for (const StepMeasurement& step : steps) additions.steps->push_back(row_of(step));
  if (evaluation) additions.evaluation = {evaluation->loss, evaluation->peak.bytes};
  return write_result(options.report, to_json(report, additions));
}

Result<void> write_workspaces(const std::string& path, const KernelCalls& calls) {
  JsonWriter writer;
  calls.measure(threads_of_ranks(num_cores())).write(writer);
  return write_result(path, std::move(writer).take());
}

Result<void> write_tables(const RunOptions& options, const Calibrator& calibrator, const Backend& backend,
                          bool speaks) {
  if (!speaks) return {};
  JsonWriter writer;
  write_json(calibrator.tables(backend.device_name(), options.on_cuda ? "NCCL" : "Gloo"), writer);
  return write_result(options.measure, std::move(writer).take());
}

/// The first values of the parameters, if a seed gives them.
std::string initial_text(const Job& job) {
  if (job.start.weights || job.start.resumed) return {};
  std::string text;
  for (const Parameter& parameter : job.planned.model.parameters) {
    const InitialValues& initial = parameter.initial;
    text += fmt::format("{} {} {} {}\n", name_of(kDistributionTable, initial.distribution), initial.std, initial.value,
                        initial.zero_row);
  }
  return text;
}

/// The facts that all ranks must share, so that no two of them wait for different things.
std::string common_text(const RunOptions& options, const Job& job) {
  PlanFile file{.plan = job.plan, .cluster = std::nullopt};
  file.plan.model_file.clear();
  file.plan.model_fingerprint = fingerprint_of(job.planned.model);
  return fmt::format("{}\n{} steps, seed {}, {}, reduce {}, version {}\n{}{}", to_text(file), options.steps,
                     options.seed, text_of(options.training.values), static_cast<int>(options.reduce), kVersion,
                     summary_of(job.start), initial_text(job));
}

Errors check_agreement(GlooNetwork& network, const RunOptions& options, const Job& job) {
  std::string text;
  for (const int rank : network.ranks_that_differ(common_text(options, job))) {
    text += fmt::format("{}rank {}", text.empty() ? "" : ", ", rank);
  }
  if (text.empty()) return {};
  return {{options.plan, fmt::format("The plan, the options or the version of {} differ from those of rank 0.", text),
           "Start all ranks alike."}};
}

std::string words_on(const std::vector<int>& silent) {
  if (silent.empty()) return {};
  std::string ranks;
  for (const int rank : silent) ranks += fmt::format("{} {}", ranks.empty() ? "" : ",", rank);
  return fmt::format(". No sign of life from rank{}{}: killed, hung, or disconnected.", silent.size() == 1 ? "" : "s",
                     ranks);
}

/// The part of the index that all checkpoints of the run share.
CheckpointIndex index_of_run(const RunOptions& options, const Job& job) {
  CheckpointIndex index;
  index.model = job.planned.model.name;
  index.model_fingerprint = fingerprint_of(job.planned.model);
  index.seed = static_cast<std::int64_t>(options.seed);
  index.hyperparameters = options.training.values;
  index.optimizer = job.plan.optimizer.kind;
  index.mesh = job.plan.mesh;
  return index;
}

Result<void> write_results(const RunOptions& options, const Job& job, const std::vector<StepMeasurement>& steps,
                           const std::optional<Evaluation>& evaluation, Backend& backend, std::int64_t rank) {
  if (!options.trace.empty() && !steps.empty()) {
    const Trace last = measured_trace(job.index, job.plan, job.layout, *steps.back().schedule, steps.back(),
                                      backend.device_name(), rank);
    const auto written = write_result(options.trace, to_chrome_trace(last));
    if (!written) return written;
  }
  return write_report(options, job, steps, evaluation, backend.device_name());
}

/// The place of a rank in its run, for reports of a failure.
struct Place {
  const Schedule* schedule = nullptr;
  int instruction = -1;  ///< Its index; -1 between steps.
  std::string doing = "joining the other ranks";

  void is_at(std::string what) {
    doing = std::move(what);
    instruction = -1;
  }
};

std::unique_ptr<Trainer> make_trainer(const RunOptions& options, int rank, const Job& job, Backend& backend,
                                      GlooNetwork* network) {
  RankGroups groups = groups_of(backend.group_maker(network, options, rank), network, options.on_cuda, job, rank);
  if (network != nullptr) network->end_meeting();
  begin_peak();
  const TrainingSettings settings{.seed = options.seed,
                                  .hyperparameters = options.training.values,
                                  .fills_parameters = !job.start.weights && !job.start.resumed,
                                  .tokens = job.start.tokens,
                                  .device = backend.device(),
                                  .check = [&backend] { backend.check(); }};
  return std::make_unique<Trainer>(job.index, job.plan, job.layout, job.schedule, std::move(groups), settings);
}

/// The run of one rank: its start, its steps, and its results.
class RunOfRank {
 public:
  /// `network` null: the rank runs alone. REQUIRES: references outlive it.
  RunOfRank(const RunOptions& options, int rank, const Job& job, Backend& backend, GlooNetwork* network, Place& place)
      : options_(options),
        rank_(rank),
        job_(job),
        backend_(backend),
        network_(network),
        place_(place),
        speaks_(rank == 0 || options.stands_in),
        trainer_(make_trainer(options, rank, job, backend, network)),
        agreement_(network != nullptr ? std::make_unique<Agreement>(*trainer_, job.plan.mesh.world_size()) : nullptr),
        progress_(options, *trainer_, agreement_.get(), speaks_, job.start.evaluated) {}

  Result<void> begin();
  Result<void> train();
  Result<void> finish();

 private:
  Result<void> train_step(std::int64_t number);
  Result<void> after_step(std::int64_t number, bool is_checkpoint_due);
  Result<void> save_checkpoint();

  const RunOptions& options_;
  int rank_;
  const Job& job_;
  Backend& backend_;
  GlooNetwork* network_;
  Place& place_;
  bool speaks_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Agreement> agreement_;  ///< Null if the rank runs alone.
  ProgressOfRun progress_;
  std::optional<CheckpointWriter> checkpoints_;
  std::vector<StepMeasurement> steps_;
  KernelCalls calls_;
  LossInputs logits_;
  std::unique_ptr<Calibrator> calibrator_;  ///< With --measure. Null otherwise.
};

Result<void> RunOfRank::begin() {
  place_.doing = "reading what it begins with";
  FSDP_TRY(const std::string begun, begin_run(job_.start, *trainer_, agreement_.get()));
  if (speaks_) {
    for (const std::string& note : options_.notes) say("note: " + note);
    for (const std::string& note : job_.start.notes) say(fmt::format("note: --weights: {}.", note));
    if (!begun.empty()) say(begun);
  }
  if (!options_.checkpoints.folder.empty()) {
    checkpoints_.emplace(options_.checkpoints, index_of_run(options_, job_), *trainer_, *agreement_);
  }
  if (auto begins = progress_.begin(); !begins) return begins;
  if (network_ != nullptr) network_->barrier("ready");
  trainer_->on_instruction([this](int instruction) {
    place_.schedule = &trainer_->schedule();
    place_.instruction = instruction;
  });
  if (!options_.workspaces.empty() && speaks_) calls_.listen();
  if (!options_.logits.empty() && speaks_) logits_.listen();
  if (!options_.measure.empty()) {
    calibrator_ = std::make_unique<Calibrator>(job_.index, job_.plan, job_.layout, job_.schedule, *trainer_);
  }
  return {};
}

Result<void> RunOfRank::train() {
  for (std::int64_t i = trainer_->progress().steps; i < options_.steps; ++i) {
    if (auto trained = train_step(i + 1); !trained) return trained;
  }
  if (!steps_.empty()) return {};
  if (speaks_) say(fmt::format("all {} steps are done; nothing is trained or measured", options_.steps));
  // Sharded again, perhaps for other ranks.
  if (checkpoints_ && !checkpoints_->has(trainer_->progress().steps)) return save_checkpoint();
  return {};
}

Result<void> RunOfRank::train_step(std::int64_t number) {
  place_.is_at(fmt::format("step {}", number));
  const bool is_last = number == options_.steps;
  const bool is_traced = !options_.allocations.empty() && is_last;
  if (is_traced) backend_.begin_trace();
  if (steps_.size() > 1) drop_details(steps_.back());
  const bool is_due = checkpoints_ && checkpoints_->is_due(number, options_.steps);
  const bool measures =
      steps_.empty() || is_due || is_last || number % options_.measure_every == 0 || progress_.evaluates_after(number);
  StepMeasurement measured = trainer_->step(measures);
  calls_.stop();
  logits_.stop();
  if (!measures) return {};
  if (calibrator_) calibrator_->take(measured);
  steps_.push_back(std::move(measured));
  if (is_traced) {
    if (auto written = backend_.write_trace(options_.allocations); !written) return written;
  }
  return after_step(number, is_due);
}

Result<void> RunOfRank::after_step(std::int64_t number, bool is_checkpoint_due) {
  place_.is_at(fmt::format("step {}, comparing losses", number));
  if (auto compared = progress_.after_step(steps_.back(), number); !compared) return compared;
  if (progress_.evaluates_after(number)) {
    place_.doing = fmt::format("step {}, the evaluation after it", number);
    if (auto evaluated = progress_.evaluate(number); !evaluated) return evaluated;
  }
  if (!is_checkpoint_due) return {};
  place_.is_at(fmt::format("the checkpoint of step {}", number));
  return save_checkpoint();
}

Result<void> RunOfRank::save_checkpoint() {
  FSDP_TRY(const std::string saved, checkpoints_->save());
  if (speaks_) say(saved);
  return {};
}

Result<void> RunOfRank::finish() {
  place_.is_at("writing the results");
  const auto written =
      agree(write_results(options_, job_, steps_, progress_.evaluation(), backend_, rank_), rank_, agreement_.get());
  if (!written) return written;
  if (!options_.parameters.empty()) {
    const auto saved = agree(save_whole_parameters(*trainer_, options_.parameters, speaks_), rank_, agreement_.get());
    if (!saved) return saved;
  }
  if (!options_.logits.empty()) {
    const auto saved =
        agree(speaks_ ? write_result(options_.logits, logits_.text()) : Result<void>(), rank_, agreement_.get());
    if (!saved) return saved;
  }
  if (!options_.workspaces.empty() && speaks_) {
    place_.doing = "measuring what kernels take";
    if (auto measured = write_workspaces(options_.workspaces, calls_); !measured) return measured;
  }
  if (calibrator_) {
    place_.doing = "measuring collectives";
    if (options_.measures_collectives) calibrator_->measure_collectives();
    calibrator_->measure_copies();
    if (auto measured = write_tables(options_, *calibrator_, backend_, speaks_); !measured) return measured;
  }
  if (network_ != nullptr) network_->barrier("done");
  backend_.done();
  return {};
}

Result<void> run_to_its_end(RunOfRank&& of_rank) {
  if (auto begun = of_rank.begin(); !begun) return begun;
  if (auto trained = of_rank.train(); !trained) return trained;
  return of_rank.finish();
}

}  // namespace

int run_rank(RunOptions options, Backend& backend) {
  backend.begin();
  install_recomputation();
  const auto report_errors = [](const Errors& errors) {
    for (const Error& error : errors) say("error: " + to_string(error));
  };
  const Result<Launch> launch = read_launch();
  if (!launch) return report_errors(launch.error()), kExitInput;
  const int rank = options.stands_in ? options.stand_in_rank : launch->rank;
  options.report = file_of_rank(options.report, rank);
  options.allocations = file_of_rank(options.allocations, rank);
  options.trace = file_of_rank(options.trace, rank);
  Job job;
  const Result<void> prepared = prepare(options, rank, job);
  if (!prepared) return report_errors(prepared.error()), kExitInput;
  if (!options.stands_in && job.plan.mesh.world_size() != launch->world_size) {
    report_errors(
        {{options.plan + ": /mesh",
          fmt::format("The mesh has {} ranks, and {} were started.", job.plan.mesh.world_size(), launch->world_size),
          "Start as many as the mesh has."}});
    return kExitInput;
  }
  const Result<void> started = backend.start(options, *launch, job.plan);
  if (!started) return report_errors(started.error()), kExitInput;
  Place place;
  std::unique_ptr<GlooNetwork> network;
  const auto failed = [&](const std::string& seen) {
    const std::string intrusion = network ? network->intrusion() : std::string();
    const std::string& what = intrusion.empty() ? seen : intrusion;
    const bool is_in_schedule = place.instruction >= 0;
    const std::string where =
        is_in_schedule ? fmt::format("{}, {}", place.doing, instruction_text(job, *place.schedule, place.instruction))
                       : place.doing;
    if (network) network->say_failed();
    const bool saves = place.doing.starts_with("the checkpoint of ");
    const bool is_training = is_in_schedule || saves || place.doing.starts_with("step ");
    const std::string others = network && is_training ? words_on(network->silent_ranks()) : std::string();
    // PyTorch and Gloo have many messages for it.
    const bool has_no_descriptors = what.find(std::strerror(EMFILE)) != std::string::npos;
    say(fmt::format("error: rank {}: {}: {}{}", rank, where, has_no_descriptors ? no_descriptors() : what, others));
    return kExitRun;
  };
  try {
    if (!options.stands_in) network = std::make_unique<GlooNetwork>(*launch, options.timeout, options.reduce);
    if (network) {
      const Errors differences = check_agreement(*network, options, job);
      if (!differences.empty()) return network->leave(), report_errors(differences), kExitInput;
      backend.meet(*network, *launch);
      if (options.on_cuda) network->begin_heartbeat(options.heartbeat);
    }
    const Result<void> trained = run_to_its_end(RunOfRank(options, rank, job, backend, network.get(), place));
    if (!trained) return report_errors(trained.error()), kExitRun;
    if (network) network->leave();
  } catch (const CollectiveFailure& error) {
    if (error.instruction() >= 0) place.instruction = static_cast<int>(error.instruction());
    return failed(error.what());
  } catch (const UnusableInput& error) {
    return report_errors(error.errors()), kExitInput;
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  return kExitDone;
}

}  // namespace fsdp::executor
