#include "request/read_numpy_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "request/read_items.h"
#include "tests/numpy_file.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::NumpyFile;
using ::testing::HasSubstr;
constexpr int kVocab = 6000;

std::vector<std::vector<TokenId>> ListsIn(const TokenLists& items) {
  std::vector<std::vector<TokenId>> lists;
  for (int64_t i = 0; i < items.size(); ++i) {
    lists.emplace_back(items[i].begin(), items[i].end());
  }
  return lists;
}

std::string ErrorOf(const std::string& file) {
  const auto items = ReadNumpyItems(file, kVocab, /*end_ids=*/{});
  EXPECT_EQ(items.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(items.status());
}

template <typename T>
void ExpectRows(const std::string& descr, int version) {
  const auto items = ReadNumpyItems(
      NumpyFile<T>(descr, "(2, 3)", {17, 5999, 0, 17, 4, 3}, "False", version),
      kVocab, /*end_ids=*/{});
  ASSERT_OK(items.status());
  EXPECT_EQ(ListsIn(*items),
            (std::vector<std::vector<TokenId>>{{17, 5999, 0}, {17, 4, 3}}));
}

TEST(ReadNumpyItemsTest, ARowIsAnItemInEachType) {
  for (const int version : {1, 2, 3}) {
    ExpectRows<int16_t>("<i2", version);
    ExpectRows<uint16_t>("<u2", version);
    ExpectRows<int32_t>("<i4", version);
    ExpectRows<uint32_t>("<u4", version);
    ExpectRows<int64_t>("<i8", version);
    ExpectRows<uint64_t>("<u8", version);
  }
}

TEST(ReadNumpyItemsTest, MinusOneFillsARow) {
  const auto items = ReadNumpyItems(
      NumpyFile<int32_t>("<i4", "(3, 3)", {7, -1, -1, 7, 8, -1, 7, 8, 9}),
      kVocab, /*end_ids=*/{});
  ASSERT_OK(items.status());
  EXPECT_EQ(ListsIn(*items),
            (std::vector<std::vector<TokenId>>{{7}, {7, 8}, {7, 8, 9}}));
  EXPECT_EQ(ErrorOf(NumpyFile<int32_t>("<i4", "(1, 3)", {7, -1, 8})),
            "row 0 must have nothing but -1 after a -1, got 8");
  EXPECT_EQ(ErrorOf(NumpyFile<int32_t>("<i4", "(2, 1)", {7, -1})),
            "row 1: an item must have a token, got none");
}

TEST(ReadNumpyItemsTest, ErrorsNameTheRowOrThePartOfTheHeader) {
  EXPECT_EQ(ErrorOf(NumpyFile<int64_t>("<i8", "(2, 1)", {7, -2})),
            "row 1 must have token ids from 0 to 5999, and then -1, got -2");
  EXPECT_EQ(ErrorOf(NumpyFile<int64_t>("<i8", "(1, 1)", {int64_t{1} << 32})),
            "row 0 must have token ids from 0 to 5999, and then -1, got "
            "4294967296");
  EXPECT_EQ(ErrorOf(NumpyFile<uint16_t>("<u2", "(1, 2)", {7, 65535})),
            "row 0 must have token ids from 0 to 5999, got 65535");
  EXPECT_EQ(ErrorOf(NumpyFile<uint64_t>("<u8", "(1, 1)", {~uint64_t{0}})),
            "row 0 must have token ids from 0 to 5999, got "
            "18446744073709551615");
  EXPECT_THAT(ErrorOf(NumpyFile<float>("<f4", "(1, 1)", {7})),
              HasSubstr("`descr` of the NumPy file must be a type of"));
  EXPECT_THAT(ErrorOf(NumpyFile<float>("<f4", "(1, 1)", {7})),
              HasSubstr("got \"<f4\""));
  EXPECT_THAT(ErrorOf(NumpyFile<int32_t>(">i4", "(1, 1)", {7})),
              HasSubstr("got \">i4\""));
  EXPECT_THAT(ErrorOf(NumpyFile<int32_t>("<i4", "(1, 1)", {7}, "True")),
              HasSubstr("`fortran_order` of the NumPy file must be False"));
  for (const std::string shape :
       {"(3,)", "()", "(1, 1, 1)", "(-1, 1)", "(1.5, 2)", "3", "(a, b)",
        "(99999999999999999999, 1)"}) {
    EXPECT_THAT(ErrorOf(NumpyFile<int32_t>("<i4", shape, {7, 7, 7})),
                HasSubstr("`shape` of the NumPy file must be"))
        << shape;
  }
  for (const std::string shape :
       {"(1, 2)", "(2, 1)", "(0, 0)", "(4611686018427387905, 4)",
        "(1, 9223372036854775807)", "(4, 1)"}) {
    EXPECT_THAT(ErrorOf(NumpyFile<int32_t>("<i4", shape, {7, 7, 7})),
                HasSubstr("must have 4 bytes for each number of `shape`"))
        << shape;
  }
  EXPECT_EQ(ErrorOf(NumpyFile<int32_t>("<i4", "(4, 0)", {})),
            "an item must have a token, got `shape` (4, 0)");
  EXPECT_EQ(ErrorOf(NumpyFile<int32_t>("<i4", "(1, 1025)",
                                       std::vector<int32_t>(1025, 7))),
            "row 0: an item must have at most 1024 tokens, got 1025");
  const auto ended =
      ReadNumpyItems(NumpyFile<int32_t>("<i4", "(2, 2)", {7, 2, 2, 7}), kVocab,
                     std::vector<TokenId>{2});
  EXPECT_EQ(Message(ended.status()),
            "row 1: item[0], which is not its last token, must not be an id "
            "that ends the model's output, got 2");
}

TEST(ReadNumpyItemsTest, AFileThatIsCutOffOrChangedIsAnErrorOrOther) {
  const std::string file = NumpyFile<int32_t>("<i4", "(2, 2)", {7, 8, 9, 10});
  for (size_t size = 6; size < file.size(); ++size) {
    EXPECT_NE(ErrorOf(file.substr(0, size)), "") << size;
  }
  EXPECT_NE(ErrorOf(file + "x"), "");
  std::string version = file;
  version[6] = 4;
  EXPECT_EQ(ErrorOf(version),
            "the version of the NumPy file must be 1, 2 or 3, got 4");
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = file;
    changed[6 + random() % (file.size() - 6)] = static_cast<char>(random());
    ReadNumpyItems(changed, kVocab, /*end_ids=*/{}).IgnoreError();
  }
}

TEST(ReadNumpyItemsTest, ACatalogueIsReadByItsFirstBytes) {
  ASSERT_OK_AND_ASSIGN(
      const auto items,
      ReadItems(NumpyFile<uint16_t>("<u2", "(2, 2)", {7, 8, 7, 9}),
                /*tokenizer=*/nullptr, kVocab, /*end_ids=*/{}));
  EXPECT_EQ(items->num_items(), 2);
  EXPECT_EQ(items->num_nodes(), 4);
  EXPECT_THAT(Message(ReadItems("PK\x03\x04...", nullptr, kVocab, {}).status()),
              HasSubstr("save one array by numpy.save"));
  EXPECT_EQ(Message(ReadItems(NumpyFile<uint16_t>("<u2", "(0, 2)", {}), nullptr,
                              kVocab, {})
                        .status()),
            "there is no item");
}

}  // namespace
}  // namespace espalier
