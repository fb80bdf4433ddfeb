#include "rehearsal/loaded_library.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>

namespace fsdp::rehearsal {
namespace {

struct Search {
  std::string_view start_of_name;
  std::string path;
};

int visit(dl_phdr_info* library, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  const std::string_view path = library->dlpi_name;
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0: a path without a slash is a name
  if (!name.starts_with(search.start_of_name)) return 0;
  search.path = path;
  return 1;
}

}  // namespace

void* real_function(const char* library, const char* name) {
  Search search{library, {}};
  dl_iterate_phdr(visit, &search);
  if (search.path.empty()) return nullptr;
  void* const handle = dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : dlsym(handle, name);  // never closed: the library stays loaded anyway
}

int real_version(const char* library, const char* function, int otherwise) {
  using Ask = int (*)(int*);
  const auto ask = reinterpret_cast<Ask>(real_function(library, function));
  int version = 0;
  return ask != nullptr && ask(&version) == 0 && version > 0 ? version : otherwise;
}

}  // namespace fsdp::rehearsal
