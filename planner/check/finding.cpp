#include "planner/check/finding.h"

#include <fmt/format.h>

namespace fsdp::planner {

std::string text_of(const FindingPlace& place) {
  const std::string begin = fmt::format("{}:{}:{}", place.file, place.line, place.column);
  return place.pointer.empty() ? begin : fmt::format("{}: {}", begin, place.pointer);
}

std::string text_of(const Mend& mend) {
  switch (mend.how) {
    case Mend::How::Advice:
      return mend.text;
    case Mend::How::Replace:
      return fmt::format("{}: {}", mend.key, mend.text);
    case Mend::How::Remove:
      return fmt::format("Remove {}.", mend.key);
  }
  return {};
}

}  // namespace fsdp::planner
