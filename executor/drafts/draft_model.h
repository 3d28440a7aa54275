// DraftModel: a small model that drafts tokens for the sequences of a larger
// target model, with pages of its own.
//
// It keeps the tokens that it has fed of each sequence, and their pages. Before
// it drafts, it truncates rejected drafts and feeds the missing tokens of the
// sequence as one row: one token after a rejection, two after a bonus token,
// more after a pause, the prompt at first.
//
//   sequence   p p p a b c       fed before      p p p a x     (x was rejected)
//   keeps      p p p a           feeds           b c   -> logits -> draft d
//   feeds      d -> e            fed then        p p p a b c d
//
// Each plan feeds at most StepPlan::max_draft_step_tokens missing tokens, so
// that a long prompt or a long pause does not delay steps. Sequences that lack
// more are fed in chunks over several plans, after those that lack less, and
// have no draft until then (DraftedTokens::is_behind).
//
// Samples of one request share the pages of their common prefix. The beams of a
// search, which the draft model continues (draft_search.h), start from the
// longest prefix that any sequence of that search has fed; the paths that the
// target chooses are mostly fed already. If pages run out, sequences that
// drafted least recently are evicted (draft_sequences.h). A sequence without
// pages drafts nothing.
//
// If the model has a DraftSampler that supports a sample, its whole draft is
// sampled on the device in one call. For other samples, and for beams, the host
// reads the logits of each step and chooses the tokens.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"
#include "executor/drafts/draft_sampler.h"
#include "executor/drafts/draft_search.h"
#include "executor/drafts/draft_sequences.h"
#include "executor/drafts/draft_text.h"

namespace espalier {

// Checks that a draft model can draft for `model`, which must not have an
// encoder. Drafts of a translation are poor without its source, so the draft
// model would need an encoder of its own and read each source, too.
// Errors: kInvalidArgument naming draft_model, and `directory` if not empty.
absl::Status CheckTakesDraftModel(const ModelDescription& model,
                                  std::string_view directory = "");

// Checks that a model can be a draft model, which must not have an encoder.
// Errors: as above.
absl::Status CheckIsDraftModel(const ModelDescription& draft,
                               std::string_view directory = "");

// Checks that `draft` can draft for `model`: CheckTakesDraftModel, and both
// have the same vocabulary. Errors: kInvalidArgument.
absl::Status CheckDraftModelFits(const ModelDescription& model,
                                 const ModelDescription& draft);

class DraftModel {
 public:
  // Errors: kInvalidArgument if the model keeps other state of a sequence than
  // pages (ModelDescription::has_shareable_pages), or its description is
  // invalid; kFailedPrecondition if it runs on an executor.
  //   sampler  the model's, if it has one; uses the same pages
  static absl::StatusOr<std::unique_ptr<DraftModel>> Create(
      std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
      std::shared_ptr<DraftSampler> sampler = nullptr);
  ~DraftModel();

  const ModelDescription& description() const { return model_->description(); }
  // True if Run() supports sequences with DraftSequence::verified_before.
  bool follows_verification() const {
    return sampler_ != nullptr && sampler_->follows_verification();
  }
  // Returns the stream of pending drafts (DraftSampler::stream); null: none.
  void* stream() const {
    return sampler_ == nullptr ? nullptr : sampler_->stream();
  }
  // Returns the number of tokens that it can feed of a single sequence, >= 1,
  // limited by its context and its pages, one of which is reserved for a tail
  // copy.
  int max_tokens() const;

  // Drops all sequences of requests that have ended. For plans that draft
  // nothing.
  void ForgetEnded(std::span<const RequestId> ended);

  // Drops plan.ended, then drafts for each of plan.drafting, in its order. With
  // `may_pend`, drafts that the plan itself verifies may be pending in the
  // result (DraftedTokens::pending), and the sampler draws no others, because
  // its stream may run the plan meanwhile.
  // Errors: the model's; kCancelled if plan.stop was requested. Throws
  // std::bad_alloc. After an error or exception all sequences of the plan's
  // requests are dropped.
  absl::StatusOr<std::vector<DraftedTokens>> Run(const StepPlan& plan,
                                                 bool may_pend = false);

  // Cost of drafts: rows of logits that the last Run() computed and their time,
  // without catch-up passes (StepResult::num_draft_rows). Pending drafts count
  // in the next Run().
  int num_rows() const { return num_rows_; }
  absl::Duration draft_time() const { return draft_time_; }
  // Tokens that the last Run() has left of StepPlan::max_draft_step_tokens.
  int num_tokens_left() const { return static_cast<int>(num_tokens_left_); }

  // For tests and statistics: the sequences it keeps, and their pages.
  int num_sequences() const { return sequences_.size(); }
  const PagePool& pages() const { return sequences_.pool(); }

 private:
  // Missing tokens of a sequence in regular operation: two after a bonus token.
  static constexpr size_t kUsualTokens = 2;

  // A sample or a beam while it drafts.
  struct Drafting {
    const DraftSequence* asked = nullptr;
    DraftSequences::Key key = {};
    DraftText text = {};  // drafted tokens included
    DraftedTokens draft = {};
    ConstraintPlace place = {};      // behind the draft, with a constraint
    std::vector<float> logits = {};  // [draft.tokens, vocab_size], host only
    bool is_too_long = false;        // for the model's context
    bool is_done = false;
    // The draft follows an unread verification. Only the sampler supports this;
    // no missing tokens are fed before it.
    bool is_unread() const { return !asked->verified_before.empty(); }
  };
  // A search while it drafts.
  struct Searching {
    DraftSearch search;
    size_t first = 0;                  // index of its first beam in the plan
    std::vector<Drafting> beams = {};  // live ones, by rank
    int num_keys = 0;                  // keys used so far by its sequences
    bool is_done = false;
    bool is_behind = false;
  };
  // Common prefix of the sequences of a request, and the sequence that feeds
  // it, which is the one with the most tokens fed.
  struct Stem {
    Drafting* first = nullptr;
    size_t num_tokens = 0;
  };
  // Consumer of a row of logits: a sample, or a beam of a search.
  struct Reader {
    Drafting* drafting = nullptr;
    Searching* searching = nullptr;  // null for a sample
    int rank = 0;
  };
  // The sequences of one run.
  struct Work {
    std::vector<Drafting> samples;
    std::vector<size_t> places;  // [samples], index in the plan
    std::vector<Searching> searches;
  };

  // A draft that the sampler has been sampling since the last run. It follows
  // `text`, and the accepted tokens of `verified_before` if that is set.
  struct Pending {
    DraftSequences::Key key;
    DraftText text;
    PendingDraft verified_before;
    PendingDraft draft;
  };

  DraftModel(std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
             std::shared_ptr<DraftSampler> sampler);

  absl::StatusOr<std::vector<DraftedTokens>> RunAll(const StepPlan& plan);
  Work WorkOf(const StepPlan& plan) const;
  void Begin(Searching* searching);
  // Feeds the common prefix of each request's sequences once; the others share
  // its pages.
  absl::Status FeedStems(std::span<Drafting* const> all, std::stop_token stop);
  std::map<RequestId, Stem> StemsOf(std::span<Drafting* const> all) const;
  void ShareStems(const std::map<RequestId, Stem>& stems,
                  std::span<Drafting* const> all);
  // Returns the length of a sequence's common prefix with its stem's feeder.
  size_t LengthOfStem(const Drafting& first, const Drafting& other) const;
  // Returns the number of tokens that stems may feed. It reserves the tokens of
  // sequences that lack no more than kUsualTokens.
  size_t NumTokensForStems(std::span<Drafting* const> all) const;
  // Handles sequences that lack more tokens than this run may feed: adds chunks
  // of them to `*step`, and defers their drafts to the next plan. Sequences
  // that lack least go first, so that a long prompt does not delay other
  // drafts.
  void DeferToNextPlan(Work* work, StepPlan* step);
  void DeferSearch(Searching* search, StepPlan* step);
  // Adds a chunk of one sequence; false if there are no pages for it.
  bool AddChunk(const Drafting& drafting, StepPlan* step);
  // Runs the sampler for the samples that it supports. If there are some, it
  // first feeds and clears `*step`.
  absl::Status SampleDrafts(Work* work, StepPlan* step, std::stop_token stop);
  bool CanSample(const DraftSequence& asked) const;
  // Waits for the pending drafts of the last run and records their fed tokens.
  absl::Status TakePending();
  // Calls Model::Forward; waits for pending drafts first.
  absl::Status Forward(const StepPlan& step, std::span<float> logits);
  // Adds the row to `*step` from which the sampler drafts; false as AddRow().
  bool AddSamplingRow(Drafting* drafting, StepPlan* step);
  // Returns the text with the sampled draft, whose last token was not fed.
  static DraftText TextAfter(Pending pending);
  void TakeSampled(SampledDraft sampled, Drafting* drafting);
  void TakeStarted(SampledDraft started, Drafting* drafting);
  // Feeds the rows of `step` and the missing tokens of each sequence, and
  // samples, or advances the search, from the logits of the last tokens.
  absl::Status FeedAndDraw(Work* work, StepPlan step, std::stop_token stop);
  // Adds a row for each sequence that is not done.
  std::vector<Reader> AddRows(Work* work, StepPlan* step);
  void Read(const Reader& reader, std::span<float> logits) const;
  // Replaces the beams of a search by the next ones, which share the fed tokens
  // and pages of their parents.
  void Advance(Searching* searching);
  // Calls DraftSequences::AddRow.
  bool AddRow(const Drafting& drafting, size_t end, int num_logits,
              StepPlan* step, int num_ahead = 0) {
    return sequences_.AddRow(drafting.key, drafting.text, end, num_logits, step,
                             num_ahead);
  }
  size_t num_fed(const Drafting& drafting) const {
    return sequences_.num_fed(drafting.key);
  }
  size_t num_lacking(const Drafting& drafting) const {
    return drafting.text.size() - num_fed(drafting);
  }
  // Frees pages for the next row of each beam; false if there are too few.
  bool MakeRoomFor(const Searching& searching, const StepPlan& step);
  // Ends a search for lack of pages. Other sequences may evict its sequences.
  void GiveUp(Searching* searching);
  // Draws the next token, or ends the draft. With a constraint the logits of
  // illegal tokens become -inf.
  void Draw(std::span<float> logits, Drafting* drafting) const;
  // Appends `token` to the draft, or ends the draft.
  void Take(TokenId token, Drafting* drafting) const;

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<ThreadPool> threads_;
  const std::shared_ptr<DraftSampler> sampler_;  // or null
  DraftSequences sequences_;
  std::vector<Pending> pending_;
  int num_pending_rows_ = 0;     // rows of logits of pending_; 0: run failed
  absl::Duration pending_time_;  // time of pending_, after the wait
  bool may_pend_ = false;        // drafts of this run may be pending
  size_t num_tokens_left_ = 0;   // missing tokens that this run may still feed
  int num_rows_ = 0;             // rows of logits in this run
  absl::Duration draft_time_;    // time of num_rows_
  std::vector<float> logits_;
};

}  // namespace espalier
