// Groups to select from, the device's results, and the twin's.
//
// The two differ only by the rounding of log_sum. The device's log_sum is
// observable: the best token of a row alone has log_prob -log_sum. With this
// number in the twin's rules, every candidate must agree to the bit.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <vector>

#include "base/cuda.h"
#include "kernels/select/cuda_select.h"
#include "kernels/select/merge_candidates.h"
#include "tests/device_arrays.h"
#include "tests/kernels/row_masks.h"
#include "tests/status_matchers.h"

namespace espalier {

inline void PrintTo(const Candidate& c, std::ostream* out) {
  *out << "{beam " << c.beam << ", token " << c.token << ", " << c.cum_log_prob
       << "}";
}

namespace testing {

struct TestRow {
  std::vector<float> logits;
  float cum_log_prob = 0;
  float repetition_penalty = 1;
  std::vector<TokenEdit> edits = {};
  bool is_allow_list = false;
};

struct TestGroup {
  std::vector<TestRow> rows;
  int num_candidates = 1;
  ScoreDomain domain = ScoreDomain::kLogProbs;
};

using Candidates = std::vector<Candidate>;

inline uint16_t ToBFloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float FromBFloat16(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
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

  // Restricts rows by masks, not by allow lists.
  void UseMasks() { row_edits_ = row_edits_.WithMasks(vocab_size_); }

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
    const auto row_edits = Upload(row_edits_.rows);
    const auto edits = Upload(row_edits_.edits);
    const auto masks = Upload(row_edits_.masks);
    CudaSelectInputs in;
    in.dtype = dtype_;
    in.num_rows = static_cast<int>(row_groups_.size());
    in.vocab_size = vocab_size_;
    in.max_groups = static_cast<int>(groups_.size());
    in.max_candidates = max_candidates_;
    in.max_group_rows = max_group_rows_;
    in.max_total_candidates = num_candidates_;
    in.logits = dtype_ == DType::kFloat32
                    ? static_cast<const void*>(logits.data())
                    : narrow_logits.data();
    in.num_groups = num_groups.data();
    in.groups = groups.data();
    in.row_groups = row_groups.data();
    in.cum_log_probs = cum.data();
    in.row_edits = has_edits_ ? row_edits.data() : nullptr;
    in.edits = edits.data();
    in.masks = row_edits_.masks.empty() ? nullptr : masks.data();
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
    std::vector<TokenEdit>& edits = row_edits_.edits;
    const int begin = static_cast<int>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    row_edits_.rows.push_back({begin, static_cast<int>(edits.size()),
                               row.repetition_penalty, row.is_allow_list});
    has_edits_ |= row.is_allow_list || !row.edits.empty();
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
    max_group_rows_ = std::max(max_group_rows_, added.num_rows);
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
  int max_group_rows_ = 1;
  int num_candidates_ = 0;
  std::vector<float> logits_;
  std::vector<CudaSelectGroup> groups_;
  std::vector<int> row_groups_;
  std::vector<float> cum_;
  RowEditArrays row_edits_;
  bool has_edits_ = false;
};

inline std::vector<Candidates> SelectOnDevice(
    const std::vector<TestGroup>& groups, DType dtype, bool spread = true) {
  return DeviceBatch(groups, dtype, spread).Select();
}

inline std::vector<Candidates> SelectByMasks(
    const std::vector<TestGroup>& groups, DType dtype) {
  DeviceBatch batch(groups, dtype, /*spread=*/true);
  batch.UseMasks();
  return batch.Select();
}

inline std::vector<float> Clean(const std::vector<float>& logits, DType dtype) {
  std::vector<float> clean = logits;
  for (float& x : clean) {
    if (dtype == DType::kBFloat16) x = FromBFloat16(ToBFloat16(x));
    if (std::isnan(x)) x = -kInf;
  }
  return clean;
}

inline double LogSumOf(const std::vector<float>& clean) {
  const float max = *std::ranges::max_element(clean);
  double sum = 0;
  for (const float x : clean) {
    sum += x == max ? 1 : std::exp(static_cast<double>(x) - max);
  }
  return std::log(sum);
}

inline void KeepBest(Scores& tokens, int count) {
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

// Returns the result of reference::SelectRow for a given log_sum.
inline Scores SelectRowGiven(const std::vector<float>& clean,
                             const TestRow& row, const TestGroup& group,
                             float log_sum) {
  const float max = *std::ranges::max_element(clean);
  if (max == -kInf) return {};
  const auto log_prob = [&](TokenId t) {
    return (clean[t] == max ? 0 : clean[t] - max) - log_sum;
  };
  const bool by_log_prob = group.domain == ScoreDomain::kLogProbs;
  Scores tokens;
  for (TokenId t = 0; t < std::ssize(clean); ++t) {
    tokens.push_back({t, row.is_allow_list ? -kInf : clean[t]});
  }
  Scores edited;
  for (const TokenEdit& edit : row.edits) {
    const float score = by_log_prob ? log_prob(edit.token) : clean[edit.token];
    tokens[edit.token].log_prob = -kInf;
    if (edit.banned) continue;
    edited.push_back(
        {edit.token, EditedScore(score, edit, row.repetition_penalty)});
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
inline std::vector<float> DeviceLogSums(const std::vector<TestGroup>& groups,
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

inline void ExpectEqualsTheTwin(const std::vector<TestGroup>& groups,
                                DType dtype) {
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

}  // namespace testing
}  // namespace espalier
