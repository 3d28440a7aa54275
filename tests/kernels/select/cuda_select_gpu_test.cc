// Selection on the device against the host's twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/select/cuda_select.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_dtype.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/select/select_oracle.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Candidates;
using testing::Cases;
using testing::Clean;
using testing::ExpectEqualsTheTwin;
using testing::SelectOnDevice;
using testing::SelectRowGiven;
using testing::TestGroup;
using testing::TestRow;

const std::string kKinds[] = {"normal",   "ties",   "near ties", "constant",
                              "rising",   "peak",   "holes",     "outliers",
                              "infinite", "widest", "nothing"};

using Kinds = std::vector<std::string>;
using Sizes = std::vector<int>;

// Every kind; or, where cases are few, two that are read and merged in
// different ways: one for each type of logits.
Kinds ManyKinds(DType dtype) {
  return Cases(Kinds(std::begin(kKinds), std::end(kKinds)),
               Kinds{dtype == DType::kFloat32 ? "normal" : "constant"});
}

// Rows of one kind: two that are equal, then others.
std::vector<float> Logits(const std::string& kind, int size, int index) {
  std::vector<float> logits = Row(kind, size);
  const int shift = static_cast<int>(int64_t{index / 2} * 7919 % size);
  std::ranges::rotate(logits, logits.begin() + shift);
  return logits;
}

TokenEdit SomeEdit(TokenId token, std::mt19937& random) {
  const auto some = [&](float value) { return random() % 2 ? value : 0.0f; };
  return {.token = token,
          .banned = random() % 3 == 0,
          .repeated = random() % 2 == 0,
          .bias = some(0.75f),
          .penalty = some(-1.5f)};
}

std::vector<TokenEdit> Edits(const std::vector<float>& logits, int count,
                             int seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  // Half of them among the best, where they matter.
  const size_t best = std::min<size_t>(2 * count, tokens.size());
  std::partial_sort(tokens.begin(), tokens.begin() + best, tokens.end(),
                    [&](TokenId a, TokenId b) {
                      return (logits[a] > logits[b]) ||
                             (logits[a] == logits[b] && a < b);
                    });
  std::vector<TokenEdit> edits;
  for (size_t i = 0; i < best; i += 2) {
    edits.push_back(SomeEdit(tokens[i], random));
  }
  for (int i = 0; i < count; ++i) {
    edits.push_back(SomeEdit(random() % logits.size(), random));
  }
  std::ranges::sort(edits, {}, &TokenEdit::token);
  const auto rest = std::ranges::unique(edits, {}, &TokenEdit::token);
  edits.erase(rest.begin(), rest.end());
  return edits;
}

TestGroup MakeGroup(const std::string& kind, int size, int num_rows, int m,
                    ScoreDomain domain, int num_edits, float penalty) {
  TestGroup group = {{}, m, domain};
  for (int i = 0; i < num_rows; ++i) {
    TestRow row = {Logits(kind, size, i), -0.25f * (i % 4), penalty};
    if (num_edits > 0) {
      auto clean = row.logits;
      for (float& x : clean) x = std::isnan(x) ? -kInf : x;
      row.edits = Edits(clean, num_edits, i);
    }
    group.rows.push_back(std::move(row));
  }
  return group;
}

// Groups of many shapes, in one call.
std::vector<TestGroup> NarrowGroups(const std::string& kind, int size) {
  using enum ScoreDomain;
  std::vector<TestGroup> groups = {
      MakeGroup(kind, size, 4, 16, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 64, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 1, kLogits, 0, 1),
      MakeGroup(kind, size, 3, 8, kLogProbs, 40, 1.3f),
      MakeGroup(kind, size, 1, 16, kLogits, 40, 1.3f),
      MakeGroup(kind, size, 2, 5, kLogits, 40, 0.5f),
      MakeGroup(kind, size, 2, 64, kLogProbs, 300, 0.7f),
  };
  // Rows that offer their edited tokens alone.
  groups.push_back(MakeGroup(kind, size, 3, 16, kLogProbs, 40, 1.3f));
  groups.push_back(MakeGroup(kind, size, 1, 16, kLogits, 300, 1.3f));
  groups.push_back(MakeGroup(kind, size, 2, 5, kLogits, 20, 0.5f));
  groups[7].rows[0].is_allow_list = groups[7].rows[1].is_allow_list = true;
  groups[8].rows[0].is_allow_list = true;
  groups[9].rows[0].is_allow_list = groups[9].rows[1].is_allow_list = true;
  groups[9].rows[1].edits.clear();
  // Many edits, among them of the best tokens: as a threshold without these
  // would have it, more than a block keeps are good enough.
  groups.push_back(MakeGroup(kind, size, 5, 8, kLogProbs, 190, 1.3f));
  groups.push_back(MakeGroup(kind, size, 4, 8, kLogProbs, 190, 1));
  for (TestRow& row : groups.back().rows) {
    for (TokenEdit& edit : row.edits) edit.bias = 20;
  }
  groups[0].rows[1].cum_log_prob = -kInf;
  groups[3].rows[2].cum_log_prob = kNan;
  // All of a row's sums round to one.
  groups[6].rows[0].cum_log_prob = -1e9f;
  groups[6].rows[1].cum_log_prob = -1e9f;
  return groups;
}

class CudaSelectTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSelectTest, EachDType(), DTypeName);

TEST_P(CudaSelectTest, EqualsTheTwinOnSmallRows) {
  for (const std::string& kind :
       Cases(Kinds(std::begin(kKinds), std::end(kKinds)),
             GetParam() == DType::kFloat32 ? Kinds{"normal", "infinite"}
                                           : Kinds{"near ties", "nothing"})) {
    for (const int size :
         Cases(Sizes{1, 2, 17, 127, 511, 512, 513, 1000, 2049, 6000},
               Sizes{17, 2049})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinOnLargeRows) {
  for (const std::string& kind : ManyKinds(GetParam())) {
    for (const int size : Cases(Sizes{32000, 50257}, Sizes{50257})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinOnTheLargestRows) {
  for (const std::string& kind :
       Cases(Kinds{"normal", "ties", "near ties"}, Kinds{"ties"})) {
    for (const int size : Cases(Sizes{128256, 256000}, Sizes{128256})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinInGroupsOfManyRows) {
  using enum ScoreDomain;
  for (const std::string& kind :
       Cases(Kinds{"normal", "ties"}, Kinds{"ties"})) {
    SCOPED_TRACE(kind);
    const int size = Cases(6000, 2500);
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(
        {MakeGroup(kind, size, 33, 64, kLogProbs, 0, 1),
         MakeGroup(kind, size, Cases(100, 34), 10, kLogProbs, 20, 1.3f),
         MakeGroup(kind, size, 9, 10, kLogits, 20, 1.3f)},
        GetParam()));
  }
}

// Few groups without edits: each a cluster's.
std::vector<TestGroup> FewGroups(const std::string& kind, int size) {
  using enum ScoreDomain;
  std::vector<TestGroup> groups = {
      MakeGroup(kind, size, 4, 16, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 64, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 1, kLogits, 0, 1),
      MakeGroup(kind, size, 3, 24, kLogits, 0, 1),
      MakeGroup(kind, size, 2, 64, kLogProbs, 0, 1),
  };
  groups[0].rows[1].cum_log_prob = -kInf;
  groups[3].rows[0].cum_log_prob = kNan;
  // All of a row's sums round to one.
  groups[4].rows[0].cum_log_prob = -1e9f;
  groups[4].rows[1].cum_log_prob = -1e9f;
  return groups;
}

TEST_P(CudaSelectTest, EqualsTheTwinInFewGroups) {
  for (const std::string& kind :
       Cases(Kinds(std::begin(kKinds), std::end(kKinds)),
             Kinds{"near ties", "infinite"})) {
    for (const int size :
         Cases(Sizes{1, 8, 504, 509, 512, 1000, 1024, 2049, 6000, 32000, 50257},
               Sizes{8, 6001})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(FewGroups(kind, size), GetParam()));
    }
  }
  SCOPED_TRACE("largest rows");
  ASSERT_NO_FATAL_FAILURE(
      ExpectEqualsTheTwin(FewGroups("ties", Cases(128256, 16384)), GetParam()));
}

// The most rows that a cluster takes, and one more group than clusters.
TEST_P(CudaSelectTest, EqualsTheTwinInGroupsOfSixteen) {
  for (const int num_groups : Cases(Sizes{1, 2, 8, 9, 16, 17}, Sizes{2, 17})) {
    SCOPED_TRACE(num_groups);
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(
        std::vector<TestGroup>(
            num_groups,
            MakeGroup("normal", 2048, 16, 32, ScoreDomain::kLogProbs, 0, 1)),
        GetParam()));
  }
}

// However many launches that takes.
TEST_P(CudaSelectTest, ARowIsTheSameInAClusterAndWithout) {
  for (const int size : Cases(Sizes{1000, 32000, 50257, 128256}, Sizes{7999})) {
    std::vector<TestGroup> groups = FewGroups("normal", size);
    const auto few = SelectOnDevice(groups, GetParam());
    groups.resize(40, groups[2]);
    auto many = SelectOnDevice(groups, GetParam());
    many.resize(few.size());
    EXPECT_EQ(many, few) << size;
  }
}

// Returns the group with edited tokens as the only candidates.
TestGroup OnlyEdited(TestGroup group) {
  for (TestRow& row : group.rows) row.is_allow_list = true;
  return group;
}

// Wide groups beside narrow ones.
std::vector<TestGroup> WideGroups(const std::string& kind, int size) {
  using enum ScoreDomain;
  std::vector<TestGroup> groups = {
      MakeGroup(kind, size, 33, 65, kLogProbs, 0, 1),
      MakeGroup(kind, size, 2, 4, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 128, kLogits, 40, 1.3f),
      MakeGroup(kind, size, Cases(64, 9), 128, kLogProbs, 40, 1.3f),
      MakeGroup(kind, size, 2, 100, kLogits, 40, 1.3f),
      MakeGroup(kind, size, 1, 3000, kLogProbs, 500, 0.7f),
      MakeGroup(kind, size, 5, 300, kLogProbs, 0, 1),
      OnlyEdited(MakeGroup(kind, size, 1, 200, kLogProbs, 2500, 1)),
      OnlyEdited(MakeGroup(kind, size, Cases(40, 9), 70, kLogProbs, 5, 1.3f)),
      OnlyEdited(MakeGroup(kind, size, 1, 100, kLogits, 600, 1.3f)),
      OnlyEdited(MakeGroup(kind, size, 1, 10, kLogProbs, 3000, 1)),
      OnlyEdited(MakeGroup(kind, size, Cases(30, 9), 8, kLogProbs, 20, 1)),
  };
  groups[0].rows[1].cum_log_prob = -kInf;
  groups[5].rows[0].cum_log_prob = -1e9f;
  groups[6].rows[0].cum_log_prob = groups[6].rows[1].cum_log_prob = -1e9f;
  return groups;
}

TEST_P(CudaSelectTest, EqualsTheTwinInWideGroups) {
  for (const std::string& kind : ManyKinds(GetParam())) {
    for (const int size : Cases(Sizes{1, 1000, 6000}, Sizes{3500})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(WideGroups(kind, size), GetParam()));
    }
  }
  const int large = Cases(50257, 1);
  SCOPED_TRACE("normal rows of " + std::to_string(large));
  ASSERT_NO_FATAL_FAILURE(
      ExpectEqualsTheTwin(WideGroups("normal", large), GetParam()));
}

TEST_P(CudaSelectTest, EqualsTheTwinInTheWidestGroups) {
  using enum ScoreDomain;
  const int widest = Cases(10000, 3000);
  std::vector<TestGroup> groups = {
      MakeGroup("normal", 6001, Cases(1000, 9), widest, kLogProbs, 0, 1),
      MakeGroup("normal", 6001, Cases(512, 34), 1024, kLogProbs, 10, 1.3f),
      MakeGroup("normal", 6001, 5, widest, kLogProbs, 0, 1)};
  // A first step: all rows but one are dead.
  for (int i = 1; i < 5; ++i) groups[2].rows[i].cum_log_prob = -kInf;
  ExpectEqualsTheTwin(groups, GetParam());
  ExpectEqualsTheTwin(
      {MakeGroup("normal", Cases(151936, 40000), 1, widest, kLogProbs, 0, 1)},
      GetParam());
}

// Returns the groups with about `share` of each row's tokens allowed.
std::vector<TestGroup> Restricted(std::vector<TestGroup> groups, double share) {
  uint32_t seed = 0;
  for (TestGroup& group : groups) {
    for (TestRow& row : group.rows) {
      row.edits = testing::AllowSome(
          row.edits, static_cast<int>(row.logits.size()), share, ++seed);
      row.is_allow_list = true;
      if (seed % 5 == 0) row.edits.clear();
    }
  }
  return groups;
}

TEST_P(CudaSelectTest, MasksSelectAsAllowListsDo) {
  for (const std::string& kind :
       Cases(Kinds(std::begin(kKinds), std::end(kKinds)),
             GetParam() == DType::kFloat32 ? Kinds{"normal", "infinite"}
                                           : Kinds{"near ties", "ties"})) {
    for (const int size :
         Cases(Sizes{1, 17, 1000, 2049, 6000}, Sizes{17, 2049})) {
      for (const bool wide : {false, true}) {
        const auto groups =
            wide ? WideGroups(kind, size) : NarrowGroups(kind, size);
        SCOPED_TRACE(kind + " rows of " + std::to_string(size));
        EXPECT_EQ(testing::SelectByMasks(groups, GetParam()),
                  SelectOnDevice(groups, GetParam()));
        for (const double share : {0.01, 0.5, 0.97}) {
          const auto restricted = Restricted(groups, share);
          ASSERT_EQ(testing::SelectByMasks(restricted, GetParam()),
                    SelectOnDevice(restricted, GetParam()))
              << share;
        }
      }
    }
  }
}

TEST_P(CudaSelectTest, MasksSelectAsAllowListsDoFromLargeRows) {
  for (const int size : Cases(Sizes{50257, 128256}, Sizes{50257})) {
    for (const double share : {0.0003, 0.95}) {
      SCOPED_TRACE(size);
      const auto groups = Restricted(NarrowGroups("normal", size), share);
      ASSERT_EQ(testing::SelectByMasks(groups, GetParam()),
                SelectOnDevice(groups, GetParam()))
          << share;
    }
  }
}

// One row of several has most of the legal tokens, all over the row or in one
// run of it: then few of the maxima that thresholds are chosen from have any.
TEST_P(CudaSelectTest, MasksSelectAsAllowListsDoInUnevenRows) {
  using enum ScoreDomain;
  std::mt19937 random(7);
  for (const std::string kind : {"normal", "ties", "near ties"}) {
    for (const int size : Cases(Sizes{1500, 32000, 128256}, Sizes{1500})) {
      for (const int run : {3, 200, 700, 5000, size}) {
        std::vector<TestGroup> groups;
        for (const auto& [num_rows, m] :
             {std::pair{8, 16}, {3, 6}, {16, 32}, {20, 64}, {1, 8}}) {
          groups.push_back(MakeGroup(kind, size, num_rows, m, kLogProbs, 0, 1));
          if (num_rows == 1) groups.back().domain = kLogits;
          for (TestRow& row : groups.back().rows) {
            row.is_allow_list = true;
            const int count = &row == &groups.back().rows[num_rows / 2]
                                  ? std::min(run, size)
                                  : 1 + static_cast<int>(random() % 2);
            const int first = static_cast<int>(random() % (size - count + 1));
            row.edits.clear();
            for (int i = 0; i < count; ++i) {
              row.edits.push_back({.token = first + i});
            }
          }
        }
        ASSERT_EQ(testing::SelectByMasks(groups, GetParam()),
                  SelectOnDevice(groups, GetParam()))
            << kind << " rows of " << size << ", a run of " << run;
      }
    }
  }
}

// The laws: a row's bits depend on nothing but the row.
TEST_P(CudaSelectTest, ARowIsTheSameAloneAndAmongOthers) {
  for (const int size : Cases(Sizes{1001, 32000, 128256}, Sizes{1001})) {
    const TestRow row = {Normal(size, 5), -1.5f};
    const TestGroup alone = {{row}, 16};
    const Candidates expected =
        SelectOnDevice({alone}, GetParam(), /*spread=*/false)[0];
    std::vector<TestGroup> many;
    for (int i = 0; i < 40; ++i) {
      many.push_back({{{Normal(size, 100 + i % 3), -0.5f}}, 1 + i % 64});
    }
    many.insert(many.begin() + 17, alone);
    many.push_back(alone);
    const auto found = SelectOnDevice(many, GetParam());
    EXPECT_EQ(found[17], expected) << size;
    EXPECT_EQ(found.back(), expected) << size;
  }
}

// More groups than a device has multiprocessors are merged by other blocks.
TEST_P(CudaSelectTest, GroupsAreTheSameAmongFewAndAmongHundreds) {
  for (const std::string& kind : ManyKinds(GetParam())) {
    for (const int size : Cases(Sizes{1000, 6000}, Sizes{1000})) {
      std::vector<TestGroup> groups = NarrowGroups(kind, size);
      groups.push_back(
          MakeGroup(kind, size, 33, 64, ScoreDomain::kLogProbs, 20, 1.3f));
      const auto among_few = SelectOnDevice(groups, GetParam());
      groups.resize(Cases(400, 150), groups[Cases(1, 2)]);
      auto among_many = SelectOnDevice(groups, GetParam());
      among_many.resize(among_few.size());
      EXPECT_EQ(among_many, among_few) << kind << " rows of " << size;
    }
  }
}

// As a narrow group and as the start of a wide one.
TEST_P(CudaSelectTest, WideAndNarrowGroupsAgree) {
  TestGroup narrow =
      MakeGroup("normal", 32000, 4, 64, ScoreDomain::kLogProbs, 20, 1.3f);
  TestGroup wide = narrow;
  wide.num_candidates = 100;
  auto found = SelectOnDevice({narrow, wide}, GetParam());
  found[1].resize(64);
  EXPECT_EQ(found[0], found[1]);
}

// The tests above rely on this.
TEST(CudaSelectOracleTest, IsTheTwinGivenItsLogSum) {
  for (const char* kind : {"normal", "ties", "holes", "infinite"}) {
    for (const auto domain : {ScoreDomain::kLogProbs, ScoreDomain::kLogits}) {
      const TestGroup group = MakeGroup(kind, 1000, 1, 40, domain, 40, 1.3f);
      const TestRow& row = group.rows[0];
      const auto clean = Clean(row.logits, DType::kFloat32);
      const float log_sum =
          -reference::SelectRow(clean, {.num_candidates = 1})[0].log_prob;
      EXPECT_EQ(SelectRowGiven(clean, row, group, log_sum),
                reference::SelectRow(
                    clean, {.domain = domain,
                            .num_candidates = 40,
                            .repetition_penalty = row.repetition_penalty,
                            .edits = row.edits}))
          << kind;
    }
  }
}

TEST(CudaSelectErrorsTest, ImpossibleShapesAreRefused) {
  const auto device = CudaDevice::Open(0);
  ASSERT_TRUE(device.ok());
  const CudaSelectInputs good = {
      .num_rows = 1, .vocab_size = 10, .max_groups = 1};
  CudaSelectInputs no_rows = good;
  no_rows.num_rows = 0;
  CudaSelectInputs halves = good;
  halves.dtype = DType::kFloat16;
  CudaSelectInputs huge = good;
  huge.num_rows = 60000;
  huge.vocab_size = 100000;
  for (const CudaSelectInputs& in : {no_rows, halves, huge}) {
    EXPECT_EQ(CudaSelect(in, {}, nullptr, *device, nullptr).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace espalier
