// StepPlan and StepResult: one model call, as plain data. The scheduler writes
// a plan, and an executor returns a result. Nothing else passes between them,
// so an executor may live on another thread, device or machine. It may keep
// state for each sequence: plans name the sequences that ended.
//
// A plan packs *rows*, one for each sequence that runs:
//
//   tokens   [ row 0: 5 prompt tokens | row 1: 1 | row 2: 1 | ... ]
//   logits   [ row 0: last 1 token    | row 1: 1 | row 2: 1 | ... ]
//
// A row feeds one token (decode) or many (a chunk of a prompt, a resumed
// history, a draft to verify); multi-query evaluation over the page table is
// the one operation. The last `num_logits` tokens of a row have one row of
// logits each. A chunk that does not end its prompt has none. Tokens and rows
// of logits are in the order of the rows, without gaps.
//
// Rows are complete inputs, so a plan with rows for a group can be written only
// when the group's last result is read. An executor that takes more than one
// plan in flight keeps each group's state and *runs ahead*: a GroupContinuation
// requests a group's next step without the decisions of the last one
// (docs/step.md, "Running ahead"). Rows replace the kept state; a continuation
// advances it. Samples that a draft model drafts for have *rows ahead* of the
// last result instead, which the executor completes (SampleDrafts::is_ahead).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/alignment.h"
#include "base/constraint_tables.h"
#include "base/cow_vector.h"
#include "base/ids.h"
#include "base/page_copy.h"
#include "base/small_vector.h"
#include "base/token_log_prob.h"
#include "exec_request/encoder_input.h"
#include "exec_request/plan_drafts.h"
#include "kernels/logits/score_edits.h"
#include "kernels/logits/score_processors.h"
#include "kernels/sample/sample.h"
#include "kernels/select/select.h"
#include "kernels/verify/verify.h"

namespace espalier {

// One row of the packed batch.
struct PlanRow {
  SequenceId sequence = {};
  int first_token = 0;     // index in StepPlan::tokens
  int num_tokens = 0;      // >= 1
  int first_position = 0;  // position in the sequence of its first token
  int num_logits = 0;      // in [0, num_tokens]
  int first_logits = 0;    // index of its first row of logits
};

// Source (docs/step.md, "Sources") of rows of one group: their tokens attend to
// it by cross-attention. Each row of a model with an encoder has one, others
// have none.
//
// The keys and values of cross-attention lie on pages of their own, which no
// row has in its table: position p of the source in page p / page_size of
// `pages`. All rows of a group, and groups with an equal source, share them.
struct PlanSource {
  int first_row = 0;  // rows [first_row, first_row + num_rows)
  int num_rows = 1;
  std::shared_ptr<const EncoderInput> input;         // not null
  std::shared_ptr<const std::vector<PageId>> pages;  // not null, complete
  // Positions that earlier steps have stored. If the rest is not empty, the
  // encoder reads all of the input in this step, because it cannot read a part,
  // and the rest is stored before the rows' tokens attend to it. Then there is
  // one row, and no other source of the plan has the pages of the rest.
  int num_stored = 0;

  bool is_read() const { return num_stored < input->length(); }
};

// Selection parameters of a request that every kind of selection reads;
// constant for the request's life. A parameter of one kind is in the struct of
// this kind (BeamSelection, RowSelection, DrawSelection), so that the struct
// alone says which kind it is.
struct SelectionParams {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  ScoreProcessors processors;
  // Built from `processors` and the request's prompt. Null: the executor builds
  // edits from `processors` alone.
  std::shared_ptr<const ScoreEdits> edits = nullptr;
  SamplingParams sampling;  // for draws, and for RowSelection::gumbel_top_k
  // For SampleDrafts. The draft model, which sees no selection, reads it too.
  VerifyMode verify_mode = VerifyMode::kRejection;
  // Log-probabilities are reported for each chosen token and for this many best
  // tokens of its row; -1: none are reported.
  int num_logprobs = -1;
  // True: reports processed log-probabilities, the values that tokens are
  // chosen by: after edits and, if tokens are sampled, after temperature and
  // filters. A beam's values add up to its cum_log_prob (TokenValues,
  // kernels/gumbel_topk/gumbel_topk.h).
  bool reports_processed = false;
  // True: reported log-probabilities have TokenLogProb::legal_log_mass. On the
  // host alone.
  bool reports_legal_mass = false;
  // Owns the memory that PlanSelection::allowed points to, and `constraint`.
  std::shared_ptr<const void> allowed_owner = nullptr;
  // Owns the trie of `constraint`, if that has items.
  std::shared_ptr<const void> trie_owner = nullptr;
  // The constraint that says which tokens are allowed, if it has tables and the
  // executor makes masks of them (ModelDescription::has_token_masks).
  std::optional<ConstraintTables> constraint = std::nullopt;
};

// Returns params.edits, or edits built from params.processors alone if it is
// null.
std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& params);

// Joint top-k: the best continuations of all rows together, by cumulative
// score. The group's next beams are the first `num_slots` of them that do not
// end in an EOS id. AssignSlots() maps these to slots
// (kernels/resident/assign_slots.h).
struct BeamSelection {
  int num_candidates = 0;  // in all rows
  // Candidates that the group may need: this many that do not end in an EOS id,
  // and of those that end, the ones that rank above 2 * num_kept. An executor
  // may drop the others. 0: all may be needed.
  int num_kept = 0;
  // With PlanSelection::places: `num_candidates` may be too few, because many
  // tokens end a sequence. A result that lacks beams (LacksBeams,
  // exec_request/surviving_candidates.h) makes none, and the step is planned
  // again.
  bool may_lack = false;
  PathRows paths = {};  // drafts, or empty
};

// Keeps the best `num_candidates` of each row, so nothing is dropped.
struct KeepEachRow {};

// Keeps the best `count` candidates in all rows together, by perturbed sum:
// cumulative score + noise (kernels/gumbel_topk/gumbel_topk.h), in double.
struct KeepAcrossRows {
  int count = 0;  // >= 1
  // If set, the sums of row r are shifted so that the highest of them is
  // maxima[r] (ShiftToMaximum), and the candidate that determines the shift of
  // a row with kept candidates is kept too. [num_rows] or empty.
  std::vector<double> maxima = {};
};

// Adjacent rows that are ranked together.
struct RowBlock {
  int first_row = 0;
  int num_rows = 0;
  int count = 0;  // candidates kept
};

// Keeps the best `count` candidates of each block of rows, block after block
// (diverse_choice.h). A block chooses the first `num_chosen` of them that do
// not end in an EOS id. Each time that a block chose a token, the scores of
// this token are lowered by `penalty` in the blocks after it.
struct KeepEachBlock {
  std::vector<RowBlock> blocks = {};  // in ranking order
  int num_chosen = 0;
  double penalty = 0;  // >= 0
};

// Candidates that the group may need of the best ones of each row. Using it is
// optional: an executor may drop the others (executor/candidate_filter.h), and
// keeps the order of the rest. A result with more candidates leads to the same
// beams.
using RowRanking = std::variant<KeepEachRow, KeepAcrossRows, KeepEachBlock>;

// Per-row top-k: the best continuations of each row, in the order of the rows.
// The group's strategy chooses the next beams.
struct RowSelection {
  int num_candidates = 0;  // in each row
  // Ranks by perturbed scores, value + Gumbel noise
  // (kernels/gumbel_topk/gumbel_topk.h), with params->sampling. A row's
  // candidates are in descending order of these scores, or are kNotANumber
  // alone. The noise depends on the rank of the row's beam.
  bool gumbel_top_k = false;
  RowRanking ranking = {};
};

// Sampling: one token for each of `samples` (kernels/sample/sample.h), in this
// order. Sample i reads row i, or all samples read the only row. A sample
// continues, in this order, unless its token is an EOS id.
struct DrawSelection {
  SmallVector<int> samples = {};  // indices of the request's samples that draw
  // Tokens generated by each row, if the rows differ. [num_rows], or empty for
  // PlanSelection::num_generated.
  SmallVector<int> row_num_generated = {};
  SampleDrafts drafts = {};
};

// Number of the alternative of PlanSelection::choice.
enum class SelectionKind { kBeams, kRows, kDraws };

// Selection from the logits of one request's rows.
struct PlanSelection {
  RequestId request;
  int first_logits = 0;   // rows [first_logits, + num_logits())
  int num_rows = 0;       // live sequences of the group, in rank order
  int num_generated = 0;  // tokens generated by each row
  SmallVector<float> cum_log_probs = {};  // [num_rows], nats
  // Shared, because it is constant for the request's life; never null.
  std::shared_ptr<const SelectionParams> params = DefaultParams();
  // For executors that run ahead: the slot of each row's beam; the number of
  // slots, which is the number of live beams at most, or fewer if no next step
  // is possible; and the tokens that end a hypothesis.
  SmallVector<int> slots = {};  // [num_rows], each in [0, num_slots)
  int num_slots = 1;            // >= num_rows
  SmallVector<TokenId> eos_token_ids = {};  // ascending
  // Tokens of each row after the prompt in params->edits, including the tokens
  // that it feeds, if the processors need them, or have a rule of timestamps.
  // Without params->edits they begin with the prompt. [num_rows] or empty.
  std::vector<std::vector<TokenId>> histories = {};
  // Allow list of each row of logits, ascending and without duplicates.
  // [num_logits()] or empty. `params` keeps the tokens alive; in plans that
  // PersistentGroups expanded, it keeps those of its own lists for one plan.
  std::vector<std::span<const TokenId>> allowed = {};
  // With params->constraint, in place of such lists: the place of each row of
  // logits in it. [num_logits()] or empty.
  std::vector<ConstraintPlace> places = {};
  // Result of the selection, with all that depends on its kind. The kind is the
  // same in all steps of a request.
  std::variant<BeamSelection, RowSelection, DrawSelection> choice = {};

  SelectionKind kind() const {
    return static_cast<SelectionKind>(choice.index());
  }
  // Return the choice, or null if it is of another kind.
  const BeamSelection* as_beams() const {
    return std::get_if<BeamSelection>(&choice);
  }
  const RowSelection* as_rows() const {
    return std::get_if<RowSelection>(&choice);
  }
  const DrawSelection* as_draws() const {
    return std::get_if<DrawSelection>(&choice);
  }
  // Return the choice for writing. REQUIRES: it is of this kind.
  BeamSelection& EditBeams();
  RowSelection& EditRows();
  DrawSelection& EditDraws();
  // Makes it a selection of this kind, and returns the choice for writing. One
  // of another kind is replaced by an empty one.
  template <typename Choice>
  Choice& Choose() {
    Choice* const chosen = std::get_if<Choice>(&choice);
    return chosen != nullptr ? *chosen : choice.emplace<Choice>();
  }

  // Largest number of candidates: of all rows (kBeams), of each row (kRows), or
  // of each sample (kDraws), which is 1.
  int num_candidates() const;
  // Drafted tokens that each plan row feeds after its last token, and this
  // selection verifies. [num_plan_rows()], or empty without drafts. Row r has
  // drafts()[r].size() + 1 rows of logits, after those of row r - 1.
  std::span<const std::vector<TokenId>> drafts() const;
  // True if its rows feed paths of beams. Fields indexed by row, and num_rows,
  // still count beams.
  bool has_paths() const {
    const BeamSelection* const beams = as_beams();
    return beams != nullptr && !beams->paths.empty();
  }
  // Number of plan rows that belong to this selection.
  int num_plan_rows() const {
    return has_paths() ? static_cast<int>(drafts().size()) : num_rows;
  }
  // Returns the number of rows of logits: one for each row and one for each
  // drafted token.
  int num_logits() const;
  // Returns the first row of logits of each row, and the end of the last row's.
  // O(rows): call it once for a loop over all rows.
  SmallVector<int> FirstLogits() const;  // [num_plan_rows() + 1]
  int num_generated_of(int row) const {
    const DrawSelection* const draws = as_draws();
    return draws == nullptr || draws->row_num_generated.empty()
               ? num_generated
               : draws->row_num_generated[row];
  }

  static std::shared_ptr<const SelectionParams> DefaultParams();
};

// Fork: `child` begins as a copy of `parent`, before the step feeds either.
struct SequenceFork {
  SequenceId parent;
  SequenceId child;
  friend bool operator==(const SequenceFork&, const SequenceFork&) = default;
};

// Next step of a group whose last result the planner has not read. Before the
// step, in this order:
//
//   1. Forked children move, as decided by the last result: the table of a
//   slot that a beam moves to becomes its parent's pages below
//   position / page_size. If position % page_size is not 0, this many tokens
//   of the parent's tail page are copied to tail_pages[slot].
// 2. tail_pages[slot] becomes page position / page_size of every slot.
//
// Then each beam feeds its last token at `position`, and the group selects from
// the beams' logits, rows in rank order. No source of a move is the target of
// another one, so all moves of a step can be made at once. A slot without a
// beam has a tail page and nothing else. If no beam continues, or a failed plan
// lost the state, nothing is fed and the result has no candidates.
struct GroupContinuation {
  RequestId request;
  int position = 0;
  // [num_slots], the page that each slot writes `position` to. Only the slot
  // holds it. The pages equal those of the last continuation, unless a page
  // begins.
  SmallVector<PageId> tail_pages = {};
  // As in the selection of the rows that the group began with. The executor
  // maintains histories: a parent's history and the beam's token; and places in
  // the constraint of `params`, if there is one: then beams may lack candidates
  // (BeamSelection::may_lack). There are no allow lists.
  SelectionKind kind = SelectionKind::kBeams;  // not kRows
  int num_candidates = 0;
  int num_generated = 0;
  std::shared_ptr<const SelectionParams> params =
      PlanSelection::DefaultParams();
};

// Rows of logits with a given next token: those of a prompt, or of tokens that
// are scored after one. They belong to the last tokens of one PlanRow. Several
// entries may use the same rows, if several tokens are scored after them; such
// entries are adjacent.
struct PlanPromptLogprobs {
  RequestId request;
  int first_logits = 0;
  std::vector<TokenId> tokens;  // next token of each row of logits
  int num_logprobs = 0;         // best tokens reported for each
  // Not null: scores of cross-attention are reported, too, of the tokens whose
  // rows of logits these are.
  std::shared_ptr<const AlignmentQuery> alignment = nullptr;
};

struct StepPlan {
  std::vector<PlanRow> rows;
  std::vector<TokenId> tokens;  // [sum of num_tokens]
  int num_logits = 0;           // rows of logits, sum over rows

  // The rows' block table: row r's pages are page_indices[page_indptr[r],
  // page_indptr[r + 1]), which cover all its positions, the fed ones included.
  std::vector<int> page_indptr = {0};  // [rows + 1]
  // A SmallVector appends many at once; std::vector would do it one by one.
  SmallVector<PageId> page_indices;

  // Sources of the rows, in their order; empty for a model without an encoder.
  std::vector<PlanSource> sources;

  // Shared with the groups, which never modify a selection that a plan holds.
  CowVector<PlanSelection> selections;
  std::vector<GroupContinuation> continuations;  // for other groups
  std::vector<PlanPromptLogprobs> scorings;
  std::vector<DraftSequence> drafting;
  // Largest number of tokens that the draft model feeds to catch up with these
  // sequences. A sequence that lacks more tokens gets no draft now
  // (DraftedTokens::is_behind); later plans continue to catch up.
  int max_draft_step_tokens = std::numeric_limits<int>::max();

  // State changes, applied first and in this order. They concern state that the
  // executor or the model keeps. A group that runs ahead names no forks, and
  // its sequences may end without having been named.
  std::vector<SequenceFork> forks;
  std::vector<SequenceId> finished;  // since the last plan
  std::vector<RequestId> ended;      // groups that ended since the last plan
  // Page operations. Each kind is complete before the next one begins, and all
  // are complete before a row writes. The same plan may load into, copy to or
  // write a page that it saves, and may copy from a page that it loads. Saves
  // and loads require host slots (ModelDescription::num_host_slots). If the
  // plan fails, none of them counts as done. A plan that copies pages has rows,
  // so an executor may make the copies together with the rows' work.
  std::vector<PageSave> page_saves;
  std::vector<PageLoad> page_loads;
  std::vector<PageCopy> page_copies;

  // After a stop is requested no request waits for the result: the executor may
  // give up the plan at any moment with kCancelled.
  std::stop_token stop = {};

  // True if no sequence runs.
  bool empty() const {
    return rows.empty() && continuations.empty() && drafting.empty();
  }
  // True if an executor need not receive the plan: no sequence runs or has
  // ended, and no page is swapped or copied.
  bool is_noop() const {
    return empty() && finished.empty() && ended.empty() && page_saves.empty() &&
           page_loads.empty() && page_copies.empty();
  }
  std::span<const TokenId> row_tokens(const PlanRow& row) const {
    return std::span(tokens).subspan(row.first_token, row.num_tokens);
  }
  std::span<const PageId> row_pages(size_t row) const {
    return std::span(page_indices)
        .subspan(page_indptr[row], page_indptr[row + 1] - page_indptr[row]);
  }
  // Returns the source of a row; null if it has none. O(log(sources)).
  const PlanSource* source_of(size_t row) const;
  // Returns the number of tokens that the encoder reads in this step, of the
  // sources from `first_source` on.
  int64_t NumSourceTokens(size_t first_source = 0) const;
};

// Returns the request of each selection of the result, in its order.
std::vector<RequestId> AskedOf(const StepPlan& plan);

// Result of one PlanSelection or GroupContinuation.
struct SelectionResult {
  RequestId request = {};
  // kBeams: best first. kRows: in the order of the rows, best first within a
  // row. Neither has a continuation twice. kDraws: one for each sample; its
  // token may be kNoToken or kNotANumber. `beam` is the row's rank.
  SmallVector<Candidate> candidates = {};
  std::vector<TokenLogProb> logprobs = {};  // [candidates] or empty
  // With verified drafts: number of `candidates` of each sample, which are the
  // accepted tokens of its draft and one more. Candidates of one sample are
  // adjacent. [samples], or empty if each has one.
  std::vector<int> num_tokens = {};
  // The step had no capacity to verify the drafts: each sample has one token,
  // or the beams have one step. The result says nothing about the quality of
  // the drafts.
  bool has_unverified_drafts = false;
  // With drafts that the draft model made for this step: number of tokens
  // drafted for each sample. [samples], or empty if the draft model was behind
  // with one of them (DraftedTokens::is_behind) and drafted for none.
  std::vector<int> num_drafted = {};
  // kBeams with verified drafts: results of the steps after this one. Each
  // selects from the beams that the result before it makes
  // (SurvivingCandidates), and `beam` is the rank among these. A step is
  // included if all of its beams are on drafted paths.
  std::vector<SelectionResult> further = {};
  // Ends only this request: the executor has no capacity for its selection now.
  // Then there are no candidates.
  absl::Status error = absl::OkStatus();
};

// Result of one PlanPromptLogprobs.
struct PromptLogprobsResult {
  RequestId request;
  std::vector<TokenLogProb> logprobs;  // [tokens]
  // [tokens, heads, num_positions] with an alignment, or empty.
  std::vector<float> attention_scores = {};
};

struct StepResult {
  // Results of the plan's selections, then of its continuations, in plan order.
  std::vector<SelectionResult> selections;
  std::vector<PromptLogprobsResult> scorings = {};
  // For the sequences of plan.drafting that a later plan verifies, in its
  // order.
  std::vector<DraftedTokens> drafts = {};
  // Rows of logits that the step computed. There may be fewer than planned,
  // because drafts of the same step may end early. 0: as planned.
  int num_logits = 0;
  absl::Duration forward_time;
  absl::Duration select_time;
  // Time of the draft model's forward passes, except passes that catch up with
  // a sequence, which feed many more tokens than they draft. Not part of the
  // times above.
  absl::Duration draft_time = {};
  // Rows of logits that these passes computed: one for each sampled token, and
  // one for each beam that they extended. 0: unknown.
  int num_draft_rows = 0;
  // Reason why the draft model drafted nothing for plan.drafting, if it failed.
  absl::Status draft_status = absl::OkStatus();
};

}  // namespace espalier
