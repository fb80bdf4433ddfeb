// Releases of PyTorch by name, and what a plan may ask of each.

#include "core/plan/torch_version.h"
#include "core/frameworks/check_plan.h"
#include "core/frameworks/layout.h"

#include <gtest/gtest.h>

#include <string>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

Plan plan_of_release(const Model& model) {
  Plan plan;
  plan.model = model.name;
  plan.mesh.dp_shard() = 2;
  plan.units = {{{"0"}}, {{""}}};
  return plan;
}

std::string refusal_of(const std::string& text) {
  const auto version = find_torch_version(text);
  return version ? "" : version.error()[0].what + " " + version.error()[0].hint;
}

TEST(TorchVersion, FoundByNameAndByRelease) {
  EXPECT_EQ(find_torch_version("2.13")->release, "2.13.0");
  EXPECT_EQ(find_torch_version("2.14")->release, "2.14.1");
  EXPECT_EQ(find_torch_version("2.14.0")->name, "2.14");
  EXPECT_EQ(find_torch_version("2.8.0")->name, "2.8");
  EXPECT_EQ(newest_torch_version().name, "2.15");
}

TEST(TorchVersion, UnknownVersionErrorNamesTheNearest) {
  const std::string known = "Known are 2.8, 2.9, 2.10, 2.11, 2.12, 2.13, 2.14 and 2.15.";
  EXPECT_EQ(refusal_of("2.16"), "The behavior of PyTorch \"2.16\" is not known. The nearest is 2.15. " + known);
  EXPECT_EQ(refusal_of("2.7.1"), "The behavior of PyTorch \"2.7.1\" is not known. The nearest is 2.8. " + known);
  EXPECT_EQ(refusal_of("3.0"), "The behavior of PyTorch \"3.0\" is not known. The nearest is 2.15. " + known);
  for (const char* text : {"", "2", "2.", "abc", "2.13x", "v2.13"}) {
    EXPECT_EQ(refusal_of(text), "The behavior of PyTorch \"" + std::string(text) + "\" is not known. " + known);
  }
  EXPECT_NE(refusal_of("2.13.7"), "") << "A release that nobody has tried.";
  EXPECT_NE(refusal_of("2.13.0+cu130"), "");
}

TEST(TorchVersion, EmptyRuntimeHasTheDefaultVersion) {
  EXPECT_EQ(torch_version_of(Runtime{}).name, kDefaultTorch);
  EXPECT_EQ(torch_version_of(Runtime{}).quirks, Quirks{});
}

TEST(TorchVersion, CudaGraphsAreRefusedWithWhatWasNotCompared) {
  const Model model = model_of("mlp.json");
  const auto refusals_of = [&](const auto& change) {
    Plan plan = plan_of_release(model);
    set_torch_version(plan.runtime, *find_torch_version("2.13"));
    plan.cuda_graphs = true;
    change(plan);
    std::string refusals;
    for (const Error& error : check(plan, model)) {
      if (error.where == "/cuda_graphs") refusals += error.what + "\n";
    }
    return refusals;
  };
  EXPECT_EQ(refusals_of([](Plan&) {}), "");
  EXPECT_EQ(refusals_of([](Plan& plan) { set_torch_version(plan.runtime, *find_torch_version("2.12")); }),
            "torchtitan 0.3, whose CUDA graphs are predicted, needs PyTorch 2.13; the plan has 2.12.\n");
  EXPECT_EQ(refusals_of([](Plan& plan) {
              plan.accumulation = 2;
              plan.cpu_offload = true;
              plan.runtime.allocator_settings = "expandable_segments:True";
            }),
            "CUDA graphs of several micro-batches are not predicted.\n"
            "CUDA graphs beside tensors in host memory are not predicted.\n"
            "CUDA graphs are predicted with the allocator's defaults, and not with \"expandable_segments:True\".\n");
  EXPECT_EQ(refusals_of([](Plan& plan) { plan.runtime.framework = Framework::Fsdp1; }),
            "CUDA graphs are predicted under FSDP2, and this plan is for FSDP1.\n");
}

TEST(TorchVersion, OptionsOfLaterVersionsAreRefusedAtTheirPlace) {
  const Model model = model_of("mlp.json");
  Plan plan = plan_of_release(model);
  plan.reduce_scatter_buffers = 2;
  plan.separate_reduce_scatter_group = true;
  const Errors errors = check(plan, model);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_EQ(errors[0].where, "reduce_scatter_buffers");
  EXPECT_EQ(errors[0].what, "PyTorch 2.11 has no set_reduce_scatter_max_input_buffers; 2.13 is the first that does.");
  EXPECT_EQ(errors[1].where, "separate_reduce_scatter_group");
  set_torch_version(plan.runtime, *find_torch_version("2.13"));
  EXPECT_TRUE(check(plan, model).empty());
}

// MixedPrecisionPolicy(param_dtype=bfloat16) over fp32 parameters.
TEST(TorchVersion, GradientsAreReducedInTheParametersDtypeFrom215On) {
  const Model model = model_of("mlp.json");
  Plan plan = plan_of_release(model);
  plan.mixed_precision.param_dtype = Dtype::BFloat16;
  const auto reduced_in = [&] { return make_layout(index_of(model), plan)->units.front().reduce_dtype; };
  for (const TorchVersion& version : torch_versions()) {
    set_torch_version(plan.runtime, version);
    EXPECT_EQ(reduced_in(), version.name == "2.15" ? Dtype::Float32 : Dtype::BFloat16) << version.name;
  }
  plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
  EXPECT_EQ(reduced_in(), Dtype::BFloat16);
}

}  // namespace
}  // namespace fsdp
