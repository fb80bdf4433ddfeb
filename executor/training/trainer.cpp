// The interpreter: one case for each instruction. The schedule's Free frees a buffer that lives from one instruction to
// another. Times are measured by action: an instruction with its frees (core/plan/schedule.h).

#include "executor/training/trainer.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "executor/memory/tensors.h"
#include "executor/training/initialization.h"
#include "executor/training/weight_decay.h"

namespace fsdp::executor {

namespace {

constexpr std::chrono::microseconds kBetweenLooks{20};

constexpr Bytes kUnknown{-1};  // Reserved memory on CPU.

Seconds cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return Seconds(static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec));
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

KernelContext context_of(const Plan& plan, const Model& model, c10::Device device, Buffers buffers) {
  KernelContext context;
  context.implementations = implementations_of(plan);
  context.activation = scalar_type(activation_dtype(model, plan));
  context.device = device;
  context.buffers = std::move(buffers);
  return context;
}

// PyTorch uses its foreach implementation if parameters are on a GPU, and its loop if they are on the host.
Optimizer optimizer_of(const Plan& plan) {
  Optimizer optimizer = plan.optimizer;
  const bool is_foreach = optimizer.implementation == OptimizerImplementation::Foreach;
  if (plan.cpu_offload && is_foreach) optimizer.implementation = OptimizerImplementation::ForLoop;
  return optimizer;
}

// Parallelism beside that of data.
void refuse_parallelism(const Plan& plan, Errors& errors) {
  if (plan.mesh.ep == 1) return;
  errors.push_back({"/mesh/ep", "fsdp-exec does not exchange tokens between ranks.", "Plan without --ep."});
}

/// Parts of other libraries, whose kernels need a GPU.
void refuse_other_libraries(const Plan& plan, Errors& errors) {
  if (plan.quantization) {
    errors.push_back({"/model/quantization", "Layers of bitsandbytes have kernels for GPUs alone.",
                      "Leave it out, or write: fsdp-plan execute, which trains with the library itself."});
  }
  if (plan.liger) {
    errors.push_back({"/model/liger_kernels", "Kernels of Liger run on GPUs alone.",
                      "Leave it out, or write: fsdp-plan execute, which trains with the library itself."});
  }
  if (plan.float8) {
    errors.push_back({"/model/float8", "Float8 layers of torchao run on GPUs alone.",
                      "Leave it out, or write: fsdp-plan execute, which trains with the library itself."});
  }
  if (plan.runtime.implementations.automodel_decoders || plan.runtime.implementations.lora_in_one_op ||
      plan.runtime.implementations.norm_in_float64) {
    errors.push_back({"/runtime/flavor", "fsdp-exec does not run NeMo Automodel's classes and clipping.",
                      "Write: fsdp-plan rehearse, which runs the plan with PyTorch on stub GPUs."});
  }
}

}  // namespace

Errors check_executable(const Plan& plan) {
  Errors errors;
  refuse_parallelism(plan, errors);
  refuse_other_libraries(plan, errors);
  if (plan.runtime.framework != kDefaultFramework) {
    errors.push_back({"/runtime/name",
                      fmt::format("fsdp-exec trains plans of FSDP2, but this one is for {}.",
                                  name_of(kFrameworkTable, plan.runtime.framework)),
                      "Write: fsdp-plan execute, which trains it with that framework itself."});
  }
  if (!has_torch_kernels(plan.optimizer)) {
    errors.push_back({"/optimizer/kind",
                      fmt::format("fsdp-exec has AdamW, Adam and SGD of PyTorch, and the plan trains with {}.",
                                  optimizer_row(plan.optimizer).sentence),
                      "Write \"adamw\", or: fsdp-plan execute, which trains with the library itself."});
  }
  if (plan.checkpointing.offload_inputs) {
    errors.push_back(
        {"/activation_checkpointing/offload_inputs", "Inputs of blocks are not moved to the host.", "Write false."});
  }
  for (const auto& [mode, what] :
       {std::pair(CheckpointMode::Nested, "Checkpoints inside of those of blocks are not made."),
        std::pair(CheckpointMode::Reentrant, "Reentrant checkpoints are not made.")}) {
    if (!plan.checkpointing.has(mode)) continue;
    errors.push_back({"/activation_checkpointing/modules", what,
                      "Write mode full, or write: fsdp-plan execute, which trains with PyTorch itself."});
  }
  if (plan.cuda_graphs) errors.push_back({"/cuda_graphs", "No CUDA graph is captured.", "Write false."});
  if (plan.mixed_precision.autocast) {
    errors.push_back({"/mixed_precision/autocast", "fsdp-exec casts by FSDP2's policy alone.",
                      "Leave it out, or write: fsdp-plan execute, which trains with PyTorch itself."});
  }
  if (!plan.also.empty()) {
    errors.push_back({"/model/also", "fsdp-exec runs one model.",
                      "Leave it out, or write: fsdp-plan rehearse, which runs all with PyTorch on stub GPUs."});
  }
  if (plan.packing) {
    errors.push_back({"/model/packing", "fsdp-exec does not train on packed rows.",
                      "Leave it out, or run the plan in a script: fsdp-plan run plan.json -- python train.py."});
  }
  if (plan.runtime.implementations.attention == AttentionBackend::Cudnn) {
    errors.push_back({"/runtime/implementations/attention", "cuDNN is not used.", "Write \"automatic\"."});
  }
  if (plan.runtime.implementations.attention == AttentionBackend::FlashAttn) {
    errors.push_back({"/runtime/implementations/attention", "flash-attn is not called.",
                      "Write \"automatic\", or write: fsdp-plan execute, which trains with the library itself."});
  }
  if (const Loss& loss = plan.runtime.implementations.loss; loss != Loss{}) {
    errors.push_back(
        {"/runtime/implementations/loss", fmt::format("{} is not run.", loss_row(loss).title), "Write \"pytorch\"."});
  }
  if (const TorchVersion& version = torch_version_of(plan.runtime); version.name != kDefaultTorch) {
    errors.push_back(
        {"/runtime/version",
         fmt::format("fsdp-exec runs in the order of PyTorch {}, but the plan is for {}.", kDefaultTorch, version.name),
         fmt::format("Write \"{}\".", kDefaultTorch)});
  }
  const Quirks& quirks = plan.runtime.quirks;
  if (plan.optimizer.clip_grad_norm && !quirks.clip_reduces_each_norm) {
    errors.push_back({"/runtime/quirks/clip_reduces_each_norm",
                      "The norms of all parameters are reduced one by one, as in PyTorch 2.11.", "Write true."});
  }
  if (plan.mesh.dp_shard() == 1 && !quirks.skip_collectives_of_one) {
    errors.push_back({"/runtime/quirks/skip_collectives_of_one",
                      "A shard group of one rank calls no collective, as in PyTorch 2.11.", "Write true."});
  }
  return errors;
}

Trainer::Trainer(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
                 RankGroups groups, const TrainingSettings& settings)
    : index_(index),
      plan_(plan),
      layout_(layout),
      schedule_(schedule),
      groups_(std::move(groups)),
      settings_(settings),
      ranges_(input_ranges(*index.model)) {
  const c10::AutoGradMode no_gradient(false);
  if (!settings.device.is_cpu()) {
    streams_ = std::make_unique<CommunicationStreams>(settings.device);
    clock_ = std::make_unique<StreamClock>(settings.device);
    batches_ = std::make_unique<BatchAhead>([this](const BatchPlace& place) {
      Tensors batch;
      for (std::size_t i = 0; i < index_.model->inputs.size(); ++i) {
        batch.push_back(make_input_at(i, place, settings_.tokens.get()).pin_memory());
      }
      return batch;
    });
  } else {
    groups_.shard = collective_clock_.timed(std::move(groups_.shard));
    groups_.replicate = collective_clock_.timed(std::move(groups_.replicate));
    for (auto& [size, group] : groups_.smaller) group = collective_clock_.timed(std::move(group));
  }
  make_units(layout);
  buffers_ = make_shards_and_buffers(index, plan, layout, units_, settings.device);
  if (settings.fills_parameters) fill_parameters();
  // The other values (frequencies, sinusoids) are made in host memory, which on a CPU counts with the rest.
  if (settings.device.is_cpu()) begin_peak();
  ParameterAccess& parameters = *this;
  const bool is_mean = settings.hyperparameters.accumulation == Accumulation::Mean;
  model_run_ =
      std::make_unique<ModelRun>(index, plan, schedule, context_of(plan, *index.model, settings.device, buffers_),
                                 parameters, is_mean ? plan.accumulation : 1);
  find_trained();
  // Dropout must differ between ranks.
  at::manual_seed(settings.seed + static_cast<std::uint64_t>(groups_.rank));
  optimizer_ = std::make_unique<RunningOptimizer>(optimizer_of(plan), settings.hyperparameters, trained_,
                                                  decayed_parameters(*index.model, settings.hyperparameters));
}

Trainer::~Trainer() = default;

void Trainer::make_units(const Layout& layout) {
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    UnitGroups groups{groups_.shard.get(), groups_.replicate.get(), nullptr};
    for (const auto& [world_size, group] : groups_.smaller) {
      if (world_size == layout.units[u].reshard.world_size) groups.smaller = group.get();
    }
    CollectiveListener& listener = *this;
    units_.push_back(std::make_unique<RunningUnit>(static_cast<int>(u), layout.units[u], layout, plan_, *index_.model,
                                                   groups, listener,
                                                   UnitPlace{settings_.device, streams_.get(), clock_.get()}));
  }
}

// In the order in which the modules register them.
void Trainer::find_trained() {
  for (auto& unit : units_) {
    for (ParameterState& state : unit->parameters()) {
      if (state.parameter->trainable) trained_.push_back(&state);
    }
  }
  std::sort(trained_.begin(), trained_.end(),
            [](const ParameterState* a, const ParameterState* b) { return a->layout.parameter < b->layout.parameter; });
}

void Trainer::fill_parameters() {
  for (auto& unit : units_) {
    for (ParameterState& state : unit->parameters()) {
      const std::int64_t first = first_element(state.layout, layout_.rank);
      fill_parameter(state.shard.narrow(0, 0, state.layout.local_elements), settings_.seed, *state.parameter, first);
    }
  }
}

at::Tensor Trainer::whole(int parameter) {
  RunningUnit& unit = *units_[layout_.unit_of_parameter[parameter]];
  const ParameterState& state = unit.parameter(parameter);
  if (!unit.is_whole() || !is_resident(state.whole)) {
    throw ScheduleBroken(fmt::format("{} is requested while its unit is sharded", state.parameter->name));
  }
  return state.whole;
}

void Trainer::add_gradient(int parameter, at::Tensor gradient) {
  units_[layout_.unit_of_parameter[parameter]]->add_gradient(parameter, std::move(gradient));
}

bool Trainer::add_to_earlier(int parameter, const at::Tensor& gradient) {
  return units_[layout_.unit_of_parameter[parameter]]->add_to_earlier(parameter, gradient);
}

void Trainer::called(int unit, const CalledCollective& collective) {
  Collective row;
  row.kind = collective.kind;
  row.unit = unit < 0 ? "" : units_[unit]->unit().name;
  row.phase = schedule_.instructions[current_].phase;
  row.dtype = dtype_of(collective.dtype);
  row.elements = collective.elements;
  row.payload = Bytes(collective.payload);
  row.group = collective.group;
  row.group_size = collective.group_size;
  row.live = live_bytes();
  now_.collectives.push_back(std::move(row));
  now_.collective_instructions.push_back(action_);
}

StepMeasurement Trainer::step(bool measures) {
  const c10::AutoGradMode no_gradient(false);
  now_ = {};
  now_.schedule = &schedule_;
  now_.instruction_times.reserve(schedule_.instructions.size());
  losses_.clear();
  bool has_batch = false;
  const auto began = std::chrono::steady_clock::now();
  collective_clock_.begin_step(began);
  const Seconds cpu_began = cpu_time();
  auto last = began;
  if (clock_) clock_->begin(streams_->compute);
  action_ = -1;
  for (Action action; action.end < schedule_.instructions.size();) {
    action = action_at(schedule_.instructions, action.end);
    ++action_;
    set_moment(static_cast<std::int64_t>(action.main));
    if (clock_) clock_->instruction(streams_->compute);
    run(action);
    if (!std::exchange(has_batch, true) && measures && not_measured_ == 0) {
      now_.before = live_peak();
      begin_peak();
    }
    const auto now = std::chrono::steady_clock::now();
    now_.instruction_times.push_back(now - last);
    if (!clock_) now_.memory.push_back({.time = now - began, .live = live_bytes(), .reserved = kUnknown});
    last = now;
  }
  progress_ = after_step();
  if (!measures) {
    ++not_measured_;
    return {};
  }
  if (clock_) {
    wait_for_device();
    last = std::chrono::steady_clock::now();
  } else {
    take_collective_times();
  }
  // On CPU the sum of the instructions' times, without later work of the machine.
  now_.number = progress_.steps;
  now_.mean_of = std::exchange(not_measured_, 0) + 1;
  now_.wall = now_.mean_of == 1 ? last - began : (last - measured_to_) / now_.mean_of;
  measured_to_ = last;
  now_.cpu = cpu_time() - cpu_began;
  now_.peak = live_peak();
  begin_peak();
  // Summed before the division, as in training scripts: a sum of quotients is rounded differently.
  for (const LaterNumber& loss : losses_) now_.loss += loss.value();
  now_.loss /= static_cast<double>(plan_.accumulation);
  now_.gradient_norm = gradient_norm_.value();
  return std::move(now_);
}

Progress Trainer::after_step() const {
  const std::int64_t micro_batches = micro_batches_of_step(plan_);
  const std::int64_t samples = settings_.tokens ? micro_batches * settings_.tokens->batch() : 0;
  return {progress_.steps + 1, progress_.micro_batches + micro_batches, progress_.samples + samples};
}

// The forward of the schedule's first micro-batch, after which every unit is sharded again.
Evaluation Trainer::evaluate(const SampleSource& data, std::int64_t rounds) {
  const c10::AutoGradMode no_gradient(false);
  begin_peak();
  model_run_->set_training(false);
  Evaluation evaluation;
  for (std::int64_t round = 0; round < rounds; ++round) {
    now_ = {};
    collective_clock_.begin_step(std::chrono::steady_clock::now());
    if (clock_) clock_->begin(streams_->compute);
    const std::int64_t position = round * layout_.mesh.world_size() + groups_.rank;
    for (Action action; action.end < schedule_.instructions.size();) {
      action = action_at(schedule_.instructions, action.end);
      const Instruction& step = schedule_.instructions[action.main];
      if (step.phase != StepPhase::Forward || step.micro_batch != 0) break;
      if (step.kind != InstructionKind::LoadInputs) {
        run(action);
        continue;
      }
      begin(action);
      load_held_out(data, {static_cast<std::uint64_t>(position), position * data.batch()});
    }
    model_run_->return_from_call();
    for (auto& unit : units_) {
      unit->free_all_gathers();
      unit->reshard(false);
    }
    if (clock_) wait_for_device();
    evaluation.loss += model_run_->loss().value();
    model_run_->end_micro_batch();
  }
  std::fill(batch_.begin(), batch_.end(), at::Tensor());
  now_ = {};
  model_run_->set_training(true);
  evaluation.loss /= static_cast<double>(rounds);
  evaluation.peak = live_peak();
  begin_peak();
  return evaluation;
}

void Trainer::take_collective_times() {
  now_.collective_times = collective_clock_.times();
  for (std::size_t c = 0; c < now_.collectives.size(); ++c) {
    const CollectiveTimes& times = now_.collective_times.at(c);
    now_.collectives[c].exposed = times.waited_to - times.waited_from;
    now_.exposed += now_.collectives[c].exposed;
  }
}

// The host polls instead of sleeping in the driver, so that it notices collectives that will never end.
void Trainer::wait_until(const std::function<bool()>& is_there) const {
  while (!is_there()) {
    if (settings_.check) settings_.check();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Trainer::wait_for_device() {
  clock_->end(*streams_);
  wait_until([this] { return clock_->is_done(); });
  now_.instruction_times = clock_->instruction_times();
  now_.stream_events = clock_->spans();
  for (const StreamEvent& event : now_.stream_events) {
    if (event.stream == Stream::Compute) now_.exposed += event.end - event.start;
  }
}

void Trainer::begin(const Action& action) {
  current_ = static_cast<int>(action.main);
  if (on_instruction_) on_instruction_(current_);
}

void Trainer::run(const Action& action) {
  begin(action);
  // A module's caller keeps its arguments alive until the hooks after the forward, which reshard, have run.
  const InstructionKind kind = schedule_.instructions[action.main].kind;
  const bool is_hook = kind == InstructionKind::Reshard || kind == InstructionKind::LeaveRoot;
  if (!is_hook) model_run_->return_from_call();
  for (std::size_t i = action.begin; i < action.end; ++i) run(schedule_.instructions[i]);
}

void Trainer::run(const Instruction& step) {
  if (step.kind == InstructionKind::Unshard && step.phase == StepPhase::Backward) model_run_->begin_backward();
  switch (step.kind) {
    case InstructionKind::LoadInputs:
      return load_inputs(step);
    case InstructionKind::Unshard:
      return units_[step.unit]->unshard(step.slot, step.ranks.is_part());
    case InstructionKind::WaitForUnshard:
      return units_[step.unit]->wait_for_unshard(step.slot);
    case InstructionKind::LeaveRoot:
      return model_run_->leave_root();
    case InstructionKind::Forward: {
      const CategoryScope activations(MemoryCategory::Activation);
      return model_run_->forward(step);
    }
    case InstructionKind::Reshard:
      return units_[step.unit]->reshard(step.phase == StepPhase::Forward);
    case InstructionKind::Backward:
      return model_run_->backward(step);
    case InstructionKind::AccumulateGrads:
      return units_[step.unit]->accumulate();
    case InstructionKind::ReduceGrads:
      return units_[step.unit]->reduce(step);
    case InstructionKind::FinishReduce:
      return finish_backward();
    case InstructionKind::SyncBuffers:
    case InstructionKind::PrepareReduce:
    case InstructionKind::ReduceBucket:
    case InstructionKind::ReduceUsedMap:
    case InstructionKind::GatherParameters:
    case InstructionKind::LimitGathers:
    case InstructionKind::FlattenGrads:
    case InstructionKind::CheckOverflow:
    case InstructionKind::FetchParameters:
    case InstructionKind::WaitForParameters:
    case InstructionKind::DropFetched:
    case InstructionKind::ReleaseParameters:
    case InstructionKind::RunOther:
      assert(false);  // Plans of other frameworks are refused.
      return;
    case InstructionKind::Free:
      return units_[step.unit]->free(step.buffer, step.slot);
    case InstructionKind::ClipGradNorm:
      return clip();
    case InstructionKind::OptimizerStep:
      return update();
    case InstructionKind::ZeroGrad:
      for (auto& unit : units_) unit->zero_grad();
      return;
  }
}

void Trainer::update() {
  now_.learning_rate = rate_after(settings_.hyperparameters, progress_.steps);
  optimizer_->step(now_.learning_rate);
}

void Trainer::clip() {
  gradient_norm_ =
      clip_gradients(trained_, *plan_.optimizer.clip_grad_norm, groups_.norms ? *groups_.norms : *groups_.shard, *this);
}

BatchPlace Trainer::place_of(std::int64_t micro_batch) const {
  const bool is_next_step = micro_batch == plan_.accumulation;
  const Progress from = is_next_step ? after_step() : progress_;
  const std::int64_t position = (is_next_step ? 0 : micro_batch) * layout_.mesh.world_size() + groups_.rank;
  const std::int64_t sample = settings_.tokens ? from.samples + position * settings_.tokens->batch() : 0;
  return {static_cast<std::uint64_t>(from.micro_batches + position), sample};
}

at::Tensor Trainer::make_input_at(std::size_t input, const BatchPlace& place, const SampleSource* data) const {
  const Value& value = index_.model->values[index_.model->inputs[input]];
  const c10::ScalarType dtype = scalar_type(value.dtype.value_or(activation_dtype(*index_.model, plan_)));
  std::optional<at::Tensor> tokens;
  if (data != nullptr) tokens = data->input(value.name, place.sample);
  return tokens ? tokens->to(dtype)
                : make_input(value, ranges_[input], dtype, c10::Device(c10::kCPU), settings_.seed, place.stream);
}

void Trainer::load_inputs(const Instruction& step) {
  const CategoryScope inputs(MemoryCategory::Inputs);
  // Each replaces the previous one, which a training loop keeps until then.
  batch_.resize(index_.model->inputs.size());
  const BatchPlace place = place_of(step.micro_batch);
  if (batches_) {
    const Tensors on_host = batches_->take(place);
    for (std::size_t i = 0; i < batch_.size(); ++i) batch_[i] = on_host[i].to(settings_.device, /*non_blocking=*/true);
    batches_->begin(place_of(step.micro_batch + 1));
  } else {
    for (std::size_t i = 0; i < batch_.size(); ++i) batch_[i] = make_input_at(i, place, settings_.tokens.get());
  }
  begin_forward();
}

void Trainer::load_held_out(const SampleSource& data, const BatchPlace& place) {
  const CategoryScope inputs(MemoryCategory::Inputs);
  batch_.resize(index_.model->inputs.size());
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    batch_[i] = make_input_at(i, place, &data);
    if (streams_) batch_[i] = batch_[i].pin_memory().to(settings_.device, /*non_blocking=*/true);
  }
  begin_forward();
}

void Trainer::begin_forward() {
  model_run_->begin_micro_batch(batch_);
  if (!streams_) return;
  // Gathers read the optimizer's results (FSDPState._root_pre_forward).
  wait_for_stream(streams_->copy_in, streams_->compute);
  wait_for_stream(streams_->all_gather, streams_->compute);
}

void Trainer::finish_backward() {
  for (auto& unit : units_) unit->wait_for_reduction();
  wait_until([this] {
    return std::all_of(units_.begin(), units_.end(), [](const auto& unit) { return unit->has_gradients(); });
  });
  losses_.push_back(model_run_->loss());
  model_run_->end_micro_batch();
}

}  // namespace fsdp::executor
