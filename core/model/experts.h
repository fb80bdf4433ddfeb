#pragma once

// The layers of a model whose experts several ranks can share between them.

#include <cstdint>
#include <vector>

#include "core/model/model.h"

namespace fsdp {

/// In `Model::modules`, rising: those whose forward runs stacked experts (OpKind::GroupedExperts).
std::vector<int> expert_modules(const Model& model);

/// The greatest number of ranks that can share the experts of each layer evenly; 1 if the model has no stacked experts.
std::int64_t most_expert_parallel(const Model& model);

/// The shape of a stack of experts on one of `ep` ranks.
Shape own_experts(Shape shape, std::int64_t ep);

/// The same of a block's parameters: those of its stacked experts are the rank's own.
Block own_experts(Block block, std::int64_t ep);

/// Rows that the first of `ep` ranks gets if each sends it its `rows` choices, spread evenly over `experts`: the first
/// experts get what is left over.
std::int64_t received_rows(std::int64_t rows, std::int64_t experts, std::int64_t ep);

}  // namespace fsdp
