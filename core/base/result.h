#pragma once

// Errors of the user's input or machine, as values. Three kinds of failure have three mechanisms: a fault that the user
// can fix is an `Error`; "no plan fits" is an answer, hence a value; a broken promise of our own code is an assert.

#include <iterator>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace fsdp {

struct Error {
  std::string where;  ///< "llama3_8b.json:12:7: /layers/3/shape", "--mem" or "rank 2, step 14". May be empty.
  std::string what;   ///< One sentence: the finding.
  std::string hint;   ///< One sentence: the fix or an alternative. May be empty.

  bool operator==(const Error&) const = default;
};

/// "where: what hint", as one line.
std::string to_string(const Error& error);

/// All errors of one input: a reader reports them at once.
using Errors = std::vector<Error>;

inline void append(Errors& to, Errors more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

template <class T>
using Result = tl::expected<T, Errors>;

inline tl::unexpected<Errors> failure(std::string where, std::string what, std::string hint = {}) {
  return tl::unexpected(Errors{Error{std::move(where), std::move(what), std::move(hint)}});
}

// The only control-flow macro: FSDP_TRY(auto model, read_model(path)) returns the call's errors to the caller.
#define FSDP_CONCAT_EXPANDED_(a, b) a##b
#define FSDP_CONCAT_(a, b) FSDP_CONCAT_EXPANDED_(a, b)
#define FSDP_TRY_(decl, expr, result)                            \
  auto result = (expr);                                          \
  if (!result) return tl::unexpected(std::move(result).error()); \
  decl = *std::move(result)
#define FSDP_TRY(decl, expr) FSDP_TRY_(decl, expr, FSDP_CONCAT_(result_at_, __LINE__))

}  // namespace fsdp
