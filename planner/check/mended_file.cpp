#include "planner/check/mended_file.h"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

#include "core/formats/yaml_edit.h"

namespace fsdp::planner {

MendedText mended_text(const std::string& text, const std::string& file, std::span<const Finding> findings) {
  const bool is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  std::map<std::size_t, TextEdit, std::greater<>> edits;  // Last first, so that earlier places stay.
  for (const Finding& finding : findings) {
    const bool is_wanted = finding.severity == Severity::Error || finding.mend.how == Mend::How::Remove;
    if (finding.place.file != file || finding.mend.how == Mend::How::Advice || !is_wanted) continue;
    const std::size_t place = finding.place.offset;
    const std::optional<TextEdit> edit = finding.mend.how == Mend::How::Replace
                                             ? replaced_scalar(text, place, finding.mend.text)
                                             : (is_yaml ? removed_line(text, place, finding.mend.key) : std::nullopt);
    if (edit) edits.emplace(edit->begin, *edit);
  }
  MendedText result{text, 0};
  std::size_t before = text.size();
  for (const auto& [begin, edit] : edits) {
    if (edit.end > before) continue;
    result.text.replace(begin, edit.end - begin, edit.text);
    before = begin;
    ++result.mended;
  }
  return result;
}

}  // namespace fsdp::planner
