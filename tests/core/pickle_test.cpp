#include "core/formats/pickle.h"

#include <gtest/gtest.h>

#include <limits>

namespace fsdp {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// What Python 3.11 wrote for
//   v = {'a': [1, -1, 255, 256, 65536, -70000, 2**40, -2**40, 2**63-1], 't': (1, 2, 3, 4), 's': (), 'f': 1.5,
//        'n': None, 'b': (True, False), 'u': 'äö', 'y': b'\x00\x01'}
//   v['same'] = v['a']
constexpr std::string_view kProtocol3 =
    "80037d71002858010000006171015d7102284b014affffffff4bff4d00014a000001004a90eefeff8a060000000000018a06"
    "0000000000ff8a08ffffffffffffff7f655801000000747103284b014b024b034b0474710458010000007371052958010000"
    "00667106473ff800000000000058010000006e71074e58010000006271088889867109580100000075710a5804000000c3a4"
    "c3b6710b580100000079710c43020001710d580400000073616d65710e6802752e";
constexpr std::string_view kProtocol4 =
    "80049588000000000000007d94288c0161945d94284b014affffffff4bff4d00014a000001004a90eefeff8a060000000000"
    "018a060000000000ff8a08ffffffffffffff7f658c017494284b014b024b034b0474948c017394298c016694473ff8000000"
    "0000008c016e944e8c016294888986948c0175948c04c3a4c3b6948c01799443020001948c0473616d65946802752e";

// 2^64 - 1 is the line of a frame that PyTorch does not know. pickle.dumps(2**64 - 1, 4) and its neighbors.
TEST(Pickle, ReadsNumbersOfMoreThan64BitsAsTheNearestReal) {
  const struct {
    std::string hex;
    double real;
  } cases[] = {
      {"8a09ffffffffffffffff00", 0x1p64}, {"8a09000000000000008000", 0x1p63}, {"8a09ffffffffffffff7fff", -0x1p63}};
  for (const auto& [hex, real] : cases) {
    const auto document = read_pickle(from_hex("8004" + hex + "2e"), "p");
    ASSERT_TRUE(document) << to_string(document.error().front());
    EXPECT_EQ(document->root().as_float(), real);
    EXPECT_EQ(document->root().as_int(), std::nullopt);
  }
  // Nine bytes, of which the last says nothing new: 2^62.
  const auto exact = read_pickle(from_hex("80048a090000000000000040002e"), "p");
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->root().as_int(), std::int64_t{1} << 62);
}

class PickleOfPython : public testing::TestWithParam<std::string> {};

TEST_P(PickleOfPython, HasEveryValue) {
  ASSERT_TRUE(is_pickle(from_hex(GetParam())));
  const Result<PickleDocument> document = read_pickle(from_hex(GetParam()), "p");
  ASSERT_TRUE(document) << to_string(document.error().front());
  const PickleValue root = document->root();
  ASSERT_EQ(root.kind(), PickleKind::Dict);
  EXPECT_EQ(root.size(), 9U);
  EXPECT_EQ(root.key_at(0).as_text(), "a");
  const PickleValue list = *root.find("a");
  ASSERT_EQ(list.kind(), PickleKind::List);
  const std::int64_t expected[] = {
      1, -1, 255, 256, 65536, -70000, 1LL << 40, -(1LL << 40), std::numeric_limits<std::int64_t>::max()};
  ASSERT_EQ(list.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(list.at(i).as_int(), expected[i]) << i;
  EXPECT_EQ(root.find("t")->size(), 4U);
  EXPECT_EQ(root.find("t")->at(3).as_int(), 4);
  EXPECT_EQ(root.find("s")->kind(), PickleKind::Tuple);
  EXPECT_EQ(root.find("s")->size(), 0U);
  EXPECT_EQ(root.find("f")->as_float(), 1.5);
  EXPECT_EQ(root.find("f")->as_int(), std::nullopt);
  EXPECT_TRUE(root.find("n")->is_none());
  EXPECT_EQ(root.find("b")->at(0).as_bool(), true);
  EXPECT_EQ(root.find("b")->at(1).as_bool(), false);
  EXPECT_EQ(root.find("u")->as_text(), "äö");
  EXPECT_EQ(root.find("y")->kind(), PickleKind::Bytes);
  EXPECT_EQ(root.find("same")->at(8).as_int(), expected[8]);
  EXPECT_FALSE(root.find("missing"));
}

INSTANTIATE_TEST_SUITE_P(Protocols, PickleOfPython,
                         testing::Values(std::string(kProtocol3), std::string(kProtocol4),
                                         "8005" + std::string(kProtocol4.substr(4))));

TEST(PickleValue, ReadAsTheWrongKindIsEmpty) {
  const Result<PickleDocument> document = read_pickle(std::string("\x80\x03K\x07.", 5), "p");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root().as_int(), 7);
  EXPECT_EQ(document->root().size(), 0U);
  EXPECT_FALSE(document->root().find("a"));
  EXPECT_FALSE(document->root().as_text());
  EXPECT_TRUE(PickleValue().is_none());
}

std::string error_of(std::string bytes) {
  const Result<PickleDocument> document = read_pickle(std::move(bytes), "s.pickle");
  return document ? "read" : to_string(document.error().front());
}

using namespace std::string_literals;

TEST(PickleReader, NamesTheRefusedOperation) {
  // os.system("true"), as an attacker writes it.
  EXPECT_EQ(error_of("\x80\x02"s + "cos\nsystem\nX\4\0\0\0true\x85R."s),
            "s.pickle: byte 2: It uses GLOBAL. Only dicts, lists, tuples, strings, numbers and None are read.");
  EXPECT_EQ(error_of("\x80\x04\x8c\x02os\x8c\x06system\x93."s),
            "s.pickle: byte 14: It uses STACK_GLOBAL. Only dicts, lists, tuples, strings, numbers and None are read.");
  EXPECT_EQ(error_of("\x80\x04\x8f."s),
            "s.pickle: byte 2: It uses EMPTY_SET. Only dicts, lists, tuples, strings, numbers and None are read.");
  EXPECT_EQ(error_of("\x80\x04\x01."s), "s.pickle: byte 2: There is no operation 0x01. Is it a pickle?");
}

TEST(PickleReader, ReportsErrorsWithTheirByte) {
  EXPECT_EQ(error_of("\x80\x04K"s),
            "s.pickle: byte 2: The file ends in the middle of a value. Write the snapshot again; was the disk full?");
  EXPECT_EQ(error_of("\x80\x04N"s),
            "s.pickle: byte 3: The file ends in the middle. Write the snapshot again; was the disk full?");
  EXPECT_EQ(error_of("\x80\x09N."s), "s.pickle: byte 0: The protocol is 9. Protocols 2 to 5 are read.");
  EXPECT_EQ(error_of("\x80\x04"
                     "e."s),
            "s.pickle: byte 2: A mark is missing.");
  EXPECT_EQ(error_of("\x80\x04NNe."s), "s.pickle: byte 4: A mark is missing.");
  EXPECT_EQ(error_of("\x80\x04N(K\x01."s), "s.pickle: byte 6: The pickle ends inside a value.");
  EXPECT_EQ(error_of("\x80\x04N(K\x01"
                     "e."s),
            "s.pickle: byte 6: There is no list to add to.");
  EXPECT_EQ(error_of("\x80\x04}(K\x01u."s), "s.pickle: byte 6: A key has no value.");
  EXPECT_EQ(error_of("\x80\x04h\x00."s), "s.pickle: byte 2: A memo number was never set.");
  EXPECT_EQ(error_of("\x80\x04Nr\xff\xff\xff\xff."s), "s.pickle: byte 3: A memo number is out of order.");
  EXPECT_EQ(error_of("\x80\x04\x8a\x11"s + std::string(17, '\1') + "."),
            "s.pickle: byte 2: A number has more than 128 bits.");
  EXPECT_EQ(error_of("\x80\x04NN."s), "s.pickle: byte 4: Values are left over at the end.");
  EXPECT_EQ(error_of("\x80\x04."s), "s.pickle: byte 2: A value is missing.");
  EXPECT_EQ(error_of("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                     "a."s),
            "s.pickle: byte 2: The file ends in the middle of a value. Write the snapshot again; was the disk full?");
  EXPECT_EQ(error_of("\x80\x04"s + std::string(2000, '(')),
            "s.pickle: byte 1002: Values are nested more than 1000 deep.");
}

TEST(PickleReader, EnforcesItsLimits) {
  const std::string many = "\x80\x04"s + std::string(100, ']') + ".";
  const Result<PickleDocument> document = read_pickle(many, "p", {.values = 1000, .containers = 50, .depth = 10});
  ASSERT_FALSE(document);
  EXPECT_EQ(to_string(document.error().front()), "p: byte 52: There are more values than any useful snapshot has.");
}

TEST(PickleReader, ReadsAListThatContainsItself) {
  const Result<PickleDocument> document = read_pickle(
      "\x80\x04]\x94h\x00"
      "a."s,
      "p");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root().at(0).at(0).at(0).size(), 1U);
}

}  // namespace
}  // namespace fsdp
