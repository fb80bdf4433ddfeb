#include "core/plan/plan_json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>

#include "core/plan/plan_names.h"
#include "core/plan/runtime.h"
#include "tests/support/any_plan.h"

namespace fsdp {
namespace {

std::string to_json(const Plan& plan) {
  JsonWriter writer;
  writer.begin_object();
  write_plan_members(writer, plan);
  writer.end_object();
  return std::move(writer).take();
}

Result<Plan> from_json(std::string text) {
  FSDP_TRY(const JsonDocument document, parse_json(std::move(text), "p.json"));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  Plan plan;
  read_plan_members(object, plan);
  object.finish();
  return std::move(errors).result(std::move(plan));
}

/// The text of the line that holds a key, without blanks around it.
std::string line_with(const std::string& text, const std::string& key) {
  const std::size_t found = text.find(key);
  const std::size_t begin = text.find_last_of('\n', found) + 1;
  const std::string line = text.substr(begin, text.find('\n', found) - begin);
  return line.substr(line.find_first_not_of(' '));
}

TEST(PlanJson, MuonOptionsAreWrittenOnlyIfUsed) {
  Plan plan;
  plan.units = {{{""}}};
  EXPECT_EQ(to_json(plan).find("muon"), std::string::npos);
  plan.optimizer.muon = {.nesterov = false, .ns_steps = 6, .steps_last = true};
  const auto read = from_json(to_json(plan));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->optimizer, plan.optimizer);
}

TEST(PlanJson, Fsdp1OptionsAreWrittenOnlyForFsdp1) {
  Plan plan;
  plan.model = plan.model_file = "m";
  plan.units = {{{""}, {}}};
  plan.fsdp1 = {.backward_prefetch = BackwardPrefetch::Post,
                .forward_prefetch = true,
                .limit_all_gathers = false,
                .use_orig_params = true};
  EXPECT_EQ(to_json(plan).find("fsdp1"), std::string::npos);
  plan.runtime.framework = Framework::Fsdp1;
  const auto read = from_json(to_json(plan));
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(*read, plan);
}

Plan plan_of_layers(int count, int per_unit) {
  Plan plan;
  for (int i = 0; i < count; ++i) {
    if (i % per_unit == 0) plan.units.push_back({.reshard_after_forward = {ReshardAfterForward::Kind::Always, 0}});
    plan.units.back().modules.push_back("model.layers." + std::to_string(i));
  }
  plan.units.push_back({.modules = {""}});
  return plan;
}

TEST(PlanJson, EqualUnitsAreOneLine) {
  const std::string text = to_json(plan_of_layers(28, 1));
  EXPECT_EQ(line_with(text, "model.layers"),
            R"({"modules": ["model.layers.{0..27}"], "modules_per_unit": 1, "reshard_after_forward": true},)");
  EXPECT_EQ(line_with(text, R"([""])"), R"({"modules": [""], "reshard_after_forward": "default"})");
}

TEST(PlanJson, TheLastUnitOfARowMayBeShorter) {
  const Plan plan = plan_of_layers(7, 3);
  const std::string text = to_json(plan);
  EXPECT_EQ(line_with(text, "model.layers"),
            R"({"modules": ["model.layers.{0..6}"], "modules_per_unit": 3, "reshard_after_forward": true},)");
  EXPECT_EQ(from_json(text).value().units, plan.units);
}

TEST(PlanJson, OneUnitOfSeveralModulesIsNotARow) {
  Plan plan;
  plan.units = {{.modules = {"model.norm", "lm_head"}}, {.modules = {"a.0", "a.1"}}, {.modules = {""}}};
  const std::string text = to_json(plan);
  EXPECT_EQ(line_with(text, "lm_head"),
            R"({"modules": ["model.norm", "lm_head"], "reshard_after_forward": "default"},)");
  EXPECT_EQ(line_with(text, "a."), R"({"modules": ["a.{0..1}"], "reshard_after_forward": "default"},)");
  EXPECT_EQ(from_json(text).value().units, plan.units);
}

TEST(PlanJson, HandwrittenPlanNeedsOnlyModelMeshAndUnits) {
  const Plan plan = from_json(R"({"format_version": "1.0", "model": {"name": "m", "file": "m.json"},
                                  "mesh": {"replicate": 2, "shard": 4}, "units": [{"modules": [""]}]})")
                        .value();
  Plan expected;
  expected.model = "m";
  expected.model_file = "m.json";
  expected.mesh = {2, 4};
  expected.units = {{.modules = {""}}};
  EXPECT_EQ(plan, expected);
}

TEST(PlanJson, ReportsEveryErrorWithItsPlace) {
  const auto plan = from_json(R"({
  "format_version": "2.0",
  "model": {"name": "m", "file": 7},
  "mesh": {"replicate": 0, "shard": 4.5},
  "units": [
    {"modules": ["model.layers.{0-27}"]},
    {"modules": [], "reshard_after_forward": 1},
    {"modules": [""], "reshard_after_foward": true}
  ],
  "mixed_precision": {"param_dtype": "int8"},
  "activation_checkpointing": {"modules": [{"module": "a", "mode": "some"}], "selective_keep": ["linaer"]},
  "optimizer": {"kind": "adamW", "clip_grad_norm": 0, "momentum": 0.9},
  "runtime": {"flavor": "keras", "version": "2.4.0"},
  "cpu_ofload": true
})");
  ASSERT_FALSE(plan);
  std::string text;
  for (const Error& error : plan.error()) text += to_string(error) + "\n";
  EXPECT_EQ(
      text,
      R"(p.json:2:21: /format_version: This program does not read plans of version "2.0". It reads up to 1.0; plan again, or use the program that wrote the file.
p.json:3:34: /model/file: Expected a string, found the number 7.
p.json:4:25: /mesh/replicate: 0 is out of range. Write an integer from 1 to 2147483647.
p.json:4:37: /mesh/shard: Expected an integer, found the number 4.5. Write an integer from 1 to 2147483647.
p.json:6:18: /units/0/modules/0: "model.layers.{0-27}" has braces without a range of numbers. Write a row of modules as "model.layers.{0..27}", with a step as "model.layers.{0..26..2}".
p.json:7:17: /units/1/modules: The list is empty. Name a module; "" is the root.
p.json:7:46: /units/1/reshard_after_forward: Expected true, false, a world size from 2 or "default", found the number 1.
p.json:8:23: /units/2/reshard_after_foward: Unknown key "reshard_after_foward". Did you mean "reshard_after_forward"?
p.json:10:38: /mixed_precision/param_dtype: "int8" is not a floating point dtype. Write float32, bfloat16, float16 or float64.
p.json:11:68: /activation_checkpointing/modules/0/mode: Unknown checkpoint mode "some". Known are none, selective, full, nested and reentrant.
p.json:11:97: /activation_checkpointing/selective_keep/0: Unknown op "linaer". Did you mean "linear"?
p.json:12:25: /optimizer/kind: Unknown optimizer "adamW". Did you mean "adamw"?
p.json:12:52: /optimizer/clip_grad_norm: The limit is 0. Write a number above 0, or null for no limit.
p.json:12:67: /optimizer/momentum: adamw has no momentum. Leave it out, or take sgd.
p.json:13:25: /runtime/flavor: "keras" is not a known flavor. Write transformers, transformers-repeat-kv, torchtitan, torchtitan-0.3, automodel or automodel-hf.
p.json:13:45: /runtime/version: The behavior of PyTorch "2.4.0" is not known. The nearest is 2.8. Known are 2.8, 2.9, 2.10, 2.11, 2.12, 2.13, 2.14 and 2.15.
p.json:14:3: /cpu_ofload: Unknown key "cpu_ofload". Did you mean "cpu_offload"?
)");
}

TEST(PlanJson, VersionsUpToOursAreRead) {
  EXPECT_TRUE(is_readable_version("1.0", "1.0"));
  EXPECT_TRUE(is_readable_version("1.0", "1.2"));
  EXPECT_FALSE(is_readable_version("1.3", "1.2"));
  EXPECT_FALSE(is_readable_version("2.0", "1.2"));
  for (const char* text : {"", "1", "1.", ".0", "1.0.0", "-1.0", "1.-1", "1.0x", "99999999999.0"}) {
    EXPECT_FALSE(is_readable_version(text, "1.2")) << text;
  }
}

RC_GTEST_PROP(PlanJson, ReadsBackAsWritten, ()) {
  const Plan plan = *any_plan();
  const std::string text = to_json(plan);
  const Result<Plan> read = from_json(text);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == plan);
  RC_ASSERT(to_json(*read) == text);
}

TEST(PlanJson, UnknownFlavorErrorListsAllFlavors) {
  for (const std::string_view flavor : flavors()) {
    const Result<Runtime> runtime = runtime_of_flavor(std::string(flavor));
    ASSERT_TRUE(runtime) << flavor;
    EXPECT_EQ(runtime->flavor, flavor);
  }
  const Error error = runtime_of_flavor("another").error().front();
  EXPECT_EQ(error.what, "\"another\" is not a known flavor.");
  EXPECT_EQ(error.hint,
            "Write transformers, transformers-repeat-kv, torchtitan, torchtitan-0.3, automodel or automodel-hf.");
}

}  // namespace
}  // namespace fsdp
