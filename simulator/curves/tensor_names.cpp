#include "simulator/curves/tensor_names.h"

#include <array>

#include "core/base/name_pattern.h"
#include "core/model/op.h"

namespace fsdp::simulator {

namespace {

constexpr std::array<std::string_view, kNumParameterTensors> kParameterTensors = {
    "sharded parameter",
    "unsharded parameter",
    "gradient",
    "gradient of another use",
    "accumulated gradient",
    "smaller shard",
    "first moment",
    "second moment",
    "step count",
    "scales of first moment",
    "scales of second moment",
    "optimizer temporary",
    "optimizer temporary",
    "parameter before sharding",
    "gradient of several uses",
    "padded gradient",
    "shard from the host",
    "shard cast for the all-gather",
    "gradient before it is added",
    "gradient of several uses",
    "optimizer temporary",
    "smaller shard",
    "zeros in a flat gradient",
    "zeros in a flat gradient",
    "parameter before it is cast",
    "all-gather output",
    "optimizer's copy",
    "gradient larger than the bucket",
    "second copy shared with neighbors",
    "gradient for the optimizer",
    "quantized shard",
    "scales of the quantized shard",
    "scales of the all-gather output",
    "all-gather output in fp16",
    "part of a reduced gradient",
    "gradient for the drive",
    "unsharded parameter",
    "table of first moment",
    "table of second moment",
    "scale of a weight in 8 bits",
};

constexpr std::array<std::string_view, kNumUnitTensors> kUnitTensors = {
    "shards cast for the all-gather",
    "all-gather output",
    "reduce-scatter input",
    "reduce-scatter output",
    "parts of all ranks",
    "sharded gradients",
    "new sharded gradients",
    "all-gather output",
    "flat parameter",
    "flat parameter before sharding",
    "padded shard",
    "flat gradient",
    "new flat gradient",
    "new flat gradient",
    "zeros in a flat gradient",
    "flat gradient in the reduce dtype",
    "reduce-scatter input of the loss",
    "sharded gradients of the loss",
    "absolute values for a scale",
    "shard in fp32 for its cast to 8 bits",
    "scaled shard for its cast to 8 bits",
};

constexpr std::array<std::string_view, kNumSingleTensors - kNumExchangeTensors> kSingles = {
    "metadata of a copy",
    "cuBLAS workspace (forward)",
    "cuBLAS workspace (backward)",
    "cuBLASLt workspace (forward)",
    "cuBLASLt workspace (backward)",
    "buffer of Triton's measurements",
    "gradient of the loss",
    "loss as it is returned",
    "gradient of the loss",
    "last loss",
    "output of the embedding that the last loss keeps",
    "its gradient",
    "gradient norms",
    "gradient norms",
    "gradient norms",
    "gradient norms",
    "gradient norms",
    "gradient norm",
    "gradient norm",
    "gradient norm",
    "gradient norm",
    "gradient norm",
    "copy for a broadcast",
    "copy for a broadcast",
    "map of used parameters",
    "table of first moments",
    "table of second moments",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "optimizer temporary",
    "flat parameters",
    "padding of the flat parameters",
    "optimizer's copy of the rank's part",
    "first moment of the rank's part",
    "second moment of the rank's part",
    "step count",
    "bucket of gradients",
    "second bucket of gradients",
    "bucket in one piece",
    "gradients of the rank's part",
    "gradients of a later micro-batch",
    "padding of the rank's gradients",
    "gradient of the rank's part",
    "gradient of the rank's part for the optimizer",
    "gradient in fp64",
    "gradient norm",
    "gradient norm",
    "optimizer temporary",
    "optimizer temporary",
    "loss",
    "scaled loss",
    "whether gradients overflow",
    "barrier",
    "barrier",
    "gradient from the host",
    "magnitudes of gradients",
    "flags of gradients",
    "whether gradients overflow",
    "parameter of the second optimizer",
    "shards to quantize",
    "copy in fp16",
    "sum over nodes",
    "sum over nodes",
};

// Two gradients have them at a time.
constexpr std::array<std::string_view, kNumExchangeTensors / 2> kExchanges = {
    "scales of a gradient",   "gradient in 4 bits",     "exchanged gradient",
    "scales of the exchange", "scales of a node's sum", "sum of a node in 4 bits",
    "exchanged sum",          "scales of the exchange", "exchanged sum in fp16",
};

template <std::size_t size>
constexpr bool all_have_names(const std::array<std::string_view, size>& names) {
  for (const std::string_view name : names) {
    if (name.empty()) return false;
  }
  return true;
}
static_assert(all_have_names(kParameterTensors) && all_have_names(kUnitTensors) && all_have_names(kSingles) &&
              all_have_names(kExchanges));

// The module that runs the op, relative to the call, and the op's kind.
std::string op_of(const PreparedPlan& prepared, const CallTensor& tensor, bool whole_name) {
  const Model& model = *prepared.index->model;
  const Call& call = model.calls[tensor.call];
  const Block& block = model.blocks[call.block];
  const int op = prepared.tapes[tensor.call]->storage_op[tensor.storage];
  if (op < 0) return {};
  const int module = call.modules[block.ops[op].module];
  std::string where = whole_name && module >= 0 ? model.modules[module].name : block.modules[block.ops[op].module].name;
  if (!where.empty()) where += whole_name ? ": " : " ";
  return where + (block.recorded ? block.recorded->op_names[op] : std::string(name_of(block.ops[op].kind)));
}

std::string name_of_unit(const PreparedPlan& prepared, int unit) {
  const std::string& name = prepared.layout.units[unit].name;
  return name.empty() ? "root" : without_numbers(name);
}

// Named by the number of its first parameter.
bool is_of_flat_parameter(const PreparedPlan& prepared, ParameterTensor what) {
  if (prepared.layout.flat != FlatParameters::Whole) return false;
  switch (what) {
    case ParameterTensor::FirstMoment:
    case ParameterTensor::SecondMoment:
    case ParameterTensor::StepCount:
    case ParameterTensor::FirstScale:
    case ParameterTensor::SecondScale:
    case ParameterTensor::FirstTable:
    case ParameterTensor::SecondTable:
    case ParameterTensor::OptimizerTemp:
    case ParameterTensor::SecondOptimizerTemp:
    case ParameterTensor::DecayedGrad:
      return true;
    default:
      return false;
  }
}

}  // namespace

TensorOwner owner_of(const PreparedPlan& prepared, int id) {
  if (prepared.others == nullptr || id >= prepared.others->num_ids) return {&prepared, {}};
  for (const PreparedOther& other : prepared.others->models) {
    if (id < other.held->ids.total) return {other.held, other.name};
    if (id < other.forward->ids.total) return {other.forward, other.name};
    if (id == other.forward->ids.total) return {nullptr, other.name};
  }
  return {&prepared, {}};
}

std::string op_name(const PreparedPlan& prepared, int id) {
  const TensorOwner owner = owner_of(prepared, id);
  if (!owner.other.empty()) return owner.plan != nullptr ? op_name(*owner.plan, id) : std::string();
  const CallTensor tensor = find_call(prepared.ids, id);
  return tensor.call < 0 ? std::string() : op_of(prepared, tensor, false);
}

std::string tensor_name(const PreparedPlan& prepared, int id) {
  if (const TensorOwner owner = owner_of(prepared, id); !owner.other.empty()) {
    return owner.other + ": " + (owner.plan != nullptr ? tensor_name(*owner.plan, id) : "log-probabilities");
  }
  const MemoryIds& ids = prepared.ids;
  const Model& model = *prepared.index->model;
  if (id < ids.units_base()) {
    const int kind = (id - ids.first) / ids.num_parameters;
    const int parameter = (id - ids.first) % ids.num_parameters;
    const auto what = kParameterTensors[kind];
    if (is_of_flat_parameter(prepared, static_cast<ParameterTensor>(kind))) {
      return name_of_unit(prepared, prepared.layout.unit_of_parameter[parameter]) + ": " + std::string(what);
    }
    return without_numbers(model.parameters[parameter].name) + ": " + std::string(what);
  }
  if (id < ids.singles_base()) {
    const int offset = id - ids.units_base();
    return name_of_unit(prepared, offset % ids.num_units) + ": " + std::string(kUnitTensors[offset / ids.num_units]);
  }
  if (id < ids.of(SingleTensor::ZeroExchange)) return std::string(kSingles[id - ids.singles_base()]);
  if (id < ids.buffers_base()) {
    return std::string(kExchanges[(id - ids.of(SingleTensor::ZeroExchange)) % kExchanges.size()]);
  }
  if (id < ids.inputs_base()) return without_numbers(model.buffers[id - ids.buffers_base()].name) + ": buffer";
  if (id < ids.sums_base) {
    const int input = (id - ids.inputs_base()) / 3;
    const std::string& name = model.values[model.inputs[input]].name;
    return name + (id == ids.input_cast(input) ? ": input cast by the root" : ": input");
  }
  const CallTensor tensor = find_call(ids, id);
  if (tensor.call < 0 && id >= ids.muon_base) return "Muon's update";
  if (tensor.call < 0 && id >= ids.buckets_base) return "gradient buckets";
  if (tensor.call < 0) return model.values[(id - ids.sums_base) / kNumGradSums].name + ": gradient";
  return without_numbers(op_of(prepared, tensor, true));
}

}  // namespace fsdp::simulator
