// Packed rows as a choice of a job: what the options mean, and what they exclude.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "planner/request/plan_request.h"
#include "planner/search/search.h"
#include "planner/space/plan_sentence.h"

namespace fsdp::planner {
namespace {

const std::string kPackedSpecs = "model_specs";

Result<ResolvedRequest> packed_request(const std::string& model, PlanChoices choices) {
  choices.gpus = 8;
  choices.gpu_name = "H100 SXM";
  return resolve({.model = model, .choices = std::move(choices)}, kPackedSpecs);
}

std::string packing_mistakes(const std::string& model, const PlanChoices& choices) {
  const auto request = packed_request(model, choices);
  std::string text;
  if (request) return "it is planned";
  for (const Error& error : request.error()) text += to_string(error) + "\n";
  return text;
}

double size_in(const Workload& workload, const std::string& name) {
  const Dimension* found = find_dimension(workload.dimensions, name);
  return found == nullptr ? 0 : found->value;
}

TEST(PackingChoice, IsAMicroBatchOfOneRow) {
  const auto request = packed_request("llama3_1_8b", {.packing = 8192, .document_length = "900:300"});
  ASSERT_TRUE(request) << to_string(request.error().front());
  EXPECT_EQ(size_in(request->workload, "batch"), 1);
  EXPECT_EQ(size_in(request->workload, "seq"), 8192);
  EXPECT_EQ(request->space.base.packing, (Packing{PackedAttention::FlashAttn, "900:300"}));
  const auto shared = packed_request("llama3_1_8b", {.packing = 8192, .global_batch = 64});
  ASSERT_TRUE(shared) << to_string(shared.error().front());
  EXPECT_EQ(shared->space.micro_batch, 1) << "a step of 64 rows has 8 micro-batches on each GPU";
  EXPECT_EQ(shared->space.base.packing->lengths, "512") << "the usual length";
}

TEST(PackingChoice, FollowsTheLibraryWhoseCodeRuns) {
  const auto attention_of = [](PlanChoices choices) {
    choices.packing = 4096;
    return packed_request("llama3_1_8b", std::move(choices))->space.base.packing->attention;
  };
  EXPECT_EQ(attention_of({}), PackedAttention::FlashAttn);
  EXPECT_EQ(attention_of({.flavor = "torchtitan"}), PackedAttention::Flex);
  EXPECT_EQ(attention_of({.flavor = "torchtitan-0.3"}), PackedAttention::Flex);
  EXPECT_EQ(attention_of({.packed_attention = PackedAttention::Sdpa}), PackedAttention::Sdpa);
}

TEST(PackingChoice, CanHaveSeveralRowsWithFlexAttention) {
  const PackedAttention flex = PackedAttention::Flex;
  const auto request = packed_request("llama3_1_8b", {.batch = 4, .packing = 8192, .packed_attention = flex});
  ASSERT_TRUE(request) << to_string(request.error().front());
  EXPECT_EQ(size_in(request->workload, "batch"), 4);
  EXPECT_EQ(size_in(request->workload, "seq"), 8192);
  const auto shared = packed_request("llama3_1_8b", {.packing = 8192, .packed_attention = flex, .global_batch = 64});
  ASSERT_TRUE(shared) << to_string(shared.error().front());
  EXPECT_EQ(shared->space.micro_batch, std::nullopt) << "it is searched";
}

TEST(PackingChoice, IsNamedInTheJob) {
  Plan plan;
  plan.dimensions = {{"seq", 8192}};
  plan.packing = Packing{.lengths = "900"};
  EXPECT_EQ(job_of(plan), "packed to 8,192 (documents of about 910)");
}

TEST(PackingChoice, ReadsAFileOfLengths) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "packing_lengths.txt").string();
  std::ofstream(path) << "400\n400\n1200\n";
  const auto request = packed_request("llama3_1_8b", {.packing = 2000, .document_length = path});
  ASSERT_TRUE(request) << to_string(request.error().front());
  EXPECT_EQ(request->space.base.packing->lengths, "2x400,1x1200");
  EXPECT_EQ(packing_mistakes("llama3_1_8b", {.packing = 1024, .document_length = path}),
            "--document-length: " + path +
                " has a document of 1200 tokens, and the row has 1024. Write a longer row, or cut the documents as the "
                "trainer will.\n");
  std::remove(path.c_str());
  EXPECT_NE(packing_mistakes("llama3_1_8b", {.packing = 1024, .document_length = path}), "it is planned");
}

TEST(PackingChoice, RefusesWhatContradictsTheRow) {
  EXPECT_EQ(packing_mistakes("llama3_1_8b", {.document_length = "900", .packed_attention = PackedAttention::Sdpa}),
            "--document-length: There is no packed row. Write --packing 8192, too, or leave it out.\n"
            "--packed-attention: There is no packed row. Write --packing 8192, too, or leave it out.\n");
  EXPECT_EQ(
      packing_mistakes("llama3_1_8b", {.batch = 2, .sequence = 4096, .packing = 8192}),
      "--batch: A packed row is a micro-batch of one, and not of 2. Leave it out, and write a longer row, or write "
      "--packed-attention flex.\n"
      "--seq: The packed row has 8192 tokens. Leave it out.\n");
  EXPECT_EQ(packing_mistakes("llama3_1_8b", {.packing = 8192, .document_length = "9000"}),
            "--document-length: A document of 9000 tokens does not fit into a row of 8192. Write at most 8192, or a "
            "longer row: trainers cut longer documents.\n");
}

TEST(PackingChoice, KernelsThatDoNotRunAreReportedBeforeTheSearch) {
  const auto reason = [](const std::string& model, PlanChoices choices) -> std::string {
    choices.gpus = 2;
    choices.packing = 512;
    const auto request = resolve({.model = model, .choices = std::move(choices)}, kPackedSpecs);
    if (!request) return "it is not resolved";
    const auto found = find_plan(request->spec, request->workload, request->cluster, request->space);
    return found ? "it is planned" : to_string(found.error().front());
  };
  EXPECT_EQ(reason("qwen3_0_6b", {.gpu_name = "T4"}),
            "/model/packing: flash-attn refuses float16, head_dim 128 and compute capability 7.5: it needs compute "
            "capability 8.0. Write --packed-attention sdpa, or train in 16 bits on a GPU of compute capability 8.0 or "
            "later.");
  EXPECT_EQ(reason("gpt2", {.gpu_name = "L4", .packed_attention = PackedAttention::Flex}),
            "/model/packing: FlexAttention cannot run: it drops no scores. Write --packed-attention flash_attn, varlen "
            "or sdpa.");
}

}  // namespace
}  // namespace fsdp::planner
