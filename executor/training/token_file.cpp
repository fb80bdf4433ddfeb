// Files are read a sample at a time, so a rank reads only its own samples. The next sample of a rank follows from how
// many samples all ranks have trained, not from the number of ranks (sample_source.h).
//
// Not modeled: attention that stops at the border of a document.

#include "executor/training/token_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/training/synthetic.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kLargestOfTwoBytes = 65536;
constexpr std::int64_t kIgnored = -100;  // cross_entropy's.
constexpr std::string_view kIds = "input_ids";
constexpr std::string_view kLabels = "labels";

}  // namespace

Result<TokenShape> token_shape(const Model& model) {
  const std::vector<InputRange> ranges = input_ranges(model);
  TokenShape shape{.batch = 0, .seq = 0, .vocabulary = std::numeric_limits<std::int64_t>::max(), .shifts = false};
  bool has_ids = false;
  bool has_labels = false;
  std::string others;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Value& value = model.values[model.inputs[i]];
    if (ranges[i].kind == InputRange::Kind::Positions || ranges[i].kind == InputRange::Kind::True) continue;
    const bool fits = ranges[i].kind == InputRange::Kind::Below && value.shape.size() == 2 &&
                      (shape.seq == 0 || value.shape == Shape{shape.batch, shape.seq});
    if (!fits || (value.name != kIds && value.name != kLabels)) {
      others += (others.empty() ? "" : ", ") + value.name;
      continue;
    }
    (value.name == kIds ? has_ids : has_labels) = true;
    shape.batch = value.shape[0];
    shape.seq = value.shape[1];
    shape.vocabulary = std::min(shape.vocabulary, ranges[i].below);
  }
  if (!has_ids || !has_labels || !others.empty()) {
    return failure(
        "--tokens",
        fmt::format("{} does not take input_ids and labels [batch, seq] alone{}.", model.name,
                    others.empty() ? "" : ", but " + others),
        "Name a .safetensors file with a tensor for each of its inputs, or leave it out: data then come from the "
        "seed.");
  }
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      const bool is_loss = op.kind == OpKind::CrossEntropy || op.kind == OpKind::LinearCrossEntropy;
      if (is_loss) shape.shifts = shape.shifts || op.attributes.shift;
    }
  }
  return shape;
}

Result<std::shared_ptr<TokenFile>> TokenFile::open(const TokenSource& source, const TokenShape& shape) {
  std::shared_ptr<TokenFile> file(new TokenFile);
  file->source_ = source;
  file->shape_ = shape;
  const std::string type = source.dtype.value_or(shape.vocabulary <= kLargestOfTwoBytes ? "uint16" : "int32");
  Errors errors;
  const auto open_all = [&](const std::vector<std::string>& paths, std::vector<std::shared_ptr<const IdFile>>& to) {
    for (const std::string& path : paths) {
      Result<std::shared_ptr<const IdFile>> opened = IdFile::open(path, type);
      if (opened) {
        to.push_back(*std::move(opened));
      } else {
        append(errors, opened.error());
      }
    }
  };
  open_all(source.files, file->ids_);
  open_all(source.labels, file->labels_);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  if (!source.labels.empty() && source.labels.size() != source.files.size()) {
    return failure(
        "--labels",
        fmt::format("There are {} files of labels for {} of tokens.", source.labels.size(), source.files.size()),
        "Name one for each, in the same order.");
  }
  for (std::size_t f = 0; f < file->ids_.size(); ++f) {
    const IdFile& ids = *file->ids_[f];
    const std::int64_t samples = (ids.count() - (shape.shifts ? 0 : 1)) / shape.seq;
    if (samples < 1) {
      errors.push_back(
          {ids.path(),
           fmt::format("It has {} tokens of {}, and one sample has {}.", ids.count(), ids.type(), shape.seq), ""});
    }
    if (!file->labels_.empty() && file->labels_[f]->count() != ids.count()) {
      errors.push_back(
          {file->labels_[f]->path(),
           fmt::format("It has {} labels, and {} has {} tokens.", file->labels_[f]->count(), ids.path(), ids.count()),
           ""});
    }
    file->begins_.push_back(file->samples_);
    file->samples_ += std::max<std::int64_t>(0, samples);
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  file->order_.emplace(file->samples_, source.shuffle_seed);
  return file;
}

std::int64_t TokenFile::checked(std::int64_t id, const IdFile& ids, std::int64_t index) const {
  if (id >= 0 && id < shape_.vocabulary) return id;
  throw std::runtime_error(
      fmt::format("{}: token {} is {}, and the vocabulary has {}", ids.path(), index, id, shape_.vocabulary));
}

void TokenFile::read_tokens(std::size_t file, std::int64_t begin, std::int64_t* to) const {
  for (const std::int64_t id : ids_[file]->read(begin, shape_.seq)) *to++ = checked(id, *ids_[file], begin++);
}

void TokenFile::read_labels(std::size_t file, std::int64_t begin, std::int64_t* to) const {
  const IdFile& from = labels_.empty() ? *ids_[file] : *labels_[file];
  const std::vector<std::int64_t> labels = from.read(begin, shape_.seq);
  // The token before each, except before the first of a file.
  const std::int64_t first = std::max<std::int64_t>(0, begin - 1);
  const bool asks_before = source_.document_end.has_value();
  const std::vector<std::int64_t> before =
      asks_before ? ids_[file]->read(first, begin + shape_.seq - 1 - first) : std::vector<std::int64_t>();
  for (std::int64_t i = begin; i < begin + shape_.seq; ++i) {
    const std::int64_t label = labels[i - begin];
    const bool follows_end = asks_before && i > 0 && before[i - 1 - first] == *source_.document_end;
    const bool is_ignored = follows_end || (!labels_.empty() && label == kIgnored);
    *to++ = is_ignored ? kIgnored : checked(label, from, i);
  }
}

at::Tensor TokenFile::tokens(std::int64_t first, bool are_labels) const {
  at::Tensor out = at::empty({shape_.batch, shape_.seq}, c10::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::int64_t place = order_->place_of(first + row);
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), place);
    const auto file = static_cast<std::size_t>(after - begins_.begin()) - 1;
    const std::int64_t begin = (place - begins_[file]) * shape_.seq + (are_labels && !shape_.shifts ? 1 : 0);
    are_labels ? read_labels(file, begin, to) : read_tokens(file, begin, to);
    to += shape_.seq;
  }
  return out;
}

std::optional<at::Tensor> TokenFile::input(const std::string& name, std::int64_t first) const {
  if (name == kIds) return tokens(first, false);
  if (name == kLabels) return tokens(first, true);
  return std::nullopt;
}

}  // namespace fsdp::executor
