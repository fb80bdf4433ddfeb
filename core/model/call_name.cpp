#include "core/model/call_name.h"

#include <string_view>

namespace fsdp {

namespace {

/// A captured model's kind of block for ops between its blocks.
constexpr std::string_view kUnnamedBlock = "glue";

}  // namespace

std::string name_of_call(const Model& model, const Call& call) {
  if (call.module < 0) return "loss";
  if (const std::string& name = model.modules[static_cast<std::size_t>(call.module)].name; !name.empty()) return name;
  const std::string& block = model.blocks[static_cast<std::size_t>(call.block)].kind;
  return block == kUnnamedBlock ? "root" : block;
}

}  // namespace fsdp
