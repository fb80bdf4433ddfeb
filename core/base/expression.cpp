// A recursive descent parser that evaluates as it goes.
//
//   sum     = product { ("+" | "-") product }
//   product = unary { ("*" | "/" | "%") unary }
//   unary   = "-" unary | atom
//   atom    = number | name | function "(" sum { "," sum } ")" | "(" sum ")"

#include "core/base/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace fsdp {
namespace {

constexpr std::array<std::string_view, 5> kFunctions = {"floor", "ceil", "round", "min", "max"};
constexpr int kDeepest = 50;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const NameLookup& lookup, std::string_view where)
      : text_(text), lookup_(lookup), where_(where) {}

  Result<double> run() {
    const double value = sum();
    skip_blanks();
    if (errors_.empty() && at_ < text_.size())
      fail(fmt::format("Unexpected \"{}\" after the end of the expression.", rest()));
    if (errors_.empty() && !std::isfinite(value)) fail("Its value is not a finite number.");
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return value;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string rest() const { return std::string(text_.substr(at_, 20)); }

  /// Only the first mistake counts; later ones follow from it.
  double fail(std::string what) {
    if (errors_.empty()) {
      errors_.push_back(Error{
          .where = std::string(where_),
          .what = fmt::format("The expression \"{}\" does not work: {}", text_.substr(0, 200), what),
          .hint = "Write numbers, names of dimensions, + - * / %, parentheses, floor, ceil, round, min and max."});
    }
    at_ = text_.size();
    return 0;
  }

  double sum() {
    double value = product();
    while (true) {
      if (accept('+')) {
        value += product();
      } else if (accept('-')) {
        value -= product();
      } else {
        return value;
      }
    }
  }

  double product() {
    double value = unary();
    while (true) {
      if (accept('*')) {
        value *= unary();
        continue;
      }
      const bool divides = accept('/');
      if (!divides && !accept('%')) return value;
      const double divisor = unary();
      if (divisor == 0) return fail("It divides by zero.");
      value = divides ? value / divisor : std::fmod(value, divisor);
    }
  }

  double unary() {
    if (++depth_ > kDeepest) return fail("It is nested too deeply.");
    const double value = accept('-') ? -unary() : atom();
    --depth_;
    return value;
  }

  double atom() {
    if (accept('(')) {
      const double value = sum();
      if (!accept(')')) return fail("A \")\" is missing.");
      return value;
    }
    skip_blanks();
    if (at_ >= text_.size()) return fail("It ends too early.");
    if (is_digit(text_[at_]) || text_[at_] == '.') return number();
    if (is_letter(text_[at_])) return name();
    return fail(fmt::format("\"{}\" is neither a number nor a name.", rest()));
  }

  double number() {
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) return fail(fmt::format("\"{}\" is not a number that can be used.", rest()));
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  double name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (std::find(kFunctions.begin(), kFunctions.end(), word) != kFunctions.end()) return function(word);
    auto value = lookup_(word);
    if (value) return *value;
    if (errors_.empty()) errors_ = std::move(value).error();
    at_ = text_.size();
    return 0;
  }

  double function(std::string_view word) {
    if (!accept('(')) return fail(fmt::format("\"{}\" needs its argument in parentheses.", word));
    std::vector<double> arguments = {sum()};
    while (accept(',')) arguments.push_back(sum());
    if (!accept(')')) return fail("A \")\" is missing.");
    const bool takes_many = word == "min" || word == "max";
    if (!takes_many && arguments.size() != 1) return fail(fmt::format("\"{}\" takes one argument.", word));
    if (word == "floor") return std::floor(arguments[0]);
    if (word == "ceil") return std::ceil(arguments[0]);
    if (word == "round") return std::round(arguments[0]);
    const auto [min, max] = std::minmax_element(arguments.begin(), arguments.end());
    return word == "min" ? *min : *max;
  }

  std::string_view text_;
  const NameLookup& lookup_;
  std::string_view where_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Errors errors_;
};

}  // namespace

Result<double> evaluate(std::string_view expression, const NameLookup& lookup, std::string_view where) {
  return ExpressionParser(expression, lookup, where).run();
}

std::vector<std::string> names_in(std::string_view expression) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < expression.size();) {
    if (is_digit(expression[i]) || expression[i] == '.') {  // A number, whose exponent is not a name.
      while (i < expression.size() && (is_digit(expression[i]) || is_letter(expression[i]) || expression[i] == '.'))
        ++i;
    } else if (is_letter(expression[i])) {
      const std::size_t begin = i;
      while (i < expression.size() && (is_digit(expression[i]) || is_letter(expression[i]))) ++i;
      const std::string_view word = expression.substr(begin, i - begin);
      if (std::find(kFunctions.begin(), kFunctions.end(), word) == kFunctions.end()) names.emplace_back(word);
    } else {
      ++i;
    }
  }
  return names;
}

std::span<const std::string_view> expression_functions() {
  return kFunctions;
}

bool is_dimension_name(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  const bool good = std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
  return good && std::find(kFunctions.begin(), kFunctions.end(), text) == kFunctions.end();
}

}  // namespace fsdp
