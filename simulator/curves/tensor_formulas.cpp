// We search for a formula instead of storing it: the walk knows bytes, and here we try the shapes that the tensor can
// have until one of them gives these bytes in a dtype that occurs. So a formula is never wrong. A tensor without a
// match, such as the workspace of a library, gets none.
//
// The shapes of a parameter's tensors: a shard (rows over ranks, rounded up), the whole one padded to a multiple of the
// ranks, the whole one, a shard of the smaller group. For a unit: the sum over its parameters, times the ranks or not.
// For an op: its outputs, its inputs, its parameters, the rows of those without their last dimension (statistics of a
// norm, log-sum-exps), several of them at once.

#include "simulator/curves/tensor_formulas.h"

#include "simulator/curves/tensor_names.h"

#include <fmt/format.h>

#include <vector>

#include "core/model/experts.h"

namespace fsdp::simulator {

namespace {

struct Shaped {
  std::string text;
  std::int64_t elements = 0;
};

std::string product(const Shape& shape) {
  return shape.empty() ? "1" : fmt::format("{}", fmt::join(shape, " x "));
}

Shaped shaped(const Shape& shape) {
  return {product(shape), num_elements(shape)};
}

std::string find(const std::vector<Shaped>& shapes, const std::vector<Dtype>& dtypes, std::int64_t bytes) {
  for (const Shaped& shape : shapes) {
    for (const Dtype dtype : dtypes) {
      const std::int64_t item = size_of(dtype).count();
      if (shape.elements > 0 && shape.elements * item == bytes) {
        return fmt::format("{} x {} B ({})", shape.text, item, name_of(dtype));
      }
    }
  }
  return {};
}

class FormulaFinder {
 public:
  FormulaFinder(const PreparedPlan& prepared, std::int64_t bytes)
      : prepared_(prepared), model_(*prepared.index->model), bytes_(bytes) {}

  std::string of_parameter(ParameterTensor what, int parameter) const {
    const int number = prepared_.layout.unit_of_parameter[parameter];
    const ShardedUnit& unit = prepared_.layout.units[number];
    const Shape& given = model_.parameters[parameter].shape;
    const Shape shape = unit.of_experts ? own_experts(given, prepared_.layout.mesh.ep) : given;
    std::vector<Dtype> dtypes = {prepared_.layout.parameter_dtype[parameter],
                                 unit.param_dtype,
                                 unit.reduce_dtype,
                                 Dtype::Float32,
                                 Dtype::BFloat16,
                                 Dtype::UInt8};
    const bool is_unsharded = what == ParameterTensor::Unsharded || what == ParameterTensor::OtherUnsharded;
    if (is_unsharded || what == ParameterTensor::Grad) std::swap(dtypes[0], dtypes[1]);
    const std::int64_t shard = unit.shards;
    std::vector<Shaped> shapes;
    if (what == ParameterTensor::StepCount) return find({{"1", 1}}, {Dtype::Float32}, bytes_);
    if (unit.reshard.kind == ReshardAfterForward::Kind::Smaller) {
      if (const auto few = cut(shape, shard, shard / unit.reshard.world_size)) shapes.push_back(*few);
    }
    const auto one = cut(shape, shard, 1);
    const auto whole = cut(shape, shard, shard);
    const bool is_whole = is_unsharded || what == ParameterTensor::Grad || what == ParameterTensor::Full ||
                          what == ParameterTensor::AccumulatedGrad;
    if (is_whole) shapes.push_back(shaped(shape));
    if (is_whole && whole) shapes.push_back(*whole);
    if (one) shapes.push_back(*one);
    if (!is_whole && whole) shapes.push_back(*whole);
    shapes.push_back(shaped(shape));
    std::string formula = find(shapes, dtypes, bytes_);
    // Few tensors need the rest, and a unit may have thousands of parameters.
    if (!formula.empty()) return formula;
    shapes.clear();
    for (const ShardedParameter& p : unit.parameters) {
      if (p.parameter != parameter) continue;
      // The last ranks hold the remainder.
      shapes.push_back({std::to_string(p.local_elements), p.local_elements});
      const std::int64_t scales = (p.local_elements + kBlockOf8Bit - 1) / kBlockOf8Bit;
      shapes.push_back({fmt::format("ceil({} / {})", p.local_elements, kBlockOf8Bit), scales});
    }
    return find(shapes, dtypes, bytes_);
  }

  std::string of_unit(UnitTensor what, const ShardedUnit& unit) const {
    const std::int64_t ranks = unit.shards;
    const auto times = [](std::int64_t count, std::int64_t elements) {
      return Shaped{fmt::format("{} x {}", count, elements), count * elements};
    };
    const auto one = [](std::int64_t elements) { return Shaped{std::to_string(elements), elements}; };
    std::vector<Shaped> shapes;
    Dtype dtype = unit.param_dtype;
    switch (what) {
      case UnitTensor::Cast:
      case UnitTensor::AllGather:
      case UnitTensor::OtherAllGather:
        shapes = {times(ranks, unit.shard_elements), one(unit.shard_elements)};
        if (unit.reshard.kind == ReshardAfterForward::Kind::Smaller) {
          shapes.push_back(times(ranks / unit.reshard.world_size, unit.shard_elements));
        }
        break;
      case UnitTensor::ReduceScatterInput:
      case UnitTensor::ReceivedParts:
        shapes = {times(ranks, unit.reduced_shard_elements)};
        dtype = unit.reduce_dtype;
        break;
      case UnitTensor::ReduceScatterOutput:
        shapes = {one(unit.reduced_shard_elements)};
        dtype = unit.reduce_dtype;
        break;
      case UnitTensor::ShardedGrad:
      case UnitTensor::NewShardedGrad:
        shapes = {one(unit.reduced_shard_elements)};
        dtype = unit.original_dtype;
        break;
      case UnitTensor::LossReduceInput:
        shapes = {times(ranks, prepared_.layout.loss.shard_elements)};
        dtype = unit.reduce_dtype;
        break;
      case UnitTensor::LossShardedGrad:
        shapes = {one(prepared_.layout.loss.shard_elements)};
        dtype = unit.original_dtype;
        break;
      case UnitTensor::FlatShard:
      case UnitTensor::FlatFull:
      case UnitTensor::FlatPadded:
        shapes = {one(unit.shard_elements), one(unit.true_elements)};
        dtype = unit.original_dtype;
        break;
      case UnitTensor::FlatGrad:
      case UnitTensor::NewFlatGrad:
      case UnitTensor::NextFlatGrad:
        shapes = {one(unit.true_elements)};
        break;
      case UnitTensor::CastFlatGrad:
        shapes = {one(unit.true_elements)};
        dtype = unit.reduce_dtype;
        break;
      case UnitTensor::FlatGradTail:
      case UnitTensor::Float8Magnitudes:
      case UnitTensor::Float8Widened:
      case UnitTensor::Float8Scaled:
        return {};
    }
    std::string formula = find(shapes, {dtype}, bytes_);
    if (!formula.empty()) return formula;
    // If parameters differ in dtype, the buffer is gathered as bytes.
    const std::int64_t shard = unit.gather_shard_bytes.count();
    return find({times(ranks, shard), one(shard)}, {Dtype::UInt8}, bytes_);
  }

  std::string of_value(const Shape& shape, std::optional<Dtype> dtype) const {
    return find({shaped(shape)}, {dtype.value_or(prepared_.activation), Dtype::Float32, prepared_.activation}, bytes_);
  }

  std::string of_call(const CallTensor& tensor) const {
    const Call& call = model_.calls[tensor.call];
    const Block& block = model_.blocks[call.block];
    const int number = prepared_.tapes[tensor.call]->storage_op[tensor.storage];
    if (number < 0) return {};
    const Op& op = block.ops[number];
    std::vector<Shaped> shapes;
    std::vector<Dtype> dtypes;
    for (const auto* values : {&op.outputs, &op.inputs}) {
      for (const int value : *values) {
        shapes.push_back(shaped(block.values[value].shape));
        dtypes.push_back(block.values[value].dtype.value_or(prepared_.activation));
      }
    }
    for (const int p : op.parameters) shapes.push_back(shaped(block.parameters[p]));
    for (const Dtype common : {Dtype::Float32, Dtype::Bool, Dtype::Int64}) dtypes.push_back(common);
    add_attention(op, block, shapes);
    const std::size_t plain = shapes.size();
    for (std::size_t i = 0; i < plain; ++i) add_parts(block, op, i, shapes);
    return find(shapes, dtypes, bytes_);
  }

 private:
  static constexpr std::int64_t kBlockOf8Bit = 256;

  // `parts` of the shards into which a parameter is cut.
  static std::optional<Shaped> cut(const Shape& shape, std::int64_t ranks, std::int64_t parts) {
    if (shape.empty() || ranks == 1) return std::nullopt;
    const std::int64_t rows = (shape.front() + ranks - 1) / ranks;
    const bool divides = shape.front() % ranks == 0;
    std::string text = divides ? std::to_string(shape.front()) : fmt::format("ceil({} / {})", shape.front(), ranks);
    if (divides && parts == 1) text += fmt::format(" / {}", ranks);
    if (divides && parts != 1 && parts != ranks) text += fmt::format(" / {} x {}", ranks, parts);
    if (!divides && parts != 1) text += fmt::format(" x {}", parts);
    std::int64_t elements = rows * parts;
    for (std::size_t d = 1; d < shape.size(); ++d) {
      text += fmt::format(" x {}", shape[d]);
      elements *= shape[d];
    }
    return Shaped{std::move(text), elements};
  }

  // Attention works on [batch, heads, sequence, dim]: log-sum-exps, scores, keys repeated for every head.
  static void add_attention(const Op& op, const Block& block, std::vector<Shaped>& shapes) {
    if (op.kind != OpKind::Attention || op.inputs.size() < 2) return;
    const Shape& q = block.values[op.inputs[0]].shape;
    const Shape& k = block.values[op.inputs[1]].shape;
    if (q.size() != 4 || k.size() != 4) return;
    shapes.push_back(shaped({q[0], q[2], q[1]}));
    shapes.push_back(shaped({q[0], q[2], q[1], k[1]}));
    shapes.push_back(shaped({k[0], q[2], k[1], k[3]}));
  }

  // Rows, halves and multiples: statistics, rotated parts, several tensors in one.
  void add_parts(const Block& block, const Op& op, std::size_t i, std::vector<Shaped>& shapes) const {
    const std::size_t outputs = op.outputs.size();
    const std::size_t values = outputs + op.inputs.size();
    if (i < values) {
      const int value = i < outputs ? op.outputs[i] : op.inputs[i - outputs];
      Shape rows = block.values[value].shape;
      if (rows.size() > 1) {
        rows.pop_back();
        shapes.push_back(shaped(rows));
      }
    }
    const Shaped whole = shapes[i];
    for (const std::int64_t factor : {2, 3, 4}) {
      shapes.push_back({fmt::format("{} x {}", factor, whole.text), factor * whole.elements});
    }
    if (whole.elements % 2 == 0) shapes.push_back({whole.text + " / 2", whole.elements / 2});
  }

  const PreparedPlan& prepared_;
  const Model& model_;
  const std::int64_t bytes_;
};

}  // namespace

std::string tensor_formula(const PreparedPlan& prepared, int id, std::int64_t bytes) {
  if (const TensorOwner owner = owner_of(prepared, id); !owner.other.empty()) {
    return owner.plan != nullptr ? tensor_formula(*owner.plan, id, bytes) : std::string();
  }
  const MemoryIds& ids = prepared.ids;
  const Model& model = *prepared.index->model;
  const FormulaFinder finder(prepared, bytes);
  if (id < ids.units_base()) {
    const int number = id - ids.first;
    return finder.of_parameter(static_cast<ParameterTensor>(number / ids.num_parameters), number % ids.num_parameters);
  }
  if (id < ids.singles_base()) {
    const int offset = id - ids.units_base();
    return finder.of_unit(static_cast<UnitTensor>(offset / ids.num_units),
                          prepared.layout.units[offset % ids.num_units]);
  }
  if (id < ids.buffers_base()) return {};
  if (id < ids.inputs_base()) {
    const Buffer& buffer = model.buffers[id - ids.buffers_base()];
    if (buffer.copy_of >= 0) return {};
    return finder.of_value(buffer.shape, buffer.dtype);
  }
  if (id < ids.sums_base) {
    const int input = (id - ids.inputs_base()) / 3;
    const Value& value = model.values[model.inputs[input]];
    return finder.of_value(value.shape, id == ids.input_cast(input) ? std::nullopt : value.dtype);
  }
  const CallTensor tensor = find_call(ids, id);
  if (tensor.call >= 0) return finder.of_call(tensor);
  if (id >= ids.buckets_base) return {};  // Buckets and Muon's.
  const Value& value = model.values[(id - ids.sums_base) / kNumGradSums];
  return finder.of_value(value.shape, value.dtype);
}

TensorFormulas::Key TensorFormulas::key_of(int id, std::int64_t bytes) const {
  if (!owner_of(prepared_, id).other.empty()) return {-3, id, 0, {}, bytes};
  const MemoryIds& ids = prepared_.ids;
  const Model& model = *prepared_.index->model;
  if (id < ids.units_base()) {
    const std::size_t parameter = static_cast<std::size_t>((id - ids.first) % ids.num_parameters);
    const auto dtype = static_cast<int>(prepared_.layout.parameter_dtype[parameter]);
    return {(id - ids.first) / ids.num_parameters, prepared_.layout.unit_of_parameter[parameter], dtype,
            model.parameters[parameter].shape, bytes};
  }
  const CallTensor tensor = id < ids.sums_base ? CallTensor{.call = -1} : find_call(ids, id);
  // There are few of these, and each stands for itself.
  if (tensor.call < 0) return {-1, id, 0, {}, bytes};
  const int op = prepared_.tapes[tensor.call]->storage_op[tensor.storage];
  return {-2, model.calls[tensor.call].block, op, {}, bytes};
}

const std::string& TensorFormulas::of(int id, std::int64_t bytes) {
  const auto [found, is_new] = known_.try_emplace(key_of(id, bytes));
  if (is_new) found->second = tensor_formula(prepared_, id, bytes);
  return found->second;
}

}  // namespace fsdp::simulator
