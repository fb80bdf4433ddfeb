#include "rehearsal/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace fsdp::rehearsal {
namespace {

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stopped == end;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

/// Reads the variables one by one, and collects their errors.
class Reader {
 public:
  Reader(Lookup lookup, std::vector<std::string>& errors) : lookup_(lookup), errors_(errors) {}

  /// nullopt for a variable that is absent or empty.
  std::optional<std::string> text(const char* name) {
    std::optional<std::string> found = lookup_(name);
    return found && !found->empty() ? found : std::nullopt;
  }

  template <class Number>
  void number(const char* name, Number& value, Number least, Number most = std::numeric_limits<Number>::max()) {
    const std::optional<std::string> found = text(name);
    if (!found) return;
    Number read{};
    if (!parse_number(*found, read) || read < least || read > most) {
      reject(name, *found, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    } else {
      value = read;
    }
  }

  void reject(const char* name, std::string_view found, std::string_view allowed) {
    errors_.push_back(std::string(name) + " is \"" + std::string(found) + "\", but it takes " + std::string(allowed) +
                      ".");
  }

 private:
  Lookup lookup_;
  std::vector<std::string>& errors_;
};

void read_card(Reader& reader, Card& card) {
  if (const auto name = reader.text("STUB_GPU_NAME")) card.name = *name;
  reader.number("STUB_GPU_COMPUTE_CAPABILITY", card.compute_capability, 50, 199);
  reader.number("STUB_GPU_SMS", card.sms, 1, 10000);
  reader.number("STUB_GPU_L2_BYTES", card.l2_bytes, 0);
  reader.number("STUB_GPU_SHARED_PER_BLOCK_BYTES", card.shared_per_block_bytes, 1);
  reader.number("STUB_GPU_SHARED_PER_SM_BYTES", card.shared_per_sm_bytes, 1);
  reader.number("STUB_GPU_THREADS_PER_SM", card.threads_per_sm, 32, 65536);
  reader.number("STUB_GPU_BUS_BITS", card.bus_bits, 1);
  // The window of device addresses has 32 TiB and uses no address twice.
  reader.number("STUB_GPU_BYTES", card.total_bytes, uint64_t{1}, uint64_t{1} << 43);
}

void read_nccl_bytes(Reader& reader, Options& options) {
  constexpr const char* kName = "STUB_GPU_NCCL_BYTES";
  const auto found = reader.text(kName);
  if (!found) return;
  for (const std::string_view entry : split(*found, ',')) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    const std::string_view ranks = entry.substr(0, colon);
    int group = 0;
    uint64_t bytes = 0;
    const bool any = ranks == "*";
    if (colon == entry.size() || !parse_number(entry.substr(colon + 1), bytes) ||
        (!any && (!parse_number(ranks, group) || group < 1))) {
      reader.reject(kName, *found, "RANKS:BYTES,... with * for any other number of ranks, as 2:1048576,*:2097152");
      return;
    }
    (any ? options.nccl_bytes_otherwise : options.nccl_bytes[group]) = bytes;
  }
}

void read_fault(Reader& reader, Options& options) {
  constexpr std::pair<std::string_view, Fault> kFaults[] = {
      {"hang:", Fault::Hang}, {"illegal:", Fault::IllegalAddress}, {"event:", Fault::Event}};
  const auto found = reader.text("STUB_GPU_FAULT");
  if (!found) return;
  for (const auto& [word, fault] : kFaults) {
    if (!found->starts_with(word) || !parse_number(std::string_view(*found).substr(word.size()), options.fault_at))
      continue;
    options.fault = fault;
    if (options.fault_at > 0) return;
  }
  reader.reject(
      "STUB_GPU_FAULT", *found,
      "hang:N with a number of a collective, illegal:N with that of a kernel, or event:N with that of a record "
      "of an event");
}

void read_behavior(Reader& reader, Options& options) {
  if (const auto found = reader.text("STUB_GPU_EVENTS")) {
    const std::string_view text = *found;
    constexpr std::string_view kLag = "lag:";
    if (text == "done") {
      options.events = EventTiming::Done;
    } else if (text == "hold") {
      options.events = EventTiming::Hold;
    } else if (text.substr(0, kLag.size()) == kLag && parse_number(text.substr(kLag.size()), options.event_lag) &&
               options.event_lag > 0) {
      options.events = EventTiming::Lag;
    } else {
      reader.reject("STUB_GPU_EVENTS", text, "done, hold or lag:N with a number of kernels");
    }
  }
  read_fault(reader, options);
  if (const auto found = reader.text("STUB_GPU_ADDRESSES")) {
    if (*found != "up" && *found != "down") reader.reject("STUB_GPU_ADDRESSES", *found, "up or down");
    options.addresses_go_down = *found == "down";
  }
  if (const auto found = reader.text("STUB_GPU_TRACE")) {
    for (const std::string_view word : split(*found, ',')) {
      if (word == "memory") {
        options.traces.push_back(Trace::Memory);
      } else if (word == "kernels") {
        options.traces.push_back(Trace::Kernels);
      } else if (word == "nccl") {
        options.traces.push_back(Trace::Nccl);
      } else if (word == "calls") {
        options.traces.push_back(Trace::Calls);
      } else {
        reader.reject("STUB_GPU_TRACE", *found, "a list of memory, kernels, nccl and calls");
        return;
      }
    }
  }
}

std::optional<std::string> from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

const Options* read_environment() {
  std::vector<std::string> errors;
  const auto* const read = new Options(parse_options(from_environment, errors));
  for (const std::string& error : errors) std::fprintf(stderr, "stub GPU: %s\n", error.c_str());
  if (!errors.empty()) _exit(3);
  return read;
}

/// Errors must appear when the library is loaded, not when the first tensor is made.
[[gnu::constructor]] void check_options_at_load() {
  options();
}

}  // namespace

Options parse_options(Lookup lookup, std::vector<std::string>& errors) {
  Reader reader(lookup, errors);
  Options options;
  read_card(reader, options.card);
  reader.number("STUB_GPU_CONTEXT_BYTES", options.context_bytes, uint64_t{0});
  reader.number("STUB_GPU_COUNT", options.devices, 1, 1024);
  reader.number("STUB_GPU_FIRST", options.first_device, 0, 127);
  read_nccl_bytes(reader, options);
  if (lookup("STUB_GPU_CUDNN_WORKSPACE_BYTES")) {
    reader.number("STUB_GPU_CUDNN_WORKSPACE_BYTES", options.cudnn_workspace_bytes.emplace(), uint64_t{0});
  }
  read_behavior(reader, options);
  if (options.context_bytes > options.card.total_bytes) {
    errors.push_back("STUB_GPU_CONTEXT_BYTES is " + std::to_string(options.context_bytes) +
                     ", which is more than the card has, " + std::to_string(options.card.total_bytes) + " bytes.");
  }
  return options;
}

const Options& options() {
  static const Options* const instance = read_environment();  // never destroyed: static destructors still call us
  return *instance;
}

uint64_t nccl_bytes_of(int ranks) {
  if (ranks < 2) return 0;
  const Options& o = options();
  const auto found = o.nccl_bytes.find(ranks);
  return found == o.nccl_bytes.end() ? o.nccl_bytes_otherwise : found->second;
}

void trace(Trace which, const char* format, ...) {
  const std::vector<Trace>& wanted = options().traces;
  if (std::find(wanted.begin(), wanted.end(), which) == wanted.end()) return;
  va_list arguments;
  va_start(arguments, format);
  flockfile(stderr);  // names of kernels have thousands of letters: written in parts, but as one line
  std::fputs("stub GPU: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  funlockfile(stderr);
  va_end(arguments);
}

}  // namespace fsdp::rehearsal
