// The kernels that keep beams on the device, step by step against a host model
// that is written like kernels/resident/assign_slots.h and step_plan.h say it:
// tokens, sums, slots, tables, tail copies and reports, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "kernels/constrain/cuda_constraint_tables.h"
#include "kernels/constrain/token_masks.h"
#include "kernels/resident/cuda_resident.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/random_constraints.h"
#include "tests/kernels/constrain/random_pushdown_constraints.h"
#include "tests/kernels/device_words.h"
#include "tests/kernels/resident/resident_host_model.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Advance;
using testing::DeviceWords;
using testing::HostGroup;
using testing::kNoBeam;
using testing::Move;
using testing::MoveForks;
using testing::RandomPushdownConstraint;
using testing::RandomSyntaxVocabulary;
using testing::RandomTextConstraint;
using testing::RandomTokenVocabulary;
using testing::Upload;

constexpr int kVocabSize = 300;
constexpr int kNumReports = 3;
constexpr int kGroupWords = sizeof(CudaResidentGroup) / sizeof(int);
constexpr int kMaskWords = sizeof(CudaMaskCache) / sizeof(int);
constexpr int kDrawWords = sizeof(CudaDraw) / sizeof(int);
constexpr int kPlaceWords = sizeof(PushdownPlace) / sizeof(int);
constexpr int kMaskRowWords = sizeof(CudaMaskRow) / sizeof(int);
constexpr int kEditWords = sizeof(CudaRowEdits) / sizeof(int);

struct Shape {
  int page_size;
  std::vector<int> widths;  // [num_groups]
  int num_steps;
  int num_prompt_tokens;
};

class ResidentTest : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    page_size_ = GetParam().page_size;
    stride_ =
        (GetParam().num_prompt_tokens + GetParam().num_steps) / page_size_ + 2;
    MakeGroups();
    MakeWords();
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }

  void MakeGroups() {
    int slot = 3;  // ranges need not begin at 0, nor touch
    int row = 0;
    int num_eos = 0;
    int num_candidates = 0;
    for (const int width : GetParam().widths) {
      HostGroup group;
      group.on_device = {
          .first_slot = slot, .num_slots = width, .first_eos = num_eos};
      group.position = GetParam().num_prompt_tokens;
      group.on_device.num_shared_pages = group.position / page_size_;
      for (TokenId token = 0; token < kVocabSize; ++token) {
        if (Below(6) == 0) group.eos.push_back(token);
      }
      group.on_device.num_eos = static_cast<int>(group.eos.size());
      group.selection = {.first_row = row,
                         .num_rows = width,
                         .num_candidates = 2 * width,
                         .first_candidate = num_candidates};
      group.tokens.assign(width, 0);
      group.tokens[0] = Below(kVocabSize);
      group.cums.assign(width, kNoBeam);
      group.cums[0] = -1.5f;
      if (groups_.size() % 2 == 1) MakeSamples(&group);
      if (groups_.size() % 3 != 2) Constrain(&group);
      group.slots.resize(width);
      std::iota(group.slots.begin(), group.slots.end(), 0);
      group.tables.assign(width, std::vector<int>(stride_));
      for (int i = 0; i < group.on_device.num_shared_pages; ++i) {
        const int page = next_page_++;
        for (auto& table : group.tables) table[i] = page;
      }
      group.tails.resize(width);
      for (int& tail : group.tails) tail = next_page_++;
      slot += width + Below(4);
      row += width;
      num_eos += group.on_device.num_eos;
      num_candidates += 2 * width;
      groups_.push_back(std::move(group));
    }
    num_slots_ = slot;
    num_rows_ = row;
    num_eos_ = num_eos;
    num_candidates_ = num_candidates;
  }

  // Gives it a constraint that has some more tokens at its start.
  void Constrain(HostGroup* group) {
    if (vocabulary_ == nullptr) {
      vocabulary_ = RandomTokenVocabulary(kVocabSize, random_);
    }
    const bool has_stacks = groups_.size() % 2 == 0;
    while (group->constraint == nullptr) {
      if (has_stacks) {
        group->constraint = RandomPushdownConstraint(
            RandomSyntaxVocabulary(kVocabSize, random_), random_);
      } else {
        group->constraint = RandomTextConstraint(vocabulary_, random_);
      }
      if (group->constraint == nullptr) continue;
      if (!group->constraint->tables()) {
        group->constraint = nullptr;
        continue;
      }
      const auto start = group->constraint->start();
      const int room = GetParam().num_steps + 3;
      if (std::ssize(group->constraint->LegalTokens(start, room).tokens) < 3 ||
          std::ssize(group->constraint->LegalTokens(start, 100).tokens) < 3 ||
          group->constraint->LegalTokens(start, 100).num_last > 0) {
        group->constraint = nullptr;
      }
    }
    CudaResidentGroup& on_device = group->on_device;
    on_device.has_constraint = 1;
    group->constraint_idx = static_cast<int>(constraints_.size());
    group->end_position = group->position + GetParam().num_steps + 3;
    const bool draws = on_device.first_draw >= 0;
    if (!draws) on_device.max_candidates = group->selection.num_candidates;
    group->states.assign(on_device.num_slots, -1);
    for (int rank = 0; rank < group->num_beams; ++rank) {
      group->states[rank] = group->constraint->start();
    }
    const ConstraintTables tables = *group->constraint->tables();
    const auto copy_of =
        [](const TokenTexts& texts) -> std::shared_ptr<const CudaTokenTexts> {
      if (texts.indptr == nullptr) return nullptr;
      auto copy = CudaTokenTexts::Create(texts, kVocabSize);
      EXPECT_OK(copy.status());
      return std::make_shared<const CudaTokenTexts>(*std::move(copy));
    };
    auto copy = CudaConstraintTables::Create(tables, copy_of(tables.inside),
                                             copy_of(tables.first));
    ASSERT_OK(copy.status());
    constraint_tables_.push_back(*std::move(copy));
    constraints_.push_back(constraint_tables_.back().constraint());
  }

  // All of them live.
  void MakeSamples(HostGroup* group) {
    const int width = group->on_device.num_slots;
    group->on_device.first_draw = num_draws_;
    group->on_device.num_draws = width;
    group->on_device.num_prompt_tokens = group->position - 2;
    num_draws_ += width;
    group->num_beams = width;
    for (int rank = 0; rank < width; ++rank) {
      group->tokens[rank] = Below(kVocabSize);
      group->cums[rank] = -0.25f * rank;
      group->samples.push_back(3 + 2 * rank);
    }
  }

  void MakeWords() {
    const int num_groups = static_cast<int>(groups_.size());
    tokens_ = words_.Add(num_slots_);
    cums_ = words_.Add(num_slots_);
    slots_ = words_.Add(num_slots_);
    samples_ = words_.Add(num_slots_);
    states_ = words_.Add(2 * num_slots_);
    parents_ = words_.Add(num_slots_);
    places_ = words_.Add(2 * num_slots_ * kPlaceWords);
    draws_ = words_.Add(kDrawWords * num_draws_);
    sources_ = words_.Add(num_slots_);
    tails_ = words_.Add(num_slots_);
    tables_ = words_.Add((num_slots_ + 1) * stride_);
    positions_ = words_.Add(num_slots_);
    const int pages_per_slot = GetParam().num_steps / page_size_ + 2;
    page_tokens_ =
        words_.Add((next_page_ + num_slots_ * pages_per_slot) * page_size_);
    num_groups_at_ = words_.Add(1);
    groups_at_ = words_.Add(num_groups * kGroupWords);
    selections_ = words_.Add(num_groups * 5);
    row_groups_ = words_.Add(padded_rows());
    eos_ = words_.Add(num_eos_ + 1);
    batch_tokens_ = words_.Add(padded_rows());
    batch_positions_ = words_.Add(padded_rows());
    logits_tokens_ = words_.Add(padded_rows());
    batch_cums_ = words_.Add(padded_rows());
    copies_ = words_.Add(3 * num_slots_);
    num_copies_ = words_.Add(1);
    clock_ = words_.Add(4);
    scratch_ = words_.Add(3 * num_slots_);
    mask_rows_ = words_.Add(kMaskRowWords * num_rows_);
    row_edits_ = words_.Add(kEditWords * num_rows_);
    continuing_ = words_.Add(NumMaskWords(kVocabSize) * num_rows_);
    masks_ = words_.Add(kMaskWords);
    candidates_ = words_.Add(3 * num_candidates_);
    counts_ = words_.Add(num_groups);
    words_.Upload();
    if (!constraints_.empty()) device_constraints_ = Upload(constraints_);
    mask_jobs_ = Upload(std::vector<CudaMaskJob>(2 * num_rows_));
    pushdown_jobs_ = Upload(std::vector<CudaPushdownJob>(2 * num_rows_));
    found_ = Upload(std::vector<int>(num_rows_));
    state_ = {.tokens = words_.At<int>(tokens_),
              .cum_log_probs = words_.At<float>(cums_),
              .slots = words_.At<int>(slots_),
              .samples = words_.At<uint32_t>(samples_),
              .parents = words_.At<int>(parents_),
              .constraint_states = words_.At<int32_t>(states_),
              .places = words_.At<PushdownPlace>(places_),
              .sources = words_.At<int>(sources_),
              .tails = words_.At<int>(tails_),
              .tables = words_.At<int>(tables_),
              .positions = words_.At<int>(positions_),
              .page_tokens = words_.At<int>(page_tokens_),
              .num_groups = words_.At<int>(num_groups_at_),
              .groups = words_.At<CudaResidentGroup>(groups_at_),
              .selections = words_.At<CudaSelectGroup>(selections_),
              .row_groups = words_.At<int>(row_groups_),
              .eos_token_ids = words_.At<int>(eos_),
              .batch_tokens = words_.At<int>(batch_tokens_),
              .batch_positions = words_.At<int>(batch_positions_),
              .logits_tokens = words_.At<int>(logits_tokens_),
              .batch_cum_log_probs = words_.At<float>(batch_cums_),
              .draws = words_.At<CudaDraw>(draws_),
              .copies = words_.At<PageCopy>(copies_),
              .num_copies = words_.At<int>(num_copies_),
              .clock = words_.At<CudaStepClock>(clock_),
              .scratch = words_.At<int>(scratch_),
              .masks = words_.At<CudaMaskCache>(masks_),
              .row_edits = words_.At<CudaRowEdits>(row_edits_),
              .continuing = words_.At<uint32_t>(continuing_),
              .num_mask_words = NumMaskWords(kVocabSize),
              .num_cached_masks = 4,
              .num_places = num_slots_,
              .table_stride = stride_,
              .page_size = page_size_};
    auto headers = PinnedBuffer<CudaReportRing::Header>::Create(kNumReports);
    auto counts = PinnedBuffer<int>::Create(kNumReports * num_groups);
    auto reported =
        PinnedBuffer<Candidate>::Create(kNumReports * num_candidates_);
    ASSERT_TRUE(headers.ok() && counts.ok() && reported.ok());
    headers_ = *std::move(headers);
    reported_counts_ = *std::move(counts);
    reported_ = *std::move(reported);
    reports_ = {headers_.data(),  reported_counts_.data(),
                reported_.data(), kNumReports,
                num_groups,       num_candidates_};
  }

  void Put(int target, const std::vector<int>& values) {
    words_.Put(target, values);
  }
  void ApplyDelta() { words_.ApplyDelta(state_.clock, stream_.get()); }
  void Wait() {
    ASSERT_OK(CudaStatus(cudaStreamSynchronize(stream_.get()), "kernels"));
  }

  static std::vector<int> Bits(const std::vector<float>& values) {
    std::vector<int> bits;
    for (const float value : values) bits.push_back(std::bit_cast<int>(value));
    return bits;
  }

  void PutGroups() {
    Put(num_groups_at_, {static_cast<int>(groups_.size())});
    std::vector<int> row_groups(padded_rows(), -1);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const HostGroup& group = groups_[g];
      const int first = group.on_device.first_slot;
      Put(groups_at_ + kGroupWords * static_cast<int>(g),
          {first, group.on_device.num_slots, group.on_device.num_shared_pages,
           group.on_device.first_eos, group.on_device.num_eos,
           group.on_device.first_draw, group.on_device.num_draws,
           group.on_device.num_prompt_tokens, group.on_device.has_constraint,
           group.on_device.max_candidates});
      Put(selections_ + 5 * static_cast<int>(g),
          {group.selection.first_row, group.selection.num_rows,
           group.selection.num_candidates, group.selection.first_candidate, 0});
      std::fill_n(row_groups.begin() + group.selection.first_row,
                  group.selection.num_rows, static_cast<int>(g));
      Put(eos_ + group.on_device.first_eos, group.eos);
      Put(tokens_ + first, group.tokens);
      Put(cums_ + first, Bits(group.cums));
      Put(slots_ + first, GlobalSlots(group));
      Put(samples_ + first, {group.samples.begin(), group.samples.end()});
      PutStates(group);
      Put(sources_ + first, std::vector<int>(group.slots.size(), -1));
      Put(tails_ + first, group.tails);
      Put(positions_ + first, {group.position});
      for (int slot = 0; slot < group.on_device.num_slots; ++slot) {
        Put(tables_ + (first + slot) * stride_, group.tables[slot]);
      }
    }
    Put(row_groups_, row_groups);
  }

  static bool HasStacks(const HostGroup& group) {
    return group.constraint != nullptr &&
           group.constraint->tables()->has_stacks();
  }
  static PushdownPlace PlaceOf(const HostGroup& group, int rank) {
    PushdownPlace place;
    group.constraint->tables()->stacks.places->Find(group.states[rank], &place);
    return place;
  }
  // Returns the index of the state and place of a beam.
  int EntryOf(const HostGroup& group, int rank) const {
    return group.position % 2 * num_slots_ + group.on_device.first_slot + rank;
  }
  // Returns the offset of the beam's place.
  int PlaceAt(const HostGroup& group, int rank) const {
    return places_ + EntryOf(group, rank) * kPlaceWords;
  }

  // Before the first token stacks are empty.
  void PutStates(const HostGroup& group) {
    if (group.states.empty()) return;
    if (!HasStacks(group)) {
      return Put(states_ + EntryOf(group, 0), group.states);
    }
    for (int rank = 0; rank < std::ssize(group.states); ++rank) {
      const int32_t state = PlaceOf(group, rank).state;
      Put(states_ + EntryOf(group, rank), {state});
      Put(PlaceAt(group, rank), {state, 0, 0, 0});
    }
  }

  void ExpectStates(const HostGroup& group) {
    const std::vector<int> states =
        words_.Slice(states_ + EntryOf(group, 0), group.states.size());
    if (!HasStacks(group)) {
      EXPECT_EQ(states, group.states);
      return;
    }
    const ConstraintTables tables = *group.constraint->tables();
    for (int rank = 0; rank < std::ssize(states); ++rank) {
      PushdownPlace place;
      std::memcpy(static_cast<void*>(&place),
                  &words_.host[PlaceAt(group, rank)], sizeof(place));
      EXPECT_EQ(place.state, states[rank]);
      ASSERT_EQ(states[rank] < 0, group.states[rank] < 0) << "rank " << rank;
      if (states[rank] < 0) continue;
      ASSERT_LE(place.height, PushdownPlace::kMaxDepth);
      if (rank > 100 && rank % 17 != 0) continue;  // masks take a while
      const PushdownPlace expected = PlaceOf(group, rank);
      for (const int32_t room : {2, 5, 1000}) {
        ASSERT_EQ(reference::TokenMask(tables, place, room),
                  reference::TokenMask(tables, expected, room))
            << "rank " << rank << ", room " << room;
      }
    }
  }

  // Gives each row a mask, and from the second step on its beam, if that has
  // states.
  void PutMaskRows() {
    std::vector<int> mask_rows(size_t(kMaskRowWords) * num_rows_, -1);
    std::vector<int> row_edits(size_t(kEditWords) * num_rows_);
    for (int row = 0; row < num_rows_; ++row) {
      row_edits[(row + 1) * kEditWords - 1] = MaskOf(row);
    }
    for (const HostGroup& group : groups_) {
      if (group.constraint == nullptr || step_ == 0) continue;
      for (int rank = 0; rank < group.on_device.num_slots; ++rank) {
        int* const words =
            &mask_rows[kMaskRowWords * (group.selection.first_row + rank)];
        words[0] = group.constraint_idx;
        words[1] = group.on_device.first_slot + rank;
      }
    }
    Put(mask_rows_, mask_rows);
    Put(row_edits_, row_edits);
  }
  int MaskOf(int row) const { return num_rows_ - 1 - row; }

  // Puts the bits of candidates; all others are arbitrary.
  void PutContinuing(const std::vector<std::vector<Candidate>>& candidates) {
    const int num_words = NumMaskWords(kVocabSize);
    std::vector<int> masks(size_t(num_rows_) * num_words);
    for (int& word : masks) word = static_cast<int>(random_());
    for (size_t g = 0; g < groups_.size(); ++g) {
      const HostGroup& group = groups_[g];
      if (group.constraint == nullptr) continue;
      const int room = group.end_position - group.position - 1;
      for (const auto& [beam, token, cum] : candidates[g]) {
        if (token < 0) continue;
        const bool continues = !group.constraint->ends(
            group.constraint->Advance(group.states[beam], token), room);
        const int mask = MaskOf(group.selection.first_row + beam);
        int& word = masks[mask * num_words + token / 32];
        const int bit = static_cast<int>(1u << (token % 32));
        word = continues ? word | bit : word & ~bit;
      }
    }
    Put(continuing_, masks);
  }

  static std::vector<int> GlobalSlots(const HostGroup& group) {
    std::vector<int> slots = group.slots;
    for (int& slot : slots) slot += group.on_device.first_slot;
    return slots;
  }

  // A page begins: every slot gets a fresh one ahead.
  void AttachTails() {
    for (HostGroup& group : groups_) {
      if (group.position % page_size_ != 0) continue;
      for (int& tail : group.tails) tail = next_page_++;
      Put(tails_ + group.on_device.first_slot, group.tails);
    }
  }

  void ExpectBatch(const std::vector<Move>& expected_copies) {
    for (const HostGroup& group : groups_) {
      const int row = group.selection.first_row;
      const size_t width = group.tokens.size();
      for (size_t rank = 0; rank < width; ++rank) {
        const int token = words_.host[logits_tokens_ + row + rank];
        EXPECT_EQ(token, row + group.slots[rank]);
        EXPECT_EQ(words_.host[batch_tokens_ + token], group.tokens[rank]);
        const int place = group.tails[group.slots[rank]] * page_size_ +
                          group.position % page_size_;
        EXPECT_EQ(words_.host[page_tokens_ + place], group.tokens[rank]);
      }
      EXPECT_EQ(words_.Slice(batch_cums_ + row, width), Bits(group.cums));
      EXPECT_EQ(words_.Slice(batch_positions_ + row, width),
                std::vector<int>(width, group.position));
      ExpectDraws(group);
      const size_t num_pages = group.position / page_size_ + 1;
      for (int rank = 0; rank < group.num_beams; ++rank) {
        const int slot = group.slots[rank];
        const int global = group.on_device.first_slot + slot;
        const std::vector<int>& table = group.tables[slot];
        EXPECT_EQ(words_.Slice(tables_ + global * stride_, num_pages),
                  std::vector<int>(table.begin(), table.begin() + num_pages));
      }
    }
    for (int row = num_rows_; row < padded_rows(); ++row) {
      EXPECT_EQ(words_.host[batch_tokens_ + row], 0);
      EXPECT_EQ(words_.host[logits_tokens_ + row], row);
      EXPECT_EQ(words_.host[batch_cums_ + row], std::bit_cast<int>(kNoBeam));
    }
    std::vector<Move> copies;
    for (int i = 0; i < words_.host[num_copies_]; ++i) {
      const int* copy = &words_.host[copies_ + 3 * i];
      copies.push_back({copy[0], copy[1], copy[2]});
    }
    std::sort(copies.begin(), copies.end());
    EXPECT_EQ(copies, expected_copies);
  }

  // A draw of every home, for its own candidate.
  void ExpectDraws(const HostGroup& group) {
    for (int rank = 0; rank < std::ssize(group.samples); ++rank) {
      const int draw = group.on_device.first_draw + rank;
      const std::vector<int> expected = {
          group.selection.first_row + rank,
          group.selection.first_candidate + rank,
          rank,
          static_cast<int>(group.samples[rank]),
          group.position + 1 - group.on_device.num_prompt_tokens,
          static_cast<int>(RandomPurpose::kDraw)};
      EXPECT_EQ(words_.Slice(draws_ + kDrawWords * draw, kDrawWords), expected);
    }
  }

  // A token that may follow; with a constraint mostly one that is legal.
  TokenId AnyToken(const HostGroup& group, int rank) {
    if (group.constraint == nullptr) return Below(kVocabSize);
    const auto tokens = group.constraint
                            ->LegalTokens(group.states[rank],
                                          group.end_position - group.position)
                            .tokens;
    return tokens[Below(static_cast<int>(tokens.size()))];
  }

  // A token of each sample that lives; at times none, an error.
  std::vector<Candidate> AnyDraws(const HostGroup& group) {
    std::vector<Candidate> candidates;
    for (int rank = 0; rank < group.num_beams; ++rank) {
      const TokenId token = Below(500) == 0 ? kNoToken : AnyToken(group, rank);
      candidates.push_back({.beam = rank,
                            .token = token,
                            .cum_log_prob = group.cums[rank] - 0.5f});
    }
    return candidates;
  }

  // Candidates of the live beams, best first, with EOS ids among them; at
  // times few, at times none.
  std::vector<Candidate> AnyCandidates(const HostGroup& group) {
    const int limit = group.num_beams == 0 ? 0
                      : Below(40) == 0
                          ? Below(group.selection.num_candidates + 1)
                          : group.selection.num_candidates;
    const bool few_parents = Below(3) == 0;
    std::vector<Candidate> candidates;
    float cum = -static_cast<float>(step_);
    for (int i = 0; i < limit; ++i) {
      cum -= Below(100) / 64.0f;
      const int range = few_parents ? 1 + group.num_beams / 4 : group.num_beams;
      const int beam = Below(std::min(range, group.num_beams));
      candidates.push_back(
          {.beam = beam, .token = AnyToken(group, beam), .cum_log_prob = cum});
    }
    return candidates;
  }

  void UploadCandidates(const std::vector<std::vector<Candidate>>& candidates) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<int> words;
      for (const Candidate& candidate : candidates[g]) {
        words.insert(words.end(), {candidate.beam, candidate.token,
                                   std::bit_cast<int>(candidate.cum_log_prob)});
      }
      Put(candidates_ + 3 * groups_[g].selection.first_candidate, words);
      const bool draws = groups_[g].on_device.num_draws > 0;
      Put(counts_ + static_cast<int>(g),
          {draws ? 12345 : static_cast<int>(candidates[g].size())});
    }
  }

  void ExpectReport(const std::vector<std::vector<Candidate>>& candidates) {
    const int report = step_ % kNumReports;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int count = reported_counts_[report * groups_.size() + g];
      ASSERT_EQ(count, static_cast<int>(candidates[g].size()));
      const Candidate* const first = reported_.data() +
                                     report * num_candidates_ +
                                     groups_[g].selection.first_candidate;
      EXPECT_EQ(std::vector<Candidate>(first, first + count), candidates[g]);
    }
    EXPECT_GT(headers_[report].started_ns, 0);
    EXPECT_GE(headers_[report].ended_ns, headers_[report].started_ns);
    EXPECT_EQ(words_.host[num_copies_], 0);
  }

  CudaMaskCache AnyMasks() {
    CudaMaskCache masks = {.epoch = 1'000'000u + Below(1000),
                           .num_taken = Below(7)};
    if (Below(3) > 0) masks.num_jobs = Below(3);
    if (Below(3) > 0) masks.num_item_jobs = Below(3);
    if (Below(3) > 0) masks.num_pushdown_jobs = Below(3);
    return masks;
  }
  // Jobs are done, and a full cache is free in a new epoch.
  void ExpectMasks(CudaMaskCache masks) {
    const int num_jobs =
        masks.num_jobs + masks.num_item_jobs + masks.num_pushdown_jobs;
    if (num_jobs > 0 && masks.num_taken >= 4) {
      masks.epoch = step_ + 2;
      masks.num_taken = 0;
    }
    EXPECT_EQ(words_.Slice(masks_, kMaskWords),
              (std::vector<int>{static_cast<int>(masks.epoch), masks.num_taken,
                                0, 0, 0}));
  }

  // Closes the gaps between the groups' slots.
  void MoveGroups() {
    int first = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      CudaResidentGroup& group = groups_[g].on_device;
      if (first < group.first_slot) {
        ASSERT_OK(CudaMoveGroup(state_, group.first_slot, first,
                                group.num_slots, stream_.get()));
        group.first_slot = first;
        Put(groups_at_ + kGroupWords * static_cast<int>(g), {first});
      }
      first += group.num_slots;
    }
  }

  void RunStep() {
    if (step_ == GetParam().num_steps / 2) MoveGroups();
    AttachTails();
    PutMaskRows();
    ApplyDelta();
    ASSERT_OK(CudaPrepareInputs(state_, padded_rows(), stream_.get()));
    const CudaMaskInputs inputs = {.vocab_size = kVocabSize,
                                   .num_rows = num_rows_,
                                   .num_places = num_slots_,
                                   .constraints = device_constraints_.data(),
                                   .rows = words_.At<CudaMaskRow>(mask_rows_),
                                   .logits_tokens = state_.logits_tokens,
                                   .positions = state_.batch_positions,
                                   .parents = state_.parents,
                                   .tokens = state_.tokens,
                                   .states = state_.constraint_states,
                                   .places = state_.places,
                                   .cache = state_.masks,
                                   .jobs = mask_jobs_.data(),
                                   .pushdown_jobs = pushdown_jobs_.data()};
    ASSERT_OK(CudaAdvancePlaces(inputs, stream_.get()));
    ASSERT_OK(CudaFindMasks(inputs, num_rows_, found_.data(), nullptr, 1,
                            stream_.get()));
    Wait();
    words_.Download();
    for (const HostGroup& group : groups_) {
      if (group.constraint == nullptr) continue;
      SCOPED_TRACE("states of the group at slot " +
                   std::to_string(group.on_device.first_slot));
      ASSERT_NO_FATAL_FAILURE(ExpectStates(group));
    }
    std::vector<Move> copies;
    for (HostGroup& group : groups_) MoveForks(group, page_size_, &copies);
    std::sort(copies.begin(), copies.end());
    ExpectBatch(copies);
    std::vector<std::vector<Candidate>> candidates;
    for (const HostGroup& group : groups_) {
      candidates.push_back(group.samples.empty() ? AnyCandidates(group)
                                                 : AnyDraws(group));
    }
    UploadCandidates(candidates);
    PutContinuing(candidates);
    CudaMaskCache masks = AnyMasks();
    Put(masks_, {static_cast<int>(masks.epoch), masks.num_taken, masks.num_jobs,
                 masks.num_item_jobs, masks.num_pushdown_jobs});
    ApplyDelta();
    const auto num_groups = static_cast<int>(groups_.size());
    ASSERT_OK(CudaUpdateBeams(state_, words_.At<Candidate>(candidates_),
                              words_.At<int>(counts_), reports_, num_groups,
                              stream_.get()));
    Wait();
    words_.Download();
    ExpectReport(candidates);
    ExpectMasks(masks);
    for (size_t g = 0; g < groups_.size(); ++g) {
      Advance(groups_[g], candidates[g]);
    }
    ++step_;
  }

  int Below(int limit) { return static_cast<int>(random_() % limit); }
  int padded_rows() const { return num_rows_ + 5; }

  std::mt19937_64 random_{20240607};
  int page_size_ = 1;
  int stride_ = 1;
  int num_slots_ = 0;
  int num_rows_ = 0;
  int num_eos_ = 0;
  int num_candidates_ = 0;
  int num_draws_ = 0;
  int next_page_ = 1;
  int step_ = 0;
  std::vector<HostGroup> groups_;

  DeviceWords words_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::vector<CudaConstraintTables> constraint_tables_;
  std::vector<CudaConstraint> constraints_;
  DeviceBuffer<CudaConstraint> device_constraints_;
  DeviceBuffer<CudaMaskJob> mask_jobs_;
  DeviceBuffer<CudaPushdownJob> pushdown_jobs_;
  DeviceBuffer<int> found_;
  int samples_, draws_, states_, masks_;
  int parents_, places_, mask_rows_, row_edits_, continuing_;
  int tokens_, cums_, slots_, sources_, tails_, tables_, positions_,
      page_tokens_;
  int num_groups_at_, groups_at_, selections_, row_groups_, eos_;
  int batch_tokens_, batch_positions_, logits_tokens_, batch_cums_;
  int copies_, num_copies_, clock_, scratch_, candidates_, counts_;
  CudaBeamState state_;
  CudaReportRing reports_;
  PinnedBuffer<CudaReportRing::Header> headers_;
  PinnedBuffer<int> reported_counts_;
  PinnedBuffer<Candidate> reported_;
  CudaStream stream_;
};

TEST_P(ResidentTest, EveryStepIsThatOfTheHost) {
  PutGroups();
  ApplyDelta();
  const int num_steps = GetParam().num_steps;
  for (int i = 0; i < testing::Cases(num_steps, num_steps / 6); ++i) {
    RunStep();
    if (HasFailure()) FAIL() << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ResidentTest,
    ::testing::Values(Shape{16, {1}, 40, 17}, Shape{4, {5, 1, 3}, 60, 6},
                      Shape{1, {4, 4}, 30, 3},
                      Shape{3, {2, 33, 100, 7, 1, 64}, 40, 0},
                      Shape{16, {255, 256, 257}, 40, 30},
                      Shape{4, {1024, 1025}, 20, 5}, Shape{2, {5000}, 12, 9}));

}  // namespace
}  // namespace espalier
