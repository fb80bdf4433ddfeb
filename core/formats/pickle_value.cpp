#include "core/formats/pickle.h"

namespace fsdp {

PickleKind PickleValue::kind() const {
  return document_ == nullptr ? PickleKind::None : document_->values_[index_].kind;
}

std::optional<std::int64_t> PickleValue::as_int() const {
  if (kind() != PickleKind::Int && kind() != PickleKind::Bool) return std::nullopt;
  return document_->values_[index_].integer;
}

std::optional<double> PickleValue::as_float() const {
  if (kind() == PickleKind::Float) return document_->values_[index_].real;
  if (const std::optional<std::int64_t> integer = as_int()) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<bool> PickleValue::as_bool() const {
  if (kind() != PickleKind::Bool) return std::nullopt;
  return document_->values_[index_].integer != 0;
}

std::optional<std::string_view> PickleValue::as_text() const {
  if (kind() != PickleKind::Text) return std::nullopt;
  const PickleDocument::Value& value = document_->values_[index_];
  return std::string_view(document_->data_).substr(static_cast<std::size_t>(value.integer), value.length);
}

std::size_t PickleValue::size() const {
  switch (kind()) {
    case PickleKind::List:
    case PickleKind::Tuple:
      return document_->containers_[document_->values_[index_].integer].size();
    case PickleKind::Dict:
      return document_->containers_[document_->values_[index_].integer].size() / 2;
    default:
      return 0;
  }
}

PickleValue PickleValue::at(std::size_t i) const {
  const auto& items = document_->containers_[document_->values_[index_].integer];
  return {document_, items[kind() == PickleKind::Dict ? 2 * i + 1 : i]};
}

PickleValue PickleValue::key_at(std::size_t i) const {
  const auto& items = document_->containers_[document_->values_[index_].integer];
  return {document_, items[2 * i]};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  if (kind() != PickleKind::Dict) return std::nullopt;
  for (std::size_t i = size(); i-- > 0;) {
    if (key_at(i).as_text() == key) return at(i);
  }
  return std::nullopt;
}

}  // namespace fsdp
