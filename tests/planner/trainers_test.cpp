// What each trainer can say of a plan, and the nearest plan that it can.

#include "planner/trainers/trainers.h"
#include "core/frameworks/check_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "planner/space/checkpointed_blocks.h"
#include "planner/space/space.h"
#include "planner/trainers/accelerate_ends.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

using Kind = ReshardAfterForward::Kind;

Model trained_model() {
  return *build_model(small_transformer({.layers = 4}));
}

/// Releases whose root is treated as the units are.
const TrainerRelease kAccelerate = *find_release(Trainer::Accelerate, "1.12.0", "");
const TrainerRelease kTransformers = *find_release(Trainer::Transformers, "4.57.3", "");

/// What accelerate 1.12 does with 4 GPUs: blocks and the root, all resharded, in bfloat16.
Plan sayable() {
  Plan plan;
  plan.model = "small";
  plan.mesh = {1, 4};
  for (const char* layer : {"0", "1", "2", "3"}) {
    plan.units.push_back({{std::string("model.layers.") + layer}, {Kind::Always, 0}});
  }
  plan.units.push_back({{""}, {Kind::Always, 0}});
  return plan;
}

std::string error_places(const Errors& errors) {
  std::string places;
  for (const Error& error : errors) places += (places.empty() ? "" : " ") + error.where;
  return places;
}

struct SaidCase {
  std::string name;
  std::function<void(Plan&)> change;
  std::string accelerate;    ///< Places of what it cannot say.
  std::string transformers;  ///< The same, where the Trainer differs.
};

/// Cases of meshes and units.
std::vector<SaidCase> sharding_cases() {
  return {
      {"nothing", [](Plan&) {}, "", ""},
      {"copies",
       [](Plan& plan) {
         plan.mesh = {2, 2};
       },
       "", ""},
      {"offload", [](Plan& plan) { plan.cpu_offload = true; }, "", ""},
      {"no shards",
       [](Plan& plan) {
         plan.mesh = {4, 1};
       },
       "/mesh", "/mesh"},
      {"two blocks in a unit",
       [](Plan& plan) {
         plan.units[0].modules.push_back("model.layers.1");
         plan.units.erase(plan.units.begin() + 1);
       },
       "/units", "/units"},
      {"a block left out", [](Plan& plan) { plan.units.erase(plan.units.begin() + 2); }, "/units", "/units"},
      {"the embedding apart",
       [](Plan& plan) {
         plan.units.insert(plan.units.begin(), Unit{{"model.embed_tokens"}, {Kind::Always, 0}});
       },
       "", ""},
      {"the head apart",  // A Linear, as every projection is.
       [](Plan& plan) {
         plan.units.insert(plan.units.begin(), Unit{{"lm_head"}, {Kind::Always, 0}});
       },
       "/units", "/units"},
      {"the root kept", [](Plan& plan) { plan.units.back().reshard_after_forward = {}; },
       "/units/reshard_after_forward", "/units/reshard_after_forward"},
      {"the last block kept",
       [](Plan& plan) {
         plan.units[3].reshard_after_forward = {Kind::Never, 0};
       },
       "/units/reshard_after_forward", "/units/reshard_after_forward"},
      {"smaller shards",
       [](Plan& plan) {
         for (Unit& unit : plan.units) unit.reshard_after_forward = {Kind::Smaller, 2};
       },
       "/units/reshard_after_forward", "/units/reshard_after_forward"},
  };
}

/// Cases of precision, recomputation, prefetching and the optimizer.
std::vector<SaidCase> training_cases() {
  return {
      {"fp32 reduction",
       [](Plan& plan) {
         plan.parameter_dtype = Dtype::Float32;
         plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
       },
       "/mixed_precision", "/mixed_precision"},
      {"bf16 in all",
       [](Plan& plan) {
         plan.parameter_dtype = Dtype::Float32;
         plan.mixed_precision = {Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16};
       },
       "", ""},
      {"bf16 of bf16 parameters",
       [](Plan& plan) {
         plan.mixed_precision = {Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16};
       },
       "/parameter_dtype", "/parameter_dtype"},
      {"all blocks recomputed",
       [](Plan& plan) {
         checkpoint(plan, trained_model(), {CheckpointMode::Full, {}});
       },
       "", ""},
      {"two blocks recomputed",
       [](Plan& plan) {
         checkpoint(plan, trained_model(), {CheckpointMode::Full, 2});
       },
       "/activation_checkpointing", "/activation_checkpointing"},
      {"selective",
       [](Plan& plan) {
         checkpoint(plan, trained_model(), {CheckpointMode::Selective, {}});
       },
       "/activation_checkpointing", "/activation_checkpointing"},
      {"prefetch", [](Plan& plan) { plan.forward_prefetch = 1; }, "/forward_prefetch", "/forward_prefetch"},
      {"backward prefetch", [](Plan& plan) { plan.backward_prefetch = 2; }, "/backward_prefetch", "/backward_prefetch"},
      {"bf16 states", [](Plan& plan) { plan.optimizer.states = OptimizerStates::BFloat16; }, "/optimizer/states",
       "/optimizer/states"},
      {"every micro-batch reduced", [](Plan& plan) { plan.accumulation = 2; }, "", "/sync_every_micro_batch"},
      {"flash-attn's loss", [](Plan& plan) { set_loss(plan, {.kind = LossKind::FlashAttn}); }, "",
       "/runtime/implementations/loss"},
      {"inputs as they are", [](Plan& plan) { plan.mixed_precision.cast_forward_inputs = false; },
       "/mixed_precision/cast_forward_inputs", "/mixed_precision/cast_forward_inputs"},
  };
}

TEST(Trainers, NewerTrainerReducesEveryMicroBatch) {
  const Model model = trained_model();
  const TrainerRelease newest = Trainer::Transformers;
  Plan plan = sayable();
  plan.accumulation = 2;
  const auto reports = [&](const TrainerRelease& release) {
    const std::string places = error_places(unsaid(release, plan, model));
    return places.find("/sync_every_micro_batch") != std::string::npos;
  };
  EXPECT_TRUE(reports(kTransformers));
  EXPECT_FALSE(reports(newest));
  plan.sync_every_micro_batch = false;
  EXPECT_FALSE(reports(kTransformers));
  EXPECT_FALSE(reports(newest));
}

std::vector<SaidCase> said_cases() {
  std::vector<SaidCase> all = sharding_cases();
  for (SaidCase& each : training_cases()) all.push_back(std::move(each));
  return all;
}

TEST(Trainers, ListWhatTheyCannotExpress) {
  const Model model = trained_model();
  for (const SaidCase& each : said_cases()) {
    Plan plan = sayable();
    each.change(plan);
    EXPECT_EQ(error_places(unsaid(kAccelerate, plan, model)), each.accelerate) << each.name;
    EXPECT_EQ(error_places(unsaid(kTransformers, plan, model)), each.transformers) << each.name;
  }
}

TEST(Trainers, HaveANearestPlanThatTheyCanExpress) {
  const Model model = trained_model();
  for (const SaidCase& each : said_cases()) {
    for (const TrainerRelease& trainer : {kAccelerate, kTransformers}) {
      Plan plan = sayable();
      each.change(plan);
      const bool is_said = unsaid(trainer, plan, model).empty();
      const Result<Plan> nearest = nearest_said(trainer, plan, model);
      ASSERT_TRUE(nearest) << each.name;
      EXPECT_EQ(*nearest == plan, is_said) << each.name;
      EXPECT_TRUE(unsaid(trainer, *nearest, model).empty()) << each.name;
      EXPECT_TRUE(check(*nearest, model).empty()) << each.name;
    }
  }
}

TEST(Trainers, KeepTheUnitsThatAClassSelects) {
  const Model model = trained_model();
  Plan plan = sayable();
  const std::vector<Unit> blocks = plan.units;
  plan.units.insert(plan.units.begin(), Unit{{"lm_head"}, {Kind::Always, 0}});
  EXPECT_EQ(nearest_said(kAccelerate, plan, model)->units, blocks);
  plan.units = {{{"model.layers.0", "model.layers.1", "model.layers.2", "model.layers.3"}, {Kind::Always, 0}},
                {{"model.embed_tokens"}, {Kind::Always, 0}},
                {{""}, {}}};
  std::vector<Unit> with_embedding = blocks;
  with_embedding.insert(with_embedding.end() - 1, Unit{{"model.embed_tokens"}, {Kind::Always, 0}});
  EXPECT_EQ(nearest_said(kAccelerate, plan, model)->units, with_embedding);
  // A projection has the class of every other one; without it the rest of its block is in no unit.
  plan.units = {{{""}, {}}};
  for (const char* block : {"model.layers.3", "model.layers.2", "model.layers.1", "model.layers.0"}) {
    plan.units.insert(plan.units.begin(), Unit{{std::string(block) + ".mlp.down_proj"}, {Kind::Always, 0}});
  }
  EXPECT_EQ(nearest_said(kAccelerate, plan, model)->units, blocks);
}

// Llama of transformers: accelerate makes units of the embedding, and of norm and head, which stay gathered.
class UnitsOfEnds : public testing::Test {
 protected:
  UnitsOfEnds() {
    model_.modules.front().class_name = "LlamaForCausalLM";
    for (Module& module : model_.modules) {
      if (module.name == "model") module.class_name = "LlamaModel";
    }
    plan_ = sayable();
    plan_.units.insert(plan_.units.begin(), Unit{{"model.embed_tokens"}, {Kind::Always, 0}});
    plan_.units.insert(plan_.units.end() - 1, Unit{{"model.norm", "lm_head"}, {Kind::Never, 0}});
    plan_.units.back().reshard_after_forward = {};
  }

  std::string unsaid_after(const std::function<void(Plan&)>& change) const {
    Plan plan = plan_;
    change(plan);
    const Errors errors = unsaid(Trainer::Accelerate, plan, model_);
    const Result<Plan> nearest = nearest_said(Trainer::Accelerate, plan, model_);
    EXPECT_TRUE(nearest);
    EXPECT_EQ(errors.empty(), nearest && *nearest == plan);
    EXPECT_TRUE(nearest && unsaid(Trainer::Accelerate, *nearest, model_).empty());
    return error_places(errors);
  }

  Model model_ = trained_model();
  Plan plan_;
};

TEST_F(UnitsOfEnds, AddToTheUnitsOfThePolicy) {
  EXPECT_EQ(accelerate_ends_of(model_), (AccelerateEnds{"model.embed_tokens", {"model.norm", "lm_head"}}));
  EXPECT_EQ(unsaid_after([](Plan&) {}), "");
  EXPECT_EQ(wrap_policy_of(Trainer::Accelerate, plan_, model_)->classes, std::vector<std::string>{"LlamaDecoderLayer"});
  EXPECT_EQ(reshard_of_all(Trainer::Accelerate, plan_, model_), true);
  EXPECT_EQ(unsaid_after([](Plan& plan) {
              for (Unit& unit : plan.units) unit.reshard_after_forward = {Kind::Never, 0};
              plan.units.back().reshard_after_forward = {};
            }),
            "");
}

TEST_F(UnitsOfEnds, AreMissingFromPlansOfBlocksAndRoot) {
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan = sayable(); }), "/units /units/reshard_after_forward");
  EXPECT_EQ(nearest_said(Trainer::Accelerate, sayable(), model_)->units, plan_.units);
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.erase(plan.units.begin()); }), "/units");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.erase(plan.units.end() - 2); }), "/units");
}

TEST_F(UnitsOfEnds, StayGathered) {
  const char* place = "/units/reshard_after_forward";
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.end()[-2].reshard_after_forward = {Kind::Always, 0}; }), place);
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.back().reshard_after_forward = {Kind::Always, 0}; }), place);
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.front().reshard_after_forward = {Kind::Never, 0}; }), place);
}

// One parameter under two names is in one unit; a model that is not transformers' has no embedding that is asked for.
TEST(AccelerateEnds, MatchThoseOfTransformers) {
  const auto ends = [](const char* file) {
    return accelerate_ends_of(*build_model(*read_model_spec(std::string("model_specs/") + file + ".json")));
  };
  EXPECT_EQ(ends("llama3_1_8b"), (AccelerateEnds{"model.embed_tokens", {"model.norm", "lm_head"}}));
  EXPECT_EQ(ends("llama3_2_1b"), (AccelerateEnds{"", {"model.norm", "model.embed_tokens", "lm_head"}}));
  EXPECT_EQ(ends("gpt2"), (AccelerateEnds{"", {"transformer.ln_f", "transformer.wte", "lm_head"}}));
  EXPECT_EQ(ends("t5_3b").tail, (std::vector<std::string>{"shared", "lm_head"}));
  EXPECT_EQ(ends("resnet18"), (AccelerateEnds{"", {"bn1"}}));
  EXPECT_EQ(ends("mlp"), AccelerateEnds{});
}

// BERT's output bias has a name in the head and one beside it, so that the unit of the head takes it from the root.
TEST(AccelerateEnds, AreRefusedIfTheyShareAParameter) {
  const ModelSpec spec = *read_model_spec("model_specs/bert_large.json");
  const Model model = *build_model(spec);
  Plan plan = *base_plan(spec, {});
  plan.mesh = {1, 4};
  plan.units = {{{""}, {}}};
  plan.mixed_precision = {Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16};
  const Errors errors = unsaid(Trainer::Accelerate, plan, model);
  ASSERT_EQ(errors.size(), 1) << error_places(errors);
  EXPECT_NE(errors.front().what.find(" outside: PyTorch 2.13 refuses that"), std::string::npos) << errors.front().what;
  EXPECT_NE(errors.front().hint.find("--trainer-version 1.12.0"), std::string::npos);
  const Result<Plan> older = nearest_said(kAccelerate, plan, model);
  EXPECT_TRUE(older) << to_string(older.error().front());
  EXPECT_TRUE(nearest_said(Trainer::Accelerate, sayable(), trained_model()));
}

TEST(Releases, AreFoundByAPrefixOfTheirVersion) {
  EXPECT_EQ(find_release(Trainer::Accelerate, "1.15", "")->version, "1.15.0");
  EXPECT_EQ(find_release(Trainer::Transformers, "5", "")->version, "5.24.0");
  EXPECT_EQ(TrainerRelease(Trainer::Torchtitan).version, "0.3.0");
  const auto unknown = find_release(Trainer::Accelerate, "1.1", "--trainer-version");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(to_string(unknown.error().front()),
            "--trainer-version: No configuration is written for release \"1.1\". Known are 1.15.0 and 1.12.0.");
}

TEST(Trainers, OfferNothingInPlaceOfFloat16) {
  Plan plan = sayable();
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {Dtype::Float16, Dtype::Float16, Dtype::Float16};
  const Result<Plan> nearest = nearest_said(kAccelerate, plan, trained_model());
  ASSERT_FALSE(nearest);
  EXPECT_EQ(error_places(nearest.error()), "/mixed_precision");
}

TEST(WrapPolicy, NamesClassesThatAreExactlyTheUnits) {
  const Model model = trained_model();
  Plan plan = sayable();
  EXPECT_EQ(wrap_policy_of(kAccelerate, plan, model)->classes, std::vector<std::string>{"LlamaDecoderLayer"});
  plan.units = {{{""}, {}}};
  EXPECT_EQ(wrap_policy_of(kAccelerate, plan, model), WrapPolicy{});
}

// Linear(8, 100) and Linear(100, 4), each with a bias: 900 and 404 parameters.
TEST(WrapPolicy, NamesASizeIfNoClassMatches) {
  const Model model = *build_model(*parse_model_spec(R"({"format_version": "1.0", "name": "two", "source": "a test",
    "dtype": "float32", "dimensions": {"batch": 2},
    "inputs": {"x": {"shape": ["batch", 8]}, "labels": {"shape": ["batch"], "dtype": "int64"}},
    "modules": [
      {"name": "", "class": "Sequential", "ops": [
        {"op": "linear", "module": "wide", "inputs": ["x"], "out_features": 100},
        {"op": "linear", "module": "narrow", "out_features": 4, "outputs": ["logits"]}]},
      {"name": "", "block": "cross_entropy"}]})",
                                                     "two.json"));
  Plan plan;
  plan.units = {{{"wide"}, {}}, {{""}, {}}};
  EXPECT_EQ(wrap_policy_of(kAccelerate, plan, model), (WrapPolicy{{}, 404}));
  plan.units = {{{"narrow"}, {}}, {{""}, {}}};
  EXPECT_EQ(wrap_policy_of(kAccelerate, plan, model), std::nullopt);
}

Plan plan_of_torchtitan(const ModelSpec& spec) {
  Plan plan = *base_plan(spec, {});
  plan.runtime = *runtime_of_flavor("torchtitan");
  plan.mesh = {2, 8};
  plan.units = {{{""}, {}}};
  return plan;
}

TEST(Torchtitan, HasNearPlansOfItsFlavors) {
  for (const char* file : {"llama3_1_8b", "llama3_1_70b", "llama3_1_405b", "qwen3_8b", "qwen3_14b", "qwen3_32b"}) {
    const ModelSpec spec = *read_model_spec(std::string("model_specs/") + file + ".json");
    const Model model = *build_model(spec);
    ASSERT_TRUE(torchtitan_model_of(model)) << file;
    const Result<Plan> nearest = nearest_said(Trainer::Torchtitan, plan_of_torchtitan(spec), model);
    ASSERT_TRUE(nearest) << file << ": " << to_string(nearest.error().front());
    EXPECT_EQ(nearest->units.front().modules, std::vector<std::string>{"model.embed_tokens"});
    EXPECT_EQ(nearest->units[nearest->units.size() - 2].modules, (std::vector<std::string>{"model.norm", "lm_head"}));
    EXPECT_EQ(torchtitan_reshard_of(*nearest), "default");
  }
}

// 0.3 takes its own selective checkpointing and FlexAttention; the TOML of 0.2.2 has neither.
TEST(Torchtitan, TakesSelectivePlansOfItsOwnFlavor) {
  const ModelSpec spec = *read_model_spec("model_specs/llama3_1_8b.json");
  Plan plan = *base_plan(spec, {});
  plan.runtime = *runtime_of_flavor("torchtitan-0.3");
  plan.packing = Packing{PackedAttention::Flex, "512"};
  plan.mesh = {1, 8};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {
      .param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32, .output_dtype = {}, .cast_forward_inputs = false};
  plan.optimizer.clip_grad_norm = 1.0;
  const Model model = *build_model(spec, workload_of(plan));
  const TrainerRelease newest(Trainer::Torchtitan);
  plan.units = nearest_said(newest, plan, model)->units;
  plan.checkpointing.early_stop = false;
  ASSERT_TRUE(checkpoint(plan, model, {CheckpointMode::Selective, {}}));
  EXPECT_EQ(error_places(unsaid(newest, plan, model)), "");
  const TrainerRelease older = *find_release(Trainer::Torchtitan, "0.2.2", "--trainer-version");
  EXPECT_NE(error_places(unsaid(older, plan, model)).find("/model/packing"), std::string::npos);
  plan.packing->attention = PackedAttention::Varlen;
  EXPECT_NE(error_places(unsaid(newest, plan, model)).find("/model/packing/attention"), std::string::npos);
}

// 0.3 makes one unit of embedding, norm and head if they are tied; 0.2.2 would make two of one parameter.
TEST(Torchtitan, KeepsTiedEndsInOneUnit) {
  for (const char* file : {"llama3_2_1b", "llama3_2_3b", "qwen3_0_6b", "qwen3_1_7b", "qwen3_4b"}) {
    const ModelSpec spec = *read_model_spec(std::string("model_specs/") + file + ".json");
    const Model model = *build_model(spec);
    Plan plan = plan_of_torchtitan(spec);
    const Result<Plan> nearest = nearest_said(Trainer::Torchtitan, plan, model);
    ASSERT_TRUE(nearest) << file << ": " << to_string(nearest.error().front());
    const auto& units = nearest->units;
    EXPECT_EQ(units[units.size() - 2].modules,
              (std::vector<std::string>{"model.embed_tokens", "model.norm", "lm_head"}));
    EXPECT_EQ(torchtitan_reshard_of(*nearest), "default");
    plan.units.back().reshard_after_forward = {ReshardAfterForward::Kind::Always, 0};  // --reshard all.
    EXPECT_EQ(torchtitan_reshard_of(*nearest_said(Trainer::Torchtitan, plan, model)), "always");
    const TrainerRelease older = *find_release(Trainer::Torchtitan, "0.2.2", "--trainer-version");
    EXPECT_NE(error_places(unsaid(older, *nearest, model)).find("/model"), std::string::npos);
  }
}

TEST(Torchtitan, HasNoOtherModels) {
  for (const char* file : {"gpt2", "qwen3_30b_a3b", "mixtral_8x7b", "qwen3_tts"}) {
    const ModelSpec spec = *read_model_spec(std::string("model_specs/") + file + ".json");
    const Errors errors = unsaid(Trainer::Torchtitan, plan_of_torchtitan(spec), *build_model(spec));
    ASSERT_EQ(errors.size(), 1U) << file;
    EXPECT_EQ(errors.front().where, "/model");
  }
}

// For FSDP1 accelerate sets all precisions and autocast at once, hands over no mesh, and has no key for one argument.
TEST(Trainers, AccelerateExpressesPlansOfFsdp1) {
  const Model model = trained_model();
  const auto unsaid_after = [&](const std::function<void(Plan&)>& change) {
    Plan plan = sayable();
    plan.runtime.framework = Framework::Fsdp1;
    change(plan);
    return error_places(unsaid(kAccelerate, plan, model));
  };
  EXPECT_EQ(unsaid_after([](Plan&) {}), "");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.fsdp1 = {.forward_prefetch = true, .use_orig_params = true}; }), "");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.mesh = {4, 1}; }), "");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.mesh = {2, 2}; }), "/mesh");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.fsdp1.limit_all_gathers = false; }), "/fsdp1/limit_all_gathers");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.mixed_precision.param_dtype = Dtype::BFloat16; }), "/mixed_precision");
  EXPECT_EQ(unsaid_after([](Plan& plan) { plan.units.erase(plan.units.begin()); }), "/units");
  Plan plan = sayable();
  plan.runtime.framework = Framework::Fsdp1;
  plan.mesh = {2, 2};
  const Result<Plan> nearest = nearest_said(kAccelerate, plan, model);
  ASSERT_TRUE(nearest) << to_string(nearest.error().front());
  EXPECT_EQ(nearest->mesh, (Mesh{1, 4}));
  EXPECT_EQ(flat_strategy_of(plan), "HYBRID_SHARD");
  EXPECT_EQ(error_places(unsaid(kTransformers, plan, model)), "/runtime/name");
  plan.mesh = {1, 4};
  plan.optimizer.clip_grad_norm = 1;
  EXPECT_EQ(error_places(unsaid(Trainer::Transformers, plan, model)), "");
}

TEST(Trainers, AccelerateMixesFsdp1UnderAutocast) {
  const Model model = trained_model();
  Plan plan = sayable();
  plan.runtime.framework = Framework::Fsdp1;
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  const Result<Plan> nearest = nearest_said(kAccelerate, plan, model);
  ASSERT_TRUE(nearest) << to_string(nearest.error().front());
  EXPECT_EQ(nearest->mixed_precision, (MixedPrecision{.param_dtype = Dtype::BFloat16,
                                                      .reduce_dtype = Dtype::BFloat16,
                                                      .output_dtype = {},
                                                      .cast_forward_inputs = false,
                                                      .autocast = Dtype::BFloat16,
                                                      .float_outputs = true}));
  EXPECT_EQ(nearest->fsdp1.buffer_dtype, Dtype::BFloat16);
  EXPECT_EQ(error_places(unsaid(kAccelerate, *nearest, model)), "");
}

// Models of FSDP2 do not pass through accelerate's prepare_model.
TEST(Trainers, AutocastBesideFsdp2IsNoTrainers) {
  const Model model = trained_model();
  Plan plan = sayable();
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16,
                          .reduce_dtype = Dtype::BFloat16,
                          .output_dtype = Dtype::BFloat16,
                          .autocast = Dtype::BFloat16};
  EXPECT_EQ(error_places(unsaid(kAccelerate, plan, model)), "/mixed_precision/autocast");
  const Result<Plan> nearest = nearest_said(kAccelerate, plan, model);
  ASSERT_TRUE(nearest) << to_string(nearest.error().front());
  EXPECT_FALSE(nearest->mixed_precision.autocast);
}

}  // namespace
}  // namespace fsdp::planner
