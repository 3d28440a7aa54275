#include "beam/group_scoring.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/page_count.h"
#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "beam/validate_result.h"

namespace espalier {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();

}  // namespace

GroupScoring::GroupScoring(RequestId id, const Request* request,
                           GroupPages* pages,
                           std::unique_ptr<ContinuationWalk> walk)
    : id_(id), request_(request), pages_(pages), walk_(std::move(walk)) {}

int64_t GroupScoring::NumPromptLogprobs() const {
  if (!scores_prompt()) return 0;
  return std::ssize(request_->prompt_tokens) - FirstLogprob(*request_);
}

// Recomputed tokens may be scored already.
int64_t GroupScoring::NumWithoutLogits() const {
  return espalier::NumWithoutLogits(*request_) + std::ssize(prompt_logprobs_);
}

int64_t GroupScoring::NumNextWithoutLogits() const {
  return std::max<int64_t>(
      NumWithoutLogits() - pages_->sequence(0).num_tokens(), 0);
}

int GroupScoring::NumLogits(int first, int num_tokens) const {
  const int64_t num_without = NumWithoutLogits() - first;
  return num_tokens -
         static_cast<int>(std::clamp<int64_t>(num_without, 0, num_tokens));
}

void GroupScoring::AddPrompt(int first_logits, int num_logits_rows,
                             StepPlan* plan) const {
  const std::span<const TokenId> prompt = request_->prompt_tokens;
  const int first = pages_->sequence(0).num_tokens() - num_logits_rows + 1;
  const int end = std::min<int>(first + num_logits_rows, std::ssize(prompt));
  if (first == end) return;  // the last token of a prompt has no next one
  plan->scorings.push_back(
      {.request = id_,
       .first_logits = first_logits,
       .tokens = {prompt.begin() + first, prompt.begin() + end},
       .num_logprobs = SaturateToInt(*request_->params.prompt_logprobs),
       .alignment = request_->alignment});
}

int64_t GroupScoring::NumPagesLeft() const {
  const int64_t num_tokens =
      std::ssize(request_->prompt_tokens) + walk_->max_length();
  const int64_t num_held = std::ssize(pages_->sequence(0).pages.pages());
  return pages_->source().num_missing() +
         std::max<int64_t>(
             NumPages(num_tokens, pages_->pool().page_size()) - num_held, 0);
}

int64_t GroupScoring::NumPagesForStep(int max_tokens) const {
  const int next = walk_->NumNext(max_tokens, kAnyNumber);
  return pages_->NumPagesToAppend(std::span(&next, 1));
}

void GroupScoring::AddWalked(ContinuationWalk::Node node, int logits_row,
                             StepPlan* plan) const {
  // The one best token is the one that greedy search would choose.
  for (const TokenId token : walk_->TokensAfter(node)) {
    plan->scorings.push_back({.request = id_,
                              .first_logits = logits_row,
                              .tokens = {token},
                              .num_logprobs = 1});
  }
}

void GroupScoring::Begin(int logits_row, StepPlan* plan) {
  walk_->Begin();
  AddWalked(ItemCatalogue::kRoot, logits_row, plan);
}

void GroupScoring::Rewind(StepPlan* plan) {
  const int num_tokens = static_cast<int>(std::ssize(request_->prompt_tokens) +
                                          std::ssize(walk_->stem()));
  if (pages_->has_rows()) {
    pages_->MergeRows(num_tokens, plan);
  } else {
    pages_->Truncate(0, num_tokens);
  }
}

absl::Status GroupScoring::Walk(int max_tokens, int max_asked, int max_rows,
                                int64_t num_pages, GroupPlanWriter* writer,
                                StepPlan* plan) {
  Rewind(plan);
  const std::vector<WalkRow> rows =
      walk_->Take({.num_tokens = max_tokens,
                   .num_rows = max_rows,
                   .num_logprob_queries = max_asked,
                   .num_pages = num_pages,
                   .stem_end = pages_->sequence(0).num_tokens(),
                   .page_size = pages_->pool().page_size()});
  std::vector<int> num_tokens;
  for (const WalkRow& row : rows) {
    num_tokens.push_back(static_cast<int>(row.tokens.size()));
  }
  const std::vector<int> ranks(rows.size(), 0);
  RETURN_IF_ERROR(pages_->AppendRows(ranks, num_tokens, plan));
  writer->OnPlanned();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int first_logits = plan->num_logits;
    writer->AddRow(pages_->row(static_cast<int>(i)), {rows[i].tokens},
                   num_tokens[i], plan);
    for (int j = 0; j < num_tokens[i]; ++j) {
      AddWalked(rows[i].nodes[j], first_logits + j, plan);
    }
  }
  return absl::OkStatus();
}

absl::Status GroupScoring::Take(PromptLogprobsResult&& result,
                                size_t num_tokens, int vocab_size) {
  if (std::ssize(prompt_logprobs_) < NumPromptLogprobs()) {
    return TakePrompt(std::move(result), num_tokens, vocab_size);
  }
  return TakeWalked(result, num_tokens, vocab_size);
}

absl::Status GroupScoring::TakePrompt(PromptLogprobsResult&& result,
                                      size_t num_tokens, int vocab_size) {
  std::vector<TokenLogProb>& logprobs = result.logprobs;
  const auto scored =
      std::span(request_->prompt_tokens)
          .subspan(FirstLogprob(*request_) + prompt_logprobs_.size(),
                   num_tokens);
  const int num_best = SaturateToInt(*request_->params.prompt_logprobs);
  RETURN_IF_ERROR(CheckLogProbs(logprobs, scored, num_best, vocab_size));
  if (request_->alignment != nullptr) {
    RETURN_IF_ERROR(
        TakeAttention(std::move(result.attention_scores), num_tokens));
  }
  std::ranges::move(logprobs, std::back_inserter(prompt_logprobs_));
  return absl::OkStatus();
}

absl::Status GroupScoring::TakeAttention(std::vector<float>&& scores,
                                         size_t num_tokens) {
  const AlignmentQuery& query = *request_->alignment;
  const size_t row_size = query.heads.size() * query.num_positions;
  const size_t size = num_tokens * row_size;
  if (scores.size() != size) {
    return Internal("a step answered with ", scores.size(),
                    " scores of attention in place of ", size);
  }
  if (attention_scores_.empty()) {
    attention_scores_ = std::move(scores);
    return absl::OkStatus();
  }
  // All at once, or the vector would grow to twice their size.
  attention_scores_.reserve(row_size * NumPromptLogprobs());
  attention_scores_.insert(attention_scores_.end(), scores.begin(),
                           scores.end());
  return absl::OkStatus();
}

absl::Status GroupScoring::TakeWalked(const PromptLogprobsResult& result,
                                      size_t num_tokens, int vocab_size) {
  if (result.logprobs.size() != num_tokens) {
    return Internal("a step answered with ", result.logprobs.size(),
                    " log-probabilities of ", num_tokens, " tokens");
  }
  for (const TokenLogProb& logprob : result.logprobs) {
    const TokenId token = walk_->NextToScore();
    RETURN_IF_ERROR(CheckLogProbs(std::span(&logprob, 1), std::span(&token, 1),
                                  /*num_best=*/1, vocab_size));
    walk_->Score(logprob);
  }
  return absl::OkStatus();
}

void GroupScoring::FillResult(Result* result) {
  if (request_->alignment != nullptr) {
    Alignment& alignment = result->alignment.emplace();
    alignment.attention_scores = std::move(attention_scores_);
    for (const TokenLogProb& token : prompt_logprobs_) {
      alignment.log_probs.push_back(token.log_prob);
    }
    return;
  }
  if (scores_prompt()) result->prompt_logprobs = std::move(prompt_logprobs_);
  if (!request_->continuations.empty()) {
    result->continuations = walk_->Scores(request_->continuations);
  } else if (only_scores()) {
    result->hypotheses = {{.tokens = {}}};
  }
}

}  // namespace espalier
