// Verification on the device, compared with the host's twin, except for
// differences that rounding explains.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "kernels/sample/random.h"
#include "kernels/verify/cuda_verify.h"
#include "tests/device_arrays.h"
#include "tests/kernels/row_masks.h"
#include "tests/kernels/sample/cuda_sample_oracle.h"
#include "tests/kernels/verify/random_drafts.h"

namespace espalier {

// A batch as arrays of the host. Rows of drafts come first, and after all of
// them those of targets.
struct VerifyBatch {
  std::vector<float> logits;
  std::vector<CudaVerifySequence> sequences;
  std::vector<int> row_sequences;
  std::vector<TokenId> drafts;
  std::vector<int> row_params;
  std::vector<SamplingParams> params;
  testing::RowEditArrays row_edits;
  int num_tokens = 0;

  explicit VerifyBatch(const std::vector<VerifyInputs>& all) {
    for (const VerifyInputs& inputs : all) {
      const VerifyRow& first = inputs.target_rows[0];
      sequences.push_back({.first_draft = static_cast<int>(drafts.size()),
                           .num_drafts = static_cast<int>(inputs.drafts.size()),
                           .first_token = num_tokens,
                           .first_beam = 3,
                           .sample = first.options.sample,
                           .position = first.options.position,
                           .mode = inputs.mode});
      drafts.insert(drafts.end(), inputs.drafts.begin(), inputs.drafts.end());
      num_tokens += static_cast<int>(inputs.target_rows.size());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].draft_rows.empty()) continue;
      sequences[i].first_draft_row = Add(all[i].draft_rows, i);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      sequences[i].first_row = Add(all[i].target_rows, i);
    }
  }

 private:
  // The first row.
  int Add(std::span<const VerifyRow> rows, size_t sequence) {
    const int first = static_cast<int>(row_sequences.size());
    for (const VerifyRow& row : rows) {
      logits.insert(logits.end(), row.logits.begin(), row.logits.end());
      row_sequences.push_back(static_cast<int>(sequence));
      row_params.push_back(static_cast<int>(params.size()));
      params.push_back(row.options.params);
      std::vector<TokenEdit>& edits = row_edits.edits;
      const int begin = static_cast<int>(edits.size());
      edits.insert(edits.end(), row.options.edits.begin(),
                   row.options.edits.end());
      row_edits.rows.push_back({begin, static_cast<int>(edits.size()),
                                row.options.repetition_penalty,
                                row.options.is_allow_list});
    }
    return first;
  }
};

// A batch on the device, which can be verified again and again.
class DeviceVerifyBatch {
 public:
  // `max_more` is the number of additional rows and sequences that the launch
  // is sized for. With `has_hints`, the launch skips work that this batch does
  // not need.
  DeviceVerifyBatch(VerifyBatch batch, DType dtype, int max_more = 0,
                    bool has_hints = true)
      : batch_(std::move(batch)),
        num_sequences_(static_cast<int>(batch_.sequences.size())),
        max_sequences_(num_sequences_ + max_more) {
    const int num_rows = static_cast<int>(batch_.row_sequences.size());
    const int vocab_size = static_cast<int>(batch_.logits.size()) / num_rows;
    batch_.logits.resize(batch_.logits.size() + size_t(max_more) * vocab_size,
                         kNan);
    batch_.row_sequences.resize(num_rows + max_more, -1);
    batch_.row_params.resize(num_rows + max_more, -1);
    batch_.row_edits.rows.resize(num_rows + max_more);
    batch_.sequences.resize(max_sequences_);
    Upload(dtype);
    in_.dtype = dtype;
    in_.num_rows = num_rows + max_more;
    in_.vocab_size = vocab_size;
    in_.max_sequences = max_sequences_;
    in_.logits = logits_->data();
    in_.num_sequences = count_->data();
    in_.sequences = sequences_->data();
    in_.row_sequences = row_sequences_->data();
    in_.drafts = drafts_->data();
    in_.row_params = row_params_->data();
    in_.params = params_->data();
    in_.row_edits = row_edits_->data();
    in_.edits = edits_->data();
    in_.masks = masks_->data();
    if (has_hints) GiveHints();
    auto scratch = DeviceBuffer<char>::Create(CudaVerifyScratchBytes(in_));
    EXPECT_TRUE(scratch.ok());
    scratch_.emplace(*std::move(scratch));
    EXPECT_EQ(cudaMemset(scratch_->data(), 0xFF, scratch_->size()),
              cudaSuccess);
    // It may still be under way, and our streams do not wait for it.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  const CudaVerifyInputs& in() const { return in_; }
  TokenId* drafts() { return drafts_->data(); }

  absl::Status Enqueue(const CudaDevice& device, cudaStream_t stream) {
    return CudaVerify(in_,
                      {.tokens = tokens_->data(),
                       .log_probs = log_probs_->data(),
                       .num_accepted = accepted_->data()},
                      scratch_->data(), device, stream);
  }

  // Moves every other row away, and one element further, so that none begins
  // at a multiple of 16 bytes; where it was there is NaN.
  void ScatterRows(DType dtype) {
    const auto num_rows = static_cast<size_t>(in_.num_rows);
    const size_t element = dtype == DType::kFloat32 ? 4 : 2;
    const size_t row_bytes = in_.vocab_size * element;
    std::vector<char> bytes = testing::Download(*logits_);
    std::vector<char> away(element);
    away.insert(away.end(), bytes.begin(), bytes.end());
    scattered_.emplace(testing::Upload(away));
    std::vector<uint64_t> addresses(num_rows);
    for (size_t row = 0; row < num_rows; row += 2) {
      const auto from = bytes.begin() + row * row_bytes;
      std::fill(from, from + row_bytes, '\xFF');  // NaN in both types
      addresses[row] = reinterpret_cast<uintptr_t>(scattered_->data()) +
                       element + row * row_bytes;
    }
    logits_.emplace(testing::Upload(bytes));
    addresses_.emplace(testing::Upload(addresses));
    in_.logits = logits_->data();
    in_.row_addresses = addresses_->data();
  }

  // The answers as candidates, which say the same.
  absl::Status EnqueueCandidates(const CudaDevice& device,
                                 cudaStream_t stream) {
    return CudaVerify(in_, {.candidates = candidates_->data()},
                      scratch_->data(), device, stream);
  }
  void ExpectCandidates(const std::vector<VerifiedTokens>& answers) const {
    const std::vector<Candidate> found = testing::Download(*candidates_);
    for (int s = 0; s < num_sequences_; ++s) {
      const CudaVerifySequence& sequence = batch_.sequences[s];
      for (int i = 0; i <= sequence.num_drafts; ++i) {
        const TokenId token = answers[s].tokens[i];
        const Candidate expected = {
            i < answers[s].length ? sequence.first_beam + i : -1, token,
            token < 0 ? -HUGE_VALF : answers[s].log_probs[i]};
        EXPECT_EQ(found[sequence.first_token + i], expected);
      }
    }
    EXPECT_EQ(found.back().token, -77);
  }

  // Call it after the stream is synchronised. Unused entries keep their values.
  std::vector<VerifiedTokens> Answers() const {
    const std::vector<TokenId> tokens = testing::Download(*tokens_);
    const std::vector<float> log_probs = testing::Download(*log_probs_);
    const std::vector<int> accepted = testing::Download(*accepted_);
    std::vector<VerifiedTokens> answers;
    for (int s = 0; s < num_sequences_; ++s) {
      const CudaVerifySequence& sequence = batch_.sequences[s];
      const auto from = sequence.first_token;
      const auto to = from + sequence.num_drafts + 1;
      answers.push_back(
          {.tokens = {tokens.begin() + from, tokens.begin() + to},
           .log_probs = {log_probs.begin() + from, log_probs.begin() + to},
           .length = accepted[s] + 1});
    }
    for (int s = num_sequences_; s < max_sequences_; ++s) {
      EXPECT_EQ(accepted[s], -77);
    }
    EXPECT_EQ(tokens.back(), -77);
    for (const unsigned count : testing::Download(*counters_)) {
      EXPECT_EQ(count, 0u);
    }
    return answers;
  }

 private:
  void Upload(DType dtype) {
    using testing::Upload;
    std::vector<char> bytes;
    const auto add = [&bytes](const auto& x) {
      const char* const from = reinterpret_cast<const char*>(&x);
      bytes.insert(bytes.end(), from, from + sizeof(x));
    };
    for (const float x : batch_.logits) {
      if (dtype == DType::kFloat32) {
        add(x);
      } else {
        add(testing::ToBFloat16(x));
      }
    }
    logits_.emplace(Upload(bytes));
    count_.emplace(Upload(std::vector{num_sequences_}));
    sequences_.emplace(Upload(batch_.sequences));
    row_sequences_.emplace(Upload(batch_.row_sequences));
    drafts_.emplace(Upload(batch_.drafts));
    row_params_.emplace(Upload(batch_.row_params));
    params_.emplace(Upload(batch_.params));
    row_edits_.emplace(Upload(batch_.row_edits.rows));
    edits_.emplace(Upload(batch_.row_edits.edits));
    masks_.emplace(Upload(batch_.row_edits.masks));
    tokens_.emplace(Upload(std::vector<TokenId>(batch_.num_tokens + 1, -77)));
    log_probs_.emplace(Upload(std::vector<float>(batch_.num_tokens + 1, kNan)));
    accepted_.emplace(Upload(std::vector<int>(max_sequences_, -77)));
    candidates_.emplace(
        Upload(std::vector<Candidate>(batch_.num_tokens + 1, {.token = -77})));
    counters_.emplace(Upload(std::vector<unsigned>(max_sequences_)));
  }

  void GiveHints() {
    in_.has_filters = std::ranges::any_of(batch_.params, HasFilters);
    in_.has_draft_rows = std::ranges::any_of(
        batch_.sequences, [](const CudaVerifySequence& sequence) {
          return sequence.first_draft_row >= 0;
        });
    in_.counters = counters_->data();
  }

  VerifyBatch batch_;
  const int num_sequences_;
  const int max_sequences_;
  CudaVerifyInputs in_;
  std::optional<DeviceBuffer<char>> logits_, scratch_, scattered_;
  std::optional<DeviceBuffer<uint64_t>> addresses_;
  std::optional<DeviceBuffer<int>> count_, row_sequences_, row_params_,
      accepted_;
  std::optional<DeviceBuffer<CudaVerifySequence>> sequences_;
  std::optional<DeviceBuffer<TokenId>> drafts_, tokens_;
  std::optional<DeviceBuffer<SamplingParams>> params_;
  std::optional<DeviceBuffer<CudaRowEdits>> row_edits_;
  std::optional<DeviceBuffer<TokenEdit>> edits_;
  std::optional<DeviceBuffer<uint32_t>> masks_;
  std::optional<DeviceBuffer<float>> log_probs_;
  std::optional<DeviceBuffer<unsigned>> counters_;
  std::optional<DeviceBuffer<Candidate>> candidates_;
};

// With `by_masks`, masks take the place of allow lists.
inline std::vector<VerifiedTokens> VerifyOnDevice(
    const std::vector<VerifyInputs>& inputs, DType dtype, int max_more = 0,
    bool has_hints = true, bool is_scattered = false, bool by_masks = false) {
  const auto device = CudaDevice::Open(0);
  EXPECT_TRUE(device.ok());
  const auto stream = CudaStream::Create();
  EXPECT_TRUE(stream.ok());
  VerifyBatch on_host(inputs);
  if (by_masks) {
    on_host.row_edits = on_host.row_edits.WithMasks(
        static_cast<int>(inputs[0].target_rows[0].logits.size()));
  }
  DeviceVerifyBatch batch(std::move(on_host), dtype, max_more, has_hints);
  if (is_scattered) batch.ScatterRows(dtype);
  EXPECT_TRUE(batch.Enqueue(*device, stream->get()).ok());
  EXPECT_TRUE(batch.EnqueueCandidates(*device, stream->get()).ok());
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  const std::vector<VerifiedTokens> answers = batch.Answers();
  batch.ExpectCandidates(answers);
  return answers;
}

// Allowed results of one sequence.
class VerifyOracle {
 public:
  explicit VerifyOracle(const VerifyInputs& inputs) : inputs_(inputs) {}

  // Counts in `num_different` what only rounding explains.
  void Check(const VerifiedTokens& found, int& num_different) const {
    const VerifiedTokens twin = reference::VerifyDrafts(inputs_);
    num_different += found.tokens != twin.tokens;
    const int k = static_cast<int>(inputs_.drafts.size());
    ASSERT_GE(found.length, 1);
    ASSERT_LE(found.length, k + 1);
    for (int i = 0; i < found.length; ++i) {
      SCOPED_TRACE("place " + std::to_string(i));
      const TokenId token = found.tokens[i];
      const bool accepted = i + 1 < found.length;
      const TokenId draft = i < k ? inputs_.drafts[i] : kNoToken;
      if (accepted) {
        ASSERT_GE(draft, 0);
        ASSERT_EQ(token, draft);
      }
      ASSERT_TRUE(MayBe(i, draft, token, accepted))
          << "token " << token << ", draft " << draft << ", accepted "
          << accepted << ", the twin's " << twin.tokens[i];
      ASSERT_NO_FATAL_FAILURE(CheckLogProb(i, token, found.log_probs[i]));
    }
    for (int i = found.length; i <= k; ++i) {
      ASSERT_EQ(found.tokens[i], kNoToken);
      ASSERT_EQ(found.log_probs[i], 0);
    }
  }

 private:
  static constexpr double kRounding = 3e-6;
  // Tolerance of p / q: exponents of up to 40 are rounded three times, on both
  // sides.
  static constexpr double kOfRate = 2e-5;

  void CheckLogProb(int i, TokenId token, float found) const {
    if (token < 0) {
      ASSERT_EQ(found, 0);
      return;
    }
    const std::span<const float> logits = inputs_.target_rows[i].logits;
    const double expected =
        reference::DrawLogProbabilities(logits, SamplingParams{})[token];
    const auto log_prob = static_cast<float>(expected);
    ASSERT_TRUE(Near(found, log_prob, 2 * Tolerance(logits.size(), log_prob)))
        << found << " instead of " << log_prob;
  }

  static bool HasNan(std::span<const float> logits) {
    return std::ranges::any_of(logits, [](float x) { return std::isnan(x); });
  }

  double NoiseOf(int i, RandomPurpose purpose) const {
    const DrawOptions& options = inputs_.target_rows[i].options;
    return Uniform({.seed = options.params.seed,
                    .sample = options.sample,
                    .position = options.position,
                    .purpose = purpose},
                   0);
  }

  // Returns the row with each set of parameters within rounding of its own.
  static std::vector<VerifyRow> NearRows(const VerifyRow& row) {
    std::vector<VerifyRow> rows;
    for (const SamplingParams& params : Neighbours(row.options.params)) {
      rows.push_back(row);
      rows.back().options.params = params;
    }
    return rows;
  }

  // True if `uniform` selects `token`, with an error of at most `slack`.
  static bool IsAt(const std::vector<double>& p, TokenId token, double uniform,
                   double slack) {
    double before = 0;
    for (TokenId t = 0; t < token; ++t) before += p[t];
    return p[token] > 0 && before - slack <= uniform &&
           uniform <= before + p[token] + slack;
  }

  bool MayBe(int i, TokenId draft, TokenId token, bool accepted) const {
    const VerifyRow& row = inputs_.target_rows[i];
    if (HasNan(row.logits)) return token == kNotANumber;
    const TokenId drawn = reference::DrawRow(row.logits, row.options).token;
    if (drawn < 0 || token < 0) return token == drawn;
    const bool by_chance = draft >= 0 &&
                           inputs_.mode == VerifyMode::kRejection &&
                           !row.options.params.greedy();
    if (!by_chance) return accepted == (token == draft) && IsDrawn(row, token);
    if (inputs_.draft_rows.empty()) {
      return IsJudged(i, nullptr, draft, token, accepted);
    }
    const std::vector<VerifyRow> near = NearRows(inputs_.draft_rows[i]);
    return std::ranges::any_of(near, [&](const VerifyRow& draft_row) {
      return IsJudged(i, &draft_row, draft, token, accepted);
    });
  }

  static bool IsDrawn(const VerifyRow& row, TokenId token) {
    const double uniform = Uniform({.seed = row.options.params.seed,
                                    .sample = row.options.sample,
                                    .position = row.options.position},
                                   0);
    const std::vector<VerifyRow> near = NearRows(row);
    return std::ranges::any_of(near, [&](const VerifyRow& other) {
      const std::vector<double> p =
          reference::DrawProbabilities(other.logits, other.options);
      return IsAt(p, token, uniform, kRounding);
    });
  }

  bool IsJudged(int i, const VerifyRow* draft_row, TokenId draft, TokenId token,
                bool accepted) const {
    const double u = NoiseOf(i, RandomPurpose::kAccept);
    const std::vector<VerifyRow> near = NearRows(inputs_.target_rows[i]);
    return std::ranges::any_of(near, [&](const VerifyRow& target_row) {
      const reference::VerifyPosition position =
          reference::VerifyPositionOf(target_row, draft_row, draft);
      // The device may round a tiny weight to 0.
      const bool is_tiny = position.q[draft] < 1e-9;
      const double rate = position.Acceptance(draft);
      if (accepted) return rate >= u * (1 - kOfRate) || is_tiny;
      return (rate <= u * (1 + kOfRate) || is_tiny) &&
             IsRecovered(i, position, token);
    });
  }

  bool IsRecovered(int i, const reference::VerifyPosition& position,
                   TokenId token) const {
    double mass = 0;
    for (size_t t = 0; t < position.p.size(); ++t) {
      mass += std::max(position.p[t] - position.q[t], 0.0);
    }
    // If p and q are nearly equal, the rest is only rounding.
    if (mass < 1e-5) return position.p[token] > 0;
    return IsAt(position.Recovery(), token, NoiseOf(i, RandomPurpose::kRecover),
                kRounding / mass);
  }

  const VerifyInputs& inputs_;
};

}  // namespace espalier
