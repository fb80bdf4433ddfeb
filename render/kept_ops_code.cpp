// A plan saves the outputs of attention and of linear layers. Below autograd, where
// create_selective_checkpoint_contexts asks its policy, those are a handful of functions:
//
//   attention   the fused ones of scaled_dot_product_attention; written-out attention has none, and a plan saves no
//               output of it
//   linear      mm without a bias, addmm with one
//
// Only its number within the block identifies a linear layer's call, because a plan may recompute every second one.
// Forward and recomputation count separately. The experts of a mixture are products as well; their number depends on
// the data, and a plan saves none of them: the policy stops at the last linear layer before them.
//
// Sources: torch/utils/checkpoint.py (create_selective_checkpoint_contexts, SelectiveCheckpointContext),
// ATen/native/Linear.cpp (linear, _flatten_nd_linear), ATen/native/transformers/attention.cpp, torch 2.11.
//
// Not modeled: a linear layer with a bias whose input has more than three dimensions or is not contiguous; PyTorch then
// adds the bias in place, and its backward refuses a saved tensor that has changed.

#include "render/kept_ops_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "core/model/op.h"
#include "core/plan/schedule.h"

namespace fsdp::render {

namespace {

constexpr std::string_view kPlace = "/activation_checkpointing";

bool is_kept(const Checkpointing& checkpointing, OpKind kind) {
  const auto& kinds = checkpointing.selective_keep;
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

/// The selectively checkpointed blocks, each once.
std::vector<const Block*> selective_blocks(const Plan& plan, const Model& model) {
  std::set<std::string> names;
  for (const Checkpointing::Entry& entry : plan.checkpointing.entries) {
    if (entry.mode == CheckpointMode::Selective) names.insert(entry.module);
  }
  std::set<int> found;
  for (const Call& call : model.calls) {
    if (call.repeated && call.module >= 0 && names.contains(model.modules[call.module].name)) found.insert(call.block);
  }
  std::vector<const Block*> blocks;
  blocks.reserve(found.size());
  for (const int block : found) blocks.push_back(&model.blocks[block]);
  return blocks;
}

bool has_experts(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.kind == OpKind::Experts; });
}

/// Linear layers of a block, and whether experts come before one.
struct Linears {
  std::int64_t count = 0;
  bool is_behind_experts = false;
};

Linears linears_of(const Block& block) {
  Linears linears;
  bool is_behind = false;
  for (const Op& op : block.ops) {
    if (op.kind == OpKind::Experts) is_behind = true;
    if (op.kind != OpKind::Linear) continue;
    ++linears.count;
    linears.is_behind_experts = linears.is_behind_experts || is_behind;
  }
  return linears;
}

/// The last product that the policy counts; `nullopt` if all products of the blocks are linear layers.
std::optional<std::int64_t> last_product(const std::vector<const Block*>& blocks) {
  for (const Block* block : blocks) {
    if (has_experts(*block)) return linears_of(*block).count;
  }
  return std::nullopt;
}

/// The body of the policy up to its answer.
std::vector<std::string> policy_of(const Checkpointing& given, std::optional<std::int64_t> last) {
  const bool keeps_attention = is_kept(given, OpKind::Attention);
  const std::string others = keeps_attention ? "function in ATTENTION" : "False";
  if (!is_kept(given, OpKind::Linear)) return {"        keep = " + others};
  std::string condition = given.every_second_linear ? "count % 2 == 1" : "";
  if (last) condition += fmt::format("{}count <= {}", condition.empty() ? "" : " and ", *last);
  if (condition.empty()) {
    return {keeps_attention ? "        keep = function in PRODUCTS or function in ATTENTION"
                            : "        keep = function in PRODUCTS"};
  }
  return {fmt::format("        keep = {}", others),
          "        if function in PRODUCTS:", "            counts[ctx.is_recompute] += 1",
          "            count = counts[ctx.is_recompute]", fmt::format("            keep = {}", condition)};
}

}  // namespace

Errors unsaid_of_kept_ops(const Plan& plan, const Model& model) {
  const std::vector<const Block*> blocks = selective_blocks(plan, model);
  if (blocks.empty()) return {};
  Errors errors;
  for (const OpKind kind : plan.checkpointing.selective_keep) {
    if (kind == OpKind::Attention || kind == OpKind::Linear) continue;
    errors.push_back({fmt::format("{}/selective_keep", kPlace),
                      fmt::format("The outputs of \"{}\" are kept, which a script cannot tell from those of other ops.",
                                  name_of(kind)),
                      R"(Write ["attention", "linear"], or plan with --activation-checkpointing full or none.)"});
  }
  if (plan.packing && plan.packing->attention == PackedAttention::Flex &&
      is_kept(plan.checkpointing, OpKind::Attention)) {
    errors.push_back({fmt::format("{}/selective_keep", kPlace),
                      "The output of FlexAttention is kept, which a policy sees only if the script compiles it with "
                      "wrap_inductor_compiled_regions.",
                      "Plan with --activation-checkpointing full or none, or export it to torchtitan, which does."});
  }
  if (!is_kept(plan.checkpointing, OpKind::Linear)) return errors;
  const std::optional<std::int64_t> last = last_product(blocks);
  for (const Block* block : blocks) {
    const Linears linears = linears_of(*block);
    if (!linears.is_behind_experts && (!last || linears.count == *last)) continue;
    errors.push_back(
        {std::string(kPlace),
         fmt::format("Blocks of kind \"{}\" have experts, and a script cannot tell their products from the "
                     "linear layers that are kept.",
                     block->kind),
         "Plan with --activation-checkpointing full or none."});
    break;
  }
  return errors;
}

std::vector<std::string> kept_ops_code(const Plan& plan, const Model& model) {
  const std::vector<const Block*> blocks = selective_blocks(plan, model);
  if (blocks.empty()) return {};
  const Checkpointing& given = plan.checkpointing;
  const std::vector<std::string> policy = policy_of(given, last_product(blocks));
  std::vector<std::string> lines;
  if (is_kept(given, OpKind::Attention)) {
    lines = {"ATTENTION = (",
             "    torch.ops.aten._scaled_dot_product_flash_attention.default,",
             "    torch.ops.aten._scaled_dot_product_efficient_attention.default,",
             "    torch.ops.aten._scaled_dot_product_cudnn_attention.default,",
             "    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,",
             ")"};
  }
  if (is_kept(given, OpKind::Linear)) {
    lines.emplace_back("PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)  # of linear layers");
  }
  lines.insert(lines.end(), {"", "", "def kept_ops():",
                             R"(    """Saves outputs of one run of a block; backward computes the rest again.""")"});
  if (policy.size() > 1) lines.emplace_back("    counts = {False: 0, True: 0}  # products: in forward, and run again");
  lines.insert(lines.end(), {"", "    def policy(ctx, function, *args, **kwargs):"});
  lines.insert(lines.end(), policy.begin(), policy.end());
  lines.insert(lines.end(), {"        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE",
                             "", "    return create_selective_checkpoint_contexts(policy)", "", ""});
  return lines;
}

}  // namespace fsdp::render
