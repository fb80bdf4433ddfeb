// Trainers fill a row with whole documents (TRL's "bfd", axolotl's sample_packing) until no other fits. A plan has one
// row: its documents are as many as the mean length fits into the row, and are spread as the lengths are.
//
//   half of the documents m + s, half m - s:  the mean of L^2 is m^2 + s^2, whatever the lengths between
//
// FlexAttention computes blocks of 128 x 128 scores whole or not at all. Its mask
// (torch/nn/attention/flex_attention.py, BlockMask) has four tables of the blocks of each row of blocks, and of each
// column: numbers of partial and of full blocks [rows, 1, n], and their indices [rows, 1, n, n]. The function of
// positions reads two more tensors, as in torchtitan 0.3.0 (models/common/attention.py,
// get_efficient_causal_mask_mod_for_packed_document): the number of each token's document and the starts of all, or for
// several rows the last token of each token's document.
//
// Not modeled: rows that stay shorter than asked because no document fits, and other rows of the same run with more
// documents (each takes 128 rows of two fp32 tensors in the backward of a kernel with boundaries).

#include "core/plan/packing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/parse_units.h"
#include "core/base/rounding.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

using DocumentLengths = std::vector<std::int64_t>;

constexpr std::size_t kMostListedLengths = 256;
constexpr std::int64_t kMostPackedTokens = std::int64_t{1} << 31;  // Boundaries are int32.

struct MeanLength {
  std::int64_t mean = 0;
  std::int64_t deviation = 0;
};

std::optional<std::int64_t> document_length_of(std::string_view text) {
  const std::optional<std::int64_t> length = parse_integer(text);
  return length && *length > 0 && *length < kMostPackedTokens ? length : std::nullopt;
}

constexpr std::string_view kWholeRow = "row";

std::optional<MeanLength> mean_length_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto mean = document_length_of(text.substr(0, colon));
  const auto deviation = colon == std::string_view::npos ? 0 : parse_integer(text.substr(colon + 1));
  if (!mean || !deviation || *deviation < 0) return std::nullopt;
  return MeanLength{*mean, *deviation};
}

std::optional<DocumentLengths> listed_lengths(std::string_view text) {
  DocumentLengths lengths;
  std::int64_t sum = 0;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t times = part.find('x');
    const bool is_one = times == std::string_view::npos;
    const auto count = is_one ? std::optional<std::int64_t>(1) : document_length_of(part.substr(0, times));
    const auto length = document_length_of(is_one ? part : part.substr(times + 1));
    if (!count || !length || *count > kMostPackedTokens / *length) return std::nullopt;
    sum += *count * *length;
    if (sum >= kMostPackedTokens) return std::nullopt;
    lengths.insert(lengths.end(), static_cast<std::size_t>(*count), *length);
  }
  return lengths;
}

bool is_list_of_lengths(std::string_view text) {
  return text.find_first_of("x,") != std::string_view::npos;
}

std::int64_t documents_by_mean(std::int64_t tokens, double mean) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(tokens) / mean));
}

/// `number` parts of `tokens` that differ by one at most, the larger ones first.
DocumentLengths equal_parts(std::int64_t tokens, std::int64_t number) {
  DocumentLengths parts(static_cast<std::size_t>(number), tokens / number);
  for (std::int64_t i = 0; i < tokens % number; ++i) ++parts[static_cast<std::size_t>(i)];
  return parts;
}

double sum_of_lengths(const DocumentLengths& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), 0.0);
}

DocumentLengths at_even_ranks(const DocumentLengths& sorted, std::size_t number) {
  DocumentLengths chosen;
  for (std::size_t i = 0; i < number; ++i) chosen.push_back(sorted[(2 * i + 1) * sorted.size() / (2 * number)]);
  return chosen;
}

/// As many of the lengths as fit by their mean, stretched to the row. The longest takes what is left of rounding.
DocumentLengths documents_like(std::int64_t tokens, DocumentLengths lengths) {
  std::sort(lengths.begin(), lengths.end());
  const std::int64_t number = documents_by_mean(tokens, sum_of_lengths(lengths) / static_cast<double>(lengths.size()));
  DocumentLengths documents = at_even_ranks(lengths, static_cast<std::size_t>(number));
  const double stretch = static_cast<double>(tokens) / sum_of_lengths(documents);
  std::int64_t left = tokens;
  for (std::int64_t& document : documents) {
    document = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(document) * stretch));
    left -= document;
  }
  documents.back() += left;
  return documents.back() < 1 ? equal_parts(tokens, number) : documents;
}

tl::unexpected<Errors> no_lengths(const std::string& text, std::string_view where) {
  return failure(
      std::string(where), fmt::format("\"{}\" says no lengths of documents.", text),
      "Write a mean (900), a mean and a deviation (900:300), row for one, or the file with a length in each line.");
}

tl::unexpected<Errors> longer_than_row(std::int64_t length, std::int64_t tokens, std::string_view where) {
  return failure(std::string(where),
                 fmt::format("A document of {} tokens does not fit into a row of {}.", length, tokens),
                 fmt::format("Write at most {}, or a longer row: trainers cut longer documents.", tokens));
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

}  // namespace

bool is_text_of_lengths(std::string_view text) {
  return text == kWholeRow || text.find_first_not_of("0123456789:x,") == std::string_view::npos;
}

Result<void> check_lengths(const std::string& lengths, std::string_view where) {
  if (lengths == kWholeRow) return {};
  if (is_list_of_lengths(lengths)) {
    if (!listed_lengths(lengths)) return no_lengths(lengths, where);
    return {};
  }
  const auto mean = mean_length_of(lengths);
  if (!mean) return no_lengths(lengths, where);
  if (mean->deviation < mean->mean) return {};
  return failure(std::string(where),
                 fmt::format("Documents of about {} tokens cannot be {} shorter.", mean->mean, mean->deviation),
                 "The deviation is smaller than the mean.");
}

Result<std::vector<std::int64_t>> documents_of_row(std::int64_t tokens, const std::string& lengths,
                                                   std::string_view where) {
  if (const Result<void> checked = check_lengths(lengths, where); !checked) return tl::unexpected(checked.error());
  if (lengths == kWholeRow) return DocumentLengths{tokens};
  if (is_list_of_lengths(lengths)) {
    DocumentLengths listed = *listed_lengths(lengths);
    const std::int64_t longest = *std::max_element(listed.begin(), listed.end());
    if (longest > tokens) return longer_than_row(longest, tokens, where);
    return sum_of_lengths(listed) == static_cast<double>(tokens) ? listed : documents_like(tokens, std::move(listed));
  }
  const auto [mean, deviation] = *mean_length_of(lengths);
  if (mean > tokens) return longer_than_row(mean, tokens, where);
  DocumentLengths documents = equal_parts(tokens, documents_by_mean(tokens, static_cast<double>(mean)));
  const std::int64_t moved = std::min(deviation, documents.back() - 1);
  for (std::size_t i = 0; i + 1 < documents.size(); i += 2) {
    documents[i] += moved;
    documents[i + 1] -= moved;
  }
  return documents;
}

std::string text_of_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.size() > kMostListedLengths) {
    std::sort(lengths.begin(), lengths.end());
    lengths = at_even_ranks(lengths, kMostListedLengths);
  }
  std::vector<std::string> parts;
  for (auto at = lengths.begin(); at != lengths.end();) {
    const auto next = std::find_if(at, lengths.end(), [&](std::int64_t each) { return each != *at; });
    parts.push_back(fmt::format("{}x{}", next - at, *at));
    at = next;
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

double share_of_scores(const std::vector<std::int64_t>& documents) {
  double squares = 0;
  for (const std::int64_t length : documents) squares += static_cast<double>(length) * static_cast<double>(length);
  const double tokens = sum_of_lengths(documents);
  return documents.empty() ? 1 : squares / (tokens * tokens);
}

double share_of_blocks(const std::vector<std::int64_t>& documents) {
  const auto blocks_of = [](std::int64_t tokens) { return (tokens + kFlexBlock - 1) / kFlexBlock; };
  const auto tokens = static_cast<std::int64_t>(sum_of_lengths(documents));
  std::int64_t computed = 0;
  std::size_t document = 0;  // That of the first token of a row of blocks, which sees the earliest key.
  std::int64_t start = 0;    // Its first token.
  for (std::int64_t block = 0; block < blocks_of(tokens); ++block) {
    while (start + documents[document] <= block * kFlexBlock) start += documents[document++];
    computed += block - start / kFlexBlock + 1;
  }
  const std::int64_t rows = blocks_of(tokens);
  return rows == 0 ? 1 : static_cast<double>(computed) / (static_cast<double>(rows * (rows + 1)) / 2);
}

std::int64_t elements_of_block_mask(std::int64_t rows, std::int64_t tokens) {
  constexpr std::int64_t kPart = 512 / 4;  // The allocator's block, in int32.
  const std::int64_t blocks = round_up(tokens, kFlexBlock) / kFlexBlock;
  const std::int64_t tables = round_up(rows * blocks, kPart) + round_up(rows * blocks * blocks, kPart);
  const std::int64_t documents =
      rows == 1 ? round_up(tokens + 1, kPart) + round_up(tokens, kPart) : round_up(rows * tokens, kPart);
  return 4 * tables + documents;
}

bool is_packed_to_one_row(const Packing& packing) {
  return packing.attention != PackedAttention::Flex;
}

std::string sentence_of(const Packing& packing, std::int64_t tokens) {
  const auto documents = documents_of_row(tokens, packing.lengths, {});
  const std::size_t number = documents ? documents->size() : 1;
  return fmt::format(
      "packed to {} ({})", with_commas(tokens),
      number == 1 ? "one document" : "documents of about " + with_commas(tokens / static_cast<std::int64_t>(number)));
}

}  // namespace fsdp
