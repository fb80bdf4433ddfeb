#pragma once

// Small arithmetic over named dimensions: "16 * frames", "ceil(12.5 * seconds)", "max(batch, 2) + 1".

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

/// The value of a name. Error: an unknown name, or an error in its own value.
using NameLookup = std::function<Result<double>(std::string_view name)>;

/// The value of an expression: numbers, names, + - * / %, parentheses, and floor, ceil, round, min and max. Error, with
/// the place `where`: not an expression, an unknown name, a division by zero, or a value that is not finite.
Result<double> evaluate(std::string_view expression, const NameLookup& lookup, std::string_view where);

/// The names that an expression uses, in order of appearance; functions are not names.
std::vector<std::string> names_in(std::string_view expression);

/// The names of functions. No dimension may have one.
std::span<const std::string_view> expression_functions();

/// Whether a text can name a dimension: a letter, then letters, digits and "_", and no function's name.
bool is_dimension_name(std::string_view text);

}  // namespace fsdp
