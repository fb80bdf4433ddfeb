// Reads pickles without running them.
//
// A pickle is a list of operations on a stack: each pushes a value, or pops some and pushes the result. A mark on the
// stack records where the items of a list begin. A memo stores values by number, so that a repeated value is written
// once. Dicts, lists, tuples, texts and numbers need no more, so this reader does no more; it refuses the operations
// that import, call or build objects by name, before it executes any part of them.
//
// Values lie in one array and refer to each other by index. A text is a view of the file. So a memory snapshot of a
// hundred megabytes takes about three times its size and no second pass.
//
// Sources: PEP 307, PEP 3154 and PEP 574; the list of operations in Python's module pickletools.
//
// Not modeled: protocols 0 and 1, sets, bytearrays, and buffers outside of the file, which no snapshot has.

#include "core/formats/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/formats/pickle_operations.h"

namespace fsdp {

namespace {

using namespace pickle_detail;

constexpr std::string_view kPlainHint = "Only dicts, lists, tuples, strings, numbers and None are read.";
constexpr std::size_t kMostNumberBytes = 16;

/// The bytes of a number, lowest first, without trailing ones that only repeat its sign.
std::string_view without_sign_bytes(std::string_view bytes) {
  const auto is_negative = [](char byte) { return static_cast<signed char>(byte) < 0; };
  while (bytes.size() > 1) {
    const char repeated = is_negative(bytes[bytes.size() - 2]) ? '\xff' : '\0';
    if (bytes.back() != repeated) break;
    bytes.remove_suffix(1);
  }
  return bytes;
}

/// The nearest double.
double rounded(std::string_view bytes) {
  double number = static_cast<signed char>(bytes.back());
  for (std::size_t i = bytes.size() - 1; i-- > 0;) number = number * 256 + static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

class PickleReader {
 public:
  PickleReader(std::string data, std::string_view name, const PickleLimits& limits) : name_(name), limits_(limits) {
    document_.data_ = std::move(data);
  }

  Result<PickleDocument> read() {
    const std::string_view data = document_.data_;
    while (!is_done_ && errors_.empty()) {
      start_ = next_;
      if (next_ >= data.size()) {
        fail("The file ends in the middle.", "Write the snapshot again; was the disk full?");
        break;
      }
      step(static_cast<unsigned char>(data[next_++]));
      check_limits();
    }
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return std::move(document_);
  }

 private:
  using Value = PickleDocument::Value;

  /// The first error ends the reading: later ones have no meaning.
  void fail(std::string what, std::string hint = {}) {
    if (errors_.empty())
      errors_.push_back({fmt::format("{}: byte {}", name_, start_), std::move(what), std::move(hint)});
  }

  void check_limits() {
    if (document_.values_.size() > limits_.values || document_.containers_.size() > limits_.containers) {
      fail("There are more values than any useful snapshot has.");
    }
    if (marks_.size() > limits_.depth) fail(fmt::format("Values are nested more than {} deep.", limits_.depth));
  }

  /// `count` bytes of the file; `nullopt` and an error if they are missing.
  std::optional<std::string_view> take(std::uint64_t count) {
    const std::string_view data = document_.data_;
    if (count > data.size() - next_) {
      fail("The file ends in the middle of a value.", "Write the snapshot again; was the disk full?");
      return std::nullopt;
    }
    const std::string_view taken = data.substr(next_, static_cast<std::size_t>(count));
    next_ += static_cast<std::size_t>(count);
    return taken;
  }

  /// A number of that many bytes, lowest first.
  std::optional<std::uint64_t> take_number(int num_bytes) {
    const std::optional<std::string_view> bytes = take(static_cast<std::uint64_t>(num_bytes));
    if (!bytes) return std::nullopt;
    std::uint64_t number = 0;
    for (int i = num_bytes - 1; i >= 0; --i) {
      number = number << 8 | static_cast<unsigned char>((*bytes)[i]);
    }
    return number;
  }

  void push(const Value& value) {
    stack_.push_back(static_cast<std::uint32_t>(document_.values_.size()));
    document_.values_.push_back(value);
  }

  void push_int(std::int64_t number, PickleKind kind = PickleKind::Int) {
    Value value;
    value.integer = number;
    value.kind = kind;
    push(value);
  }

  void push_text(int size_bytes, PickleKind kind) {
    const std::optional<std::uint64_t> size = take_number(size_bytes);
    if (!size) return;
    const std::size_t begin = next_;
    if (!take(*size)) return;
    if (*size >> 32 != 0) return fail("A string is longer than 4 GiB.");
    Value value;
    value.integer = static_cast<std::int64_t>(begin);
    value.length = static_cast<std::uint32_t>(*size);
    value.kind = kind;
    push(value);
  }

  void push_number(int num_bytes) {
    const std::optional<std::uint64_t> number = take_number(num_bytes);
    if (!number) return;
    // Among the short forms only that of four bytes has a sign.
    push_int(num_bytes == 4 ? static_cast<std::int32_t>(*number) : static_cast<std::int64_t>(*number));
  }

  void push_long(int size_bytes) {
    const std::optional<std::uint64_t> size = take_number(size_bytes);
    std::optional<std::string_view> bytes = size ? take(*size) : std::nullopt;
    if (!bytes) return;
    if (bytes->size() > 8) bytes = without_sign_bytes(*bytes);
    if (bytes->size() > kMostNumberBytes) return fail("A number has more than 128 bits.");
    if (bytes->size() > 8) return push_real(rounded(*bytes));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < bytes->size(); ++i) {
      number |= static_cast<std::uint64_t>(static_cast<unsigned char>((*bytes)[i])) << (8 * i);
    }
    const bool is_negative = !bytes->empty() && static_cast<signed char>(bytes->back()) < 0;
    if (is_negative && bytes->size() < 8) number |= ~std::uint64_t{0} << (8 * bytes->size());
    push_int(static_cast<std::int64_t>(number));
  }

  void push_float() {
    const std::optional<std::string_view> bytes = take(8);
    if (!bytes) return;
    std::uint64_t bits = 0;
    for (const char c : *bytes) bits = bits << 8 | static_cast<unsigned char>(c);
    push_real(std::bit_cast<double>(bits));
  }

  void push_real(double number) {
    Value value;
    value.real = number;
    value.kind = PickleKind::Float;
    push(value);
  }

  void push_container(PickleKind kind, std::vector<std::uint32_t> items = {}) {
    push_int(static_cast<std::int64_t>(document_.containers_.size()), kind);
    document_.containers_.push_back(std::move(items));
  }

  /// Removes the last mark and returns where the values above it begin; `nullopt` without a mark.
  std::optional<std::size_t> take_mark() {
    if (marks_.empty()) {
      fail("A mark is missing.");
      return std::nullopt;
    }
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  /// Whether this many values can be popped: not those below a mark.
  bool has(std::size_t count) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() >= floor + count) return true;
    fail("A value is missing.");
    return false;
  }

  std::vector<std::uint32_t> pop_from(std::size_t begin) {
    std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return items;
  }

  void push_tuple(std::size_t size) {
    if (has(size)) push_container(PickleKind::Tuple, pop_from(stack_.size() - size));
  }

  void push_marked(PickleKind kind) {
    const std::optional<std::size_t> begin = take_mark();
    if (!begin) return;
    std::vector<std::uint32_t> items = pop_from(*begin);
    if (kind == PickleKind::Dict && items.size() % 2 != 0) return fail("A key has no value.");
    push_container(kind, std::move(items));
  }

  /// Moves the values from `begin` on into the list or dict below them.
  void add_items(std::size_t begin, PickleKind kind) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (begin <= floor || document_.values_[stack_[begin - 1]].kind != kind) {
      return fail(kind == PickleKind::List ? "There is no list to add to." : "There is no dict to add to.");
    }
    if (kind == PickleKind::Dict && (stack_.size() - begin) % 2 != 0) return fail("A key has no value.");
    std::vector<std::uint32_t>& items = document_.containers_[document_.values_[stack_[begin - 1]].integer];
    items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
  }

  void add_marked(PickleKind kind) {
    const std::optional<std::size_t> begin = take_mark();
    if (begin) add_items(*begin, kind);
  }

  void add_some(std::size_t count, PickleKind kind) {
    if (has(count)) add_items(stack_.size() - count, kind);
  }

  void remember(std::optional<std::uint64_t> number) {
    if (!number || !has(1)) return;
    // Pickles number from 0 without gaps; a high number would only cost memory.
    if (*number > memo_.size()) return fail("A memo number is out of order.");
    if (*number == memo_.size()) memo_.push_back(0);
    memo_[*number] = stack_.back();
  }

  void recall(std::optional<std::uint64_t> number) {
    if (!number) return;
    if (*number >= memo_.size()) return fail("A memo number was never set.");
    stack_.push_back(memo_[*number]);
  }

  void stop() {
    if (!marks_.empty()) return fail("The pickle ends inside a value.");
    if (!has(1)) return;
    if (stack_.size() > 1) return fail("Values are left over at the end.");
    document_.root_ = stack_.back();
    is_done_ = true;
  }

  void check_protocol() {
    const std::optional<std::uint64_t> version = take_number(1);
    if (version && (*version < 2 || *version > 5)) {
      fail(fmt::format("The protocol is {}.", *version), "Protocols 2 to 5 are read.");
    }
  }

  void refuse(unsigned char code) {
    for (const RefusedOperation& refused : kRefused) {
      if (refused.code == code) return fail(fmt::format("It uses {}.", refused.name), std::string(kPlainHint));
    }
    fail(fmt::format("There is no operation {:#04x}.", code), "Is it a pickle?");
  }

  void step(unsigned char code) {
    switch (code) {
      case kProto:
        return check_protocol();
      case kFrame:
        take_number(8);
        return;
      case kStop:
        return stop();
      case kMark:
        return marks_.push_back(stack_.size());
      case kPop:
      case kDup:
      case kPopMark:
        return step_of_stack(code);
      case kBinPut:
        return remember(take_number(1));
      case kLongBinPut:
        return remember(take_number(4));
      case kMemoize:
        return remember(memo_.size());
      case kBinGet:
        return recall(take_number(1));
      case kLongBinGet:
        return recall(take_number(4));
      case kAppend:
        return add_some(1, PickleKind::List);
      case kAppends:
        return add_marked(PickleKind::List);
      case kSetItem:
        return add_some(2, PickleKind::Dict);
      case kSetItems:
        return add_marked(PickleKind::Dict);
      default:
        return step_of_value(code);
    }
  }

  void step_of_stack(unsigned char code) {
    if (code == kPopMark) {
      const std::optional<std::size_t> begin = take_mark();
      if (begin) stack_.resize(*begin);
    } else if (has(1)) {
      if (code == kPop) stack_.pop_back();
      if (code == kDup) stack_.push_back(stack_.back());
    }
  }

  void step_of_value(unsigned char code) {
    switch (code) {
      case kNone:
        return push({});
      case kNewTrue:
      case kNewFalse:
        return push_int(code == kNewTrue ? 1 : 0, PickleKind::Bool);
      case kBinInt:
        return push_number(4);
      case kBinInt1:
        return push_number(1);
      case kBinInt2:
        return push_number(2);
      case kLong1:
        return push_long(1);
      case kLong4:
        return push_long(4);
      case kBinFloat:
        return push_float();
      case kShortBinUnicode:
        return push_text(1, PickleKind::Text);
      case kBinUnicode:
        return push_text(4, PickleKind::Text);
      case kBinUnicode8:
        return push_text(8, PickleKind::Text);
      case kShortBinBytes:
        return push_text(1, PickleKind::Bytes);
      case kBinBytes:
        return push_text(4, PickleKind::Bytes);
      case kBinBytes8:
        return push_text(8, PickleKind::Bytes);
      default:
        return step_of_container(code);
    }
  }

  void step_of_container(unsigned char code) {
    switch (code) {
      case kEmptyList:
        return push_container(PickleKind::List);
      case kEmptyDict:
        return push_container(PickleKind::Dict);
      case kEmptyTuple:
        return push_container(PickleKind::Tuple);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_tuple(code - kTuple1 + std::size_t{1});
      case kTuple:
        return push_marked(PickleKind::Tuple);
      case kList:
        return push_marked(PickleKind::List);
      case kDict:
        return push_marked(PickleKind::Dict);
      default:
        return refuse(code);
    }
  }

  std::string_view name_;
  PickleLimits limits_;
  PickleDocument document_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;  ///< Sizes of the stack at the marks.
  std::vector<std::uint32_t> memo_;
  std::size_t next_ = 0;
  std::size_t start_ = 0;  ///< Start of the current operation.
  bool is_done_ = false;
  Errors errors_;
};

bool is_pickle(std::string_view data) {
  return data.size() >= 2 && static_cast<unsigned char>(data[0]) == kProto && data[1] >= 2 && data[1] <= 9;
}

Result<PickleDocument> read_pickle(std::string data, std::string_view name, const PickleLimits& limits) {
  return PickleReader(std::move(data), name, limits).read();
}

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
