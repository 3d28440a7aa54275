#include "text/tokenizer/sentencepiece_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"
#include "tests/text/test_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrDir;
using ::espalier::testing::FakeTokenizerModel;
using ::espalier::testing::Field;
using ::espalier::testing::PieceType;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

std::string EnFrPath() { return EnFrDir() + "/tokenizer.model"; }
std::string RulesPath() { return SourcePath("tests/data/charsmap.model"); }

std::string Bytes(const std::string& path) {
  const auto bytes = ReadFile(path, size_t{1} << 20);
  CHECK(bytes.ok()) << bytes.status().ToString();
  return *bytes;
}

std::string Piece(const std::string& piece) {
  return Field(1, Field(1, piece));
}

std::string UserDefined(const std::string& piece) {
  return Field(1, Field(1, piece) + "\x18\x04");
}

// A model of rules.
std::string WithMap(const std::string& map) { return Field(3, Field(2, map)); }

// A value that no label matches.
constexpr uint32_t kNone = 0x80000000;

std::string LittleEndian(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string Map(const std::vector<uint32_t>& units,
                const std::string& results) {
  std::string map = LittleEndian(4 * units.size());
  for (const uint32_t unit : units) map += LittleEndian(unit);
  return map + results;
}

// The trie of "a", "aa", "aaa", ..., of `letter` in place of a, all with the
// result at `value`.
std::vector<uint32_t> NestedRules(int num_rules, uint32_t value,
                                  uint32_t letter = 'a') {
  constexpr uint32_t kHasLeaf = 1 << 8;
  std::vector<uint32_t> units(256 * (num_rules + 2), kNone);
  units[0] = 256 << 10;
  for (int i = 1; i <= num_rules; ++i) {
    const uint32_t idx = 256 * i + letter, base = 256 * (i + 1);
    units[idx] = (idx ^ base) << 10 | kHasLeaf | letter;
    units[base] = kNone | value;
  }
  return units;
}

void ExpectMapError(const std::string& map, const std::string& message) {
  EXPECT_THAT(CheckSentencePieceModel(WithMap(map)),
              StatusIs(kInvalid, HasSubstr(message)));
}

std::optional<size_t> MaxSpaces(const std::string& model) {
  SentencePieceFacts facts;
  EXPECT_OK(CheckSentencePieceModel(model, &facts));
  return facts.max_spaces;
}

TEST(SentencePieceCheckTest, LongRunsOfSpacesMatterIfTheModelReadsThem) {
  const std::string results("b\0", 2);
  EXPECT_EQ(MaxSpaces(Bytes(EnFrPath())), 256);
  EXPECT_EQ(MaxSpaces(UserDefined(std::string(1000, 'a'))), 1000);
  EXPECT_EQ(MaxSpaces(WithMap(Map(NestedRules(3, 0), results))), 256);
  EXPECT_EQ(MaxSpaces(WithMap(Map(NestedRules(3, 0, ' '), results))),
            std::nullopt);
  EXPECT_EQ(MaxSpaces(UserDefined("  ")), std::nullopt);
  EXPECT_EQ(MaxSpaces(Field(3, std::string("\x20\0", 2))), std::nullopt);
  EXPECT_EQ(MaxSpaces(Field(3, "\x20\x01")), 256);
}

TEST(SentencePieceCheckTest, WhatTheLibraryWroteMayPass) {
  for (const std::string& path : {EnFrPath(), RulesPath()}) {
    EXPECT_OK(CheckSentencePieceModel(Bytes(path))) << path;
  }
}

// They are looked for at each place of a text.
TEST(SentencePieceCheckTest, AControlSymbolIsShort) {
  const auto control = [](size_t num_bytes) {
    return Field(1, Field(1, std::string(num_bytes, 'a')) + "\x18\x03");
  };
  EXPECT_OK(CheckSentencePieceModel(control(256)));
  EXPECT_THAT(CheckSentencePieceModel(control(257)),
              StatusIs(kInvalid, HasSubstr("piece 0 of 257 bytes is a control "
                                           "symbol, which has 256 at most")));
}

// The library cannot encode it, which is no failure of ours.
TEST(SentencePieceCheckTest, ATextWithAControlSymbolOfOneCharacterIsRefused) {
  FakeTokenizerModel model;
  model.is_bpe = true;
  model.pieces = {{"<unk>", PieceType::kUnknown},
                  {"<s>", PieceType::kControl},
                  {"\u2581a"},
                  {"g", PieceType::kControl}};
  auto tokenizer = model.Load();
  ASSERT_OK(tokenizer);
  EXPECT_OK((*tokenizer)->Encode("a<s>"));
  EXPECT_THAT((*tokenizer)->Encode("a g"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the text has \"g\", a control symbol that cannot be "
                       "encoded as text"));
  model.pieces.push_back({"\u2581", PieceType::kControl});
  tokenizer = model.Load();
  ASSERT_OK(tokenizer);
  EXPECT_THAT((*tokenizer)->Encode("b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is a control symbol")));
}

TEST(SentencePieceCheckTest, APieceHasALimitedLengthAndNoNul) {
  EXPECT_OK(CheckSentencePieceModel(Piece(std::string(4096, 'a'))));
  EXPECT_THAT(CheckSentencePieceModel(Piece(std::string(4097, 'a'))),
              StatusIs(kInvalid, HasSubstr("piece 0 of 4097 bytes")));
  EXPECT_THAT(CheckSentencePieceModel(Piece("a") + Piece("")),
              StatusIs(kInvalid, HasSubstr("piece 1 of 0 bytes")));
  EXPECT_THAT(CheckSentencePieceModel(Piece(std::string("a\0b", 3))),
              StatusIs(kInvalid, HasSubstr("no NUL")));
}

TEST(SentencePieceCheckTest, APieceIsUtf8) {
  EXPECT_OK(CheckSentencePieceModel(Piece("\u2581caf\u00E9")));
  EXPECT_THAT(CheckSentencePieceModel(Piece("a") + Piece("\xC3")),
              StatusIs(kInvalid, HasSubstr("piece 1 is not UTF-8")));
}

TEST(SentencePieceCheckTest, RulesForTheWayBackAreRefused) {
  const std::string map = Map(NestedRules(1, 1), std::string("b\0", 2));
  EXPECT_OK(CheckSentencePieceModel(Field(5, Field(2, "") + Field(1, "nfkc"))));
  EXPECT_THAT(CheckSentencePieceModel(Field(5, Field(2, map))),
              StatusIs(kInvalid, "denormalizer_spec has rules"));
}

TEST(SentencePieceCheckTest, UserDefinedSymbolsNestToALimit) {
  std::string model, ordinary;
  for (int length = 64; length >= 1; --length) {
    model += UserDefined(std::string(length, 'a')) + UserDefined("b");
  }
  EXPECT_OK(CheckSentencePieceModel(model + Piece(std::string(65, 'a'))));
  EXPECT_THAT(
      CheckSentencePieceModel(model + UserDefined(std::string(65, 'a'))),
      StatusIs(kInvalid, HasSubstr("more than 64")));
}

TEST(SentencePieceCheckTest, RulesNestToALimit) {
  const std::string results("b\0", 2);
  EXPECT_OK(CheckSentencePieceModel(WithMap(Map(NestedRules(32, 1), results))));
  ExpectMapError(Map(NestedRules(33, 1), results), "33 rules begin each other");
}

TEST(SentencePieceCheckTest, ALookUpStaysInTheMap) {
  const std::string results("b\0", 2);
  std::vector<uint32_t> units = NestedRules(1, 2);
  ExpectMapError(Map(units, results), "result at 2 of 2 bytes");
  ExpectMapError(Map(NestedRules(1, 1), "bc"), "the last result has no end");
  units = NestedRules(1, 1);
  units.pop_back();  // what only another letter would have looked up
  ExpectMapError(Map(units, results), "leads out of the 767");
  units = NestedRules(1, 1);
  units[0] = 0xFFFFFE00;  // the largest offset
  ExpectMapError(Map(units, results), "unit 0 leads out of the 768");
  ExpectMapError(Map(std::vector<uint32_t>(256, 0), results),
                 "a rule of more than 256 bytes");  // unit 0 its own child
}

TEST(SentencePieceCheckTest, TheSizesInAMapAgree) {
  const std::string map = Map(NestedRules(1, 0), std::string(1, '\0'));
  ExpectMapError("ab", "2 bytes");
  ExpectMapError(LittleEndian(0) + map, "a trie of 0 bytes");
  ExpectMapError(LittleEndian(6) + map, "a trie of 6 bytes");
  ExpectMapError(map.substr(0, map.size() - 1), "a trie of 3072 bytes");
  ExpectMapError(LittleEndian(0xFFFFFFFC) + map, "a trie of 4294967292 bytes");
}

TEST(SentencePieceCheckTest, RulesApply) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(RulesPath()));
  ASSERT_OK_AND_ASSIGN(
      const auto tokens,
      tokenizer->Encode("\uFB01ne \uFF21\uFF22\uFF23\u3000cafe\u0301"));
  ASSERT_OK_AND_ASSIGN(const auto text, tokenizer->Decode(tokens));
  EXPECT_EQ(text, "fine ABC café");
}

// Loads the model at `path` `times` times with some bits flipped or its end
// cut off, and uses what loads.
void LoadMangled(const std::string& path, int times) {
  std::mt19937 random(1);
  const ScratchDirectory scratch;
  const std::string intact = Bytes(path);
  int num_loaded = 0;
  for (int i = 0; i < times; ++i) {
    std::string bytes = intact;
    if (i % 8 == 0) bytes.resize(random() % bytes.size());
    for (int flips = random() % 4; flips >= 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] ^= 1 << random() % 8;
    }
    const auto tokenizer = Tokenizer::Load(scratch.Write("t.model", bytes));
    if (!tokenizer.ok()) {
      EXPECT_EQ(tokenizer.status().code(), kInvalid);
      continue;
    }
    ++num_loaded;
    const auto tokens = (*tokenizer)
                            ->Encode(
                                "\uFB01ne \uFF21<en>\u3000cafe\u0301\u0301 "
                                "\xF0\x9F\x8E\x88 e fefe");
    if (tokens.ok()) (*tokenizer)->Decode(*tokens).IgnoreError();
  }
  EXPECT_GT(num_loaded, 0);
}

TEST(SentencePieceCheckTest, AMangledModelIsRefusedOrCanBeUsed) {
  LoadMangled(RulesPath(), 1000);
  LoadMangled(EnFrPath(), 100);
}

}  // namespace
}  // namespace espalier
