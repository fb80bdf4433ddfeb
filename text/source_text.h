#pragma once

// Foreign words (names of models, modules and files) in source text that we write: Python, YAML, TOML and shell lines.
// Whatever a name contains, it cannot end its comment or literal, and it contains no control character for a terminal.

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

/// The text as one line of prose: escapes everything that printable() does, and line feeds ("\n") and tabs ("\t").
std::string one_line(std::string_view text);

/// [lines] Each line as a comment of Python, YAML or TOML: "# ", or "#" for an empty line.
std::vector<std::string> as_comments(const std::vector<std::string>& lines);

/// [lines] The lines as the docstring of a Python module, in three quotes, without a line feed at the end.
std::string python_docstring(const std::vector<std::string>& lines);

/// A literal in double quotes whose value is the text in Python, YAML and TOML. A byte that is no UTF-8 becomes U+FFFD.
std::string quoted_text(std::string_view text);

/// A Python f-string: the text before, the value of a variable, the text after.
std::string python_f_string(std::string_view before, std::string_view variable, std::string_view after);

/// A YAML value that is always read as the text: unquoted if it is plain words with commas, such as
/// "Embedding,LlamaDecoderLayer", else in quotes.
std::string yaml_text(std::string_view text);

}  // namespace fsdp::text
