// Reads a block of a captured model and its recording. Checks everything that the walks rely on here, where the place
// in the file is known: core/spec/recording_check.cpp has the rules.

#include "core/spec/captured_block_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "core/model/op_shapes.h"
#include "core/spec/model_spec_reader.h"
#include "core/spec/recording_check.h"

namespace fsdp::captured_reader {

namespace {

using Kind = RecordedEvent::Kind;

constexpr IntegerRange kBytes{0, kMostElements};
constexpr RealRange kWork{0, 1e24};
constexpr std::int64_t kMostCarried = 1000;
constexpr std::int64_t kMostKernels = 1'000'000;

/// The meaning of a number of an event.
enum class Argument : std::uint8_t { None, Storage, Parameter, Input, Output, Bytes, Library, Carried };

struct EventRule {
  std::string_view name;
  Kind kind;
  Argument first;
  Argument second = Argument::None;
  bool can_be_view = false;  ///< A third number, 1, marks a view.
};

constexpr EventRule kEvents[] = {
    {"alloc", Kind::Alloc, Argument::Storage, Argument::Bytes},
    {"free", Kind::Free, Argument::Storage},
    {"param_grad", Kind::ParamGrad, Argument::Parameter, Argument::Bytes, true},
    {"add_grad", Kind::AddGrad, Argument::Parameter},
    {"release_input", Kind::ReleaseInput, Argument::Input},
    {"release_output", Kind::ReleaseOutput, Argument::Storage},
    {"emit_grad", Kind::EmitGrad, Argument::Storage, Argument::Input, true},
    {"release_grad", Kind::ReleaseGrad, Argument::Output},
    {"drop_grad", Kind::DropGrad, Argument::Input},
    {"forward_grad", Kind::ForwardGrad, Argument::Output, Argument::Input, true},
    {"hold", Kind::Hold, Argument::Storage},
    {"hold_input", Kind::HoldInput, Argument::Input},
    {"share_grad", Kind::ShareGrad, Argument::Storage},
    {"unshare_grad", Kind::UnshareGrad, Argument::Storage},
    {"carry", Kind::Carry, Argument::Storage, Argument::Bytes},
    {"drop_carried", Kind::DropCarried, Argument::Carried},
    {"workspace", Kind::Workspace, Argument::Library},
};

constexpr auto kEventNames = [] {
  std::array<std::string_view, std::size(kEvents)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kEvents[i].name;
  return names;
}();

IntegerRange below(std::size_t size) {
  return {0, static_cast<std::int64_t>(size) - 1};
}

/// An index into a list of that size. Avoids an error with an empty range, which would read oddly.
bool read_index(const JsonValue& value, int& out, std::size_t size, std::string_view what, JsonErrors& errors) {
  if (size == 0) return errors.add(value, fmt::format("There is no {}.", what));
  return read_json(value, out, errors, below(size));
}

class BlockReader {
 public:
  BlockReader(Block& block, JsonErrors& errors)
      : block_(block), recording_(block.recorded.emplace()), errors_(errors) {}

  void read(const JsonValue& value) {
    ObjectReader object(value, errors_);
    object.required("kind", block_.kind);
    read_list(object, "modules", [&](const JsonValue& item) { read_module(item); });
    read_list(object, "parameters",
              [&](const JsonValue& item) { read_shape(item, block_.parameters.emplace_back(), errors_); });
    if (const JsonValue* values = object.required_value("values")) read_values(*values, block_.values, errors_);
    object.required("num_inputs", block_.num_inputs, IntegerRange{0, static_cast<std::int64_t>(block_.values.size())});
    if (const JsonValue* outputs = object.required_value("outputs")) {
      read_indices(*outputs, block_.outputs, block_.values.size(), errors_);
    }
    read_list(object, "ops", [&](const JsonValue& item) { read_op(item); });
    if (object.is_object() && block_.ops.empty()) object.fail("ops", "A block has at least one op.");
    if (object.is_object() && block_.modules.empty()) object.fail("modules", "A block has at least one module.");
    const JsonValue* tapes = object.required_value("tapes");
    // A tape is meaningless without valid ops.
    if (tapes != nullptr && object.finish()) read_tapes(*tapes);
  }

 private:
  template <class Read>
  void read_list(ObjectReader& object, std::string_view key, Read read) {
    const JsonValue* list = object.required_value(key);
    if (list == nullptr || !expect_type(*list, JsonType::Array, "a list", errors_)) return;
    for (const JsonValue& item : list->elements) read(item);
  }

  void read_module(const JsonValue& value) {
    const int index = static_cast<int>(block_.modules.size());
    BlockModule module;
    ObjectReader object(value, errors_);
    object.required("name", module.name);
    object.required("class", module.class_name);
    object.required("parent", module.parent, IntegerRange{index == 0 ? -1 : 0, std::max(index - 1, -1)});
    object.optional("called", module.called);
    object.finish();
    block_.modules.push_back(std::move(module));
  }

  void read_op(const JsonValue& value) {
    Op op{.kind = OpKind::Recorded};
    std::string name;
    ObjectReader object(value, errors_);
    object.required("name", name);
    if (const JsonValue* module = object.required_value("module")) {
      read_index(*module, op.module, block_.modules.size(), "module", errors_);
    }
    const auto indices = [&](std::string_view key, std::vector<int>& out, std::size_t size) {
      if (const JsonValue* list = object.required_value(key)) read_indices(*list, out, size, errors_);
    };
    indices("inputs", op.inputs, block_.values.size());
    indices("outputs", op.outputs, block_.values.size());
    indices("parameters", op.parameters, block_.parameters.size());
    object.required("backward", op.attributes.backward);
    object.required("saves", op.attributes.saves);
    object.finish();
    block_.ops.push_back(std::move(op));
    recording_.op_names.push_back(std::move(name));
  }

  void read_tapes(const JsonValue& value) {
    if (!expect_type(value, JsonType::Array, "a list", errors_)) return;
    for (const JsonValue& item : value.elements) {
      RecordedTape tape;
      if (!read_tape(item, tape)) continue;
      if (recording_.find(tape.dtype, tape.checkpointed) != nullptr) {
        errors_.add(item, "There is a tape of this precision and checkpointing before.", "Leave one of the two out.");
        continue;
      }
      complete_recording(block_, tape);
      if (const auto mistake = check_recording(block_, tape)) {
        errors_.add(place_of(item, *mistake), mistake->what, "Capture the script again.");
        continue;
      }
      recording_.tapes.push_back(std::move(tape));
    }
    if (value.elements.empty()) errors_.add(value, "A block has at least one tape.", "Capture the script again.");
  }

  static const JsonValue& place_of(const JsonValue& tape, const RecordingMistake& mistake) {
    const JsonValue* place = tape.find(mistake.part);
    for (const int index : {mistake.op, mistake.event}) {
      if (place == nullptr) return tape;
      if (index >= 0 && static_cast<std::size_t>(index) < place->elements.size()) place = &place->elements[index];
    }
    return place == nullptr ? tape : *place;
  }

  bool read_tape(const JsonValue& value, RecordedTape& tape) {
    ObjectReader object(value, errors_);
    object.required("dtype", tape.dtype, model_spec_reader::kSpecDtype);
    object.required("checkpointed", tape.checkpointed);
    object.required("storage_op", tape.storage_op, below(block_.ops.size()));
    object.optional("largest_convolution", tape.largest_convolution, kBytes);
    bool good = read_events_of_ops(object, "forward", tape.forward, tape);
    good = read_events_of_ops(object, "backward", tape.backward, tape) && good;
    good = read_outputs(object, tape) && good;
    good = read_work(object, tape) && good;
    good = read_arithmetic(object, tape) && good;
    if (tape.checkpointed) {
      object.required("recomputed", tape.recomputed);
      if (const JsonValue* events = object.required_value("recompute")) {
        good = read_events(*events, tape.recompute, tape) && good;
      }
      good = expect_size(object, "recomputed", tape.recomputed.size(), block_.ops.size()) && good;
    } else {
      object.ignore("recomputed");
      object.ignore("recompute");
    }
    if (!object.finish() || !good) return false;
    if (total_bytes_ > kMostElements) return object.fail("storage_op", "The tape has more than 2^53 bytes in all.");
    return true;
  }

  bool expect_size(ObjectReader& object, std::string_view key, std::size_t size, std::size_t wanted) {
    if (size == wanted) return true;
    return object.fail(key, fmt::format("It has {} entries where there must be {}.", size, wanted),
                       "Capture the script again.");
  }

  bool read_events_of_ops(ObjectReader& object, std::string_view key, std::vector<std::vector<RecordedEvent>>& out,
                          const RecordedTape& tape) {
    const JsonValue* list = object.required_value(key);
    if (list == nullptr || !expect_type(*list, JsonType::Array, "a list", errors_)) return false;
    bool good = true;
    for (const JsonValue& events : list->elements) good = read_events(events, out.emplace_back(), tape) && good;
    return expect_size(object, key, out.size(), block_.ops.size()) && good;
  }

  bool read_events(const JsonValue& value, std::vector<RecordedEvent>& out, const RecordedTape& tape) {
    if (!expect_type(value, JsonType::Array, "a list of events", errors_)) return false;
    bool good = true;
    out.reserve(value.elements.size());
    for (const JsonValue& event : value.elements) good = read_event(event, out.emplace_back(), tape) && good;
    return good;
  }

  bool read_event(const JsonValue& value, RecordedEvent& out, const RecordedTape& tape) {
    if (!expect_type(value, JsonType::Array, "an event such as [\"alloc\", 3, 4096]", errors_)) return false;
    if (value.elements.empty()) return errors_.add(value, "The event is empty.");
    const auto which = read_name(value.elements.front(), "event", kEventNames, errors_);
    if (!which) return false;
    const EventRule& rule = kEvents[*which];
    const std::size_t wanted = rule.second == Argument::None ? 2 : 3;
    const std::size_t found = value.elements.size();
    if (found != wanted && !(rule.can_be_view && found == wanted + 1)) {
      return errors_.add(
          value, fmt::format("\"{}\" has {} numbers, not {}.", rule.name, wanted - 1, value.elements.size() - 1));
    }
    out.kind = rule.kind;
    std::int64_t first = 0;
    bool good = read_argument(value.elements[1], first, rule.first, tape);
    out.index = static_cast<std::int32_t>(first);
    if (wanted == 3) good = read_argument(value.elements[2], out.value, rule.second, tape) && good;
    if (found > wanted) {
      std::int64_t view = 0;
      good = read_json(value.elements[wanted], view, errors_, IntegerRange{0, 1}) && good;
      out.is_view = view == 1;
    }
    if (rule.second == Argument::Bytes && good && total_bytes_ <= kMostElements) total_bytes_ += out.value;
    return good;
  }

  bool read_argument(const JsonValue& value, std::int64_t& out, Argument what, const RecordedTape& tape) {
    const auto index = [&](std::size_t size, std::string_view noun) {
      if (size == 0) return errors_.add(value, fmt::format("The block has no {}.", noun));
      return read_json(value, out, errors_, below(size));
    };
    switch (what) {
      case Argument::None:
        return true;
      case Argument::Storage:
        return index(tape.storage_op.size(), "storage");
      case Argument::Parameter:
        return index(block_.parameters.size(), "parameter");
      case Argument::Input:
        return index(static_cast<std::size_t>(block_.num_inputs), "input");
      case Argument::Output:
        return index(block_.outputs.size(), "output");
      case Argument::Bytes:
        return read_json(value, out, errors_, kBytes);
      case Argument::Carried:
        return read_json(value, out, errors_, IntegerRange{0, kMostCarried});
      case Argument::Library:
        return read_json(value, out, errors_, IntegerRange{0, 1});
    }
    return false;
  }

  bool read_outputs(ObjectReader& object, RecordedTape& tape) {
    const JsonValue* list = object.required_value("outputs");
    if (list == nullptr || !expect_type(*list, JsonType::Array, "a list", errors_)) return false;
    bool good = true;
    for (const JsonValue& item : list->elements) good = read_output(item, tape) && good;
    return expect_size(object, "outputs", tape.outputs.size(), block_.outputs.size()) && good;
  }

  bool read_output(const JsonValue& value, RecordedTape& tape) {
    RecordedOutput output;
    ObjectReader object(value, errors_);
    bool good = true;
    const auto input = object.optional_value("input");
    const auto parameter = object.optional_value("parameter");
    if (input != nullptr) {
      output.kind = RecordedOutput::Kind::Input;
      good = read_index(*input, output.index, static_cast<std::size_t>(block_.num_inputs), "input", errors_);
    } else if (parameter != nullptr) {
      output.kind = RecordedOutput::Kind::Parameter;
      // Its identity does not matter: it is a tensor of the unit.
      good = read_json(*parameter, output.index, errors_, below(std::max<std::size_t>(1, block_.parameters.size())));
    } else if (const JsonValue* storage = object.required_value("storage")) {
      good = read_index(*storage, output.index, tape.storage_op.size(), "storage", errors_);
    }
    object.required("bytes", output.bytes, kBytes);
    object.optional("kept", output.kept);
    tape.outputs.push_back(output);
    return object.finish() && good;
  }

  bool read_work(ObjectReader& object, RecordedTape& tape) {
    const JsonValue* list = object.required_value("work");
    if (list == nullptr || !expect_type(*list, JsonType::Array, "a list", errors_)) return false;
    bool good = true;
    for (const JsonValue& item : list->elements) {
      RecordedWork& work = tape.work.emplace_back();
      std::vector<double> numbers;
      if (!read_json(item, numbers, errors_, kWork)) {
        good = false;
      } else if (numbers.size() != 10) {
        good = errors_.add(item, fmt::format("The work of an op is 10 numbers, not {}.", numbers.size()));
      } else {
        good = read_part(item, std::span(numbers).first(5), work.forward) &&
               read_part(item, std::span(numbers).last(5), work.backward) && good;
      }
    }
    return expect_size(object, "work", tape.work.size(), block_.ops.size()) && good;
  }

  bool read_arithmetic(ObjectReader& object, RecordedTape& tape) {
    const JsonValue* list = object.optional_value("arithmetic");
    if (list == nullptr) return true;
    if (!expect_type(*list, JsonType::Array, "a list", errors_)) return false;
    if (!expect_size(object, "arithmetic", list->elements.size(), tape.work.size())) return false;
    bool good = true;
    for (std::size_t o = 0; o < tape.work.size(); ++o) {
      const JsonValue& dtype = list->elements[o];
      if (dtype.type == JsonType::Null) continue;
      Dtype& read = tape.work[o].arithmetic.emplace();
      if (!read_json(dtype, read, errors_, model_spec_reader::kSpecDtype)) {
        good = false;
      } else if (!is_floating_point(read)) {
        good = errors_.add(dtype, "FLOPs are computed in a floating-point dtype.", "Capture the script again.");
      }
    }
    return good;
  }

  bool read_part(const JsonValue& at, std::span<const double> numbers, RecordedWork::Part& part) {
    if (numbers[4] > kMostKernels) return errors_.add(at, fmt::format("An op has at most {} kernels.", kMostKernels));
    part = {numbers[0], numbers[1], numbers[2], numbers[3], static_cast<int>(numbers[4])};
    return true;
  }

  Block& block_;
  Recording& recording_;
  JsonErrors& errors_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace

void read_shape(const JsonValue& value, Shape& out, JsonErrors& errors) {
  if (!read_json(value, out, errors, IntegerRange{0, kMostElements})) return;
  if (!checked_num_elements(out)) errors.add(value, "The tensor has more than 2^53 elements.");
}

void read_values(const JsonValue& value, std::vector<Value>& out, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list of values", errors)) return;
  for (const JsonValue& item : value.elements) {
    Value& read = out.emplace_back();
    ObjectReader object(item, errors);
    object.required("name", read.name);
    if (const JsonValue* shape = object.required_value("shape")) read_shape(*shape, read.shape, errors);
    const JsonValue* dtype = object.required_value("dtype");
    if (dtype != nullptr && dtype->type != JsonType::Null) {
      read_json(*dtype, read.dtype.emplace(), errors, model_spec_reader::kSpecDtype);
    }
    object.optional("requires_grad", read.requires_grad);
    object.finish();
  }
}

void read_indices(const JsonValue& value, std::vector<int>& out, std::size_t size, JsonErrors& errors) {
  if (size == 0 && value.type == JsonType::Array && !value.elements.empty()) {
    errors.add(value, "The list that it points into is empty.");
    return;
  }
  read_json(value, out, errors, below(size));
}

void read_block(const JsonValue& value, Block& out, JsonErrors& errors) {
  BlockReader(out, errors).read(value);
}

}  // namespace fsdp::captured_reader
