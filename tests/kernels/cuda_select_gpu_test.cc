// Selection on the device against the host's twin.
//
// The two differ by the rounding of log_sum alone. What the device made of it
// is seen from outside: the best token of a row by itself has a log_prob of
// -log_sum. With that number put into the twin's rules, every candidate has to
// agree to the bit.
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
#include "kernels/cuda_select.h"
#include "tests/kernels/row_cases.h"
#include "tests/status_matchers.h"

namespace espalier {

void PrintTo(const Candidate& c, std::ostream* out) {
  *out << "{beam " << c.beam << ", token " << c.token << ", " << c.cum_log_prob
       << "}";
}

namespace {

const std::string kKinds[] = {"normal",   "ties",   "near ties", "constant",
                              "rising",   "peak",   "holes",     "outliers",
                              "infinite", "widest", "nothing"};

struct TestRow {
  std::vector<float> logits;
  float cum_log_prob = 0;
  float repetition_penalty = 1;
  std::vector<TokenEdit> edits = {};
};

struct TestGroup {
  std::vector<TestRow> rows;
  int num_candidates = 1;
  ScoreDomain domain = ScoreDomain::kLogProbs;
};

using Candidates = std::vector<Candidate>;

uint16_t ToBFloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float FromBFloat16(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <typename T>
DeviceBuffer<T> Upload(const std::vector<T>& values) {
  auto buffer = DeviceBuffer<T>::Create(std::max<size_t>(values.size(), 1));
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(cudaMemcpy(buffer->data(), values.data(), values.size() * sizeof(T),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  return *std::move(buffer);
}

template <typename T>
std::vector<T> Download(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  EXPECT_EQ(cudaMemcpy(values.data(), buffer.data(), buffer.size_bytes(),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return values;
}

// One call for all groups; every third row belongs to none, and is full of
// logits that would win.
class DeviceBatch {
 public:
  DeviceBatch(const std::vector<TestGroup>& groups, DType dtype, bool spread)
      : dtype_(dtype) {
    for (const TestGroup& group : groups) AddGroup(group, spread);
    vocab_size_ = static_cast<int>(groups[0].rows[0].logits.size());
  }

  std::vector<Candidates> Select() const {
    const auto device = CudaDevice::Open(0);
    EXPECT_TRUE(device.ok());
    std::vector<uint16_t> narrow;
    if (dtype_ == DType::kBFloat16) {
      for (const float x : logits_) narrow.push_back(ToBFloat16(x));
    }
    const auto logits = Upload(logits_);
    const auto narrow_logits = Upload(narrow);
    const auto groups = Upload(groups_);
    const auto num_groups =
        Upload(std::vector<int>{static_cast<int>(groups_.size()) - 1});
    const auto row_groups = Upload(row_groups_);
    const auto cum = Upload(cum_);
    const auto row_edits = Upload(row_edits_);
    const auto edits = Upload(edits_);
    CudaSelectInputs in;
    in.dtype = dtype_;
    in.num_rows = static_cast<int>(row_groups_.size());
    in.vocab_size = vocab_size_;
    in.max_groups = static_cast<int>(groups_.size());
    in.max_candidates = max_candidates_;
    in.max_total_candidates = num_candidates_;
    in.logits = dtype_ == DType::kFloat32
                    ? static_cast<const void*>(logits.data())
                    : narrow_logits.data();
    in.num_groups = num_groups.data();
    in.groups = groups.data();
    in.row_groups = row_groups.data();
    in.cum_log_probs = cum.data();
    in.row_edits = edits_.empty() ? nullptr : row_edits.data();
    in.edits = edits.data();
    auto scratch = DeviceBuffer<char>::Create(CudaSelectScratchBytes(in));
    EXPECT_TRUE(scratch.ok());
    EXPECT_EQ(cudaMemset(scratch->data(), 0xFF, scratch->size()), cudaSuccess);
    const auto candidates = Upload(Candidates(num_candidates_, {-1, -1, kNan}));
    const auto counts = Upload(std::vector<int>(groups_.size(), -1));
    auto stream = CudaStream::Create();
    EXPECT_TRUE(stream.ok());
    EXPECT_TRUE(CudaSelect(in, {candidates.data(), counts.data()},
                           scratch->data(), *device, stream->get())
                    .ok());
    EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
    return Split(Download(candidates), Download(counts));
  }

 private:
  void AddRow(const TestRow& row, int group) {
    logits_.insert(logits_.end(), row.logits.begin(), row.logits.end());
    row_groups_.push_back(group);
    cum_.push_back(row.cum_log_prob);
    const int begin = static_cast<int>(edits_.size());
    edits_.insert(edits_.end(), row.edits.begin(), row.edits.end());
    row_edits_.push_back(
        {begin, static_cast<int>(edits_.size()), row.repetition_penalty});
  }

  void AddGroup(const TestGroup& group, bool spread) {
    if (groups_.empty()) groups_.push_back({});  // taken out again below
    const int index = static_cast<int>(groups_.size()) - 1;
    if (spread) {
      AddRow({std::vector<float>(group.rows[0].logits.size(), 1e9f)}, -1);
    }
    CudaSelectGroup added;
    added.first_row = static_cast<int>(row_groups_.size());
    added.num_rows = static_cast<int>(group.rows.size());
    added.num_candidates = group.num_candidates;
    added.first_candidate = num_candidates_;
    added.domain = group.domain;
    num_candidates_ += group.num_candidates;
    max_candidates_ = std::max(max_candidates_, group.num_candidates);
    for (const TestRow& row : group.rows) AddRow(row, index);
    groups_.insert(groups_.end() - 1, added);  // the last stays unused
  }

  std::vector<Candidates> Split(const Candidates& all,
                                const std::vector<int>& counts) const {
    EXPECT_EQ(counts.back(), -1) << "a group that is not there was written";
    std::vector<Candidates> result;
    for (size_t g = 0; g + 1 < groups_.size(); ++g) {
      const auto first = all.begin() + groups_[g].first_candidate;
      EXPECT_TRUE(0 <= counts[g] && counts[g] <= groups_[g].num_candidates);
      result.emplace_back(first, first + std::max(counts[g], 0));
    }
    return result;
  }

  DType dtype_;
  int vocab_size_ = 0;
  int max_candidates_ = 1;
  int num_candidates_ = 0;
  std::vector<float> logits_;
  std::vector<CudaSelectGroup> groups_;
  std::vector<int> row_groups_;
  std::vector<float> cum_;
  std::vector<CudaRowEdits> row_edits_;
  std::vector<TokenEdit> edits_;
};

std::vector<Candidates> SelectOnDevice(const std::vector<TestGroup>& groups,
                                       DType dtype, bool spread = true) {
  return DeviceBatch(groups, dtype, spread).Select();
}

std::vector<float> Clean(const std::vector<float>& logits, DType dtype) {
  std::vector<float> clean = logits;
  for (float& x : clean) {
    if (dtype == DType::kBFloat16) x = FromBFloat16(ToBFloat16(x));
    if (std::isnan(x)) x = -kInf;
  }
  return clean;
}

double LogSumOf(const std::vector<float>& clean) {
  const float max = *std::ranges::max_element(clean);
  double sum = 0;
  for (const float x : clean) {
    sum += x == max ? 1 : std::exp(static_cast<double>(x) - max);
  }
  return std::log(sum);
}

void KeepBest(Scores& tokens, int count) {
  const auto better = [](const TokenScore& a, const TokenScore& b) {
    return a.log_prob != b.log_prob ? a.log_prob > b.log_prob
                                    : a.token < b.token;
  };
  std::erase_if(tokens, [](const auto& t) { return !(t.log_prob > -kInf); });
  const auto end =
      tokens.begin() + std::min<std::ptrdiff_t>(count, std::ssize(tokens));
  std::partial_sort(tokens.begin(), end, tokens.end(), better);
  tokens.erase(end, tokens.end());
}

// What reference::SelectRow says, with a given log_sum.
Scores SelectRowGiven(const std::vector<float>& clean, const TestRow& row,
                      const TestGroup& group, float log_sum) {
  const float max = *std::ranges::max_element(clean);
  if (max == -kInf) return {};
  const auto log_prob = [&](TokenId t) {
    return (clean[t] == max ? 0 : clean[t] - max) - log_sum;
  };
  const bool by_log_prob = group.domain == ScoreDomain::kLogProbs;
  Scores tokens;
  for (TokenId t = 0; t < std::ssize(clean); ++t)
    tokens.push_back({t, clean[t]});
  Scores edited;
  for (const TokenEdit& edit : row.edits) {
    const float score = by_log_prob ? log_prob(edit.token) : clean[edit.token];
    tokens[edit.token].log_prob = -kInf;
    if (edit.banned) continue;
    edited.push_back({edit.token, Penalise(score, row.repetition_penalty)});
  }
  if (by_log_prob) {
    KeepBest(tokens, group.num_candidates);
    for (TokenScore& t : tokens) t.log_prob = log_prob(t.token);
  }
  tokens.insert(tokens.end(), edited.begin(), edited.end());
  KeepBest(tokens, group.num_candidates);
  if (!by_log_prob) {
    for (TokenScore& t : tokens) t.log_prob = log_prob(t.token);
  }
  return tokens;
}

// The device's log_sum of every row, each within the tolerance of select.h.
std::vector<float> DeviceLogSums(const std::vector<TestGroup>& groups,
                                 DType dtype) {
  std::vector<TestGroup> alone;
  for (const TestGroup& group : groups) {
    for (const TestRow& row : group.rows) alone.push_back({{{row.logits}}, 1});
  }
  const auto best = SelectOnDevice(alone, dtype, /*spread=*/false);
  std::vector<float> log_sums;
  for (size_t i = 0; i < alone.size(); ++i) {
    const auto clean = Clean(alone[i].rows[0].logits, dtype);
    if (*std::ranges::max_element(clean) == -kInf) {
      EXPECT_TRUE(best[i].empty());
      log_sums.push_back(0);
      continue;
    }
    EXPECT_EQ(best[i].size(), 1);
    log_sums.push_back(best[i].empty() ? 0 : -best[i][0].cum_log_prob);
    const double log_sum = LogSumOf(clean);
    EXPECT_NEAR(log_sums.back(), log_sum, Tolerance(clean.size(), log_sum));
  }
  return log_sums;
}

void ExpectEqualsTheTwin(const std::vector<TestGroup>& groups, DType dtype) {
  const std::vector<float> log_sums = DeviceLogSums(groups, dtype);
  const std::vector<Candidates> found = SelectOnDevice(groups, dtype);
  ASSERT_EQ(found.size(), groups.size());
  size_t row = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<Scores> rows;
    std::vector<float> sums;
    for (const TestRow& r : groups[g].rows) {
      rows.push_back(SelectRowGiven(Clean(r.logits, dtype), r, groups[g],
                                    log_sums[row++]));
      sums.push_back(r.cum_log_prob);
    }
    const Candidates expected =
        reference::MergeCandidates(rows, sums, groups[g].num_candidates);
    ASSERT_EQ(found[g].size(), expected.size()) << "group " << g;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[g][i], expected[i]) << "group " << g << ", place " << i;
    }
  }
}

// Rows of one kind: two that are equal, then others.
std::vector<float> Logits(const std::string& kind, int size, int index) {
  std::vector<float> logits = Row(kind, size);
  const int shift = static_cast<int>(int64_t{index / 2} * 7919 % size);
  std::ranges::rotate(logits, logits.begin() + shift);
  return logits;
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
    edits.push_back({tokens[i], random() % 3 == 0});
  }
  for (int i = 0; i < count; ++i) {
    edits.push_back(
        {static_cast<TokenId>(random() % logits.size()), random() % 3 == 0});
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
  groups[0].rows[1].cum_log_prob = -kInf;
  groups[3].rows[2].cum_log_prob = kNan;
  // All of a row's sums round to one.
  groups[6].rows[0].cum_log_prob = -1e9f;
  groups[6].rows[1].cum_log_prob = -1e9f;
  return groups;
}

class CudaSelectTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSelectTest,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& test) {
                           return test.param == DType::kFloat32 ? "Float32"
                                                                : "BFloat16";
                         });

TEST_P(CudaSelectTest, EqualsTheTwinOnSmallRows) {
  for (const std::string& kind : kKinds) {
    for (const int size : {1, 2, 17, 127, 511, 512, 513, 1000, 2049, 6000}) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinOnLargeRows) {
  for (const std::string& kind : kKinds) {
    for (const int size : {32000, 50257}) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinOnTheLargestRows) {
  for (const char* kind : {"normal", "ties", "near ties"}) {
    for (const int size : {128256, 256000}) {
      SCOPED_TRACE(kind + (" rows of " + std::to_string(size)));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(NarrowGroups(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSelectTest, EqualsTheTwinInGroupsOfManyRows) {
  using enum ScoreDomain;
  for (const char* kind : {"normal", "ties"}) {
    SCOPED_TRACE(kind);
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(
        {MakeGroup(kind, 6000, 33, 64, kLogProbs, 0, 1),
         MakeGroup(kind, 6000, 100, 10, kLogProbs, 20, 1.3f),
         MakeGroup(kind, 6000, 9, 10, kLogits, 20, 1.3f)},
        GetParam()));
  }
}

// Wide groups beside narrow ones.
std::vector<TestGroup> WideGroups(const std::string& kind, int size) {
  using enum ScoreDomain;
  std::vector<TestGroup> groups = {
      MakeGroup(kind, size, 33, 65, kLogProbs, 0, 1),
      MakeGroup(kind, size, 2, 4, kLogProbs, 0, 1),
      MakeGroup(kind, size, 1, 128, kLogits, 40, 1.3f),
      MakeGroup(kind, size, 64, 128, kLogProbs, 40, 1.3f),
      MakeGroup(kind, size, 2, 100, kLogits, 40, 1.3f),
      MakeGroup(kind, size, 1, 3000, kLogProbs, 500, 0.7f),
      MakeGroup(kind, size, 5, 300, kLogProbs, 0, 1),
  };
  groups[0].rows[1].cum_log_prob = -kInf;
  groups[5].rows[0].cum_log_prob = -1e9f;
  groups[6].rows[0].cum_log_prob = groups[6].rows[1].cum_log_prob = -1e9f;
  return groups;
}

TEST_P(CudaSelectTest, EqualsTheTwinInWideGroups) {
  for (const std::string& kind : kKinds) {
    for (const int size : {1, 1000, 6000}) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(WideGroups(kind, size), GetParam()));
    }
  }
  SCOPED_TRACE("normal rows of 50257");
  ASSERT_NO_FATAL_FAILURE(
      ExpectEqualsTheTwin(WideGroups("normal", 50257), GetParam()));
}

TEST_P(CudaSelectTest, EqualsTheTwinInTheWidestGroups) {
  using enum ScoreDomain;
  std::vector<TestGroup> groups = {
      MakeGroup("normal", 6001, 1000, 10000, kLogProbs, 0, 1),
      MakeGroup("normal", 6001, 512, 1024, kLogProbs, 10, 1.3f),
      MakeGroup("normal", 6001, 5, 10000, kLogProbs, 0, 1)};
  // A first step: all rows but one are dead.
  for (int i = 1; i < 5; ++i) groups[2].rows[i].cum_log_prob = -kInf;
  ExpectEqualsTheTwin(groups, GetParam());
  ExpectEqualsTheTwin({MakeGroup("normal", 151936, 1, 10000, kLogProbs, 0, 1)},
                      GetParam());
}

// The laws: a row's bits depend on nothing but the row.
TEST_P(CudaSelectTest, ARowIsTheSameAloneAndAmongOthers) {
  for (const int size : {1001, 32000, 128256}) {
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
  for (const std::string& kind : kKinds) {
    for (const int size : {1000, 6000}) {
      std::vector<TestGroup> groups = NarrowGroups(kind, size);
      groups.push_back(
          MakeGroup(kind, size, 33, 64, ScoreDomain::kLogProbs, 20, 1.3f));
      const auto among_few = SelectOnDevice(groups, GetParam());
      groups.resize(400, groups[1]);
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

// What the tests above rest on.
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
