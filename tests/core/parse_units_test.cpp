#include "core/base/parse_units.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <cctype>
#include <regex>
#include <string>
#include <vector>

#include <cmath>
#include <cstring>
#include <string>

namespace fsdp {
namespace {

using namespace literals;

/// The whole message, or "good" when there is none.
template <class T>
std::string message(const Result<T>& result) {
  return result ? "good" : to_string(result.error().front());
}

std::string size_message(std::string_view text) {
  return message(parse_size(text, "--mem"));
}

TEST(ParseSize, PrefixesAloneCountIn1024s) {
  EXPECT_EQ(parse_size("16G", ""), 16_GiB);
  EXPECT_EQ(parse_size("1K", ""), 1_KiB);
  EXPECT_EQ(parse_size("512M", ""), 512_MiB);
  EXPECT_EQ(parse_size("2T", ""), 2048_GiB);
  EXPECT_EQ(parse_size("16g", ""), 16_GiB);
}

TEST(ParseSize, BinaryPrefixesAreThoseOfIec) {
  EXPECT_EQ(parse_size("15360MiB", ""), 15_GiB);
  EXPECT_EQ(parse_size("16 GiB", ""), 16_GiB);
  EXPECT_EQ(parse_size("16Gi", ""), 16_GiB);
  EXPECT_EQ(parse_size("16gib", ""), 16_GiB);
  EXPECT_EQ(parse_size("1TiB", ""), 1024_GiB);
}

TEST(ParseSize, DecimalUnitsCountIn1000s) {
  EXPECT_EQ(parse_size("16GB", ""), 16'000'000'000_B);
  EXPECT_EQ(parse_size("16gb", ""), 16'000'000'000_B);
  EXPECT_EQ(parse_size("3KB", ""), 3'000_B);
  EXPECT_TRUE(is_decimal_size("16 GB "));
  EXPECT_TRUE(is_decimal_size("16gb"));
  EXPECT_FALSE(is_decimal_size("16GiB"));
  EXPECT_FALSE(is_decimal_size("16G"));
  EXPECT_FALSE(is_decimal_size("16B"));
}

TEST(ParseSize, FractionsAreRoundedToTheByte) {
  EXPECT_EQ(parse_size("1.5G", ""), 1536_MiB);
  EXPECT_EQ(parse_size(" .5 GiB\t", ""), 512_MiB);
  EXPECT_EQ(parse_size("0.0015KB", ""), 2_B);  // 1.5 bytes
  EXPECT_EQ(parse_size("1e3B", ""), 1000_B);
}

TEST(ParseSize, WholeNumbersAreExactUpTo2To62) {
  EXPECT_EQ(parse_size("4611686018427387904B", ""), kLargestSize);
  EXPECT_EQ(parse_size("4194304T", ""), kLargestSize);
  EXPECT_EQ(parse_size("9007199254740993B", ""), 9007199254740993_B);  // 2^53 + 1, which no double is
  EXPECT_EQ(
      size_message("4611686018427387905B"),
      "--mem: \"4611686018427387905B\" is more than 2^62 bytes. Write a number and K, M, G, T (powers of 1024), KiB "
      "to TiB or KB to TB, such as \"16G\".");
  EXPECT_EQ(parse_size("4194305T", "").error().front().what, "\"4194305T\" is more than 2^62 bytes.");
  EXPECT_EQ(parse_size("4194304.5T", "").error().front().what, "\"4194304.5T\" is more than 2^62 bytes.");
  EXPECT_EQ(parse_size("99999999999999999999B", "").error().front().what,
            "\"99999999999999999999B\" is more than 2^62 bytes.");
}

TEST(ParseSize, BareNumberErrorSuggestsAUnit) {
  EXPECT_EQ(size_message("80"), "--mem: \"80\" has no unit. Did you mean \"80G\"?");
  EXPECT_EQ(size_message("1.5"), "--mem: \"1.5\" has no unit. Did you mean \"1.5G\"?");
  EXPECT_EQ(size_message("15360"), "--mem: \"15360\" has no unit. Did you mean \"15360MiB\"?");
  EXPECT_EQ(size_message("17179869184"), "--mem: \"17179869184\" has no unit. Did you mean \"16GiB\"?");
}

TEST(ParseSize, EveryOtherMistakeIsReported) {
  const std::string hint = " Write a number and K, M, G, T (powers of 1024), KiB to TiB or KB to TB, such as \"16G\".";
  EXPECT_EQ(size_message(""), "--mem: \"\" is empty where a size belongs." + hint);
  EXPECT_EQ(size_message("  "), "--mem: \"  \" is empty where a size belongs." + hint);
  EXPECT_EQ(size_message("big"), "--mem: \"big\" is not a size." + hint);
  EXPECT_EQ(size_message("-16G"), "--mem: \"-16G\" is negative, which no size is." + hint);
  EXPECT_EQ(size_message("infG"), "--mem: \"infG\" is not a size." + hint);
  EXPECT_EQ(size_message("nanG"), "--mem: \"nanG\" is not a size." + hint);
  EXPECT_EQ(size_message("1e999G"), "--mem: \"1e999G\" is out of range." + hint);
  EXPECT_EQ(size_message("16X"), "--mem: \"X\" is not a unit of size." + hint);
  EXPECT_EQ(size_message("16G 16G"), "--mem: \"G 16G\" is not a unit of size." + hint);
  EXPECT_EQ(size_message("1,5G"), "--mem: \"1,5G\" has a comma; the decimal sign is a point." + hint);
  EXPECT_EQ(size_message("16Gb"), "--mem: \"16Gb\" counts bits; a size counts bytes." + hint);
  EXPECT_EQ(size_message("16Gbit"), "--mem: \"16Gbit\" counts bits; a size counts bytes." + hint);
  EXPECT_EQ(size_message("16\x1b[31m"), "--mem: \"\\u001b[31m\" is not a unit of size." + hint);
  EXPECT_EQ(size_message(std::string(100, 'G')), "--mem: \"" + std::string(40, 'G') + "...\" is not a size." + hint);
}

TEST(ParseBandwidth, IsInBytes) {
  EXPECT_EQ(parse_bandwidth("450GB/s", ""), BytesPerSecond(450e9));
  EXPECT_EQ(parse_bandwidth("12.5 gb/s", ""), BytesPerSecond(12.5e9));
  EXPECT_EQ(parse_bandwidth("1GiB/s", ""), BytesPerSecond(1073741824));
}

TEST(ParseBandwidth, GigabitsHaveTheirOwnHint) {
  const std::string hint = " Write a positive number and GB/s, GiB/s, MB/s or MiB/s, such as \"450GB/s\".";
  const auto text_of = [](std::string_view text) { return message(parse_bandwidth(text, "links.json")); };
  EXPECT_EQ(text_of("400Gbps"), "links.json: \"400Gbps\" counts bits; divide it by 8." + hint);
  EXPECT_EQ(text_of("400Gb/s"), "links.json: \"400Gb/s\" counts bits; divide it by 8." + hint);
  EXPECT_EQ(text_of("400Gbit/s"), "links.json: \"400Gbit/s\" counts bits; divide it by 8." + hint);
  EXPECT_EQ(text_of("450"), "links.json: \"450\" has no unit." + hint);
  EXPECT_EQ(text_of("450GB"), "links.json: \"GB\" is not a unit of bandwidth." + hint);
  EXPECT_EQ(text_of("0GB/s"), "links.json: \"0GB/s\" is zero." + hint);
  EXPECT_EQ(text_of("1e300TB/s"), "links.json: \"1e300TB/s\" is out of range." + hint);
  EXPECT_EQ(text_of("infGB/s"), "links.json: \"infGB/s\" is not a bandwidth." + hint);
}

TEST(ParseFlopsRate, TakesBothSpellings) {
  EXPECT_EQ(parse_flops_rate("312TFLOPS", ""), FlopsPerSecond(312e12));
  EXPECT_EQ(parse_flops_rate("1.5 PFLOP/s", ""), FlopsPerSecond(1.5e15));
  EXPECT_EQ(
      message(parse_flops_rate("312T", "peak")),
      "peak: \"T\" is not a unit of rate of operations. Write a positive number and GFLOPS, TFLOPS or PFLOPS, such "
      "as \"312TFLOPS\".");
}

TEST(ParseTime, IsTheNearestDouble) {
  EXPECT_EQ(parse_time("3.5us", ""), Seconds(3.5e-6));
  EXPECT_EQ(parse_time("20 ms", ""), Seconds(0.02));
  EXPECT_EQ(parse_time("2min", ""), Seconds(120));
  EXPECT_EQ(parse_time("0s", ""), Seconds(0));
  EXPECT_EQ(message(parse_time("3.5", "latency")),
            "latency: \"3.5\" has no unit. Write a number and ns, us, ms, s, min or h, such as \"3.5us\".");
}

TEST(FormatBytes, PrintsAboutThreeDigits) {
  EXPECT_EQ(format_bytes(0_B), "0 B");
  EXPECT_EQ(format_bytes(1023_B), "1023 B");
  EXPECT_EQ(format_bytes(1_KiB), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536_MiB), "1.50 GiB");
  EXPECT_EQ(format_bytes(15360_MiB), "15.0 GiB");
  EXPECT_EQ(format_bytes(143771_MiB), "140 GiB");
  EXPECT_EQ(format_bytes(1024_GiB), "1.00 TiB");
  EXPECT_EQ(format_bytes(Bytes(-1) * (1 << 20)), "-1.00 MiB");
  // 1023.9 MiB is a GiB to three digits, and not "1024 MiB".
  EXPECT_EQ(format_bytes(1_GiB - 100_KiB), "1.00 GiB");
}

TEST(Format, OtherQuantitiesAreDecimal) {
  EXPECT_EQ(format_bandwidth(BytesPerSecond(450e9)), "450 GB/s");
  EXPECT_EQ(format_flops_rate(FlopsPerSecond(8.1e12)), "8.10 TFLOPS");
  EXPECT_EQ(format_time(Seconds(0.2123)), "212 ms");
  EXPECT_EQ(format_time(Seconds(3.5e-6)), "3.50 us");
  EXPECT_EQ(format_time(Seconds(0)), "0 ns");
  EXPECT_EQ(format_time(Seconds(90)), "90.0 s");
}

TEST(Exact, PrintsNumbersAsAPersonWould) {
  EXPECT_EQ(exact_size(16_GiB), "16GiB");
  EXPECT_EQ(exact_size(15361_MiB), "15361MiB");
  EXPECT_EQ(exact_size(0_B), "0B");
  EXPECT_EQ(exact_bandwidth(BytesPerSecond(3.125e9)), "3.125GB/s");
  EXPECT_EQ(exact_flops_rate(FlopsPerSecond(494.5e12)), "494.5TFLOPS");
  EXPECT_EQ(exact_time(Seconds(3.5e-6)), "3.5us");
}

RC_GTEST_PROP(ExactSize, ReadsBackTheSame, ()) {
  const Bytes size(*rc::gen::inRange<std::int64_t>(0, kLargestSize.count()) >> *rc::gen::inRange(0, 62));
  RC_ASSERT(parse_size(exact_size(size), "") == size);
  const Bytes rounded(size.count() & ~std::int64_t{0xFFFFF});
  RC_ASSERT(parse_size(exact_size(rounded), "") == rounded);
}

/// A positive double of any bits, between 1e-15 and 1e25.
double any_positive() {
  const double mantissa = 1 + static_cast<double>(*rc::gen::inRange<std::int64_t>(0, 1LL << 52)) / (1LL << 52);
  return std::ldexp(mantissa, *rc::gen::inRange(-50, 80));
}

RC_GTEST_PROP(ExactRates, ReadBackTheSame, ()) {
  const double value = any_positive();
  RC_ASSERT(parse_bandwidth(exact_bandwidth(BytesPerSecond(value)), "") == BytesPerSecond(value));
  RC_ASSERT(parse_flops_rate(exact_flops_rate(FlopsPerSecond(value)), "") == FlopsPerSecond(value));
  RC_ASSERT(parse_time(exact_time(Seconds(value)), "") == Seconds(value));
}

/// All mixtures of capital and small letters.
std::vector<std::string> mixtures_of(std::string text) {
  std::vector<std::string> found = {""};
  for (const char c : text) {
    std::vector<std::string> longer;
    for (const std::string& begun : found) {
      longer.push_back(begun + c);
      const auto other = static_cast<char>(c ^ 0x20);
      if (std::isalpha(static_cast<unsigned char>(c))) longer.push_back(begun + other);
    }
    found = std::move(longer);
  }
  return found;
}

TEST(ParseUnits, PatternsMatchTheParsers) {
  const std::regex size(size_pattern()), bandwidth(bandwidth_pattern()), rate(flops_rate_pattern()),
      time(time_pattern());
  int taken = 0;
  const auto compare = [&](const std::string& text, const std::regex& pattern, bool is_good) {
    EXPECT_EQ(std::regex_match(text, pattern), is_good) << text;
    taken += is_good;
  };
  for (const char* unit : {"",      "B",      "K",       "KB", "KiB", "TiB", "PB",  "B/s", "GB/s", "GiB/s", "Gbps",
                           "FLOPS", "TFLOPS", "PFLOP/s", "s",  "us",  "µs",  "min", "h",   "bit",  "x"}) {
    for (const std::string& mixed : mixtures_of(unit)) {
      for (const char* number :
           {"16", "1.5 ", " .5", "2.", "1e3", "1E-3\t", "0", "0.0", "-1", "+1", "1,5", "", ".", "e3", "inf", "0x1"}) {
        const std::string text = number + mixed;
        compare(text, size, parse_size(text, "").has_value());
        compare(text, bandwidth, parse_bandwidth(text, "").has_value());
        compare(text, rate, parse_flops_rate(text, "").has_value());
        compare(text, time, parse_time(text, "").has_value());
      }
    }
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace fsdp
