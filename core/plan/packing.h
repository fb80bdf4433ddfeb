#pragma once

// Packed rows: several documents in one row of tokens. Each attends to itself alone, and its positions start at 0.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/op.h"

namespace fsdp {

/// Values of a packed model: what transformers' collators give it, and the mask that it makes of the positions.
inline constexpr std::string_view kPositionIds = "position_ids";
inline constexpr std::string_view kBoundariesOfQueries = "cu_seq_lens_q";
inline constexpr std::string_view kBoundariesOfKeys = "cu_seq_lens_k";
inline constexpr std::string_view kDocumentMask = "document_mask";
/// FlexAttention's mask: the numbers of all its tensors, each of which begins at a multiple of 512 bytes.
inline constexpr std::string_view kBlockMask = "block_mask";

/// A micro-batch is one row of several documents; with FlexAttention it can have several rows.
struct Packing {
  PackedAttention attention = PackedAttention::FlashAttn;
  /// The lengths of the documents, for a row of any length:
  ///
  ///   "900"       all alike, of about 900: as many as fit, rounded to the nearest number
  ///   "900:300"   the same, half of them 300 longer and half 300 shorter, so 300 is the standard deviation
  ///   "9x900,92"  nine of 900 and one of 92. If they do not fill the row exactly: as many as fit by the mean of these,
  ///               at even ranks of them, stretched
  ///   "row"       one, as long as the row
  std::string lengths = "512";

  bool operator==(const Packing&) const = default;
};

/// What is wrong with the text of lengths, at `where`.
Result<void> check_lengths(const std::string& lengths, std::string_view where);

/// The lengths of the documents in a row of `tokens`, in order. Their sum is `tokens`. Error, at `where`: as
/// check_lengths, or a document that is longer than the row.
Result<std::vector<std::int64_t>> documents_of_row(std::int64_t tokens, const std::string& lengths,
                                                   std::string_view where);

/// Whether this is a text of lengths, and no name of a file: it has no other characters.
bool is_text_of_lengths(std::string_view text);

/// "9x900,92" for these lengths; for more than 256, for as many at even ranks of them. REQUIRES: not empty.
std::string text_of_lengths(std::vector<std::int64_t> lengths);

/// The share of a row's pairs of tokens that attention computes: the sum of L^2 over the square of the row. 1 without
/// documents.
double share_of_scores(const std::vector<std::int64_t>& documents);

/// The rows and columns of a block of FlexAttention's mask: _DEFAULT_SPARSE_BLOCK_SIZE of torch.nn.attention.
inline constexpr std::int64_t kFlexBlock = 128;

/// The blocks of a causal row that FlexAttention computes, in whole, over those of a row of one document.
double share_of_blocks(const std::vector<std::int64_t>& documents);

/// Elements, int32, of the block mask of `rows` rows of `tokens` each, with the boundaries of documents that its
/// function of positions reads.
std::int64_t elements_of_block_mask(std::int64_t rows, std::int64_t tokens);

/// The samples of a micro-batch of packed rows: any number with a kernel that takes them, else one.
bool is_packed_to_one_row(const Packing& packing);

/// "packed to 8,192 (documents of about 910)".
std::string sentence_of(const Packing& packing, std::int64_t tokens);

}  // namespace fsdp
