// A quantity is a number, optional blanks, and a unit. Each kind of quantity has a table of units; all else is shared.
// Whole numbers are multiplied as integers, so that large sizes stay exact.

#include "core/base/parse_units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "core/base/json_writer.h"

namespace fsdp {

namespace {

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kGibi = kKibi * kMebi;
constexpr double kTebi = kKibi * kGibi;

struct Suffix {
  std::string_view suffix;
  double scale;
};

// Upper and lower case of a size's unit are the same, except that a "b" after a capital prefix is a bit ("Gb").
constexpr std::array kSizeUnits = {
    Suffix{"B", 1},       Suffix{"K", kKibi},   Suffix{"M", kMebi},   Suffix{"G", kGibi},  Suffix{"T", kTebi},
    Suffix{"Ki", kKibi},  Suffix{"Mi", kMebi},  Suffix{"Gi", kGibi},  Suffix{"Ti", kTebi}, Suffix{"KiB", kKibi},
    Suffix{"MiB", kMebi}, Suffix{"GiB", kGibi}, Suffix{"TiB", kTebi}, Suffix{"KB", 1e3},   Suffix{"MB", 1e6},
    Suffix{"GB", 1e9},    Suffix{"TB", 1e12},
};
constexpr std::array kBandwidthUnits = {
    Suffix{"B/s", 1},       Suffix{"KB/s", 1e3},    Suffix{"MB/s", 1e6},
    Suffix{"GB/s", 1e9},    Suffix{"TB/s", 1e12},   Suffix{"KiB/s", kKibi},
    Suffix{"MiB/s", kMebi}, Suffix{"GiB/s", kGibi}, Suffix{"TiB/s", kTebi},
};
constexpr std::array kFlopsUnits = {
    Suffix{"FLOPS", 1},     Suffix{"MFLOPS", 1e6},  Suffix{"GFLOPS", 1e9},
    Suffix{"TFLOPS", 1e12}, Suffix{"PFLOPS", 1e15}, Suffix{"EFLOPS", 1e18},
};
constexpr std::array kTimeUnits = {
    Suffix{"s", 1},     Suffix{"ms", 1e-3}, Suffix{"us", 1e-6}, Suffix{"µs", 1e-6},
    Suffix{"ns", 1e-9}, Suffix{"min", 60},  Suffix{"h", 3600},
};

/// The common part of the kinds of quantities: the name in a message, and the expected form.
struct Kind {
  std::string_view noun;
  std::string_view hint;
};

constexpr Kind kSize{"size",
                     "Write a number and K, M, G, T (powers of 1024), KiB to TiB or KB to TB, such as \"16G\"."};
constexpr Kind kBandwidth{"bandwidth", "Write a positive number and GB/s, GiB/s, MB/s or MiB/s, such as \"450GB/s\"."};
constexpr Kind kFlopsRate{"rate of operations",
                          "Write a positive number and GFLOPS, TFLOPS or PFLOPS, such as \"312TFLOPS\"."};
constexpr Kind kTime{"time", "Write a number and ns, us, ms, s, min or h, such as \"3.5us\"."};

struct Split {
  double number = 0;
  std::optional<std::int64_t> integer;  ///< `nullopt` if the number has a fraction or an exponent, or does not fit.
  std::string_view unit;
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// The text in quotes, printable and shortened.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return json_quoted(text);
  std::size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return json_quoted(std::string(text.substr(0, cut)) + "...");
}

Result<Split> split_quantity(std::string_view text, const Kind& kind, std::string_view where) {
  const auto fail = [&](std::string_view what) {
    return failure(std::string(where), fmt::format("{} {}", quoted(text), what), std::string(kind.hint));
  };
  const std::string_view body = trimmed(text);
  if (body.empty()) return fail(fmt::format("is empty where a {} belongs.", kind.noun));
  if (body.front() == '-') return fail(fmt::format("is negative, which no {} is.", kind.noun));

  // `from_chars` would also accept "inf" and "nan".
  const bool starts_a_number = std::isdigit(static_cast<unsigned char>(body.front())) || body.front() == '.';
  Split result;
  const char* const end = body.data() + body.size();
  const auto parsed = std::from_chars(body.data(), end, result.number);
  if (!starts_a_number || parsed.ec == std::errc::invalid_argument) return fail(fmt::format("is not a {}.", kind.noun));
  if (parsed.ec != std::errc{} || !std::isfinite(result.number)) return fail("is out of range.");

  const std::string_view digits(body.data(), static_cast<std::size_t>(parsed.ptr - body.data()));
  std::int64_t integer = 0;
  const auto whole = std::from_chars(digits.data(), parsed.ptr, integer);
  if (whole.ec == std::errc{} && whole.ptr == parsed.ptr) result.integer = integer;
  result.unit = trimmed(body.substr(digits.size()));
  if (!result.unit.empty() && result.unit.front() == ',') return fail("has a comma; the decimal sign is a point.");
  return result;
}

/// A guess for a bare number: gigabytes if small, MiB if medium, bytes if large.
std::string size_guess(const Split& split, std::string_view number) {
  constexpr double kLargestGigabytes = 1024;
  constexpr double kLargestMebibytes = 1e6;
  if (split.number <= kLargestGigabytes) return fmt::format("Did you mean \"{}G\"?", number);
  if (split.number <= kLargestMebibytes) return fmt::format("Did you mean \"{}MiB\"?", number);
  if (split.integer && *split.integer <= kLargestSize.count())
    return fmt::format("Did you mean \"{}\"?", exact_size(Bytes(*split.integer)));
  return std::string(kSize.hint);
}

bool is_bits(std::string_view unit) {
  const std::string folded = lower(unit);
  for (const std::string_view ending : {"bps", "bit/s", "bits/s", "bit", "bits"}) {
    if (folded.ends_with(ending)) return true;
  }
  if (unit.ends_with("b/s") || unit.ends_with("b/S")) unit.remove_suffix(2);
  return unit == "b" ||
         (unit.size() >= 2 && unit.back() == 'b' && std::isupper(static_cast<unsigned char>(unit.front())));
}

std::optional<double> scale_of(std::string_view unit, std::span<const Suffix> units) {
  for (const Suffix& known : units) {
    if (unit == known.suffix) return known.scale;
  }
  const std::string folded = lower(unit);
  for (const Suffix& known : units) {
    if (folded == lower(known.suffix)) return known.scale;
  }
  return std::nullopt;
}

/// Number times unit, for the kinds that are real numbers.
Result<double> parse_real(std::string_view text, std::string_view where, const Kind& kind,
                          std::span<const Suffix> units, bool zero_is_good) {
  FSDP_TRY(const Split parts, split_quantity(text, kind, where));
  const auto fail = [&](std::string what) {
    return failure(std::string(where), std::move(what), std::string(kind.hint));
  };
  if (parts.unit.empty()) return fail(fmt::format("{} has no unit.", quoted(text)));
  // Before the comparison ignores case: "GB/s" is not "Gb/s".
  if (is_bits(parts.unit)) return fail(fmt::format("{} counts bits; divide it by 8.", quoted(text)));
  const std::optional<double> scale = scale_of(parts.unit, units);
  if (!scale) return fail(fmt::format("{} is not a unit of {}.", quoted(parts.unit), kind.noun));
  // Dividing by a whole number rounds once: 3.5 us is the double nearest to 3.5e-6, but 3.5 * 1e-6 may not be.
  const double value = *scale < 1 ? parts.number / std::round(1 / *scale) : parts.number * *scale;
  if (!std::isfinite(value)) return fail(fmt::format("{} is out of range.", quoted(text)));
  if (value == 0 && !zero_is_good) return fail(fmt::format("{} is zero.", quoted(text)));
  return value;
}

/// The number and unit that read back as `value`: the largest unit with a number of at least one, otherwise the
/// shortest text. One of the units has the scale 1 and is exact for every value.
std::string exact_real(double value, std::span<const Suffix> largest_first) {
  std::string shortest_text;
  for (const Suffix& unit : largest_first) {
    const double per_unit = std::round(1 / unit.scale);
    const double number = unit.scale < 1 ? value * per_unit : value / unit.scale;
    const double back = unit.scale < 1 ? number / per_unit : number * unit.scale;
    if (back != value || !std::isfinite(number)) continue;
    std::string text = shortest(number) + std::string(unit.suffix);
    if (number >= 1) return text;
    if (shortest_text.empty() || text.size() < shortest_text.size()) shortest_text = std::move(text);
  }
  return shortest_text;
}

/// About three significant digits: "1.23", "12.3", "123".
std::string few_digits(double number) {
  if (number >= 99.95) return fmt::format("{:.0f}", number);
  if (number >= 9.995) return fmt::format("{:.1f}", number);
  return fmt::format("{:.2f}", number);
}

std::string format_scaled(double value, std::span<const Suffix> largest_first) {
  if (value < 0) return fmt::format("-{}", format_scaled(-value, largest_first));
  for (const Suffix& unit : largest_first) {
    // 999.7 of a unit prints as 1.00 of the next.
    if (value >= unit.scale * 0.9995) return few_digits(value / unit.scale) + " " + std::string(unit.suffix);
  }
  if (value == 0) return "0 " + std::string(largest_first.back().suffix);
  return few_digits(value / largest_first.back().scale) + " " + std::string(largest_first.back().suffix);
}

/// A unit in any case: "[Gg][Bb]/[Ss]".
std::string any_case(std::string_view unit) {
  std::string pattern;
  for (const char c : unit) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalpha(byte)) pattern += fmt::format("[{}{}]", char(std::toupper(byte)), char(std::tolower(byte)));
    if (!std::isalpha(byte)) pattern += c;
  }
  return pattern;
}

/// A number and one of the units. After a capital prefix "b" is a bit, so it means bytes only after a small one.
std::string pattern_of(std::span<const Suffix> units, bool zero_is_good) {
  std::string pattern;
  const auto add = [&](const std::string& unit) { pattern += (pattern.empty() ? "" : "|") + unit; };
  for (const Suffix& unit : units) {
    const std::size_t b = unit.suffix.find('B');
    if (b == std::string_view::npos) {
      add(any_case(unit.suffix));
      continue;
    }
    const std::string after = any_case(unit.suffix.substr(b + 1));
    add(any_case(unit.suffix.substr(0, b)) + "B" + after);
    if (b > 0) add(lower(unit.suffix.substr(0, 1)) + any_case(unit.suffix.substr(1, b - 1)) + "b" + after);
  }
  return fmt::format("^[ \\t]*{}([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?[ \\t]*({})[ \\t]*$",
                     zero_is_good ? "" : "(?=[0-9.]*[1-9])", pattern);
}

}  // namespace

Result<Bytes> parse_size(std::string_view text, std::string_view where) {
  FSDP_TRY(const Split parts, split_quantity(text, kSize, where));
  const auto fail = [&](std::string what, std::string hint) {
    return failure(std::string(where), std::move(what), std::move(hint));
  };
  if (parts.unit.empty()) {
    return fail(fmt::format("{} has no unit.", quoted(text)), size_guess(parts, trimmed(text)));
  }
  // "gb" is a size in small letters, "Gb" is a gigabit.
  if (is_bits(parts.unit))
    return fail(fmt::format("{} counts bits; a size counts bytes.", quoted(text)), std::string(kSize.hint));
  const std::optional<double> scale = scale_of(parts.unit, kSizeUnits);
  if (!scale) {
    return fail(fmt::format("{} is not a unit of size.", quoted(parts.unit)), std::string(kSize.hint));
  }
  const auto too_large = [&] {
    return fail(fmt::format("{} is more than 2^62 bytes.", quoted(text)), std::string(kSize.hint));
  };
  if (parts.integer) {
    const auto factor = static_cast<std::int64_t>(*scale);
    if (*parts.integer > kLargestSize.count() / factor) return too_large();
    return Bytes(*parts.integer * factor);
  }
  const double value = std::round(parts.number * *scale);
  if (value > static_cast<double>(kLargestSize.count())) return too_large();
  return Bytes(static_cast<std::int64_t>(value));
}

Result<BytesPerSecond> parse_bandwidth(std::string_view text, std::string_view where) {
  FSDP_TRY(const double value, parse_real(text, where, kBandwidth, kBandwidthUnits, false));
  return BytesPerSecond(value);
}

Result<FlopsPerSecond> parse_flops_rate(std::string_view text, std::string_view where) {
  std::string_view body = trimmed(text);
  // "TFLOP/s" is another spelling of "TFLOPS".
  std::string spelled(body);
  if (lower(body).ends_with("flop/s")) spelled = std::string(body.substr(0, body.size() - 2)) + "S";
  FSDP_TRY(const double value, parse_real(spelled, where, kFlopsRate, kFlopsUnits, false));
  return FlopsPerSecond(value);
}

Result<Seconds> parse_time(std::string_view text, std::string_view where) {
  FSDP_TRY(const double value, parse_real(text, where, kTime, kTimeUnits, true));
  return Seconds(value);
}

std::string size_pattern() {
  return pattern_of(kSizeUnits, true);
}

std::string bandwidth_pattern() {
  return pattern_of(kBandwidthUnits, false);
}

std::string flops_rate_pattern() {
  std::vector<Suffix> units(kFlopsUnits.begin(), kFlopsUnits.end());
  for (const std::string_view spelled : {"FLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"}) {
    units.push_back({spelled, 1});
  }
  return pattern_of(units, false);
}

std::string time_pattern() {
  return pattern_of(kTimeUnits, true);
}

bool is_decimal_size(std::string_view text) {
  const std::string folded = lower(trimmed(text));
  for (const std::string_view ending : {"kb", "mb", "gb", "tb"}) {
    if (folded.ends_with(ending)) return true;
  }
  return false;
}

std::string format_bytes(Bytes size) {
  constexpr std::array units = {Suffix{"TiB", kTebi}, Suffix{"GiB", kGibi}, Suffix{"MiB", kMebi}, Suffix{"KiB", kKibi}};
  if (size < Bytes(0)) return fmt::format("-{}", format_bytes(-size));
  if (size < Bytes(1024)) return fmt::format("{} B", size.count());
  return format_scaled(static_cast<double>(size.count()), units);
}

std::string format_bandwidth(BytesPerSecond bandwidth) {
  constexpr std::array units = {Suffix{"TB/s", 1e12}, Suffix{"GB/s", 1e9}, Suffix{"MB/s", 1e6}, Suffix{"KB/s", 1e3},
                                Suffix{"B/s", 1}};
  return format_scaled(bandwidth.count(), units);
}

std::string format_flops_rate(FlopsPerSecond rate) {
  constexpr std::array units = {Suffix{"PFLOPS", 1e15}, Suffix{"TFLOPS", 1e12}, Suffix{"GFLOPS", 1e9},
                                Suffix{"MFLOPS", 1e6}, Suffix{"FLOPS", 1}};
  return format_scaled(rate.count(), units);
}

std::string format_time(Seconds time) {
  constexpr std::array units = {Suffix{"s", 1}, Suffix{"ms", 1e-3}, Suffix{"us", 1e-6}, Suffix{"ns", 1e-9}};
  return format_scaled(time.count(), units);
}

std::string exact_size(Bytes size) {
  constexpr std::array<std::string_view, 5> suffixes = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::int64_t count = size.count();
  std::size_t step = 0;
  while (count != 0 && count % 1024 == 0 && step + 1 < suffixes.size()) {
    count /= 1024;
    ++step;
  }
  return fmt::format("{}{}", count, suffixes[step]);
}

std::string exact_bandwidth(BytesPerSecond bandwidth) {
  constexpr std::array units = {Suffix{"GB/s", 1e9}, Suffix{"MB/s", 1e6}, Suffix{"GiB/s", kGibi}, Suffix{"B/s", 1}};
  return exact_real(bandwidth.count(), units);
}

std::string exact_flops_rate(FlopsPerSecond rate) {
  constexpr std::array units = {Suffix{"TFLOPS", 1e12}, Suffix{"GFLOPS", 1e9}, Suffix{"FLOPS", 1}};
  return exact_real(rate.count(), units);
}

std::string exact_time(Seconds time) {
  constexpr std::array units = {Suffix{"s", 1}, Suffix{"ms", 1e-3}, Suffix{"us", 1e-6}, Suffix{"ns", 1e-9}};
  return exact_real(time.count(), units);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace fsdp
