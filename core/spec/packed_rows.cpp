// A model can train on packed rows if all of its attention is causal, without a mask or bias of its own, and has heads
// as wide for values as for queries. Its positions then start again with each document.

#include "core/spec/packed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace fsdp {

namespace {

constexpr std::string_view kPackingPlace = "--packing";

std::int64_t dimension_size(const DimensionValues& dimensions, std::string_view name) {
  const auto found = std::find_if(dimensions.values().begin(), dimensions.values().end(),
                                  [&](const Dimension& each) { return each.name == name; });
  return found == dimensions.values().end() ? 0 : static_cast<std::int64_t>(found->value);
}

/// Why an attention cannot keep documents apart; empty if it does.
std::string why_not_packed(const PackedRow& row, const Op& op, const Block& block) {
  const OpAttributes& attributes = op.attributes;
  if (attributes.packed != PackedAttention::None) return {};
  if (!attributes.causal) return "looks at later tokens, too: it is no causal decoder's";
  if (attributes.softcap > 0) return "caps its scores, which is predicted written out, without boundaries";
  const Shape& query = block.values[op.inputs[0]].shape;
  const Shape& value = block.values[op.inputs[2]].shape;
  if (query.back() != value.back()) return "has values of another width than queries, which is not predicted packed";
  const bool takes_windows = row.attention != PackedAttention::Sdpa && row.attention != PackedAttention::Flex;
  const bool has_window = !takes_windows && attributes.window > 0;
  if (has_window) return "has a sliding window, whose mask of documents is not predicted";
  return "has a mask or positions of its own";
}

}  // namespace

void add_packed_inputs(const PackedRow& row, Model& model, std::map<std::string, int, std::less<>>& values) {
  const auto add = [&](std::string_view name, Shape shape, Dtype dtype) {
    const bool is_new = values.emplace(name, static_cast<int>(model.values.size())).second;
    if (!is_new) return;
    model.inputs.push_back(static_cast<int>(model.values.size()));
    model.values.push_back({.name = std::string(name), .shape = std::move(shape), .dtype = dtype});
  };
  const std::int64_t tokens = std::accumulate(row.documents.begin(), row.documents.end(), std::int64_t{0});
  add(kPositionIds, {row.rows, tokens}, Dtype::Int64);
  if (row.attention == PackedAttention::Sdpa) return;
  if (row.attention == PackedAttention::Flex)
    return add(kBlockMask, {elements_of_block_mask(row.rows, tokens)}, Dtype::Int32);
  const Shape boundaries = {static_cast<std::int64_t>(row.documents.size()) + 1};
  add(kBoundariesOfQueries, boundaries, Dtype::Int32);
  add(kBoundariesOfKeys, boundaries, Dtype::Int32);
}

Result<PackedRow> packed_row(const Packing& packing, const DimensionValues& dimensions, const ModelSpec& spec) {
  if (!dimensions.has("seq") || !dimensions.has("batch")) {
    return failure(std::string(kPackingPlace), fmt::format("{} has no rows of tokens.", spec.name), "Leave it out.");
  }
  const std::int64_t batch = dimension_size(dimensions, "batch");
  if (batch != 1 && is_packed_to_one_row(packing)) {
    return failure(std::string(kPackingPlace),
                   fmt::format("A packed row is a micro-batch of one, and batch is {}.", batch),
                   "Write a longer row, or more micro-batches.");
  }
  FSDP_TRY(auto documents, documents_of_row(dimension_size(dimensions, "seq"), packing.lengths, "--document-length"));
  return PackedRow{packing.attention, std::move(documents), batch};
}

Errors check_packed(const PackedRow& row, const Model& model) {
  bool is_any = false;
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (is_scan(op.kind)) {
        return {
            {std::string(kPackingPlace),
             fmt::format("A scan of {} runs over a row's documents as one: transformers refuses packed rows without "
                         "other packages.",
                         model.name),
             "Leave it out."}};
      }
      if (op.kind != OpKind::Attention) continue;
      is_any = true;
      const std::string why = why_not_packed(row, op, block);
      if (why.empty()) continue;
      const std::string& module = block.modules[static_cast<std::size_t>(op.module)].class_name;
      return {{std::string(kPackingPlace),
               fmt::format("Attention of {} {}.", module.empty() ? model.name : module, why),
               row.attention == PackedAttention::Sdpa || row.attention == PackedAttention::Flex
                   ? "Write --packed-attention flash_attn, or leave it out."
                   : "Leave it out: rows of this model are not packed."}};
    }
  }
  if (is_any) return {};
  return {{std::string(kPackingPlace), fmt::format("{} has no attention that could keep documents apart.", model.name),
           "Leave it out."}};
}

Errors check_titan(const Model& model) {
  for (const Block& block : model.blocks) {
    if (std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.attributes.from_cache; }))
      return {};
  }
  return {
      {"--flavor", fmt::format("torchtitan 0.3 has no model like {}.", model.name),
       "Its models that are predicted are those of Llama 3 and Qwen3, without experts. Write --flavor transformers."}};
}

}  // namespace fsdp
