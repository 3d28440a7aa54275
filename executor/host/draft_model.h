// DraftModel: a small model that drafts tokens for the sequences of a larger
// one, with pages of its own.
//
// Of each sequence it keeps the tokens that it has fed and their pages, under
// one law: before it drafts it has fed all tokens of the sequence but the last,
// or feeds what is missing, as one row: one token after a rejection, two after
// a bonus token, more after a pause, a prompt at first. What it fed and is not
// the sequence's any more, rejected drafts, is truncated.
//
//   sequence   p p p a b c       fed before      p p p a x     (x was rejected)
//   keeps      p p p a           feeds           b c   -> logits -> draft d
//   feeds      d -> e            has fed then    p p p a b c d
//
// What sequences lack is fed up to StepPlan::max_draft_step_tokens a plan, so
// that a long prompt, or what a long pause left, holds no step up. One that
// lacks more is fed in chunks, of what those that lack less leave, by as many
// plans as that takes, and is answered without a draft until then
// (DraftedTokens::is_behind).
//
// Samples of one request share the pages of what they have in common. The beams
// of a search, which it searches on from (draft_search.h), begin with what is
// kept of any sequence of that search that goes furthest with theirs, so that
// the paths that the other search takes are fed already. Where
// pages run out, sequences that drafted least recently lose theirs
// (draft_sequences.h); a sequence that finds none drafts nothing.
//
// Samples draft on the device of the model where it has a DraftSampler that can
// draw for them: then the model's steps for them are one call of that. For the
// others, and for beams, each step's logits come to the host, which draws.
//
// One thread at a time.
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
#include "exec_request/draft_sampler.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"
#include "executor/host/draft_search.h"
#include "executor/host/draft_sequences.h"
#include "executor/host/draft_text.h"

namespace espalier {

// That a draft model can draft for sequences of `model`: not with an encoder.
// A draft of a translation that has not seen the source is worth little, so the
// draft model would need an encoder of its own, and read each source, too.
// Errors: kInvalidArgument naming draft_model, and `directory` if that is what
// it was given as.
absl::Status CheckTakesDraftModel(const ModelDescription& model,
                                  std::string_view directory = "");

// That a model can be a draft model: it has no encoder.
// Errors: as above.
absl::Status CheckIsDraftModel(const ModelDescription& draft,
                               std::string_view directory = "");

// That `draft` can draft for sequences of `model`: CheckTakesDraftModel, and
// both have the same vocabulary. Errors: kInvalidArgument.
absl::Status CheckDraftModelFits(const ModelDescription& model,
                                 const ModelDescription& draft);

class DraftModel {
 public:
  // Errors: kInvalidArgument if the model keeps more of a sequence than pages
  // (ModelDescription::has_shareable_pages), or its description is not one to
  // run with; kFailedPrecondition if it runs on an executor.
  //   sampler  of the model, if it has one; works on its pages
  static absl::StatusOr<std::unique_ptr<DraftModel>> Create(
      std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
      std::shared_ptr<DraftSampler> sampler = nullptr);

  const ModelDescription& description() const { return model_->description(); }
  // Whether Run takes sequences with DraftSequence::verified_before.
  bool follows_verification() const {
    return sampler_ != nullptr && sampler_->follows_verification();
  }
  // The most tokens of a sequence that it can feed, were it alone: what its
  // context has, and its pages, of which one more is for the copy of a tail.
  int max_tokens() const;

  // Keeps nothing of requests that have ended. For plans that fail before they
  // are run here.
  void ForgetEnded(std::span<const RequestId> ended);

  // Drafts for each of plan.drafting, in its order, having forgotten
  // plan.ended. Errors: what the model returns; kCancelled if plan.stop was
  // requested. Throws std::bad_alloc. Either way it has forgotten what it had
  // fed of these requests.
  // If `may_pend`, what the plan itself verifies may be pending in the answer
  // (DraftedTokens::pending).
  absl::StatusOr<std::vector<DraftedTokens>> Run(const StepPlan& plan,
                                                 bool may_pend = false);

  // What drafts cost: rows of logits that the last Run computed, and their
  // time, without passes that caught up (StepResult::num_draft_rows). Of drafts
  // that it left pending the next one says that.
  int num_rows() const { return num_rows_; }
  absl::Duration draft_time() const { return draft_time_; }

  // For tests and figures: sequences it keeps, and pages they hold.
  int num_sequences() const { return sequences_.size(); }
  const PagePool& pages() const { return sequences_.pool(); }

 private:
  // That a sequence lacks: after a bonus token two.
  static constexpr size_t kUsualTokens = 2;

  // A sequence, of a sample or a beam, while it drafts.
  struct Drafting {
    const DraftSequence* asked = nullptr;
    DraftSequences::Key key = {};
    DraftText text = {};  // with what it has drafted
    DraftedTokens draft = {};
    std::vector<float> logits = {};  // of these, where the host draws
    bool is_too_long = false;        // for the model's context
    bool is_done = false;
    // Where the draft begins only the sampler knows: nothing is fed before it.
    bool is_unread() const { return !asked->verified_before.empty(); }
  };
  // A search while it drafts.
  struct Searching {
    DraftSearch search;
    size_t first = 0;                  // of its beams, in the plan
    std::vector<Drafting> beams = {};  // that live, by rank
    int num_keys = 0;                  // that its sequences have had
    bool is_done = false;
    bool is_behind = false;
  };
  // What the sequences of a request have in common, and the one that feeds it:
  // that which has fed most.
  struct Stem {
    Drafting* first = nullptr;
    size_t num_tokens = 0;
  };
  // Who reads a row of logits: a sample, or a beam of a search.
  struct Reader {
    Drafting* drafting = nullptr;
    Searching* searching = nullptr;  // null of a sample
    int rank = 0;
  };
  // All that a plan drafts for.
  struct Work {
    std::vector<Drafting> samples;
    std::vector<size_t> places;  // of these in the plan
    std::vector<Searching> searches;
  };

  // What the sampler draws since the last run.
  struct Pending {
    DraftSequences::Key key;
    DraftText text;                // after which it draws; or, with
    PendingDraft verified_before;  // after what is accepted of that
    PendingDraft draft;
  };

  DraftModel(std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
             std::shared_ptr<DraftSampler> sampler);

  absl::StatusOr<std::vector<DraftedTokens>> RunAll(const StepPlan& plan);
  Work WorkOf(const StepPlan& plan) const;
  void Begin(Searching* searching);
  // Feeds what all sequences of a request have in common once, and has the
  // others share it.
  absl::Status FeedStems(std::span<Drafting* const> all, std::stop_token stop);
  std::map<RequestId, Stem> StemsOf(std::span<Drafting* const> all) const;
  void ShareStems(const std::map<RequestId, Stem>& stems,
                  std::span<Drafting* const> all);
  // What a sequence has in common with the one that feeds its stem.
  size_t LengthOfStem(const Drafting& first, const Drafting& other) const;
  // How many tokens stems may have: they leave what those need that lack no
  // more than usual.
  size_t NumTokensForStems(std::span<Drafting* const> all) const;
  // Adds to `*step` as much as may be fed of those that lack more than that,
  // and defers their drafts to the next plan. Those that lack least are served
  // first, so that a long prompt takes drafts from nobody else.
  void DeferToNextPlan(Work* work, StepPlan* step);
  void DeferSearch(Searching* search, StepPlan* step);
  // The same of one sequence; false if there are no pages for it.
  bool AddChunk(const Drafting& drafting, StepPlan* step);
  // Has the sampler draft for the samples that it can draw for, after what
  // `*step` has, which is fed, too, if there are some; then it is empty.
  absl::Status SampleDrafts(Work* work, StepPlan* step, std::stop_token stop);
  bool CanSample(const DraftSequence& asked) const;
  // Of drafts that the last run left pending: takes note of what they fed.
  absl::Status TakePending();
  // Model::Forward, of a model that the sampler does not use.
  absl::Status Forward(const StepPlan& step, std::span<float> logits);
  // Adds the row to `*step` from which the sampler drafts; false as AddRow.
  bool AddSamplingRow(Drafting* drafting, StepPlan* step);
  // What `pending` has fed, whose last token it has not.
  static DraftText TextAfter(Pending pending);
  void TakeSampled(SampledDraft sampled, Drafting* drafting);
  void TakeStarted(SampledDraft started, Drafting* drafting);
  // Feeds what `step` has, and what each lacks of its text, with logits of the
  // last token, and draws or searches on from there.
  absl::Status FeedAndDraw(Work* work, StepPlan step, std::stop_token stop);
  // Adds a row for each that is not done.
  std::vector<Reader> AddRows(Work* work, StepPlan* step);
  void Read(const Reader& reader, std::span<const float> logits) const;
  // The next beams of a search begin with what their parents have.
  void Advance(Searching* searching);
  // DraftSequences::AddRow.
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
  // Pages for the next row of each beam.
  bool MakeRoomFor(const Searching& searching, const StepPlan& step);
  // There is no room for it. Its sequences are as those that do not draft now.
  void GiveUp(Searching* searching);
  void Draw(std::span<const float> logits, Drafting* drafting) const;
  // The draft goes on by `token`, or has come to its end.
  void Take(TokenId token, Drafting* drafting) const;

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<ThreadPool> threads_;
  const std::shared_ptr<DraftSampler> sampler_;  // or null
  DraftSequences sequences_;
  std::vector<Pending> pending_;
  int num_pending_rows_ = 0;     // of logits, of these; 0: the run failed
  absl::Duration pending_time_;  // of these, once it was waited for
  bool may_pend_ = false;        // what the run drafts
  size_t num_tokens_left_ = 0;   // that the run may feed to catch up
  int num_rows_ = 0;             // of logits, of the run
  absl::Duration draft_time_;    // theirs
  std::vector<float> logits_;
};

}  // namespace espalier
