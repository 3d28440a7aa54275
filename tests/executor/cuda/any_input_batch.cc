#include "tests/executor/cuda/any_input_batch.h"

#include <algorithm>
#include <numeric>

namespace espalier::testing {

std::vector<TokenId> AnyInputBatch::AnyTokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(Below(kShape.vocab_size));
  return tokens;
}

CudaGroup AnyInputBatch::AnyGroup(int num_slots) {
  CudaGroup group;
  group.first_slot = num_slots_;
  group.num_slots = num_slots;
  group.position = 20 + Below(50);
  group.num_shared_pages = Below(4);
  group.eos_token_ids = AnyTokens(Below(3));
  group.source_length = SourceOf(group.first_slot).length;
  num_slots_ += num_slots;
  return group;
}

CudaTokenSource AnyInputBatch::SourceOf(int table) const {
  return {table, has_encoder_ ? SourceLengthOf(table) : 0};
}

void AnyInputBatch::SetAnyParams(Asked* asked) {
  constexpr SelectionKind kKinds[] = {
      SelectionKind::kBeams, SelectionKind::kRows, SelectionKind::kDraws};
  asked->kind = kKinds[Below(3)];
  asked->gumbel_top_k = asked->kind == SelectionKind::kRows && Below(2) == 0;
  SelectionParams& params = asked->params;
  const bool draws = asked->kind == SelectionKind::kDraws;
  params.domain = draws ? ScoreDomain::kLogits : ScoreDomain::kLogProbs;
  params.num_logprobs = Below(4) - 1;
  params.sampling.seed = random_();
  if (Below(3) == 0) params.processors.suppress_tokens = {1, 7};
  if (Below(3) == 0) params.processors.repetition_penalty = 1.5f;
  if (Below(6) == 0) params.processors.forced_first_tokens = {11};
  if (Below(6) == 0) params.processors.forced_last_tokens = {2, 6};
  params.processors.max_new_tokens = 5;
  params.processors.renormalizes = Below(4) == 0;
  if (Below(6) == 0) params.processors.timestamps = {.first_time = 8};
  if (Below(5) == 0) params.processors.bad_words = {{9}, {2, 5}, {3, 2, 4}};
}

AnyInputBatch::Asked AnyInputBatch::AnyAsked(int num_rows) {
  Asked asked;
  SetAnyParams(&asked);
  asked.num_candidates = 1 + Below(2 * kShape.vocab_size);
  asked.num_generated = Below(9);
  asked.slots.resize(num_rows);
  std::iota(asked.slots.begin(), asked.slots.end(), 0);
  std::ranges::shuffle(asked.slots, random_);
  // Some histories the device has.
  const ScoreProcessors& processors = asked.params.processors;
  const bool may_need_them =
      processors.needs_history() || processors.timestamps.has_value();
  if (may_need_them && Below(2) == 0) {
    for (int i = 0; i < num_rows; ++i) {
      asked.histories.push_back(AnyTokens(1 + Below(9)));
    }
  }
  if (Below(4) == 0) {
    for (int i = 0; i < num_rows; ++i) {
      asked.allowed_tokens.push_back(AnyTokens(Below(4)));
      std::vector<TokenId>& tokens = asked.allowed_tokens.back();
      std::ranges::sort(tokens);
      tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
    }
    asked.allowed.assign(asked.allowed_tokens.begin(),
                         asked.allowed_tokens.end());
  }
  return asked;
}

// A chunk, or the last one of rows that are chosen for.
void AnyInputBatch::AddPrompt(CudaInputBatch* batch) {
  if (Below(3) == 0) {
    const int table = num_slots_++;
    batch->AddPrompt(AnyTokens(1 + Below(9)), Below(20), table,
                     SourceOf(table));
    return;
  }
  const int num_rows = 1 + Below(3);
  Asked asked = AnyAsked(num_rows);
  if (asked.kind == SelectionKind::kDraws) {
    asked.samples.resize(num_rows == 1 ? 1 + Below(4) : num_rows);
    std::iota(asked.samples.begin(), asked.samples.end(), Below(3));
  }
  const CudaGroup group =
      AnyGroup(std::max<int>(num_rows, static_cast<int>(asked.samples.size())));
  if (asked.kind == SelectionKind::kDraws && Below(2) == 0) {
    AddDifferentRows(group, num_rows, asked, batch);
    return;
  }
  std::vector<int> last_tokens;
  std::vector<float> cum_log_probs;
  for (int row = 0; row < num_rows; ++row) {
    last_tokens.push_back(batch->AddPrompt(AnyTokens(1 + Below(5)), Below(20),
                                           group.first_slot + row,
                                           SourceOf(group.first_slot)));
    cum_log_probs.push_back(-0.5f * static_cast<float>(Below(9)));
  }
  batch->AddPromptLogitsRows(group, asked.view(), last_tokens, cum_log_probs);
}

// Rows with logits of each token, or some of the first.
void AnyInputBatch::AddDifferentRows(const CudaGroup& group, int num_rows,
                                     const Asked& asked,
                                     CudaInputBatch* batch) {
  std::vector<SelectionRow> logits_rows;
  std::vector<int> tokens;
  std::vector<std::vector<TokenId>> drafts;
  const int first_token = batch->num_tokens();
  const int kv_end = kShape.page_size * Below(6);
  for (int row = 0; row < num_rows; ++row) {
    const int num_tokens = 1 + Below(5);
    const int last =
        batch->AddPrompt(AnyTokens(num_tokens), kv_end + Below(20),
                         group.first_slot + row, SourceOf(group.first_slot));
    const int num_logits_rows = 1 + Below(num_tokens);
    drafts.push_back(AnyTokens(num_logits_rows - 1));
    for (int i = 0; i < num_logits_rows; ++i) {
      logits_rows.push_back(
          {.row = row,
           .sample = row,
           .draft_idx = i,
           .num_generated = Below(9) + i,
           .text = std::make_shared<std::vector<TokenId>>(AnyTokens(3 + i)),
           .num_history = 3 + i});
      if (!asked.allowed.empty())
        logits_rows.back().allowed = &asked.allowed[row];
      tokens.push_back(last + 1 - num_tokens + i);
    }
  }
  if (kv_end > 0) {
    batch->SharePages(first_token, batch->num_tokens() - first_token, kv_end);
  }
  CudaGroupRequest request = asked.view();
  request.logits_rows = logits_rows;
  if (Below(2) == 0) {
    request.drafts = drafts;
    request.has_draft_rows = Below(2) == 0;
  }
  batch->AddPromptLogitsRows(group, request, tokens,
                             std::vector<float>(tokens.size()));
}

void AnyInputBatch::AddKnown(CudaInputBatch* batch) {
  const std::vector<TokenId> tokens = AnyTokens(1 + Below(5));
  const int table = num_slots_++;
  const int last = batch->AddPrompt(tokens, 0, table, SourceOf(table));
  const int count = static_cast<int>(tokens.size());
  batch->AddPromptLogprobRows(last + 1 - count, AnyTokens(count), Below(4));
}

CudaInputBatch AnyInputBatch::Make() {
  num_slots_ = 0;
  has_encoder_ = Below(2) == 0;
  CudaInputBatch batch(kShape);
  for (int i = Below(4); i > 0; --i) {
    const int width = 1 + Below(5);
    batch.AddBeams(AnyGroup(width), AnyAsked(width).view());
  }
  if (Below(2) == 0) {
    batch.Pad(batch.num_rows + Below(4), /*padding_table=*/kMaxSlots);
    if (Below(2) == 0) return batch;
  }
  for (int i = Below(4); i > 0; --i) AddPrompt(&batch);
  if (Below(2) == 0) AddKnown(&batch);
  if (!batch.prompt_tokens.empty() &&
      batch.num_tokens() == batch.num_logits_rows()) {
    batch.PadPrompts(batch.num_tokens() + Below(4), kMaxSlots);
  }
  batch.PlaceDraftRows(batch.verified.num_draft_rows() + Below(4));
  return batch;
}

}  // namespace espalier::testing
