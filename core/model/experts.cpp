#include "core/model/experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp {

namespace {

template <class Visit>
void each_stack(const Model& model, const Visit& visit) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (op.kind == OpKind::GroupedExperts) visit(call, op);
    }
  }
}

}  // namespace

std::vector<int> expert_modules(const Model& model) {
  std::vector<int> modules;
  each_stack(model, [&](const Call& call, const Op& op) {
    modules.push_back(call.modules[static_cast<std::size_t>(op.module)]);
  });
  std::sort(modules.begin(), modules.end());
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

std::int64_t most_expert_parallel(const Model& model) {
  std::int64_t most = 0;
  each_stack(model, [&](const Call&, const Op& op) { most = std::gcd(most, op.attributes.num_experts); });
  return std::max<std::int64_t>(most, 1);
}

Shape own_experts(Shape shape, std::int64_t ep) {
  if (!shape.empty()) shape.front() /= ep;
  return shape;
}

Block own_experts(Block block, std::int64_t ep) {
  for (const Op& op : block.ops) {
    if (op.kind != OpKind::GroupedExperts) continue;
    for (const int p : op.parameters) {
      Shape& shape = block.parameters[static_cast<std::size_t>(p)];
      shape = own_experts(std::move(shape), ep);
    }
  }
  return block;
}

std::int64_t received_rows(std::int64_t rows, std::int64_t experts, std::int64_t ep) {
  const std::int64_t own = experts / ep;
  return ep * (rows / experts * own + std::min(own, rows % experts));
}

}  // namespace fsdp
