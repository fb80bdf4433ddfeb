#include "core/model/kernel_workspaces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fsdp {

namespace {

Shape dense(const Shape& sizes) {
  Shape strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(1, sizes[d]);
  return strides;
}

// The stride of a dimension with one element does not matter.
bool lies_as(const KernelOperand& operand, const Shape& strides) {
  for (std::size_t d = 0; d < operand.sizes.size(); ++d) {
    if (operand.sizes[d] != 1 && operand.strides[d] != strides[d]) return false;
  }
  return true;
}

// Rows or columns may have gaps: products take their distance as an argument.
bool is_matrix(const KernelOperand& operand, std::size_t along) {
  return operand.sizes[along] == 1 || operand.strides[along] == 1;
}

std::string text_of(const KernelOperand& operand, bool of_product) {
  std::string text = fmt::format("{}", fmt::join(operand.sizes, "x"));
  if (operand.strides.empty() || lies_as(operand, dense(operand.sizes))) return text;
  const std::size_t n = operand.sizes.size();
  if (of_product && n >= 2 && is_matrix(operand, n - 1)) return text;
  if (of_product && n >= 2 && is_matrix(operand, n - 2)) return text + "t";
  return text + fmt::format("({})", fmt::join(operand.strides, ","));
}

struct Answer {
  std::string call;
  int threads = 1;
  Bytes bytes;
};

bool read_json(const JsonValue& value, Answer& answer, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("call", answer.call);
  object.required("threads", answer.threads, IntegerRange{1, 1 << 20});
  object.required("bytes", answer.bytes, InBytes{});
  return object.finish();
}

}  // namespace

std::string text_of(const KernelCall& call) {
  std::string text = fmt::format("{} {}", call.name, name_of(call.dtype));
  const bool of_product = call.settings.empty();
  for (const KernelOperand& operand : call.operands) text += " " + text_of(operand, of_product);
  for (const auto& [name, values] : call.settings) {
    const bool alike = std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
    const std::size_t shown = alike ? std::min<std::size_t>(1, values.size()) : values.size();
    text += fmt::format(" {} {}", name, fmt::join(values.begin(), values.begin() + static_cast<long>(shown), ","));
  }
  return text;
}

bool takes_workspace(const KernelCall& call) {
  return call.dtype == Dtype::BFloat16 || call.dtype == Dtype::Float16 || call.name.starts_with("convolution");
}

std::optional<Bytes> KernelWorkspaces::find(const std::string& call, int threads) const {
  const auto found = bytes_.find({call, threads});
  if (found == bytes_.end()) return std::nullopt;
  return found->second;
}

void KernelWorkspaces::add(const KernelWorkspaces& others) {
  if (others.measured_on == measured_on) bytes_.insert(others.bytes_.begin(), others.bytes_.end());
}

void KernelWorkspaces::write(JsonWriter& writer) const {
  writer.begin_object();
  writer.member("measured_on", measured_on);
  writer.key("calls");
  writer.begin_array();
  for (const auto& [key, bytes] : bytes_) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("call", key.first);
    writer.member("threads", key.second);
    writer.member("bytes", bytes.count());
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

bool read_json(const JsonValue& value, KernelWorkspaces& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  std::vector<Answer> answers;
  object.required("measured_on", out.measured_on);
  object.required("calls", answers);
  for (const Answer& answer : answers) out.set(answer.call, answer.threads, answer.bytes);
  return object.finish();
}

Result<KernelWorkspaces> read_kernel_workspaces(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  KernelWorkspaces workspaces;
  read_json(document.root, workspaces, errors);
  return std::move(errors).result(std::move(workspaces));
}

}  // namespace fsdp
