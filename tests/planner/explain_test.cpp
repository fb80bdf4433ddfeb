// What the search says about its answer.

#include "planner/advice/explain.h"
#include "planner/space/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "core/cluster/bf16_units.h"
#include "core/plan/torch_version.h"
#include "core/report/device_verdict.h"
#include "planner/advice/explained_search.h"
#include "planner/advice/remedies.h"
#include "planner/advice/remedy_kind.h"
#include "planner/request/plan_request.h"
#include "planner/search/predictors.h"
#include "planner/search/search.h"
#include "planner/search/ties.h"
#include "render/choice_words.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

struct Question {
  ModelSpec spec = small_transformer({.layers = 6, .hidden = 512, .vocabulary = 8192, .batch = 8, .sequence = 512});
  Workload workload;
  Cluster cluster;
  Space space;

  explicit Question(Bytes memory) : cluster(small_cluster(2, 1, memory)) {
    // The driver's total and what a process may use are one figure here.
    cluster.gpu.memory.value = memory;
    space.base = *base_plan(spec, workload);
    space.cpu_offload = false;
    space.shard = 2;
  }

  SearchResult answer() const { return *search(spec, workload, cluster, space); }
};

/// What the smallest plan needs.
Bytes least_memory() {
  const Bytes too_little(560LL << 20);
  return too_little + Question(too_little).answer().best.missing;
}

std::optional<Remedy> find(const SearchResult& result, const std::string& flag) {
  for (const Remedy& remedy : result.explanation.remedies) {
    if (render::flags_of(remedy.change).starts_with(flag)) return remedy;
  }
  return std::nullopt;
}

TEST(Explain, TheBindingSentenceNamesMomentUnitAndTerms) {
  StepReport report;
  report.memory.peaks = {Bytes(6LL << 30), Bytes(6LL << 30), Bytes(7LL << 30), Bytes(8LL << 30)};
  report.memory.peak = {StepPhase::Backward, "Backward model.layers.3", "model.layers.3", "mlp.down_proj linear"};
  report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::Activation)] = Bytes(4LL << 30);
  report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::OptState)] = Bytes(2LL << 30);
  EXPECT_EQ(
      binding_of(report),
      "The peak of 8.00 GiB is reached in backward, at Backward model.layers.3 (mlp.down_proj linear) (unit: "
      "model.layers.3). Live tensors take 6.00 GiB; the largest are Activation 4.00 GiB and OptState 2.00 GiB. The "
      "allocator holds 1.00 GiB more, and 1.00 GiB lie outside PyTorch.");
}

Candidate candidate(std::string label, double step, std::int64_t missing) {
  Candidate made;
  made.plan.model = label;
  made.label = std::move(label);
  made.step = Seconds(step);
  made.missing = Bytes(missing);
  return made;
}

TEST(Explain, TheNearestRejectedPlansAreFasterAndMissLeast) {
  const Candidate best = candidate("best", 2, 0);
  const std::vector<Candidate> rejected =
      nearest_rejected({candidate("far", 1, 300), candidate("near", 1.5, 10), candidate("slower", 3, 1),
                        candidate("fits", 1, 0), candidate("middle", 1, 20)},
                       best, Verdict::Fits);
  ASSERT_EQ(rejected.size(), 3U);
  EXPECT_EQ(rejected[0].label, "near");
  EXPECT_EQ(rejected[1].label, "middle");
  EXPECT_EQ(rejected[2].label, "far");
}

TEST(Explain, RejectedPlanFitsWithItsMissingMemory) {
  const Bytes memory = least_memory() + Bytes(60LL << 20);
  const SearchResult tight = Question(memory).answer();
  ASSERT_EQ(tight.verdict, Verdict::Fits);
  ASSERT_FALSE(tight.explanation.rejected.empty());
  const Candidate& rejected = tight.explanation.rejected.front();
  EXPECT_LE(rejected.step, tight.best.step);
  EXPECT_GT(rejected.missing, Bytes(0));
  const Question larger(memory + rejected.missing);
  EXPECT_LE(larger.answer().best.step, rejected.step * (1 + kTieShare));
}

TEST(Explain, EachRemedyIsAPredictionOfItsOwnPlan) {
  Question question(Bytes(8LL << 30));
  question.space.checkpoint = CheckpointChoice{};  // What is typed finds no other plan.
  const SearchResult result = question.answer();
  const std::optional<Remedy> fused = find(result, "--optimizer-impl fused");
  ASSERT_TRUE(fused);
  Plan plan = result.best.plan;
  plan.optimizer.implementation = OptimizerImplementation::Fused;
  Predictors predictors = *Predictors::make(question.spec, question.workload, question.cluster, {0});
  const auto outcome = predictors.of(0).evaluate(plan, simulator::Detail::Memory);
  EXPECT_EQ(fused->delta_bytes, outcome->peaks.device - result.best.device_peak);
  EXPECT_EQ(fused->delta_time, outcome->step - result.best.step);
  EXPECT_EQ(fused->verdict, Verdict::Fits);
}

TEST(Explain, LossWithoutLogitCopiesIsOfferedIfItSaves) {
  Question question(Bytes(8LL << 30));
  question.spec = small_transformer({.layers = 2, .hidden = 256, .vocabulary = 65536, .batch = 8, .sequence = 512});
  question.space.base = *base_plan(question.spec, question.workload);
  const SearchResult result = question.answer();
  for (const std::string name : {"flash_attn", "liger"}) {
    const std::optional<Remedy> fused = find(result, "--loss " + name);
    ASSERT_TRUE(fused) << name;
    EXPECT_LT(fused->delta_bytes, Bytes(0)) << name;
    EXPECT_LT(fused->delta_time, Seconds(0)) << name;
  }
  const std::optional<Remedy> liger = find(result, "--loss liger");
  EXPECT_EQ(liger->what, "Liger's fused linear cross entropy (use_liger_kernel=True)");
  EXPECT_LT(liger->delta_bytes, find(result, "--loss flash_attn")->delta_bytes) << "It makes no tensor of all logits.";
  Question small(Bytes(8LL << 30));
  small.spec = small_transformer({.layers = 6, .hidden = 512, .vocabulary = 64, .batch = 8, .sequence = 512});
  small.space.base = *base_plan(small.spec, small.workload);
  EXPECT_FALSE(find(small.answer(), "--loss flash_attn")) << "Less than a percent.";
}

TEST(Explain, OfferOfFsdp2ForZeroMatchesItsOptions) {
  PlanRequest asked{.model = "gpt2", .choices = {.gpus = 4, .memory = Bytes(3700LL << 20)}};
  asked.choices.batch = 4;
  asked.choices.accumulation = 2;
  asked.choices.precision = Precision::Mixed;
  asked.choices.runtime = Framework::Zero1;
  asked.choices.cpu_offload = false;
  const auto answer = [&] {
    const ResolvedRequest resolved = *resolve(asked, "model_specs");
    return *search(resolved.spec, resolved.workload, resolved.cluster, resolved.space);
  };
  const SearchResult zero = answer();
  ASSERT_EQ(zero.verdict, Verdict::DoesNotFit);
  const std::optional<Remedy> remedy = find(zero, "--reduce-dtype bfloat16 --runtime fsdp2");
  ASSERT_TRUE(remedy);
  asked.choices = with_change(asked.choices, remedy->change);
  const SearchResult fsdp2 = answer();
  EXPECT_EQ(has_room(fsdp2.report), remedy->has_room());
  EXPECT_EQ(fsdp2.best.step - zero.best.step, remedy->delta_time);
  EXPECT_EQ(fsdp2.best.device_peak - zero.best.device_peak, remedy->delta_bytes);
}

// Whole blocks fit with offload alone, and their attention and MLP apart without it.
TEST(Explain, OffloadIsNotOfferedIfSmallerUnitsFit) {
  PlanRequest asked{.model = "llama3_1_8b", .choices = {.gpus = 2, .nodes = 2, .memory = Bytes(54986LL << 20)}};
  asked.choices.gpu_name = "A100 80GB SXM";
  const auto answer = [](const PlanRequest& request) {
    ResolvedRequest resolved = *resolve(request, "model_specs");
    resolved.space.explain = false;
    int told = 0;
    SearchResult found = *search(resolved.spec, resolved.workload, resolved.cluster, resolved.space,
                                 {.on_best = [&](const SearchResult&) { ++told; }});
    EXPECT_EQ(told, 1);
    return found;
  };
  const SearchResult found = answer(asked);
  ASSERT_EQ(found.verdict, Verdict::Fits);
  EXPECT_FALSE(found.best.plan.cpu_offload);
  asked.choices.cpu_offload = false;
  EXPECT_EQ(answer(asked).best, found.best);
  asked.choices.cpu_offload = true;
  EXPECT_GT(answer(asked).best.step, 2 * found.best.step);
}

// No proof of the smallest plan is in reach there; its corners are predicted all the same.
TEST(Explain, SimpleSmallPlanIsNamedWithALowerBound) {
  PlanRequest asked{.model = "qwen3_tts", .choices = {.gpus = 4, .memory = Bytes(1840LL << 20)}};
  ResolvedRequest resolved = *resolve(asked, "model_specs");
  resolved.space.explain = false;
  const SearchResult found = *search(resolved.spec, resolved.workload, resolved.cluster, resolved.space);
  ASSERT_EQ(found.verdict, Verdict::DoesNotFit);
  const std::vector<std::string>& assumed = found.report.assumptions;
  EXPECT_TRUE(std::any_of(assumed.begin(), assumed.end(), [](const std::string& text) {
    return text.starts_with("Another plan may need less, but with its margin at least ");
  }));
  EXPECT_NE(found.best.label.find("checkpoint 33 of 33"), std::string::npos) << found.best.label;
}

// Among plans that do not fit, the one with expandable segments lacks least; suggestions are priced as who types them
// would have them, without that setting.
TEST(Explain, NearestPlanUsesExpandableSegments) {
  PlanRequest asked{.model = "llama3_1_8b", .choices = {.gpus = 2, .memory = Bytes(24LL << 30)}};
  asked.choices.cpu_offload = false;
  const auto answer = [](const PlanRequest& request) {
    const ResolvedRequest resolved = *resolve(request, "model_specs");
    // Each suggestion is searched to its end.
    return *search(resolved.spec, resolved.workload, resolved.cluster, resolved.space, {.most_work_of_remedies = 0});
  };
  const SearchResult found = answer(asked);
  ASSERT_EQ(found.verdict, Verdict::DoesNotFit);
  EXPECT_EQ(found.best.plan.runtime.allocator_settings, "expandable_segments:True");
  PlanRequest plain = asked;
  plain.choices.allocator_settings = "expandable_segments:False";
  const SearchResult without = answer(plain);
  EXPECT_LT(found.best.missing, without.best.missing);
  EXPECT_NE(found.report.assumptions.back().find("Without expandable segments the smallest needs"), std::string::npos);
  const std::optional<Remedy> offload = find(found, "--offload yes");
  ASSERT_TRUE(offload);
  EXPECT_EQ(offload->verdict, Verdict::Fits);
  PlanRequest typed = asked;
  typed.choices = with_change(asked.choices, offload->change);
  const SearchResult fits = answer(typed);
  EXPECT_EQ(fits.verdict, Verdict::Fits);
  EXPECT_EQ(fits.best.step - found.best.step, offload->delta_time);
}

TEST(Explain, RejectedPlansArePredictedInFull) {
  const Question question(Bytes(1840LL << 20));
  const SearchResult result = question.answer();
  ASSERT_FALSE(result.explanation.rejected.empty());
  Predictors predictors = *Predictors::make(question.spec, question.workload, question.cluster, {0});
  for (const Candidate& rejected : result.explanation.rejected) {
    const auto outcome = predictors.of(0).evaluate(rejected.plan, simulator::Detail::Memory);
    EXPECT_EQ(rejected.device_peak, outcome->peaks.device) << rejected.label;
    EXPECT_EQ(rejected.missing, outcome->peaks.device + outcome->margin - question.cluster.gpu.usable_memory.value);
  }
}

TEST(Explain, EveryRemedySavesBytesOrTime) {
  for (const Remedy& remedy : Question(Bytes(8LL << 30)).answer().explanation.remedies) {
    EXPECT_TRUE(remedy.delta_bytes < Bytes(0) || remedy.delta_time < Seconds(0)) << remedy.what;
    EXPECT_FALSE(render::flags_of(remedy.change).empty()) << remedy.what;
  }
}

/// Where a suggestion for a plan that fits stands: what makes it faster first; of those what is free, then what changes
/// the training, then other machines; of those the fastest.
std::tuple<bool, bool, int, double> place_of_suggestion(const SearchResult& result, const Remedy& remedy) {
  return {!remedy.has_room(), remedy.delta_time > -kLeastSavedTime * result.best.step,
          static_cast<int>(kind_of(remedy)), remedy.delta_time.count()};
}

TEST(Explain, RemediesOfAFittingPlanComeFreeFirstAndSaveOnePercent) {
  Question question(Bytes(8LL << 30));
  question.space.base.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  const SearchResult result = question.answer();
  ASSERT_EQ(result.verdict, Verdict::Fits);
  const auto& remedies = result.explanation.remedies;
  EXPECT_TRUE(std::is_sorted(remedies.begin(), remedies.end(), [&](const Remedy& a, const Remedy& b) {
    return place_of_suggestion(result, a) < place_of_suggestion(result, b);
  }));
  for (const Remedy& remedy : remedies) {
    const bool is_faster = remedy.delta_time <= -kLeastSavedTime * result.best.step;
    EXPECT_TRUE(is_faster || 100 * remedy.delta_bytes <= -result.best.device_peak) << remedy.what;
  }
  EXPECT_FALSE(find(result, "--seq"));
  const std::optional<Remedy> fused = find(result, "--optimizer-impl fused");
  ASSERT_TRUE(fused);
  EXPECT_EQ(kind_of(*fused), RemedyKind::Free);
  EXPECT_FALSE(find(result, "--gpus 3")) << "nobody rents 3 GPUs";
}

TEST(Explain, KindOfARemedyFollowsItsChange) {
  const auto kind = [](PlanChoices change, std::int64_t samples = 0) {
    return kind_of(Remedy{.change = std::move(change), .samples = samples});
  };
  using enum RemedyKind;
  EXPECT_EQ(kind({.allocator_settings = "expandable_segments:True"}), Free);
  EXPECT_EQ(kind({.loss = Loss{.kind = LossKind::FlashAttn}}), Free);
  EXPECT_EQ(kind({.batch = 4, .accumulation = 2}), Free) << "the same samples";
  EXPECT_EQ(kind({.batch = 4}, 16), ChangesTraining);
  EXPECT_EQ(kind({.precision = Precision::BFloat16}), ChangesTraining);
  EXPECT_EQ(kind({.reduce_dtype = Dtype::BFloat16}), ChangesTraining);
  EXPECT_EQ(kind({.optimizer = OptimizerKind::BnbAdamW8bit}), ChangesTraining);
  EXPECT_EQ(kind({.frozen = {"*.wte.weight"}}), ChangesTraining);
  EXPECT_EQ(kind({.sequence = 512}), ChangesTraining);
  EXPECT_EQ(kind({.gpus = 8}, 64), OtherMachine);
  EXPECT_EQ(kind({.gpu_name = "H100 SXM"}), OtherMachine);
}

TEST(Explain, Bf16ReductionIsOfferedOnSlowLinks) {
  Question question(Bytes(8LL << 30));
  question.space.base.parameter_dtype = Dtype::Float32;
  question.space.base.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  question.cluster.intra_node.bus_bandwidth = {BytesPerSecond(1e9), Provenance::Given, "test"};
  const std::optional<Remedy> remedy = find(question.answer(), "--reduce-dtype bfloat16");
  ASSERT_TRUE(remedy);
  EXPECT_LT(remedy->delta_time, Seconds(0));
  question.space.base.mixed_precision.reduce_dtype = Dtype::BFloat16;
  EXPECT_FALSE(find(question.answer(), "--reduce-dtype"));
}

TEST(Explain, Fp16IsOfferedOnACardWithoutBf16) {
  const auto answer = [](std::optional<Precision> precision) {
    PlanRequest asked{.model = "llama3_2_1b", .choices = {.gpus = 4, .gpu_name = "T4", .sequence = 512}};
    asked.choices.precision = precision;
    const ResolvedRequest resolved = *resolve(asked, "model_specs");
    return *search(resolved.spec, resolved.workload, resolved.cluster, resolved.space);
  };
  const SearchResult in_bf16 = answer(Precision::Mixed);
  const std::optional<Remedy> remedy = find(in_bf16, "--precision fp16-mixed");
  ASSERT_TRUE(remedy);
  const auto says_why = [](const SearchResult& result) {
    const auto& lines = result.report.assumptions;
    return std::any_of(lines.begin(), lines.end(),
                       [](const std::string& line) { return line.find(kNoBf16Units) != std::string::npos; });
  };
  EXPECT_TRUE(says_why(in_bf16));
  // A T4 has 8.1 TFLOP/s in fp32, and 65 in fp16.
  const SearchResult usual = answer({});
  EXPECT_TRUE(says_why(usual));
  EXPECT_LT(usual.best.step, in_bf16.best.step);
  EXPECT_LT(2 * usual.report.time.compute, in_bf16.report.time.compute);
  EXPECT_FALSE(find(usual, "--precision"));
}

// Over slow links a reduce-scatter is not done when the next one needs its buffer.
TEST(Explain, LaterPyTorchIsOfferedForItsReduceScatters) {
  Question question(Bytes(8LL << 30));
  question.cluster.intra_node.bus_bandwidth = {BytesPerSecond(.3e9), Provenance::Given, "test"};
  const std::optional<Remedy> remedy = find(question.answer(), "--torch 2.13 --reduce-scatter-buffers 2");
  ASSERT_TRUE(remedy);
  EXPECT_LT(remedy->delta_time, Seconds(0));
  set_torch_version(question.space.base.runtime, *find_torch_version("2.13"));
  EXPECT_FALSE(find(question.answer(), "--torch"));
}

TEST(Explain, AModelThatDoesNotFitWholeIsMadeOnTheMetaDevice) {
  Question question(Bytes(8LL << 30));
  question.spec = small_transformer({.layers = 24, .hidden = 512, .vocabulary = 8192, .batch = 1, .sequence = 64});
  question.space.base = *base_plan(question.spec, question.workload);
  question.space.shard = 8;
  question.space.wrap = Wrap{1, {}};
  question.space.checkpoint = CheckpointChoice{CheckpointMode::None, {}};
  const auto answer = [&](Initialization where, Bytes memory) {
    question.cluster = small_cluster(8, 1, memory);
    question.cluster.gpu.memory.value = memory;
    question.space.base.initialization = where;
    return question.answer();
  };
  const Bytes little(400LL << 20);
  const Bytes whole = little + answer(Initialization::Device, little).best.missing;
  const Bytes shards = little + answer(Initialization::Meta, little).best.missing;
  const Bytes between = shards + Bytes((whole - shards).count() / 2);
  ASSERT_LT(shards, between);
  const SearchResult none = answer(Initialization::Device, between);
  ASSERT_EQ(none.verdict, Verdict::DoesNotFit);
  const std::optional<Remedy> remedy = find(none, "--initialization meta");
  ASSERT_TRUE(remedy);
  EXPECT_EQ(remedy->verdict, Verdict::Fits);
  EXPECT_EQ(answer(Initialization::Meta, between).verdict, Verdict::Fits);
  EXPECT_FALSE(find(answer(Initialization::Meta, little), "--initialization"));
}

// A search that ran says beside its own price what the same plan with the change takes: that is what a plan file has.
TEST(Explain, SearchedSuggestionAlsoPricesTheSamePlan) {
  Question question(Bytes(8LL << 30));
  question.space.base.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  const SearchResult result = question.answer();
  Workload workload = question.workload;
  workload.dimensions = {{"batch", find_dimension(result.best.plan.dimensions, "batch")->value}};
  simulator::Predictor predictor(*build_model(question.spec, workload), question.cluster);
  const auto of_file = *remedies_for({.spec = question.spec,
                                      .workload = workload,
                                      .cluster = question.cluster,
                                      .predictor = predictor,
                                      .best = result.best,
                                      .verdict = Verdict::Fits});
  int searched = 0;
  int compared = 0;
  for (const Remedy& remedy : result.explanation.remedies) {
    searched += remedy.is_searched && remedy.same_plan ? 1 : 0;
    const auto same = std::find_if(of_file.begin(), of_file.end(), [&](const Remedy& other) {
      return other.change == remedy.change && other.samples == remedy.samples;
    });
    if (same == of_file.end()) continue;
    ++compared;
    EXPECT_EQ(remedy.is_searched ? remedy.same_plan : remedy.price(), same->price()) << remedy.what;
  }
  EXPECT_GT(searched, 0);
  EXPECT_GT(compared, searched);
}

TEST(Explain, SuggestionNamesChangedSamplesOfAStep) {
  Question question(Bytes(8LL << 30));
  question.space.shard.reset();
  question.space.samples_per_gpu = 8;
  const SearchResult result = question.answer();
  std::optional<Remedy> gpus = find(result, "--gpus 4");
  ASSERT_TRUE(gpus);
  EXPECT_EQ(gpus->what, "4 GPUs, 32 samples a step");
  EXPECT_EQ(gpus->samples, 32);
  // Fixed over all GPUs, they are shared out over more of them.
  question.space.samples_per_gpu.reset();
  question.space.global_batch = 16;
  const SearchResult shared = question.answer();
  gpus = find(shared, "--gpus 4");
  ASSERT_TRUE(gpus);
  EXPECT_EQ(gpus->what, "4 GPUs");
  EXPECT_EQ(gpus->samples, 0);
}

TEST(Explain, SmallerMicroBatchKeepsOrNamesTheSamplesOfAStep) {
  const auto smaller = [](std::int64_t samples, bool is_fixed) {
    Question question(Bytes(8LL << 30));
    question.workload.dimensions = {{"batch", static_cast<double>(samples)}};
    if (is_fixed) question.space.samples_per_gpu = samples;
    question.space.max_micro_batch = samples;
    const SearchResult result = question.answer();
    const std::optional<Remedy> batch = find(result, "--batch");
    return batch.value_or(Remedy{});
  };
  EXPECT_EQ(smaller(8, true).what, "micro-batch 4 x 2 accumulation steps");
  EXPECT_EQ(render::flags_of(smaller(8, true).change), "--batch 4 --accumulate 2");
  EXPECT_EQ(smaller(7, true).what, "") << "half of them would be others";
  EXPECT_EQ(smaller(7, false).what, "micro-batch 3 instead of 7, 6 samples a step");
  EXPECT_EQ(smaller(7, false).samples, 6);
}

TEST(Explain, ReducingOncePerStepIsOfferedWithItsPrice) {
  Question question(Bytes(8LL << 30));
  question.workload.dimensions = {{"batch", 1}};  // Little to compute while gradients are reduced.
  question.space.base.accumulation = 4;
  question.space.sync_every_micro_batch = true;
  const SearchResult result = question.answer();
  const std::optional<Remedy> once = find(result, "--gradient-sync last");
  ASSERT_TRUE(once);
  EXPECT_LT(once->delta_time, Seconds(0));
  EXPECT_GT(once->delta_bytes, Bytes(0));
  // The option starts a search whose space holds that plan.
  question.space.sync_every_micro_batch = false;
  EXPECT_LE(question.answer().best.step, result.best.step + once->delta_time);
  question.space.sync_every_micro_batch.reset();
  const SearchResult free = question.answer();
  EXPECT_FALSE(free.best.plan.sync_every_micro_batch);
  EXPECT_FALSE(find(free, "--gradient-sync last"));
}

/// Machines like this one with so much memory, as a library would have them.
LargerGpus cards_of(const Question& question, const std::vector<std::int64_t>& gib) {
  return [cluster = question.cluster, gib] {
    std::vector<LargerGpu> cards;
    for (const std::int64_t each : gib) {
      LargerGpu card{"a card", {.gpu_name = "of " + std::to_string(each)}, cluster};
      card.cluster.gpu.usable_memory.value = Bytes(each << 30);
      cards.push_back(std::move(card));
    }
    return cards;
  };
}

TEST(Explain, MoreMemoryIsThatOfTheSmallestCardThatFits) {
  const Question question(Bytes(560LL << 20));
  const auto flag_with = [&](const LargerGpus& cards) {
    const auto result =
        *search(question.spec, question.workload, question.cluster, question.space, {.larger_gpus = cards});
    const std::optional<Remedy> remedy = find(result, "--gpu of-");
    return !remedy ? std::string("none") : render::flags_of(remedy->change);
  };
  EXPECT_EQ(flag_with(cards_of(question, {1, 8, 16})), "--gpu of-8");
  EXPECT_EQ(flag_with(cards_of(question, {1})), "none");
  EXPECT_EQ(flag_with({}), "none");
}

TEST(Explain, NoFitNamesSufficientMemoryAndGpus) {
  const Question question(Bytes(560LL << 20));
  const SearchResult result = *search(question.spec, question.workload, question.cluster, question.space,
                                      {.larger_gpus = cards_of(question, {8})});
  ASSERT_EQ(result.verdict, Verdict::DoesNotFit);
  const std::optional<Remedy> memory = find(result, "--gpu");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->verdict, Verdict::Fits);
  EXPECT_EQ(Question(Bytes(8LL << 30)).answer().verdict, Verdict::Fits);
  // The shard groups are fixed: copies of them on more GPUs need no less.
  EXPECT_FALSE(find(result, "--gpus"));
  // Remedies that make it fit come first.
  const auto& remedies = result.explanation.remedies;
  EXPECT_TRUE(
      std::is_partitioned(remedies.begin(), remedies.end(), [](const Remedy& remedy) { return remedy.has_room(); }));
}

TEST(Explain, MoreGpusComeInExistingNodeSizes) {
  const auto on = [](Bytes memory) {
    Question question(memory);
    question.space.shard.reset();
    return question.answer();
  };
  const Bytes too_little(560LL << 20);
  const SearchResult result = on(too_little + on(too_little).best.missing - Bytes(20LL << 20));
  ASSERT_EQ(result.verdict, Verdict::DoesNotFit);
  const std::optional<Remedy> gpus = find(result, "--gpus");
  ASSERT_TRUE(gpus);
  EXPECT_EQ(gpus->verdict, Verdict::Fits);
  const std::string flags = render::flags_of(gpus->change);
  EXPECT_TRUE(flags == "--gpus 4" || flags == "--gpus 8" || flags.starts_with("--gpus 8 --nodes")) << flags;
}

TEST(Explain, TheLargestBatchThatFitsIsFoundByPredictions) {
  const Question question(least_memory() - Bytes(30LL << 20));
  const SearchResult result = question.answer();
  ASSERT_EQ(result.verdict, Verdict::DoesNotFit);
  const std::optional<Remedy> batch = find(result, "--batch");
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->verdict, Verdict::Fits);
  // One more sample does not fit with this plan.
  const std::int64_t most = *batch->change.batch;
  const Workload larger = with_micro_batch(question.workload, most + 1);
  Predictors predictors = *Predictors::make(question.spec, larger, question.cluster, {0});
  EXPECT_FALSE(predictors.of(0).evaluate(result.best.plan, simulator::Detail::Memory)->fits);
}

}  // namespace
}  // namespace fsdp::planner
