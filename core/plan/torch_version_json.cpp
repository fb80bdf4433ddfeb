#include "core/plan/torch_version_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/base/json_writer.h"
#include "core/base/result.h"
#include "core/plan/torch_version.h"

namespace fsdp {

bool read_torch_version(const JsonValue& value, Runtime& runtime, JsonErrors& errors) {
  std::string text;
  if (!read_json(value, text, errors)) return false;
  const Result<TorchVersion> version = find_torch_version(text);
  if (!version) return errors.add(value, version.error()[0].what, version.error()[0].hint);
  set_torch_version(runtime, *version);
  if (text != version->name) runtime.version = text;
  return true;
}

std::string schema_of_torch_versions() {
  std::vector<std::string> names;
  for (const TorchVersion& version : torch_versions()) {
    names.push_back(json_quoted(version.name));
    for (char patch = '0'; patch <= version.release.back(); ++patch) {
      names.push_back(json_quoted(fmt::format("{}.{}", version.name, patch)));
    }
  }
  return fmt::format(R"("type": "string", "enum": [{}], "default": {})", fmt::join(names, ", "),
                     json_quoted(Runtime{}.version));
}

}  // namespace fsdp
