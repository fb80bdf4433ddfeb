#include "core/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "core/model/op_shapes.h"

namespace fsdp {

namespace {

// FNV-1a: fast, and the same on every machine. It distinguishes plans; it is no protection.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0xff);
  }
  void add(std::int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(number >> shift));
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

bool contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

std::int64_t num_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::string_view parent_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::vector<int> roots_of(const Model& model) {
  return has_passes(model) ? model.modules.front().children : std::vector<int>{0};
}

int root_of(const Model& model, int module) {
  while (module > 0 && model.modules[module].parent != 0) module = model.modules[module].parent;
  return module;
}

int root_number(const Model& model, int module) {
  if (!has_passes(model)) return 0;
  const std::vector<int>& roots = model.modules.front().children;
  const auto found = std::find(roots.begin(), roots.end(), root_of(model, module));
  return found == roots.end() ? -1 : static_cast<int>(found - roots.begin());
}

bool is_model_of_passes(const Model& model, int module) {
  return has_passes(model) && model.modules[module].parent == 0;
}

bool gives_gradients(const Model& model, int pass, int module) {
  return contains(model.passes[pass].gradients, root_of(model, module));
}

int optimizer_of(const Model& model, int module) {
  const auto steps_it = [&](const std::vector<int>& steps) { return contains(steps, root_of(model, module)); };
  const auto found = std::find_if(model.optimizers.begin(), model.optimizers.end(), steps_it);
  return found == model.optimizers.end() ? -1 : static_cast<int>(found - model.optimizers.begin());
}

bool is_kv_cache(const Block& block, int value) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&](const Op& op) {
    return op.kind == OpKind::KvCache && std::find(op.outputs.begin(), op.outputs.end(), value) != op.outputs.end();
  });
}

std::int64_t num_parameters(const Model& model) {
  std::int64_t total = 0;
  for (const Parameter& parameter : model.parameters) {
    total += parameter.stands_for > 0 ? parameter.stands_for : num_elements(parameter.shape);
  }
  return total;
}

std::int64_t num_trainable_parameters(const Model& model) {
  std::int64_t total = 0;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.trainable) total += num_elements(parameter.shape);
  }
  return total;
}

Bytes buffer_bytes(const Model& model) {
  Bytes total;
  for (const Buffer& buffer : model.buffers) {
    if (buffer.registered) total += size_of(buffer.dtype) * num_elements(buffer.shape);
  }
  return total;
}

std::int64_t num_gradient_parameters(const Model& model) {
  std::int64_t total = 0;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.receives_gradient) total += num_elements(parameter.shape);
  }
  return total;
}

namespace {

/// Elements of stacked experts that a token is not sent to.
std::int64_t idle_in_stacks(const Model& model) {
  std::int64_t idle = 0;
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind != OpKind::GroupedExperts) continue;
      const std::int64_t experts = op.attributes.num_experts;
      for (const int parameter : op.parameters) {
        const std::int64_t elements = num_elements(model.parameters[call.parameters[parameter]].shape);
        idle += elements / experts * (experts - op.attributes.experts_per_token);
      }
    }
  }
  return idle;
}

}  // namespace

std::int64_t num_active_parameters(const Model& model) {
  std::set<int>
      idle;  // Parameters of experts that a token is not sent to: the last ones represent them, as all are equal.
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind != OpKind::Experts) continue;
      const auto busy = static_cast<std::size_t>(3 * op.attributes.experts_per_token);
      for (std::size_t i = busy; i < op.parameters.size(); ++i) {
        idle.insert(call.parameters[op.parameters[i]]);
      }
    }
  }
  std::int64_t total = num_parameters(model) - idle_in_stacks(model);
  for (const int parameter : idle) total -= num_elements(model.parameters[parameter].shape);
  return total;
}

std::string fingerprint_of(const Model& model) {
  Hash hash;
  for (const Parameter& parameter : model.parameters) {
    hash.add(parameter.name);
    for (const std::int64_t size : parameter.shape) hash.add(size);
    for (const std::string& alias : parameter.tied_names) hash.add(alias);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace fsdp
