// StepPlan and StepResult: one model call, as plain data. The scheduler writes
// a plan, an executor answers with a result; nothing else passes between them,
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
// the one operation. The last `num_logits` tokens of a row have a row of
// logits each: none in a chunk that does not end its prompt. Tokens and rows of
// logits are in the order of the rows, without gaps.
//
// Rows are complete inputs, so a plan with rows for a group can be written only
// when the group's last result is read. An executor that takes more than one
// plan in flight keeps each group's state and *runs ahead*: a GroupContinuation
// requests a group's next step without the decisions of the last one
// (docs/step.md, "Running ahead"). Rows replace the kept state; a continuation
// goes on from it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/cow_vector.h"
#include "base/ids.h"
#include "base/page_copy.h"
#include "base/small_vector.h"
#include "base/token_log_prob.h"
#include "exec_request/draft_logits.h"
#include "exec_request/pending_draft.h"
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
  int first_position = 0;  // of its first token in the sequence
  int num_logits = 0;      // in [0, num_tokens]
  int first_logits = 0;    // index of its first row of logits
  // Of a model with an encoder (docs/step.md, "Sources"): the first positions
  // of the sequence are those of its source, so many, and padding up to the end
  // of a page; there it has keys and values of cross-attention. Rows of logits
  // are of tokens after. 0: no encoder.
  int source_length = 0;
};

// What the encoder reads for a row that feeds positions of its source: all of
// it, whichever of them these are.
struct PlanSource {
  int row = 0;  // index in StepPlan::rows
  std::shared_ptr<const std::vector<TokenId>> tokens;  // [source_length]
};

// How an executor selects from the logits of a group's rows.
enum class SelectionKind {
  // The best continuations of all rows together, by cumulative score. They
  // decide the group's next beams: the first `num_slots` of them that do not
  // end in an EOS id. In which slots these live, AssignSlots decides
  // (kernels/resident/assign_slots.h).
  kBeams,
  // The best continuations of each row, one row's after the other's. The
  // strategy decides which of them live.
  kRows,
  // A token for each of `samples` (kernels/sample/sample.h), in this order,
  // drawn from the row of the same index; or, where there is one row, all from
  // that one. Those that are no EOS id go on, in this order.
  kDraws,
};

// What selection of a request's rows is, constant for the request's life.
struct SelectionParams {
  SelectionKind kind = SelectionKind::kBeams;
  ScoreDomain domain = ScoreDomain::kLogProbs;
  ScoreProcessors processors;
  // Made of `processors` and the request's prompt. Null: the executor makes
  // them of processors alone.
  std::shared_ptr<const ScoreEdits> edits = nullptr;
  SamplingParams sampling;  // of kDraws, and where perturbed
  VerifyMode verify_mode = VerifyMode::kRejection;  // of PlanSelection::drafts
  // Whether kRows chooses by perturbed scores
  // (kernels/gumbel_topk/gumbel_topk.h), with `sampling`: rows come in falling
  // order of these, and a row may consist of kNotANumber. The noise of a row is
  // of its rank. Of no other kind.
  bool gumbel_top_k = false;
  // Log-probabilities are reported of what is chosen, and of so many best
  // tokens of its row; -1: of none.
  int num_logprobs = -1;
  // Whether these are what tokens are chosen by: log-probabilities after edits
  // and, where tokens are drawn, temperature and filters, with which beams add
  // up to their cum_log_prob (TokenValues, kernels/gumbel_topk/gumbel_topk.h).
  bool reports_processed = false;
  // Keeps alive what PlanSelection::allowed points to.
  std::shared_ptr<const void> allowed_owner = nullptr;
};

// The params' edits; made of its processors alone where it has none.
std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& params);

// How the strategy of a group ranks the candidates of all rows. For
// executors that have time for it: what cannot come among the first may be left
// out of the answer (contenders.h); the rest is in the order it would have. An
// answer that has more of the rows' candidates leads to the same.
struct RowRanking {
  // Of kBeams: the beams. What ends in one of eos_token_ids and ranks after
  // twice as many may be left out. Of kRows: so many are taken of all rows
  // together, by perturbed sums: cumulative score + noise
  // (kernels/gumbel_topk/gumbel_topk.h), in double. 0: unset, all matter.
  int num_first = 0;
  // Of stochastic beams after their first step: what the highest perturbed sum
  // of a row's children becomes (ShiftToMaximum). [num_rows] or empty.
  std::vector<double> parent_sums = {};
  // Of groups that avoid each other's tokens, in their order, instead of the
  // above (diverse_choice.h). Empty: unset, all matter.
  struct Group {
    int first_row = 0;
    int num_rows = 0;
    int num_candidates = 0;  // that it ranks
  };
  std::vector<Group> groups = {};
  int group_size = 0;            // beams of each
  double diversity_penalty = 0;  // >= 0
};

// How to select from the logits of one request's rows.
struct PlanSelection {
  RequestId request;
  int first_logits = 0;  // of logits rows [first_logits, + num_logits())
  int num_rows = 0;      // sequences of the group that are alive, in rank order
  int num_candidates = 0;  // of all rows in kBeams, of each in kRows
  int num_generated = 0;   // tokens each of the rows has generated
  SmallVector<float> cum_log_probs = {};  // [num_rows], nats
  // Shared because it is constant for the request's life; never null.
  std::shared_ptr<const SelectionParams> params = DefaultParams();
  // Of kDraws: which samples of the request draw.
  SmallVector<int> samples = {};
  // For executors that run ahead: the slot each row's beam lives in,
  // how many slots there are (beams that live at most, if a next step is
  // possible at all), and the tokens that end a hypothesis.
  SmallVector<int> slots = {};  // [num_rows], each in [0, num_slots)
  int num_slots = 1;            // >= num_rows
  SmallVector<TokenId> eos_token_ids = {};  // ascending
  // Tokens that each row has generated, where they differ: [num_rows], or empty
  // for num_generated. Of kDraws.
  SmallVector<int> row_num_generated = {};
  // Tokens of each row after the prompt of params->edits, those it feeds
  // included, if the processors need them: [num_rows] or empty. Where params
  // has no edits, prompt and generated tokens.
  std::vector<std::vector<TokenId>> histories = {};
  // The tokens that alone may follow each row of logits, ascending, each once:
  // [num_logits()] or empty. What they point to lives as long as `params`.
  std::vector<std::span<const TokenId>> allowed = {};
  // Speculation: tokens that each row feeds after its last one, for this
  // selection to verify: [num_rows] or empty. Row r then has drafts[r].size() +
  // 1 rows of logits, after those of row r - 1. Of kDraws with a sample for
  // each row. No continuation goes on from such a step, but one with drafts
  // where a draft model drafts for each row before the step
  // (DraftSequence::verified_by).
  //
  // Of kBeams, drafts are paths that beams may take, and there are as many rows
  // as paths: row i feeds the last token of beam ranks[i], then drafts[i].
  // Several rows may be of one beam. What is above by row, num_rows for one, is
  // still by beam. The answer is that of as many steps as the paths decide
  // (SelectionResult::further).
  std::vector<std::vector<TokenId>> drafts = {};
  // Of kBeams with drafts: [drafts], ascending, each beam at least once.
  SmallVector<int> ranks = {};
  // What a draft model drew these from: [num_rows], of each row for its drafts
  // at least; or empty: they were not drawn (verify.h).
  std::vector<DraftLogits> draft_logits = {};
  // Drafts that a device draws while the plan is on its way (pending_draft.h):
  // [num_rows], empty of rows whose drafts are there; or empty: all are. Of the
  // others `drafts` has as many zeros. For executors that wait for them on the
  // device (ModelDescription::verifies_pending_drafts).
  std::vector<PendingDraft> pending_drafts = {};
  // Drafts that the plan before verifies and whose answer the planner has not
  // read: [num_rows], or empty. Each row begins where verification of its own
  // ends, by as many positions and tokens further on as that accepts, after
  // the token that it says is next (VerifiedDraft); what this selection and its
  // rows say is for none accepted, with any token, and pages for all. Sums are
  // not known: each candidate of the answer has its own log-probability alone.
  // For executors that begin there on the device
  // (ModelDescription::follows_pending_drafts).
  std::vector<PendingDraft> verified_before = {};
  // Tokens that each draft could have; drawn ones end early at the end of a
  // text. Room for these is counted by this: were it by what was drawn, short
  // drafts would be verified more often, and tokens have another distribution.
  int max_draft_tokens = 0;
  RowRanking ranking = {};

  // Whether its rows feed paths of beams.
  bool has_paths() const { return !ranks.empty(); }
  // Rows that the plan has for it.
  int num_plan_rows() const {
    return has_paths() ? static_cast<int>(ranks.size()) : num_rows;
  }
  // Rows of logits: one for each row, and one for each drafted token.
  int num_logits() const;
  // The first one of each row, and the end of the last's: O(rows), so that
  // whoever goes through all rows asks once.
  SmallVector<int> FirstLogits() const;  // [num_plan_rows() + 1]
  int num_generated_of(int row) const {
    return row_num_generated.empty() ? num_generated : row_num_generated[row];
  }

  static std::shared_ptr<const SelectionParams> DefaultParams();
};

// `child` begins as a copy of `parent`, before the step feeds either.
struct SequenceFork {
  SequenceId parent;
  SequenceId child;
  friend bool operator==(const SequenceFork&, const SequenceFork&) = default;
};

// What the next step drafts and verifies of samples whose last step verified
// what a draft model had drafted before it. Each sample that lives on feeds its
// last token, at whatever position the answer before takes it to, and after
// that what the draft model drafts. What that answer rejected is overwritten.
// Samples end by an EOS id alone: none comes to its last token before.
struct ContinuedDrafts {
  int num_tokens = 0;  // that each sample drafts at most, >= 1; 0: no drafts
  // The pages that each slot has from a place in its table on, in place of
  // those that it had there: as many as the step can need, whatever the answer
  // before accepts. Of the slots of samples that lived when it was written.
  struct SlotPages {
    int slot = 0;
    int first_place = 0;
    std::vector<PageId> pages;
  };
  std::vector<SlotPages> slots = {};

  bool empty() const { return num_tokens == 0; }
  // That the step feeds at most.
  int num_fed() const {
    return static_cast<int>(slots.size()) * (num_tokens + 1);
  }
};

// The next step of a group whose last answer the planner has not read. Before
// the step, in this order:
//
//   1. Forked children move, as the last result decided: the table of a slot
//      that a beam moved to becomes its parent's pages below
//      position / page_size; and if position % page_size is not 0, so many
//      tokens of the parent's tail page are copied to tail_pages[slot].
//   2. tail_pages[slot] becomes page position / page_size of every slot.
//
// Then each beam feeds its last token at `position`, and the group selects from
// them, rows in rank order. No source of a move is a target of one, so the
// moves of a step can be made all at once. A slot without a beam has a tail
// page and nothing else. Where no beam goes on, or the state was lost with a
// failed plan, nothing is fed and the answer has no candidates.
struct GroupContinuation {
  RequestId request;
  int position = 0;
  // [num_slots], what each slot writes `position` into: its only holder is the
  // slot. The same pages as in the last continuation unless a page begins.
  SmallVector<PageId> tail_pages = {};
  // As in PlanSelection; histories are those of parents, and beams' tokens. No
  // row has tokens that alone may follow, and the kind is not kRows.
  int num_candidates = 0;
  int num_generated = 0;
  std::shared_ptr<const SelectionParams> params =
      PlanSelection::DefaultParams();
  // Of samples that speculate, where executors take such
  // (ModelDescription::drafts_ahead). Then there are no position, tails and
  // num_generated, which differ from sample to sample.
  ContinuedDrafts drafts = {};
};

// Rows of logits whose next token is given: those of a prompt, or of what is
// scored after one. They belong to one PlanRow, the last tokens of which have
// logits. Several may be of the same rows, where several tokens may be next;
// then they stand one after the other.
struct PlanPromptLogprobs {
  RequestId request;
  int first_logits = 0;
  std::vector<TokenId> tokens;  // that follow, one a row of logits
  int num_logprobs = 0;         // best tokens of each
};

// The beam search that drafted sequences are the live beams of, in rank order,
// as PlanSelection has it.
struct DraftedSearch {
  int num_beams = 1;  // that live at most
  int num_candidates = 1;
  std::vector<TokenId> eos_token_ids;  // ascending
};

// A row of the plan that verifies what is drafted, and the row of the selection
// that it is. The row is planned for as many tokens as are asked for, whatever
// they are planned to be; FillDrafts completes the plan (fill_drafts.h).
struct DraftTarget {
  int plan_row = -1;  // none
  int selection = -1;
  int rank = 0;
};

// A sequence to draft tokens for, with the executor's draft model
// (ModelDescription::has_draft_model; docs/speculation.md). A later step
// verifies them, or this one. The draft model keeps what it has fed of each
// sequence, by request and sample, until the request ends, and compares it with
// the sequence's tokens: nothing is said of what became of the last drafts.
//
// The beams of a search are drafted together: the draft model searches on from
// them, so many tokens ahead.
struct DraftSequence {
  RequestId request;
  int sample = 0;  // of the request, or rank
  std::shared_ptr<const std::vector<TokenId>> prompt;  // not null
  std::vector<TokenId> generated = {};  // at least one; the last is not fed
  int num_tokens = 1;                   // to draft at most, >= 1
  // How it draws.
  std::shared_ptr<const SelectionParams> params;
  // Of a sample: what is drafted is fed and verified by this very step, if the
  // executor does that (ModelDescription::drafts_before_steps).
  DraftTarget verified_by = {};
  // As PlanSelection::verified_before: `generated` is what was there before
  // that draft, and the new one begins after what verification of it says.
  PendingDraft verified_before = {};
  // Of a beam: its sum, and its search; null of a sample. All live beams of a
  // search are drafted for, and to one length.
  float cum_log_prob = 0;
  std::shared_ptr<const DraftedSearch> search = nullptr;
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

  // Of the rows that feed positions of their sources, in the order of the rows.
  std::vector<PlanSource> sources;

  // Shared with the groups that they are of, which change none that a plan has.
  CowVector<PlanSelection> selections;
  std::vector<GroupContinuation> continuations;  // of other groups
  std::vector<PlanPromptLogprobs> scorings;
  std::vector<DraftSequence> drafting;
  // Tokens that the draft model feeds at most to catch up with these sequences.
  // One that lacks more gets no draft now (DraftedTokens::is_behind), and the
  // next plans that ask go on.
  int max_draft_step_tokens = std::numeric_limits<int>::max();

  // To be done first, in this order; they concern state the executor or the
  // model keeps. A group that runs ahead names no forks, and its
  // sequences may end without having been named before.
  std::vector<SequenceFork> forks;
  std::vector<SequenceId> finished;  // ended since the last plan
  std::vector<RequestId> ended;      // groups, since the last plan
  // Of pages, in this order: each kind is complete before the next one writes,
  // and all of them before a row does. A page that is saved may be loaded into,
  // copied to or written by this very plan; one that is loaded may be copied
  // from. Where the executor has host slots
  // (ModelDescription::num_host_slots). If the plan fails, none of them counts
  // as done. A plan that copies pages has rows: executors may leave copying to
  // what runs these.
  std::vector<PageSave> page_saves;
  std::vector<PageLoad> page_loads;
  std::vector<PageCopy> page_copies;

  // Once a stop is requested no request waits for the result: the executor may
  // give the plan up at any moment, as failed with kCancelled.
  std::stop_token stop = {};

  // Whether no sequence runs.
  bool empty() const {
    return rows.empty() && continuations.empty() && drafting.empty();
  }
  // Whether an executor need not see it: no sequence runs or has ended, and no
  // page is swapped or copied.
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
};

// Who asks for the selections of the answer, in their order.
std::vector<RequestId> AskedOf(const StepPlan& plan);

// The answer to one PlanSelection or GroupContinuation.
struct SelectionResult {
  RequestId request = {};
  // kBeams: best first. kRows: by row, best first. No continuation of either
  // comes twice. kDraws: one for each sample, whose token may be kNoToken or
  // kNotANumber. `beam` is the row's rank.
  SmallVector<Candidate> candidates = {};
  std::vector<TokenLogProb> logprobs = {};  // [candidates] or empty
  // Where drafts were verified: how many of `candidates` are of each sample,
  // one after the other. They are those of its drafts that were accepted, from
  // the first on, and one token more. [samples], or empty if each has one.
  std::vector<int> num_tokens = {};
  // The step had no room to verify the drafts: each sample has one token, or
  // the beams have one step, which says nothing of what was drafted for them.
  bool has_unverified_drafts = false;
  // Of a continuation with drafts: how many tokens were drafted of each sample.
  // [samples]; or empty if the draft model was behind with one of them
  // (DraftedTokens::is_behind) and had drafts of none.
  std::vector<int> num_drafted = {};
  // Of kBeams where drafts were verified: the answers of the steps after this
  // one, each as if it had been run with the beams that the answer before it
  // makes (SurvivingCandidates), whose ranks its candidates name. There is one
  // if all of these beams are on drafted paths.
  std::vector<SelectionResult> further = {};
  // Ends this request alone: the executor has no room for its selection now.
  // Then there are no candidates.
  absl::Status error = absl::OkStatus();
};

// The answer to one PlanPromptLogprobs.
struct PromptLogprobsResult {
  RequestId request;
  std::vector<TokenLogProb> logprobs;  // [tokens]
};

// Tokens that a beam may go on with, and its sum with them, by which the paths
// of a search rank.
struct DraftPath {
  std::vector<TokenId> tokens;
  float cum_log_prob = 0;
};

// The answer to one DraftSequence.
struct DraftedTokens {
  std::vector<TokenId> tokens = {};  // fewer than asked for, or none
  // Of a beam, instead: every path that the search of the draft model took from
  // it, to where it was pruned. None is the beginning of another.
  std::vector<DraftPath> paths = {};
  // What they were drawn from, [tokens, vocab_size]; empty unless
  // NeedsDraftLogits.
  DraftLogits logits = {};
  // Until the step that verifies them has ended, where a device draws them
  // meanwhile; `tokens` has as many zeros then.
  PendingDraft pending = {};
  // It has no draft because there is more of the sequence to feed than
  // StepPlan::max_draft_step_tokens and those that lack less leave.
  bool is_behind = false;
};

// Whether drafts of these params are verified with the logits that they were
// drawn from.
bool NeedsDraftLogits(const SelectionParams& params);

struct StepResult {
  // Of the plan's selections, then of its continuations, in the plan's order.
  std::vector<SelectionResult> selections;
  std::vector<PromptLogprobsResult> scorings = {};
  std::vector<DraftedTokens> drafts = {};  // [plan.drafting]
  // Rows of logits that the step computed where they may be fewer than those
  // planned: what an executor drafts itself may end early. 0: as planned.
  int num_logits = 0;
  // Where the time went.
  absl::Duration forward_time;
  absl::Duration select_time;
  // That forward passes of the draft model took, but those that caught up with
  // a sequence, which feed far more tokens than they draft: in select_time
  // where the thread of the step drafts, and beside both where another does.
  absl::Duration draft_time = {};
  // Rows of logits that these passes computed: one for each token that they
  // drew, and for each beam that they searched on from. 0: not known.
  int num_draft_rows = 0;
  // Why the draft model drafted nothing for any of plan.drafting, if it failed.
  absl::Status draft_status = absl::OkStatus();
};

}  // namespace espalier
