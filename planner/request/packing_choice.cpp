#include "planner/request/packing_choice.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/lengths_file.h"
#include "core/plan/packing.h"
#include "planner/space/batches.h"

namespace fsdp::planner {

namespace {

/// The text of lengths that stands for a file's.
Result<std::string> lengths_of_file(const std::string& path, std::int64_t tokens) {
  const std::string_view where = place_of(PlanChoice::DocumentLength);
  FSDP_TRY(std::vector<std::int64_t> lengths, read_lengths(path, where));
  for (const std::int64_t length : lengths) {
    if (length <= tokens) continue;
    return failure(std::string(where),
                   fmt::format("{} has a document of {} tokens, and the row has {}.", path, length, tokens),
                   "Write a longer row, or cut the documents as the trainer will.");
  }
  return text_of_lengths(std::move(lengths));
}

/// What keeps documents apart: that of the library whose code runs, if nothing is chosen.
PackedAttention attention_of(const PlanChoices& choices) {
  const bool is_torchtitan = choices.flavor && is_of_torchtitan(*choices.flavor);
  return choices.packed_attention.value_or(is_torchtitan ? PackedAttention::Flex : Packing{}.attention);
}

/// The packing that the choices ask for; nullopt if they ask for none.
std::optional<Packing> packing_of(const PlanChoices& choices, Errors& errors) {
  const auto fail = [&](PlanChoice choice, std::string what, std::string hint) {
    errors.push_back({std::string(place_of(choice)), std::move(what), std::move(hint)});
  };
  if (!choices.packing) {
    for (const PlanChoice choice : {PlanChoice::DocumentLength, PlanChoice::PackedAttentionName}) {
      if (has(choices, choice)) fail(choice, "There is no packed row.", "Write --packing 8192, too, or leave it out.");
    }
    return std::nullopt;
  }
  if (choices.attention) {
    fail(PlanChoice::AttentionName, "The attention of a packed row is another choice.",
         "Leave it out, or write --packed-attention.");
  }
  Packing packing;
  packing.attention = attention_of(choices);
  if (choices.batch && *choices.batch != 1 && is_packed_to_one_row(packing)) {
    fail(PlanChoice::Batch, fmt::format("A packed row is a micro-batch of one, and not of {}.", *choices.batch),
         "Leave it out, and write a longer row, or write --packed-attention flex.");
  }
  if (choices.sequence && *choices.sequence != *choices.packing) {
    fail(PlanChoice::Sequence, fmt::format("The packed row has {} tokens.", *choices.packing), "Leave it out.");
  }
  if (!choices.document_length) return packing;
  const std::string& text = *choices.document_length;
  const std::string_view where = place_of(PlanChoice::DocumentLength);
  auto lengths = is_text_of_lengths(text) ? Result<std::string>(text) : lengths_of_file(text, *choices.packing);
  if (lengths) {
    packing.lengths = *std::move(lengths);
    if (const auto checked = documents_of_row(*choices.packing, packing.lengths, where); !checked) {
      append(errors, checked.error());
    }
  } else {
    append(errors, std::move(lengths).error());
  }
  return packing;
}

}  // namespace

bool is_packed_to_one_row(const PlanChoices& choices) {
  return choices.packing && is_packed_to_one_row(Packing{.attention = attention_of(choices)});
}

void pack(const PlanChoices& choices, Workload& workload, Errors& errors) {
  workload.packing = packing_of(choices, errors);
  if (!choices.packing) return;
  if (is_packed_to_one_row(choices)) workload.dimensions.push_back({kBatchDimension, 1});
  workload.dimensions.push_back({kSequenceDimension, static_cast<double>(*choices.packing)});
}

}  // namespace fsdp::planner
