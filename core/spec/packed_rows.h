#pragma once

// Which models can be trained on packed rows, and what is given to them.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/packing.h"
#include "core/spec/dimensions.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// A packed row of a workload.
struct PackedRow {
  PackedAttention attention = PackedAttention::None;
  std::vector<std::int64_t> documents;  ///< Their lengths, in order.
  std::int64_t rows = 1;                ///< Rows of a micro-batch, whose documents are alike.
};

/// The row that is a micro-batch. Error: the model has no rows of tokens, the micro-batch is not one, or a document is
/// longer than the row.
Result<PackedRow> packed_row(const Packing& packing, const DimensionValues& dimensions, const ModelSpec& spec);

/// Adds what a collator gives a model beside tokens and labels: positions, and boundaries if attention takes them.
/// Keeps inputs that the model has already. `values`: the number of a value by its name.
void add_packed_inputs(const PackedRow& row, Model& model, std::map<std::string, int, std::less<>>& values);

/// What keeps the documents of a model's rows from being told apart: no attention, or one that has no form for them.
/// Empty if nothing.
Errors check_packed(const PackedRow& row, const Model& model);

/// Why a model is none of torchtitan 0.3, whose rows are all packed: it lacks the attention with a table of its own.
Errors check_titan(const Model& model);

}  // namespace fsdp
