// How autograd is played: what lives from forward to backward, what is run again, when gradients are added in place.

#include "simulator/ops/tape.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

using Kind = TapeEvent::Kind;

constexpr std::int64_t kTapeRows = 64;
constexpr std::int64_t kTapeWidth = 128;
constexpr std::int64_t kTapeBytes = 2 * kTapeRows * kTapeWidth;  // Bytes of x, in bf16.

BlockBuilder builder() {
  BlockBuilder b("op", "Op", {{"x", {1, kTapeRows, kTapeWidth}}, {"labels", {1, kTapeRows}, Dtype::Int64}});
  b.input("x");
  return b;
}

// x + down(silu(up(x)))
TapedBlock mlp(const TapedSettings& settings) {
  BlockBuilder b = builder();
  const BlockValue x = b.input("x");
  const BlockValue wide = b.silu(b.linear("up", x, 4 * kTapeWidth));
  b.output("y", b.add(x, b.linear("down", wide, kTapeWidth)));
  return tape_block(std::move(b), settings);
}
constexpr std::int64_t kWide = 4 * kTapeBytes;

int count(const std::vector<TapeEvent>& events, Kind kind) {
  return static_cast<int>(
      std::count_if(events.begin(), events.end(), [&](const TapeEvent& event) { return event.kind == kind; }));
}

TEST(Tape, SavesWhatTheGradientsNeed) {
  const TapedBlock all = mlp({});
  EXPECT_EQ(all.tape.kept_bytes, 2 * kWide);  // up's output for silu, silu's for down's weight.
  EXPECT_TRUE(all.keeps_input(0));
}

TEST(Tape, FrozenWeightsSaveLess) {
  const TapedBlock frozen = mlp({.parameters = {false, false}});
  EXPECT_EQ(frozen.tape.kept_bytes, kWide);  // silu's input only.
  EXPECT_FALSE(frozen.keeps_input(0));
  EXPECT_EQ(count(frozen.tape.backward, Kind::AllocParamGrad), 0);
}

TEST(Tape, NothingIsSavedOrRunBackwardWithoutGradients) {
  const TapedBlock none = mlp({.inputs = {false}, .parameters = {false, false}});
  EXPECT_EQ(none.tape.kept_bytes, 0);
  EXPECT_TRUE(none.tape.backward.empty());
}

// Autograd keeps nothing of a frozen layer; what the forward's variables name lives until it returns all the same.
TEST(Tape, VariablesKeepTheirValuesInAFrozenLayer) {
  const auto peak = [](bool is_named) {
    BlockBuilder b = builder();
    BlockValue q = b.linear("q", b.input("x"), 4 * kTapeWidth);
    if (is_named) q = b.local("query_states", q);
    b.output("y", b.linear("o", b.silu(q), kTapeWidth));
    return peak_of(tape_block(std::move(b), {.inputs = {false}, .parameters = {false, false}}).tape.forward);
  };
  EXPECT_EQ(peak(false), 2 * kWide);
  EXPECT_EQ(peak(true), 2 * kWide + kTapeBytes);  // With the output of "o".
}

TEST(Tape, AnInputWithoutGradientGetsNone) {
  const TapedBlock first = mlp({.inputs = {false}});
  EXPECT_EQ(count(first.tape.backward, Kind::EmitGrad) + count(first.tape.backward, Kind::ForwardGradOut), 0);
  EXPECT_EQ(count(first.tape.backward, Kind::AllocParamGrad), 2);
}

TEST(Tape, FullCheckpointingKeepsTheInputAndRunsTheForwardAgain) {
  const TapedBlock full = mlp({.mode = CheckpointMode::Full});
  EXPECT_EQ(full.tape.kept_bytes, 0);
  EXPECT_TRUE(full.keeps_input(0));
  EXPECT_FALSE(full.tape.recompute.empty());
  EXPECT_EQ(count(full.tape.backward, Kind::AllocParamGrad), 2);
}

TEST(Tape, InputsOnTheHostAreReleasedInForwardAndCopiedBack) {
  const TapedBlock here = mlp({.mode = CheckpointMode::Full});
  const TapedBlock host = mlp({.mode = CheckpointMode::Full, .offloads_inputs = true});
  EXPECT_EQ(count(here.tape.forward, Kind::ReleaseInput), 0);
  EXPECT_EQ(count(host.tape.forward, Kind::ReleaseInput), 1);
  EXPECT_EQ(count(here.tape.backward, Kind::ReleaseInput), 1);
  EXPECT_EQ(count(host.tape.backward, Kind::ReleaseInput), 0);
  EXPECT_EQ(host.tape.on_host, std::vector<std::int64_t>{kTapeBytes});
  EXPECT_EQ(host.tape.recompute.front().bytes, kTapeBytes);
  EXPECT_EQ(host.tape.recompute.size(), here.tape.recompute.size() + 1);
  EXPECT_EQ(host.tape.backward_peak, here.tape.backward_peak + kTapeBytes);
}

TEST(Tape, RecomputationStopsAtTheLastSavedTensor) {
  // Ops: up, silu, down, add. Down's input is packed before it runs, and add saves nothing.
  EXPECT_EQ(mlp({.mode = CheckpointMode::Full}).tape.recomputed, (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(mlp({.mode = CheckpointMode::Full, .early_stop = false}).tape.recomputed,
            (std::vector<bool>{true, true, true, true}));
}

// DeepSpeed's linear layer saves when its forward has run, and what it kept of it is used up then.
TEST(Tape, RecomputationStopsAfterAPythonFunction) {
  TapedSettings settings{.mode = CheckpointMode::Full};
  settings.rules.implementations.zero3_linear = true;
  EXPECT_EQ(mlp(settings).tape.recomputed, (std::vector<bool>{true, true, true, false}));
  settings.mode = CheckpointMode::Selective;
  settings.kept = {false, false, true, false};
  const Tape tape = mlp(settings).tape;
  EXPECT_EQ(tape.kept_bytes, kTapeBytes);
  EXPECT_EQ(count(tape.recompute, Kind::Free) - count(tape.recompute, Kind::Alloc), -1);  // All but what is saved: two.
}

// A parameter that its module lets go meanwhile lives until its node has run: down's, then up's.
TEST(Tape, RecomputationNamesItsSavedParameters) {
  const Tape kept = mlp({.mode = CheckpointMode::Full, .keeps_parameters = true}).tape;
  EXPECT_EQ(kept.kept_parameters, (std::vector<int>{0, 1}));
  std::vector<int> released;
  for (const TapeEvent& event : kept.backward) {
    if (event.kind == Kind::ReleaseParam) released.push_back(event.storage);
  }
  EXPECT_EQ(released, (std::vector<int>{1, 0}));
  EXPECT_EQ(count(mlp({.mode = CheckpointMode::Full}).tape.backward, Kind::ReleaseParam), 0);
  EXPECT_EQ(count(mlp({.keeps_parameters = true}).tape.backward, Kind::ReleaseParam), 0);
}

TEST(Tape, SelectiveCheckpointingSavesItsNamedOutputs) {
  const TapedBlock some = mlp({.mode = CheckpointMode::Selective, .kept = {true, false, false, false}});
  EXPECT_EQ(some.tape.kept_bytes, kWide);
  EXPECT_EQ(some.tape.recomputed, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(allocations(some.tape.recompute), (AllocationCounts{{kWide, 1}}));
}

// As torchtitan's policy: the copies of K and V that transformers 4 makes for the call run again.
TEST(Tape, SelectiveCheckpointingSavesOnlyTheFusedAttentionCall) {
  const auto attention = [](AttentionBackend backend) {
    BlockBuilder b("op", "Op",
                   {{"q", {1, kTapeRows, 4, 32}}, {"k", {1, kTapeRows, 2, 32}}, {"v", {1, kTapeRows, 2, 32}}});
    b.output("y", b.scale(b.attention(b.input("q"), b.input("k"), b.input("v"), {}), 2));
    TapedSettings settings{.mode = CheckpointMode::Selective, .kept = {true, false}};
    settings.rules.implementations = {.attention = backend, .repeat_kv = true};
    return tape_block(std::move(b), settings).tape;
  };
  const Tape flash = attention(AttentionBackend::Flash);
  EXPECT_EQ(flash.kept_bytes,
            kTapeBytes + 4 * 4 * kTapeRows + 16 + 8);  // Result, log-sum-exp, state of the random generator.
  EXPECT_EQ(flash.recomputed, (std::vector<bool>{false, false}));
  // And the gradient of the scale, whose node unpacks nothing and so runs before them.
  EXPECT_EQ(allocations(flash.recompute), (AllocationCounts{{kTapeBytes, 3}}));
  const Tape written_out = attention(AttentionBackend::Eager);
  EXPECT_EQ(written_out.kept_bytes, 0);
  EXPECT_EQ(written_out.recomputed, (std::vector<bool>{true, false}));
}

TEST(Tape, CheckpointingDoesNotChangeTheGradients) {
  const auto gradients = [](CheckpointMode mode) { return allocations(mlp({.mode = mode}).tape.backward); };
  EXPECT_EQ(gradients(CheckpointMode::Full), gradients(CheckpointMode::None));
  EXPECT_EQ(gradients(CheckpointMode::Selective), gradients(CheckpointMode::None));
}

TEST(Tape, UnusedGraphIsFreedWithItsCall) {
  const auto branch = [](bool trained) {
    BlockBuilder b = builder();
    const BlockValue x = b.input("x");
    BlockValue y = b.linear("first", x, kTapeWidth);
    for (const char* name : {"second", "third", "fourth"}) y = b.silu(b.linear(name, y, kTapeWidth));
    b.output("y", b.detach(y));
    return tape_block(std::move(b), {.inputs = {false}, .parameters = std::vector<bool>(4, trained)});
  };
  const TapedBlock detached = branch(true);
  EXPECT_EQ(detached.tape.kept_bytes, 0);
  EXPECT_TRUE(detached.tape.backward.empty());
  // Inputs of linears 2 to 4 and of the silus, and the result; without a graph an input and an output at a time.
  EXPECT_EQ(peak_of(detached.tape.forward), 7 * kTapeBytes);
  EXPECT_EQ(peak_of(branch(false).tape.forward), 2 * kTapeBytes);
}

// Gradients of x's size that the backward makes when two ops use what was made of x.
int gradients_of_x(BlockValue (*use)(BlockBuilder&, BlockValue, const char*)) {
  BlockBuilder b = builder();
  const BlockValue x = b.scale(b.input("x"), 2);
  const BlockValue first = use(b, x, "first");
  b.output("y", b.mean(b.add(first, use(b, x, "second")), -1, false));
  const AllocationCounts counts = allocations(tape_block(std::move(b), {.parameters = {false, false}}).tape.backward);
  return counts.at(kTapeBytes);
}

TEST(Tape, SecondGradientIsAddedInPlaceIfTheFirstIsUnshared) {
  // The mean's gradient, and one for each use; the second is added to the first.
  BlockBuilder b = builder();
  const BlockValue x = b.input("x");
  const BlockValue first = b.silu(x);
  b.output("y", b.mean(b.add(first, b.gelu(x, false)), -1, false));
  EXPECT_EQ(allocations(tape_block(std::move(b)).tape.backward).at(kTapeBytes), 3);
}

TEST(Tape, ASecondGradientIsANewTensorWhenTheFirstIsAView) {
  // Linear hands its gradient back reshaped: the mean's, one for each use, their sum, and that of the scaling.
  EXPECT_EQ(
      gradients_of_x([](BlockBuilder& b, BlockValue x, const char* name) { return b.linear(name, x, kTapeWidth); }), 5);
}

TEST(Tape, EachGradientOfAnInputIsReturnedSeparately) {
  // Other calls may have gradients of x, too: what is added to what is not for this call to say.
  BlockBuilder b = builder();
  const BlockValue x = b.input("x");
  b.output("y", b.mean(b.add(b.silu(x), b.gelu(x, false)), -1, false));
  const std::vector<TapeEvent> backward = tape_block(std::move(b)).tape.backward;
  const auto is_handed_out = [](const TapeEvent& event) { return event.kind == TapeEvent::Kind::EmitGrad; };
  EXPECT_EQ(std::count_if(backward.begin(), backward.end(), is_handed_out), 2);
}

// scale(x), then two more scalings of it: in a module of their own, or in the block's own forward.
TapedBlock scaled_thrice(bool in_a_module) {
  BlockBuilder b = builder();
  const BlockValue first = b.scale(b.input("x"), 2);
  BlockValue y;
  {
    const auto scope = b.enter(in_a_module ? "inner" : "", "Inner");
    y = b.scale(b.scale(first, 3), 4);
  }
  b.output("y", y);
  return tape_block(std::move(b), {});
}

TEST(Tape, TheArgumentsOfAModuleLiveUntilItReturns) {
  EXPECT_EQ(peak_of(scaled_thrice(false).tape.forward), 2 * kTapeBytes);
  EXPECT_EQ(peak_of(scaled_thrice(true).tape.forward), 3 * kTapeBytes);
}

TEST(Tape, ResidualSumGivesBothSidesOneGradient) {
  BlockBuilder b = builder();
  const BlockValue x = b.input("x");
  b.output("y", b.add(x, b.silu(x)));
  // silu's gradient is added to that of y, which by then nobody else holds, and that goes on as x's.
  const Tape tape = tape_block(std::move(b)).tape;
  EXPECT_EQ(allocations(tape.backward), (AllocationCounts{{kTapeBytes, 1}}));
  EXPECT_EQ(count(tape.backward, Kind::ForwardGradOut), 1);
}

TEST(Tape, ReturnedLogitsLiveUntilTheEndOfTheBackward) {
  const auto loss = [](bool keep) {
    BlockBuilder b = builder();
    const BlockValue logits = b.linear("head", b.input("x"), 1000);
    b.output("loss", b.cross_entropy(logits, b.input("labels"), false));
    return tape_block(std::move(b), {.keep_logits = keep, .inputs = {true, false}}).tape;
  };
  EXPECT_EQ(loss(true).kept_bytes - loss(false).kept_bytes, 2 * kTapeRows * 1000);
}

// ---- properties ----------------------------------------------------------------------------------------------------

// Replays all events: nothing is freed twice or used after it is gone, and what is left are outputs and gradients that
// the call hands out.
void expect_balanced(const TapedBlock& taped) {
  std::vector<int> alive(static_cast<std::size_t>(taped.tape.num_storages), 0);
  std::vector<int> handed_out(alive.size(), 0);
  for (const Storage& output : taped.tape.output) {
    if (output.kind == Storage::Kind::Inside) handed_out[output.index] = 1;
  }
  for (const auto* events : {&taped.tape.forward, &taped.tape.recompute, &taped.tape.backward}) {
    for (const TapeEvent& event : *events) {
      const auto storage = static_cast<std::size_t>(event.storage);
      if (event.kind == Kind::Alloc) {
        EXPECT_EQ(alive[storage]++, 0);
      } else if (event.kind == Kind::Free) {
        EXPECT_EQ(alive[storage]--, 1);
      } else if (event.kind == Kind::EmitGrad) {
        handed_out[storage] = 1;
      }
    }
  }
  for (std::size_t s = 0; s < alive.size(); ++s) EXPECT_EQ(alive[s], handed_out[s]) << "storage " << s;
}

TEST(Tape, NothingLeaksOrIsFreedTwiceUnderAnyCheckpointing) {
  for (const CheckpointMode mode : {CheckpointMode::None, CheckpointMode::Selective, CheckpointMode::Full}) {
    for (const bool early_stop : {true, false}) {
      for (int trained = 0; trained < 16; ++trained) {
        const TapedBlock taped = mlp({.mode = mode,
                                      .early_stop = early_stop,
                                      .offloads_inputs = (trained & 8) != 0,
                                      .inputs = {(trained & 1) != 0},
                                      .parameters = {(trained & 2) != 0, (trained & 4) != 0},
                                      .kept = {false, true, false, false}});
        SCOPED_TRACE(trained);
        expect_balanced(taped);
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::simulator
