// The memory walk on a chain of linears, whose bytes can be written down.

#include "simulator/memory/memory_walk.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/assemble_model.h"
#include "tests/support/prepared_plan.h"

namespace fsdp::simulator {
namespace {

using enum MemoryCategory;

// `layers` linears of [width, width], each a unit, and a head of [width / 2, width] in the root.
Model chain(std::int64_t width, std::int64_t layers) {
  ModelAssembler model("chain", Dtype::Float32);
  model.input("hidden", {1, 4, width}, std::nullopt);
  model.input("labels", {1, 4}, Dtype::Int64);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    BlockBuilder b = model.block("layer", "Linear");
    b.output("hidden", b.linear("", b.input("hidden"), width));
    model.call("layers." + std::to_string(layer), std::move(b), true);
  }
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("hidden"), width / 2));
  model.call("head", std::move(head));
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
  return model.finish("loss");
}

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kLayers = 5;
constexpr std::int64_t kRanks = 4;
constexpr std::int64_t kF = kWidth * kWidth;         // Elements of a layer,
constexpr std::int64_t kHead = kWidth * kWidth / 2;  // and of the root.

Plan plan_of(const Mesh& mesh, std::int64_t layers = kLayers, ReshardAfterForward reshard = {}) {
  Plan plan;
  plan.mesh = mesh;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    plan.units.push_back({{"layers." + std::to_string(layer)}, reshard});
  }
  plan.units.push_back({{""}, {}});
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  return plan;
}

using Bytes8 = std::array<std::int64_t, 32>;  // Per category.

// What lives at the peak of some categories during each instruction of the second step, and at its end.
struct Moment {
  Instruction instruction;
  std::int64_t peak = 0;
  Bytes8 at_end{};
};

class Walked {
 public:
  Walked(Model model, const Plan& plan, std::vector<MemoryCategory> counted, int steps = 2)
      : run_(std::move(model), plan) {
    TraceSink sink;
    MemoryWalk<TraceSink> walk(run_.prepared().walk_input(), sink);
    walk.initialize();
    for (int step = 0; step < steps; ++step) walk.step();
    const std::vector<Instruction> instructions = actions_of(run_.prepared().schedule);
    const std::size_t first = sink.marks().size() - instructions.size();
    std::vector<MemoryEvent> live(static_cast<std::size_t>(run_.prepared().ids.total));
    Bytes8 now{};
    std::size_t next = 0;
    const auto counted_bytes = [&] {
      std::int64_t sum = 0;
      for (const MemoryCategory category : counted) sum += now[static_cast<std::size_t>(category)];
      return sum;
    };
    for (std::size_t m = 0; m < sink.marks().size(); ++m) {
      for (; next < sink.marks()[m]; ++next) play(sink.events()[next], live, now);
      const std::size_t end = m + 1 < sink.marks().size() ? sink.marks()[m + 1] : sink.events().size();
      Moment moment{.instruction = instructions[m % instructions.size()], .peak = counted_bytes()};
      for (; next < end; ++next) {
        play(sink.events()[next], live, now);
        moment.peak = std::max(moment.peak, counted_bytes());
      }
      moment.at_end = now;
      if (m >= first) moments_.push_back(moment);
    }
  }

  // The moment of an instruction of a unit or of the call with that number, in one phase.
  const Moment& at(InstructionKind what, StepPhase phase, int which = -1, int micro_batch = 0) const {
    for (const Moment& moment : moments_) {
      const Instruction& i = moment.instruction;
      const int number = what == InstructionKind::Forward || what == InstructionKind::Backward ? i.call : i.unit;
      if (i.kind == what && i.phase == phase && (which < 0 || number == which) && i.micro_batch == micro_batch) {
        return moment;
      }
    }
    ADD_FAILURE() << "no such moment";
    return moments_.front();
  }

 private:
  static void play(const MemoryEvent& event, std::vector<MemoryEvent>& live, Bytes8& now) {
    MemoryEvent& slot = live[event.id];
    if (event.is_free()) {
      now[static_cast<std::size_t>(slot.category)] -= slot.bytes;
    } else {
      slot = event;
      now[static_cast<std::size_t>(event.category)] += event.bytes;
    }
  }

  PreparedRun run_;
  std::vector<Moment> moments_;
};

std::int64_t bytes_of(const Moment& moment, MemoryCategory category) {
  return moment.at_end[static_cast<std::size_t>(category)];
}

const std::vector<MemoryCategory> kModelState = {ShardedParam,  UnshardedParam, AllGather,
                                                 UnshardedGrad, ReduceScatter,  ShardedGrad};

// For the chain on four ranks with bf16 compute and fp32 reduction.
constexpr std::int64_t kS = 4 * (kLayers * kF + kHead) / kRanks;  // All shards,
constexpr std::int64_t kU = 2 * kF;                               // a unit unsharded, and its all-gather output,
constexpr std::int64_t kRoot = 2 * kHead;                         // the root unsharded,
constexpr std::int64_t kRI = 4 * kF;                              // the input of a reduce-scatter,
constexpr std::int64_t kG = 2 * kF;                               // the gradients of a unit,
constexpr std::int64_t kShardedGrad = 4 * kF / kRanks;            // and what is left of them.

// ALBERT and universal transformers: the second pass gathers while the output of the first is still kept.
TEST(MemoryWalk, UnitCalledTwiceInARowHasTwoAllGatherOutputs) {
  ModelAssembler model("shared layer", Dtype::Float32);
  model.input("hidden", {1, 4, kWidth}, std::nullopt);
  model.input("labels", {1, 4}, Dtype::Int64);
  for (int pass = 0; pass < 2; ++pass) {
    BlockBuilder b = model.block("layer", "Linear");
    b.output("hidden", b.linear("", b.input("hidden"), kWidth));
    model.call("layers.0", std::move(b));
  }
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("hidden"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
  const PreparedRun run(model.finish("loss"), plan_of({1, kRanks}, 1));

  TraceSink trace;
  MemoryWalk<TraceSink> walk(run.prepared().walk_input(), trace);
  walk.initialize();
  walk.step();
  std::vector<bool> lives(static_cast<std::size_t>(run.prepared().ids.total), false);
  int gathered = 0;
  int most_gathered = 0;
  for (const MemoryEvent& event : trace.events()) {
    const auto id = static_cast<std::size_t>(event.id);
    ASSERT_EQ(lives[id], event.is_free()) << "tensor " << event.id;
    lives[id] = !event.is_free();
    const MemoryIds& ids = run.prepared().ids;
    const bool is_output =
        event.id == ids.of(UnitTensor::AllGather, 0) || event.id == ids.of(UnitTensor::OtherAllGather, 0);
    if (is_output) gathered += event.is_free() ? -1 : 1;
    most_gathered = std::max(most_gathered, gathered);
  }
  EXPECT_EQ(most_gathered, 2);
  EXPECT_EQ(gathered, 0);
}

// A layer of three passes, of F elements. Unsharded gradients at most: cast, what is there, the parameter's and the
// flat one that is made of it, each in bf16. As it is, the sum of the passes waits beside what is there: one more, in
// fp32.
TEST(MemoryWalk, FlatGradientsOfSeveralPassesAreAddedUpInEveryMicroBatch) {
  for (const bool is_cast : {true, false}) {
    ModelAssembler model("shared layer", Dtype::Float32);
    model.input("hidden", {1, 4, kWidth}, std::nullopt);
    model.input("labels", {1, 4}, Dtype::Int64);
    for (int pass = 0; pass < 3; ++pass) {
      BlockBuilder b = model.block("layer", "Linear");
      b.output("hidden", b.linear("", b.input("hidden"), kWidth));
      model.call("layers.0", std::move(b));
    }
    BlockBuilder loss = model.block("loss", "Loss");
    loss.output("loss", loss.cross_entropy(loss.input("hidden"), loss.input("labels"), false));
    model.call("", std::move(loss), false, true);
    Plan plan = plan_of({1, kRanks}, 1);
    plan.runtime.framework = Framework::Fsdp1;
    if (!is_cast) plan.mixed_precision = {};
    plan.accumulation = 2;
    plan.sync_every_micro_batch = false;
    const PreparedRun run(model.finish("loss"), plan);

    TraceSink trace;
    MemoryWalk<TraceSink> walk(run.prepared().walk_input(), trace);
    walk.initialize();
    walk.step();
    std::vector<MemoryEvent> live(static_cast<std::size_t>(run.prepared().ids.total));
    std::vector<bool> lives(live.size(), false);
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const MemoryEvent& event : trace.events()) {
      const auto id = static_cast<std::size_t>(event.id);
      ASSERT_EQ(lives[id], event.is_free()) << "tensor " << event.id;
      lives[id] = !event.is_free();
      if (!event.is_free()) live[id] = event;
      if (live[id].category == UnshardedGrad) now += event.is_free() ? -live[id].bytes : event.bytes;
      peak = std::max(peak, now);
    }
    EXPECT_EQ(peak, is_cast ? 2 * 3 * kF : 4 * 4 * kF);
    EXPECT_EQ(now, 0);
  }
}

TEST(MemoryWalk, ForwardCopiesOutWhileThreeUnitsLive) {
  const Walked walked(chain(kWidth, kLayers), plan_of({1, kRanks}), kModelState);
  // The all-gather output of the unit before lives until the copy-out is done.
  EXPECT_EQ(walked.at(InstructionKind::WaitForUnshard, StepPhase::Forward, 2).peak, kS + kRoot + 3 * kU);
  EXPECT_EQ(walked.at(InstructionKind::Forward, StepPhase::Forward, 2).peak, kS + kRoot + 2 * kU);
}

TEST(MemoryWalk, BackwardPeakIsUnitGradientsPrefetchAndReduceInput) {
  const Walked walked(chain(kWidth, kLayers), plan_of({1, kRanks}), kModelState);
  const std::int64_t head_gradient = 2 * kHead;
  // Layer 2: layers 3 and 4 are reduced.
  const std::int64_t base = kS + 2 * kShardedGrad + kRoot + head_gradient;
  EXPECT_EQ(walked.at(InstructionKind::Backward, StepPhase::Backward, 2).peak, base + kU + kG + kU + kRI);
  // The unit is resharded, the input of the unit before is gone; the last gradient outlives the reduction.
  EXPECT_EQ(walked.at(InstructionKind::ReduceGrads, StepPhase::Backward, 2).peak, base + kG + kRI + kShardedGrad + kU);
}

TEST(MemoryWalk, WithoutReshardingAllUnitsStayUnsharded) {
  const Walked walked(chain(kWidth, kLayers), plan_of({1, kRanks}, kLayers, {ReshardAfterForward::Kind::Never, 0}),
                      {UnshardedParam});
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::Forward, StepPhase::Forward, kLayers), UnshardedParam),
            kLayers * kU + kRoot);
}

TEST(MemoryWalk, AnIntegerReshardKeepsAShardOfTheSmallerWorld) {
  const Walked walked(chain(kWidth, kLayers), plan_of({1, kRanks}, kLayers, {ReshardAfterForward::Kind::Smaller, 2}),
                      {ShardedParam});
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::Forward, StepPhase::Forward, kLayers), ShardedParam),
            kS + kLayers * kU / 2);
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::FinishReduce, StepPhase::Backward), ShardedParam), kS);
}

TEST(MemoryWalk, WithoutSyncTheWholeGradientsStayInTheReduceDtype) {
  Plan plan = plan_of({1, kRanks});
  plan.accumulation = 2;
  plan.sync_every_micro_batch = false;
  const Walked walked(chain(kWidth, kLayers), plan, {UnshardedGrad});
  const Moment& first = walked.at(InstructionKind::FinishReduce, StepPhase::Backward);
  EXPECT_EQ(bytes_of(first, UnshardedGrad), 4 * (kLayers * kF + kHead));
  EXPECT_EQ(bytes_of(first, ShardedGrad), 0);
  const Moment& last = walked.at(InstructionKind::FinishReduce, StepPhase::Backward, -1, 1);
  EXPECT_EQ(bytes_of(last, UnshardedGrad), 0);
  EXPECT_EQ(bytes_of(last, ShardedGrad), kS);
}

TEST(MemoryWalk, HybridShardingKeepsEveryReducedBufferWhenTheDtypesDiffer) {
  Plan plan = plan_of({2, kRanks});
  plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
  const Walked walked(chain(kWidth, kLayers), plan, {ReduceScatter});
  // Layer 0 takes raw data and is reduced last, after the root: the buffers of all are there, and its own input.
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::ReduceGrads, StepPhase::Backward, 0), ReduceScatter),
            2 * (kLayers * kF + kHead) / kRanks + 2 * kF);
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::FinishReduce, StepPhase::Backward), ReduceScatter), 0);
  plan.runtime.quirks.all_reduce_output_kept = false;
  const Walked without(chain(kWidth, kLayers), plan, {ReduceScatter});
  EXPECT_EQ(bytes_of(without.at(InstructionKind::ReduceGrads, StepPhase::Backward, 0), ReduceScatter), 2 * kF);
}

TEST(MemoryWalk, HybridShardingKeepsAllReducedGradientsOfLaterMicroBatches) {
  Plan plan = plan_of({2, kRanks});
  plan.accumulation = 2;
  const Walked walked(chain(kWidth, kLayers), plan, {ShardedGrad, ReduceScatter});
  // Layer 0 is reduced last: beside the sum of both micro-batches, what was added to it of every unit, and its input.
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::ReduceGrads, StepPhase::Backward, 0), ShardedGrad), kS);
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::ReduceGrads, StepPhase::Backward, 0, 1), ShardedGrad), kS);
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::ReduceGrads, StepPhase::Backward, 0, 1), ReduceScatter), kS + kRI);
  EXPECT_EQ(bytes_of(walked.at(InstructionKind::FinishReduce, StepPhase::Backward, -1, 1), ReduceScatter), 0);
}

TEST(MemoryWalk, IntegerReshardCopiesItsShardsBeforeTheGather) {
  const Walked walked(chain(kWidth, kLayers), plan_of({1, kRanks}, kLayers, {ReshardAfterForward::Kind::Smaller, 2}),
                      {AllGather});
  // Half of a unit, and the output that it is gathered into.
  EXPECT_EQ(walked.at(InstructionKind::Unshard, StepPhase::Backward, 2).peak, kU / 2 + kU);
}

TEST(MemoryWalk, VariablesLiveUntilTheForwardReturns) {
  // A Scale needs nothing for its backward: what it made goes when the next one has run, unless somebody holds it.
  const auto scales = [](bool held) {
    ModelAssembler model("scales", Dtype::Float32);
    model.input("hidden", {1, 4, kWidth}, std::nullopt);
    model.input("labels", {1, 4}, Dtype::Int64);
    BlockBuilder first = model.block("first", "Linear");
    first.output("hidden", first.scale(first.linear("", first.input("hidden"), kWidth), 2));
    model.call("layers.0", std::move(first), true);
    BlockBuilder second = model.block("second", "Second");
    second.output("logits", second.scale(second.input("hidden"), 3));
    model.call("second", std::move(second));
    BlockBuilder loss = model.block("loss", "Loss");
    loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
    model.call("", std::move(loss), false, true);
    Model finished = model.finish("loss");
    if (held) finished.held.push_back({.value = finished.calls.front().outputs.front()});
    return finished;
  };
  Plan plan = plan_of({1, kRanks}, 1);
  const Walked without(scales(false), plan, {Activation}), with(scales(true), plan, {Activation});
  constexpr int kSecond = 1, kLoss = 2;
  const auto more = [&](InstructionKind what, StepPhase phase, int call) {
    return bytes_of(with.at(what, phase, call), Activation) - bytes_of(without.at(what, phase, call), Activation);
  };
  EXPECT_EQ(more(InstructionKind::Forward, StepPhase::Forward, kSecond), 2 * 4 * kWidth);
  EXPECT_EQ(more(InstructionKind::Forward, StepPhase::Forward, kLoss), 2 * 4 * kWidth);
  EXPECT_EQ(more(InstructionKind::Backward, StepPhase::Backward, kLoss), 0);
}

TEST(MemoryWalk, OffloadLeavesNothingOfTheModelOnTheDeviceBetweenSteps) {
  Plan plan = plan_of({1, kRanks});
  plan.cpu_offload = true;
  const Walked walked(chain(kWidth, kLayers), plan, kModelState);
  const Moment& end = walked.at(InstructionKind::ZeroGrad, StepPhase::Optimizer);
  for (const MemoryCategory category : kModelState) EXPECT_EQ(bytes_of(end, category), 0);
  EXPECT_EQ(bytes_of(end, OptState), 0);
}

// ---- optimizer -----------------------------------------------------------------------------------------------------

Walked stepped(const Optimizer& optimizer, std::int64_t width = kWidth) {
  Plan plan = plan_of({1, kRanks});
  plan.optimizer = optimizer;
  return Walked(chain(width, kLayers), plan, {Temp});
}

TEST(MemoryWalk, AdamTemporariesAreOneForForeachNoneForFusedThreeForLoop) {
  const auto temporaries = [](OptimizerImplementation implementation) {
    const Walked walked = stepped({.implementation = implementation});
    const Moment& step = walked.at(InstructionKind::OptimizerStep, StepPhase::Optimizer);
    return step.peak - bytes_of(step, Temp);
  };
  EXPECT_EQ(temporaries(OptimizerImplementation::Foreach), kS);
  EXPECT_EQ(temporaries(OptimizerImplementation::Fused), 0);
  // The loop has two of one parameter, and one that the variable of the parameter before still holds.
  EXPECT_EQ(temporaries(OptimizerImplementation::ForLoop), 3 * kShardedGrad);
}

TEST(MemoryWalk, EightBitStatesAreUpdatedWithoutTemporaries) {
  for (const OptimizerKind kind : {OptimizerKind::BnbAdamW8bit, OptimizerKind::BnbAdam8bit, OptimizerKind::BnbLion}) {
    const Walked walked = stepped({.kind = kind, .weight_decay = 0.1});
    const Moment& step = walked.at(InstructionKind::OptimizerStep, StepPhase::Optimizer);
    EXPECT_EQ(step.peak - bytes_of(step, Temp), 0) << static_cast<int>(kind);
  }
}

TEST(MemoryWalk, ForeachFreesDecayedGradientsBeforeAdamsRoots) {
  const auto temporaries = [](OptimizerKind kind, OptimizerImplementation implementation, double decay) {
    const Walked walked = stepped({.kind = kind, .implementation = implementation, .weight_decay = decay});
    const Moment& step = walked.at(InstructionKind::OptimizerStep, StepPhase::Optimizer);
    return step.peak - bytes_of(step, Temp);
  };
  using enum OptimizerImplementation;
  // One list of the shards' size at a time: decayed gradients, then roots. AdamW has no decayed gradients, SGD no
  // roots.
  EXPECT_EQ(temporaries(OptimizerKind::Adam, Foreach, 0.1), kS);
  EXPECT_EQ(temporaries(OptimizerKind::AdamW, Foreach, 0.1), kS);
  EXPECT_EQ(temporaries(OptimizerKind::Sgd, Foreach, 0.1), kS);
  EXPECT_EQ(temporaries(OptimizerKind::Sgd, Foreach, 0), 0);
  EXPECT_EQ(temporaries(OptimizerKind::Adam, Fused, 0.1), 0);
  // A loop decays one gradient, which its variable holds until the next parameter's turn.
  EXPECT_EQ(temporaries(OptimizerKind::Adam, ForLoop, 0.1), 4 * kShardedGrad);
  EXPECT_EQ(temporaries(OptimizerKind::Sgd, ForLoop, 0.1), kShardedGrad);
}

std::int64_t state_bytes(const Optimizer& optimizer, std::int64_t width = kWidth) {
  return bytes_of(stepped(optimizer, width).at(InstructionKind::OptimizerStep, StepPhase::Optimizer), OptState);
}

TEST(MemoryWalk, StatesAreTwoMomentsOneMomentOrNone) {
  EXPECT_EQ(state_bytes({}), 2 * kS);
  // Fused keeps the step count of each of six parameters on the device.
  EXPECT_EQ(state_bytes({.implementation = OptimizerImplementation::Fused}), 2 * kS + 4 * (kLayers + 1));
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::Sgd, .momentum = 0.9}), kS);
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::Sgd}), 0);
  EXPECT_EQ(state_bytes({.states = OptimizerStates::BFloat16}), kS);
}

TEST(MemoryWalk, EightBitStatesHaveScalesAndSmallTensorsStayInFp32) {
  // Shards of 1024 and 512 elements are below 4096.
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::BnbAdamW8bit}), 2 * kS);
  // At width 256 they have 16384 and 8192: n bytes and n / 256 scales of 4 bytes, twice, and two tables of 1024 bytes.
  const std::int64_t codes = kLayers * (16384 + 4 * 64) + 8192 + 4 * 32;
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::BnbAdamW8bit}, 256), 2 * codes + 2 * 1024);
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::BnbLion8bit}, 256), codes + 1024);
  // torchao: each of the six tensors has its own tables.
  EXPECT_EQ(state_bytes({.kind = OptimizerKind::AoAdamW8bit}, 256), 2 * codes + 2 * 1024 * (kLayers + 1));
}

TEST(MemoryWalk, TorchaoPassesFp32MomentsFromOneKernelToTheNext) {
  const auto temporaries = [](OptimizerKind kind) {
    const Walked walked = stepped({.kind = kind}, 256);
    const Moment& step = walked.at(InstructionKind::OptimizerStep, StepPhase::Optimizer);
    return step.peak - bytes_of(step, Temp);
  };
  // For the largest tensor, 16384 elements: scales of two moments in blocks of 256, and the moments in fp32.
  EXPECT_EQ(temporaries(OptimizerKind::AoAdamW8bit), 2 * (4 * 64 + 4 * 16384));
  // In 4 bits blocks of 128, and codes as int64.
  EXPECT_EQ(temporaries(OptimizerKind::AoAdamW4bit), 2 * (4 * 128 + 4 * 16384 + 8 * 16384));
}

TEST(MemoryWalk, TwoBillionParametersNeed32GigabytesOverAllRanks) {
  // Two billion fp32 parameters: 50 layers of 6328^2 are 2 002 179 200, and their gradients and two moments as much.
  constexpr std::int64_t kWide = 6328, kMany = 50;
  for (const std::int64_t ranks : {1, 4}) {
    const Walked walked(chain(kWide, kMany), plan_of({1, ranks}, kMany), {});
    const Moment& step = walked.at(InstructionKind::OptimizerStep, StepPhase::Optimizer);
    const std::int64_t elements = (kMany * kWide * kWide + kWide * kWide / 2) / ranks;
    EXPECT_EQ(bytes_of(step, ShardedParam) + bytes_of(step, ShardedGrad) + bytes_of(step, OptState), 16 * elements);
    EXPECT_NEAR(static_cast<double>(16 * elements), 32e9 / static_cast<double>(ranks), 0.4e9);
  }
}

TEST(MemoryWalk, TheSecondStepBeginsWithTheMomentsAndTheThirdIsLikeIt) {
  const Walked second(chain(kWidth, kLayers), plan_of({1, kRanks}), {Temp, Activation, OptState}, 2);
  const Walked third(chain(kWidth, kLayers), plan_of({1, kRanks}), {Temp, Activation, OptState}, 3);
  EXPECT_EQ(second.at(InstructionKind::Forward, StepPhase::Forward, 2).peak,
            third.at(InstructionKind::Forward, StepPhase::Forward, 2).peak);
  EXPECT_EQ(bytes_of(second.at(InstructionKind::LoadInputs, StepPhase::Forward), OptState), 2 * kS);
}

}  // namespace
}  // namespace fsdp::simulator
