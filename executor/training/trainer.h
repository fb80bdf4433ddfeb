#pragma once

// Runs a plan for real: builds one rank's tensors, and interprets the schedule that the simulator also reads. The
// schedule decides every order of events and every lifetime of a buffer.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/trace_json.h"
#include "core/model/model_index.h"
#include "core/plan/schedule.h"
#include "core/report/report.h"
#include "executor/memory/counting_allocator.h"
#include "executor/network/collective_clock.h"
#include "executor/network/collectives.h"
#include "executor/training/batch_ahead.h"
#include "executor/training/later_number.h"
#include "executor/training/model_run.h"
#include "executor/training/optimizer.h"
#include "executor/training/sample_source.h"
#include "executor/training/sharded_unit.h"
#include "executor/training/synthetic.h"

namespace fsdp::executor {

struct TrainingSettings {
  std::uint64_t seed = 0;  ///< The seed of weights and data.
  Hyperparameters hyperparameters;
  bool fills_parameters = true;                 ///< Fills them from the seed. Otherwise the caller writes their values.
  std::shared_ptr<const SampleSource> tokens;   ///< Replaces data from the seed. May be null.
  c10::Device device = c10::Device(c10::kCPU);  ///< A GPU has streams.
  std::function<void()> check;                  ///< Throws if a background thread has failed. May be empty.
};

/// The groups of one rank. Any of them may be a stand-in.
struct RankGroups {
  std::unique_ptr<Group> shard;
  std::unique_ptr<Group> replicate;  ///< Null without replicas.
  std::unique_ptr<Group> norms;      ///< The shard group on the host, for norms of gradients there. May be null.
  std::vector<std::pair<std::int64_t, std::unique_ptr<Group>>> smaller;  ///< By world size.
  std::int64_t rank = 0;                                                 ///< Its number among all ranks.
};

/// The progress of a run, which together with the seed determines its data.
struct Progress {
  std::int64_t steps = 0;
  std::int64_t micro_batches = 0;  ///< The sum over all ranks.
  std::int64_t samples = 0;        ///< With --tokens: the sum over all ranks.

  bool operator==(const Progress&) const = default;
};

/// The measurements of one step.
struct StepMeasurement {
  const Schedule* schedule = nullptr;  ///< The schedule of the step.
  double loss = 0;                     ///< This rank's: the mean of its micro-batches.
  double gradient_norm = 0;            ///< With clipping. Otherwise 0.
  std::int64_t number = 0;             ///< From 1 on, including those before a checkpoint.
  std::int64_t mean_of = 1;            ///< Steps since the last measured one; `wall` is their mean.
  double learning_rate = 0;            ///< The optimizer's.
  Seconds wall{0};
  Seconds cpu{0};                       ///< All threads of the process.
  Seconds exposed{0};                   ///< Waits of the computing thread, or the compute stream, for collectives.
  LivePeak before;                      ///< From the end of the previous step until the first batch is there.
  LivePeak peak;                        ///< After that.
  std::vector<Collective> collectives;  ///< In issue order.
  std::vector<std::int32_t> collective_instructions;  ///< [num collectives] The action that called it.
  std::vector<CollectiveTimes> collective_times;      ///< [num collectives] On CPU.
  std::vector<Seconds> instruction_times;             ///< [actions] On a GPU those of the compute stream.
  std::vector<StreamEvent> stream_events;  ///< On a GPU: collectives, and the compute stream's waits for them.
  std::vector<TraceMemory> memory;         ///< [actions] After each; on CPU.
};

/// The measurements of an evaluation.
struct Evaluation {
  double loss = 0;
  LivePeak peak;
};

/// Everything in a plan that the executor does not support.
Errors check_executable(const Plan& plan);

class Trainer final : private ParameterAccess, private CollectiveListener {
 public:
  /// Makes the shards with their first values. REQUIRES: the plan is of FSDP2, and `layout` that of the rank; all
  /// references outlive it.
  Trainer(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule, RankGroups groups,
          const TrainingSettings& settings);
  ~Trainer() override;

  /// `measures`: waits until the device has finished the step; peaks and the mean time are those of all steps since the
  /// last measured one. Without it, the device only receives the work, and the result has no meaning.
  StepMeasurement step(bool measures = true);
  /// This rank's mean loss over `rounds` micro-batches of held-out data: forwards without gradients and dropout. All
  /// ranks call it; no state of a step changes.
  Evaluation evaluate(const SampleSource& data, std::int64_t rounds);

  std::vector<std::unique_ptr<RunningUnit>>& units() { return units_; }
  Group& shard_group() { return *groups_.shard; }
  Group* replicate_group() { return groups_.replicate.get(); }  ///< Null without replicas.
  std::int64_t rank() const { return groups_.rank; }
  c10::Device device() const { return settings_.device; }
  const Plan& plan() const { return plan_; }
  const Model& model() const { return *index_.model; }
  RunningOptimizer& optimizer() { return *optimizer_; }
  const Progress& progress() const { return progress_; }
  void set_progress(const Progress& progress) { progress_ = progress; }
  /// Values of the model's buffers, by their names.
  const std::map<std::string, at::Tensor>& buffers() const { return buffers_; }
  /// In the order of `optimizer().moments()`.
  const std::vector<ParameterState*>& trained() const { return trained_; }
  /// Called before each instruction, with its number in the current schedule.
  void on_instruction(std::function<void(int)> listener) { on_instruction_ = std::move(listener); }
  /// See ModelRun::set_listener.
  void listen_to_ops(OpListener* listener) { model_run_->set_listener(listener); }

  const Schedule& schedule() const { return schedule_; }

 private:
  at::Tensor whole(int parameter) override;
  void add_gradient(int parameter, at::Tensor gradient) override;
  bool add_to_earlier(int parameter, const at::Tensor& gradient) override;
  void called(int unit, const CalledCollective& collective) override;

  void make_units(const Layout& layout);
  void find_trained();
  void fill_parameters();
  void begin(const Action& action);
  void run(const Action& action);
  void run(const Instruction& step);
  void clip();
  void update();
  void finish_backward();
  void take_collective_times();
  void wait_for_device();
  void wait_until(const std::function<bool()>& is_there) const;
  void load_inputs(const Instruction& step);
  void load_held_out(const SampleSource& data, const BatchPlace& place);
  void begin_forward();
  Progress after_step() const;
  BatchPlace place_of(std::int64_t micro_batch) const;
  at::Tensor make_input_at(std::size_t input, const BatchPlace& place, const SampleSource* data) const;

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  const Schedule& schedule_;
  RankGroups groups_;
  TrainingSettings settings_;
  std::unique_ptr<CommunicationStreams> streams_;  ///< Null on a CPU, as is
  std::unique_ptr<StreamClock> clock_;
  std::vector<std::unique_ptr<RunningUnit>> units_;
  std::vector<InputRange> ranges_;
  std::map<std::string, at::Tensor> buffers_;
  std::unique_ptr<ModelRun> model_run_;
  std::unique_ptr<RunningOptimizer> optimizer_;
  std::vector<ParameterState*> trained_;
  std::unique_ptr<BatchAhead> batches_;
  Tensors batch_;
  CollectiveClock collective_clock_;
  StepMeasurement now_;
  std::int64_t not_measured_ = 0;                        ///< Steps since the last measured one.
  std::chrono::steady_clock::time_point measured_to_{};  ///< When the device had reached its end.
  std::function<void(int)> on_instruction_;
  Progress progress_;
  std::vector<LaterNumber> losses_;  ///< The losses of the step's micro-batches.
  LaterNumber gradient_norm_;
  int current_ = 0;          ///< In the schedule,
  std::int32_t action_ = 0;  ///< and among its actions, by number.
};

}  // namespace fsdp::executor
