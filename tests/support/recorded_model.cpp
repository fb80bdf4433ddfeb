#include "tests/support/recorded_model.h"

#include <algorithm>
#include <array>

#include "core/base/json_writer.h"
#include "core/model/model_index.h"
#include "simulator/prepared/prediction.h"
#include "simulator/time/tape_library.h"

namespace fsdp {

namespace {

using simulator::Tape;
using simulator::TapeEvent;
using Kind = RecordedEvent::Kind;

RecordedEvent recorded(const TapeEvent& event) {
  constexpr std::array kKinds = {
      std::pair{TapeEvent::Kind::Alloc, Kind::Alloc},
      std::pair{TapeEvent::Kind::Free, Kind::Free},
      std::pair{TapeEvent::Kind::AllocParamGrad, Kind::ParamGrad},
      std::pair{TapeEvent::Kind::AddParamGrad, Kind::AddGrad},
      std::pair{TapeEvent::Kind::ReleaseInput, Kind::ReleaseInput},
      std::pair{TapeEvent::Kind::ReleaseOutput, Kind::ReleaseOutput},
      std::pair{TapeEvent::Kind::ReleaseGradOut, Kind::ReleaseGrad},
      std::pair{TapeEvent::Kind::ShareGrad, Kind::ShareGrad},
      std::pair{TapeEvent::Kind::UnshareGrad, Kind::UnshareGrad},
      std::pair{TapeEvent::Kind::EmitGrad, Kind::EmitGrad},
      std::pair{TapeEvent::Kind::ReleaseGradIn, Kind::DropGrad},
      std::pair{TapeEvent::Kind::ForwardGradOut, Kind::ForwardGrad},
      std::pair{TapeEvent::Kind::HoldInput, Kind::HoldInput},
      std::pair{TapeEvent::Kind::HoldOwn, Kind::Hold},
      std::pair{TapeEvent::Kind::Workspace, Kind::Workspace},
  };
  const auto found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& pair) { return pair.first == event.kind; });
  return {found->second, event.is_view, event.storage, event.bytes};
}

std::vector<RecordedEvent> recorded(const std::vector<TapeEvent>& events, Tape::Range range) {
  std::vector<RecordedEvent> result;
  for (std::int32_t e = range.first; e < range.last; ++e) result.push_back(recorded(events[e]));
  return result;
}

RecordedWork::Part recorded(const simulator::OpWork::Part& part) {
  return {part.gemm_flops, part.convolution_flops, part.attention_flops, part.bytes, part.num_kernels};
}

/// The ops without what they compute.
Block without_rules(const Block& block) {
  Block result = block;
  result.locals.clear();
  Recording& recording = result.recorded.emplace();
  for (Op& op : result.ops) {
    recording.op_names.emplace_back(name_of(op.kind));
    const bool passes = op.kind != OpKind::Detach && op.kind != OpKind::Constant && op.kind != OpKind::RotaryTable;
    const bool saves = saves_tensors(op);
    op.kind = OpKind::Recorded;
    op.attributes = {.backward = passes, .saves = saves};
  }
  return result;
}

/// A list of objects, a line for each.
template <class Row, class Write>
void write_rows(JsonWriter& writer, std::string_view key, const std::vector<Row>& rows, Write write) {
  writer.key(key);
  writer.begin_array();
  for (const Row& row : rows) {
    writer.begin_object(JsonLayout::OneLine);
    write(row);
    writer.end_object();
  }
  writer.end_array();
}

void write_values(JsonWriter& writer, const std::vector<Value>& values) {
  write_rows(writer, "values", values, [&](const Value& value) {
    writer.member("name", value.name);
    writer.member("shape", value.shape);
    writer.key("dtype");
    if (value.dtype) writer.value(name_of(*value.dtype));
    if (!value.dtype) writer.value(nullptr);
  });
}

void write_events(JsonWriter& writer, const std::vector<RecordedEvent>& events) {
  constexpr std::array<std::string_view, 17> kNames = {
      "alloc",      "free",         "param_grad", "add_grad",     "release_input", "release_output",
      "emit_grad",  "release_grad", "drop_grad",  "forward_grad", "hold",          "hold_input",
      "share_grad", "unshare_grad", "carry",      "drop_carried", "workspace"};
  writer.begin_array(JsonLayout::OneLine);
  for (const RecordedEvent& event : events) {
    writer.begin_array(JsonLayout::OneLine);
    writer.value(kNames[static_cast<std::size_t>(event.kind)]);
    writer.value(event.index);
    const bool has_value = event.kind == Kind::Alloc || event.kind == Kind::ParamGrad || event.kind == Kind::EmitGrad ||
                           event.kind == Kind::ForwardGrad || event.kind == Kind::Carry;
    if (has_value) writer.value(event.value);
    if (event.is_view && has_value) writer.value(1);
    writer.end_array();
  }
  writer.end_array();
}

void write_events_of_ops(JsonWriter& writer, std::string_view key, const std::vector<std::vector<RecordedEvent>>& ops) {
  writer.key(key);
  writer.begin_array();
  for (const auto& events : ops) write_events(writer, events);
  writer.end_array();
}

void write_work(JsonWriter& writer, const RecordedTape& tape) {
  writer.key("work");
  writer.begin_array();
  for (const RecordedWork& work : tape.work) {
    writer.begin_array(JsonLayout::OneLine);
    for (const RecordedWork::Part* part : {&work.forward, &work.backward}) {
      writer.value(part->gemm_flops);
      writer.value(part->convolution_flops);
      writer.value(part->attention_flops);
      writer.value(part->bytes);
      writer.value(part->num_kernels);
    }
    writer.end_array();
  }
  writer.end_array();
}

void write_tape(JsonWriter& writer, const RecordedTape& tape) {
  writer.begin_object();
  writer.member("dtype", name_of(tape.dtype));
  writer.member("checkpointed", tape.checkpointed);
  writer.member("storage_op", tape.storage_op);
  write_events_of_ops(writer, "forward", tape.forward);
  if (tape.checkpointed) {
    writer.key("recompute");
    write_events(writer, tape.recompute);
    writer.key("recomputed");
    writer.begin_array(JsonLayout::OneLine);
    for (const bool recomputed : tape.recomputed) writer.value(recomputed);
    writer.end_array();
  }
  write_events_of_ops(writer, "backward", tape.backward);
  write_rows(writer, "outputs", tape.outputs, [&](const RecordedOutput& output) {
    constexpr std::array<std::string_view, 3> kKinds = {"storage", "input", "parameter"};
    writer.member(kKinds[static_cast<std::size_t>(output.kind)], output.index);
    writer.member("bytes", output.bytes);
    writer.member("kept", output.kept);
  });
  write_work(writer, tape);
  if (tape.largest_convolution > 0) writer.member("largest_convolution", tape.largest_convolution);
  writer.end_object();
}

void write_ops(JsonWriter& writer, const Block& block) {
  writer.key("ops");
  writer.begin_array();
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    writer.begin_object(JsonLayout::OneLine);
    writer.member("name", block.recorded->op_names[o]);
    writer.member("module", op.module);
    writer.member("inputs", op.inputs);
    writer.member("outputs", op.outputs);
    writer.member("parameters", op.parameters);
    writer.member("backward", op.attributes.backward);
    writer.member("saves", op.attributes.saves);
    writer.end_object();
  }
  writer.end_array();
}

void write_block(JsonWriter& writer, const Block& block) {
  writer.begin_object();
  writer.member("kind", block.kind);
  write_rows(writer, "modules", block.modules, [&](const BlockModule& module) {
    writer.member("name", module.name);
    writer.member("class", module.class_name);
    writer.member("parent", module.parent);
    writer.member("called", module.called);
  });
  writer.key("parameters");
  writer.begin_array(JsonLayout::OneLine);
  for (const Shape& shape : block.parameters) writer.value(shape);
  writer.end_array();
  write_values(writer, block.values);
  writer.member("num_inputs", block.num_inputs);
  writer.member("outputs", block.outputs);
  write_ops(writer, block);
  writer.key("tapes");
  writer.begin_array();
  for (const RecordedTape& tape : block.recorded->tapes) write_tape(writer, tape);
  writer.end_array();
  writer.end_object();
}

void write_point(JsonWriter& writer, const Model& model) {
  writer.begin_object();
  writer.key("dimensions");
  writer.begin_object(JsonLayout::OneLine);
  for (const Dimension& dimension : model.dimensions) {
    writer.member(dimension.name, static_cast<std::int64_t>(dimension.value));
  }
  writer.end_object();
  writer.member("tokens_per_step", model.tokens_per_step);
  write_values(writer, model.values);
  writer.member("inputs", model.inputs);
  writer.member("loss", model.loss);
  writer.key("blocks");
  writer.begin_array();
  for (const Block& block : model.blocks) write_block(writer, block);
  writer.end_array();
  write_rows(writer, "calls", model.calls, [&](const Call& call) {
    writer.member("block", call.block);
    writer.member("module", call.module);
    writer.member("modules", call.modules);
    writer.member("parameters", call.parameters);
    writer.member("inputs", call.inputs);
    writer.member("outputs", call.outputs);
    writer.member("repeated", call.repeated);
  });
  write_rows(writer, "stacks", model.stacks, [&](const Stack& stack) {
    writer.member("name", stack.name);
    writer.member("class", stack.class_name);
    writer.member("calls", stack.calls);
  });
  writer.end_object();
}

void write_modules(JsonWriter& writer, const Model& model) {
  write_rows(writer, "modules", model.modules, [&](const Module& module) {
    writer.member("name", module.name);
    writer.member("class", module.class_name);
    writer.member("called", module.called);
  });
  write_rows(writer, "parameters", model.parameters, [&](const Parameter& parameter) {
    writer.member("name", parameter.name);
    writer.member("shape", parameter.shape);
    writer.member("dtype", name_of(parameter.dtype));
    writer.member("trainable", parameter.trainable);
    writer.member("receives_gradient", parameter.receives_gradient);
    writer.member("tied_names", parameter.tied_names);
  });
  write_rows(writer, "buffers", model.buffers, [&](const Buffer& buffer) {
    writer.member("name", buffer.name);
    writer.member("shape", buffer.shape);
    writer.member("dtype", name_of(buffer.dtype));
    writer.member("persistent", buffer.persistent);
  });
}

}  // namespace

RecordedTape recording_of(const Tape& tape, Dtype dtype, bool checkpointed) {
  RecordedTape result{.dtype = dtype, .checkpointed = checkpointed, .storage_op = tape.storage_op};
  // Storages of inputs and parameters have no op, and no events.
  for (int& op : result.storage_op) op = std::max(op, 0);
  for (const Tape::Range& range : tape.forward_of_op) result.forward.push_back(recorded(tape.forward, range));
  for (const Tape::Range& range : tape.backward_of_op) result.backward.push_back(recorded(tape.backward, range));
  for (const TapeEvent& event : tape.recompute) result.recompute.push_back(recorded(event));
  for (std::size_t o = 0; o < tape.output.size(); ++o) {
    using Where = simulator::Storage::Kind;
    RecordedOutput output{.index = tape.output[o].index, .bytes = tape.output_bytes[o], .kept = tape.output_is_kept[o]};
    if (tape.output[o].kind == Where::Input) output.kind = RecordedOutput::Kind::Input;
    if (tape.output[o].kind == Where::Parameter) output.kind = RecordedOutput::Kind::Parameter;
    result.outputs.push_back(output);
  }
  for (const simulator::OpWork& work : tape.work) {
    result.work.push_back({recorded(work.forward), recorded(work.backward)});
  }
  if (checkpointed) result.recomputed = tape.recomputed;
  result.largest_convolution = tape.largest_convolution;
  return result;
}

Model recorded_model(const Model& model, const std::vector<Plan>& plans, const Gpu& gpu) {
  const ModelIndex index = index_of(model);
  simulator::TapeLibrary library(index);
  Model result = model;
  result.blocks.clear();
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Call& call = model.calls[c];
    Block block = without_rules(model.blocks[call.block]);
    for (const Plan& plan : plans) {
      const simulator::TapeSettings settings = simulator::tape_settings(model, plan, Cluster{.gpu = gpu});
      for (const bool checkpointed : {false, true}) {
        if (checkpointed && !call.repeated) continue;
        const CheckpointMode mode = checkpointed ? CheckpointMode::Full : CheckpointMode::None;
        const simulator::TimedTape& timed = library.tape(settings, static_cast<int>(c), mode);
        block.recorded->tapes.push_back(recording_of(timed.tape, settings.rules.activation, checkpointed));
      }
    }
    const auto same = std::find(result.blocks.begin(), result.blocks.end(), block);
    result.calls[c].block = static_cast<int>(same - result.blocks.begin());
    if (same == result.blocks.end()) result.blocks.push_back(std::move(block));
  }
  return result;
}

std::string captured_text(const std::vector<Model>& points) {
  const Model& model = points.front();
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", "1.0");
  writer.member("kind", "captured_model");
  writer.member("name", model.name);
  writer.member("source", "a test");
  writer.member("command", std::vector<std::string>{"python", "train.py"});
  writer.member("framework", "2.11.0");
  writer.member("gpu", "NVIDIA H100 80GB HBM3");
  writer.member("accumulation", 1);
  writer.key("optimizer");
  writer.begin_object(JsonLayout::OneLine);
  writer.member("kind", "adamw");
  writer.member("class", "AdamW");
  writer.member("foreach", true);
  writer.member("fused", false);
  writer.end_object();
  write_modules(writer, model);
  writer.member("limits", std::vector<std::string>{"A test wrote this."});
  writer.key("points");
  writer.begin_array();
  for (const Model& point : points) write_point(writer, point);
  writer.end_array();
  writer.end_object();
  return std::move(writer).take();
}

}  // namespace fsdp
