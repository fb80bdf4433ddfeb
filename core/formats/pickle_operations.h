#pragma once

// The operations of a pickle, for core/formats/pickle.cpp only.

#include <string_view>

namespace fsdp::pickle_detail {

enum Operation : unsigned char {
  kMark = '(',
  kEmptyTuple = ')',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kDict = 'd',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct RefusedOperation {
  unsigned char code;
  std::string_view name;
};

inline constexpr RefusedOperation kRefused[] = {{'c', "GLOBAL"},
                                                {0x93, "STACK_GLOBAL"},
                                                {'R', "REDUCE"},
                                                {'b', "BUILD"},
                                                {'i', "INST"},
                                                {'o', "OBJ"},
                                                {0x81, "NEWOBJ"},
                                                {0x92, "NEWOBJ_EX"},
                                                {0x82, "EXT1"},
                                                {0x83, "EXT2"},
                                                {0x84, "EXT4"},
                                                {'P', "PERSID"},
                                                {'Q', "BINPERSID"},
                                                {'I', "INT"},
                                                {'L', "LONG"},
                                                {'F', "FLOAT"},
                                                {'S', "STRING"},
                                                {'T', "BINSTRING"},
                                                {'U', "SHORT_BINSTRING"},
                                                {'V', "UNICODE"},
                                                {'g', "GET"},
                                                {'p', "PUT"},
                                                {0x8f, "EMPTY_SET"},
                                                {0x90, "ADDITEMS"},
                                                {0x91, "FROZENSET"},
                                                {0x96, "BYTEARRAY8"},
                                                {0x97, "NEXT_BUFFER"},
                                                {0x98, "READONLY_BUFFER"}};

}  // namespace fsdp::pickle_detail
