#include "overlay/settings.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "overlay/kernel.h"
#include "overlay/system_call.h"

namespace fsdp::overlay {

namespace {

// Not a global object: other libraries open files in their constructors, which may run before ours.
alignas(Settings) unsigned char g_room[sizeof(Settings)];
Settings* g_settings = nullptr;

void open_used(Settings& s) {
  Text used(s.folder.view());
  used.append("/used");
  const int file = kernel::open(used.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  const long at = kernel::call(SYS_mmap, 0, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at > 0 || at < -4095) s.used = reinterpret_cast<char*>(at);
  kernel::close(file);
}

const Settings& read_settings() {
  Settings& s = *new (g_room) Settings;
  g_settings = &s;
  const char* folder = std::getenv("FSDP_OVERLAY");
  if (folder == nullptr || folder[0] != '/' || !s.folder.assign(folder)) return s;
  const char* free = std::getenv("FSDP_OVERLAY_FREE");
  if (free != nullptr) s.free.assign(free);
  const char* watch = std::getenv("FSDP_OVERLAY_WATCH");
  s.watch = watch != nullptr && watch[0] == '1';
  if (!s.watch) take_stopped_calls();
  open_used(s);
  s.active = true;
  return s;
}

__attribute__((constructor)) void prepare() {
  settings();
}

}  // namespace

/// For the hook in Python, which does not start a script without protection.
extern "C" __attribute__((visibility("default"))) int fsdp_overlay_is_active() {
  return settings().active ? 1 : 0;
}

const Settings& settings() {
  return g_settings == nullptr ? read_settings() : *g_settings;
}

void set_used() {
  if (settings().used != nullptr) *settings().used = 1;
}

bool is_free(std::string_view path) {
  // Folders of files in /dev belong to the user, as on any disk. runs/rehearse_overlay.cpp has the same list.
  bool holds_files = false;
  for (const std::string_view folder : {"/dev/shm", "/dev/mqueue", "/dev/hugepages"}) {
    holds_files = holds_files || is_in(path, folder);
  }
  for (const std::string_view folder : {"/dev", "/proc", "/sys"}) {
    if (is_in(path, folder) && !holds_files) return true;
  }
  std::string_view rest = settings().free.view();
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find('\n'));
    if (!folder.empty() && is_in(path, folder)) return true;
    rest.remove_prefix(folder.size() < rest.size() ? folder.size() + 1 : rest.size());
  }
  return false;
}

void note(std::string_view path) {
  Text log(settings().folder.view());
  log.append("/log");
  const int file = kernel::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  Text line(path);
  if (line.append("\n")) kernel::call(SYS_write, file, kernel::to(line.c_str()), static_cast<long>(line.size()));
  kernel::close(file);
}

}  // namespace fsdp::overlay
