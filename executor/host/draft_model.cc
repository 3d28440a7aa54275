#include "executor/host/draft_model.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "executor/host/allocating_loop.h"
#include "kernels/logits/score_edits.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

size_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

std::vector<TokenId> TextOf(const DraftSequence& sequence) {
  std::vector<TokenId> text = *sequence.prompt;
  text.insert(text.end(), sequence.generated.begin(), sequence.generated.end());
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(
    std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool) {
  if (model == nullptr) return InvalidArgument("draft_model must not be null");
  RETURN_IF_ERROR(CheckDescription(model->description()));
  if (!model->description().has_shareable_pages) {
    return InvalidArgument(
        "a draft model must keep nothing of a sequence but its pages "
        "(has_shareable_pages)");
  }
  if (!model->sole_use().Take()) {
    return FailedPrecondition("the draft model runs on another executor");
  }
  std::shared_ptr<Model> taken(
      model.get(), [model](Model* used) { used->sole_use().GiveBack(); });
  return std::unique_ptr<DraftModel>(
      new DraftModel(std::move(taken), std::move(pool)));
}

DraftModel::DraftModel(std::shared_ptr<Model> model,
                       std::shared_ptr<ThreadPool> pool)
    : model_(std::move(model)),
      threads_(std::move(pool)),
      pool_(model_->description().num_pages, model_->description().page_size) {}

int DraftModel::max_tokens() const {
  const int64_t num_paged = int64_t{pool_.num_pages() - 1} * pool_.page_size();
  return static_cast<int>(
      std::clamp<int64_t>(num_paged, 0, description().max_context));
}

absl::StatusOr<std::vector<DraftedTokens>> DraftModel::Run(
    const StepPlan& plan) {
  ForgetEnded(plan.ended);
  const auto forget_all = [&] {
    for (const DraftSequence& sequence : plan.drafting) {
      Forget(sequence.request);
    }
  };
  try {
    absl::StatusOr<std::vector<DraftedTokens>> drafts = RunAll(plan);
    if (!drafts.ok()) forget_all();
    return drafts;
  } catch (...) {
    forget_all();
    throw;
  }
}

void DraftModel::ForgetEnded(std::span<const RequestId> ended) {
  for (const RequestId request : ended) Forget(request);
}

absl::StatusOr<std::vector<DraftedTokens>> DraftModel::RunAll(
    const StepPlan& plan) {
  ++num_runs_;
  Work work = WorkOf(plan);
  std::vector<Drafting*> all;
  for (Drafting& drafting : work.samples) {
    if (!drafting.is_done) Begin(&drafting);
    all.push_back(&drafting);
  }
  for (Searching& searching : work.searches) {
    if (searching.is_done) continue;
    Begin(&searching);
    for (Drafting& beam : searching.beams) all.push_back(&beam);
  }
  RETURN_IF_ERROR(FeedStems(all, plan.stop));
  const auto goes_on = [](const auto& d) { return !d.is_done; };
  while (std::ranges::any_of(work.samples, goes_on) ||
         std::ranges::any_of(work.searches, goes_on)) {
    RETURN_IF_ERROR(FeedAndDraw(&work, plan.stop));
  }
  std::vector<DraftedTokens> drafts(plan.drafting.size());
  for (size_t i = 0; i < work.samples.size(); ++i) {
    drafts[work.places[i]] = std::move(work.samples[i].draft);
  }
  for (const Searching& searching : work.searches) {
    searching.search.TakePaths(std::span(drafts).subspan(searching.first));
  }
  return drafts;
}

DraftModel::Work DraftModel::WorkOf(const StepPlan& plan) const {
  Work work;
  const std::span<const DraftSequence> asked = plan.drafting;
  for (size_t i = 0; i < asked.size(); ++i) {
    CHECK(!asked[i].generated.empty() && asked[i].num_tokens >= 1)
        << "a sequence that is not generated yet";
    // The last token it drafts is not fed.
    const int64_t num_fed = std::ssize(*asked[i].prompt) +
                            std::ssize(asked[i].generated) +
                            asked[i].num_tokens - 1;
    const bool is_done = num_fed > description().max_context;
    Drafting drafting = {.asked = &asked[i],
                         .key = {asked[i].request, asked[i].sample},
                         .text = TextOf(asked[i]),
                         .is_done = is_done};
    if (asked[i].search == nullptr) {
      work.samples.push_back(std::move(drafting));
      work.places.push_back(i);
      continue;
    }
    if (i == 0 || asked[i - 1].search != asked[i].search) {
      size_t end = i + 1;
      while (end < asked.size() && asked[end].search == asked[i].search) ++end;
      work.searches.push_back({.search = DraftSearch(asked.subspan(i, end - i)),
                               .first = i,
                               .is_done = is_done});
    }
    work.searches.back().beams.push_back(std::move(drafting));
  }
  return work;
}

void DraftModel::Begin(Drafting* drafting) {
  State& state =
      states_.try_emplace(drafting->key, State{{}, PageTable(&pool_)})
          .first->second;
  state.last_run = num_runs_;
  const size_t num_kept = std::min(
      CommonLength(state.tokens, drafting->text),
      drafting->text.size() - 1);  // the last one is fed for its logits
  state.tokens.resize(num_kept);
  state.pages.Truncate(static_cast<int>(num_kept));
}

void DraftModel::Begin(Searching* searching) {
  const RequestId request = searching->beams.front().asked->request;
  std::vector<State> kept;
  const auto begin = states_.lower_bound({request, 0});
  auto end = begin;
  for (; end != states_.end() && end->first.first == request; ++end) {
    kept.push_back(std::move(end->second));
  }
  states_.erase(begin, end);
  for (Drafting& beam : searching->beams) {
    State state = {{}, PageTable(&pool_), num_runs_};
    const State* longest = nullptr;
    size_t num_kept = 0;
    for (const State& other : kept) {
      const size_t length =
          std::min(CommonLength(other.tokens, beam.text), beam.text.size() - 1);
      if (length <= num_kept) continue;
      longest = &other;
      num_kept = length;
    }
    if (longest != nullptr) {
      state.tokens.assign(beam.text.begin(), beam.text.begin() + num_kept);
      state.pages = longest->pages.Fork(static_cast<int>(num_kept));
    }
    beam.key = {request, searching->num_keys++};
    states_.insert_or_assign(beam.key, std::move(state));
  }
}

void DraftModel::Advance(Searching* searching) {
  std::vector<Drafting> next;
  std::vector<bool> has_child(searching->beams.size());
  for (const auto& [parent_rank, token] : searching->search.Advance()) {
    const Drafting& parent = searching->beams[parent_rank];
    Drafting& child = next.emplace_back(Drafting{
        .asked = parent.asked, .key = parent.key, .text = parent.text});
    child.text.push_back(token);
    if (has_child[parent_rank]) {
      const State& from = states_.at(parent.key);
      State fork = {from.tokens, from.pages.Fork(from.pages.num_tokens()),
                    num_runs_};
      child.key.second = searching->num_keys++;
      states_.insert_or_assign(child.key, std::move(fork));
    }
    has_child[parent_rank] = true;
  }
  searching->beams = std::move(next);
  searching->is_done = searching->search.is_done();
}

absl::Status DraftModel::FeedStems(std::span<Drafting* const> all,
                                   std::stop_token stop) {
  // By request: the sequence that has fed most, which feeds what it has in
  // common with one that has fed less than that.
  StepPlan step;
  std::map<RequestId, Drafting*> firsts;
  const auto num_fed = [this](const Drafting& d) {
    return states_.at(d.key).tokens.size();
  };
  for (Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    Drafting*& first = firsts[drafting->asked->request];
    if (first == nullptr || num_fed(*first) < num_fed(*drafting)) {
      first = drafting;
    }
  }
  const auto stem_of = [&](const Drafting& first, const Drafting& other) {
    return std::min(CommonLength(first.text, other.text),
                    std::min(first.text.size(), other.text.size()) - 1);
  };
  // One row of each sequence: rows of a step do not see each other.
  std::map<RequestId, size_t> stems;
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const RequestId request = drafting->asked->request;
    const Drafting& first = *firsts[request];
    const size_t stem = stem_of(first, *drafting);
    if (&first == drafting || num_fed(*drafting) >= stem) continue;
    stems[request] = std::max(stems[request], stem);
  }
  for (const auto& [request, stem] : stems) {
    Drafting& first = *firsts[request];
    if (num_fed(first) >= stem) continue;
    if (!AddRow(first, stem, 0, &step)) first.is_done = true;
  }
  if (!step.empty()) {
    step.stop = stop;
    RETURN_IF_ERROR(model_->Forward(step, {}));
  }
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const Drafting& first = *firsts[drafting->asked->request];
    const size_t stem = first.is_done ? 0 : stem_of(first, *drafting);
    if (&first == drafting || num_fed(*drafting) >= stem) continue;
    const State& from = states_.at(first.key);
    const size_t count = std::min(stem, from.tokens.size());
    State& to = states_.at(drafting->key);
    to.tokens.assign(from.tokens.begin(), from.tokens.begin() + count);
    to.pages = from.pages.Fork(static_cast<int>(count));
  }
  return absl::OkStatus();
}

absl::Status DraftModel::FeedAndDraw(Work* work, std::stop_token stop) {
  StepPlan step;
  struct Row {
    Drafting* drafting = nullptr;
    Searching* searching = nullptr;  // null of a sample
    int rank = 0;
  };
  std::vector<Row> rows;
  const auto add_row = [&](const Row& row) {
    if (!AddRow(*row.drafting, row.drafting->text.size(), 1, &step)) {
      return false;
    }
    rows.push_back(row);
    return true;
  };
  for (Drafting& drafting : work->samples) {
    if (!drafting.is_done && !add_row({&drafting})) drafting.is_done = true;
  }
  for (Searching& searching : work->searches) {
    const int num_beams = static_cast<int>(searching.beams.size());
    for (int rank = 0; rank < num_beams && !searching.is_done; ++rank) {
      const bool has_pages =
          add_row({&searching.beams[rank], &searching, rank});
      if (!has_pages) searching.is_done = true;
    }
  }
  if (rows.empty()) return absl::OkStatus();
  step.stop = stop;
  const size_t vocab_size = description().vocab_size;
  if (logits_.size() < rows.size() * vocab_size) {
    logits_.resize(rows.size() * vocab_size);
  }
  const std::span<float> logits(logits_.data(), rows.size() * vocab_size);
  RETURN_IF_ERROR(model_->Forward(step, logits));
  AllocatingLoop(*threads_, static_cast<int>(rows.size()), [&](int i) {
    const auto& [drafting, searching, rank] = rows[i];
    const auto row = logits.subspan(i * vocab_size, vocab_size);
    if (searching == nullptr) return Draw(row, drafting);
    const size_t num_prompt = drafting->asked->prompt->size();
    searching->search.Choose(
        rank, std::span(drafting->text).subspan(num_prompt), row);
  });
  for (Searching& searching : work->searches) {
    if (!searching.is_done) Advance(&searching);
  }
  return absl::OkStatus();
}

bool DraftModel::AddRow(const Drafting& drafting, size_t num_fed,
                        int num_logits, StepPlan* step) {
  State& state = states_.at(drafting.key);
  const int first = static_cast<int>(state.tokens.size());
  const int count = static_cast<int>(num_fed) - first;
  const int64_t num_needed =
      NumPages(static_cast<int64_t>(num_fed), pool_.page_size()) -
      std::ssize(state.pages.pages()) + 1;  // of a tail that is shared
  if (!MakeRoom(num_needed) ||
      !state.pages.Append(count, &step->page_copies).ok()) {
    state.tokens.clear();
    state.pages.Clear();
    return false;
  }
  step->rows.push_back({.first_token = static_cast<int>(step->tokens.size()),
                        .num_tokens = count,
                        .first_position = first,
                        .num_logits = num_logits,
                        .first_logits = step->num_logits});
  step->num_logits += num_logits;
  const auto begin = drafting.text.begin() + first;
  step->tokens.insert(step->tokens.end(), begin, begin + count);
  state.tokens.insert(state.tokens.end(), begin, begin + count);
  for (const PageRef& page : state.pages.pages()) {
    step->page_indices.push_back(page.id());
  }
  step->page_indptr.push_back(static_cast<int>(step->page_indices.size()));
  return true;
}

bool DraftModel::MakeRoom(int64_t num_pages) {
  while (pool_.num_free() < num_pages) {
    const auto oldest = std::ranges::min_element(
        states_, {}, [](const auto& entry) { return entry.second.last_run; });
    if (oldest == states_.end() || oldest->second.last_run == num_runs_) {
      return false;
    }
    states_.erase(oldest);
  }
  return true;
}

void DraftModel::Draw(std::span<const float> logits, Drafting* drafting) const {
  const DraftSequence& asked = *drafting->asked;
  const SelectionParams& params = *asked.params;
  const size_t num_prompt = asked.prompt->size();
  const std::span<const TokenId> tail =
      std::span(drafting->text).subspan(num_prompt);
  std::vector<TokenEdit> storage;
  const ScoreEdits::View edits =
      EditsOf(params)->OfRow({.tail = tail,
                              .num_generated = static_cast<int>(tail.size()),
                              .vocab_size = static_cast<int>(logits.size())},
                             &storage);
  const VerifyRow row = {
      .logits = logits,
      .options = {.params = params.sampling,
                  .sample = static_cast<uint32_t>(asked.sample),
                  .position = static_cast<uint32_t>(tail.size()),
                  .repetition_penalty = params.processors.repetition_penalty,
                  .edits = edits.edits,
                  .is_allow_list = edits.is_allow_list}};
  const TokenId token = DrawDraft(row, params.verify_mode).token;
  DraftedTokens& draft = drafting->draft;
  const bool ends =
      std::ranges::binary_search(params.processors.eos_token_ids, token);
  // Behind what ends the sequence nothing is drafted. That itself the step
  // draws besides; but where its logits decide, to leave it out would be to
  // choose by what was drawn.
  if (token < 0 || (ends && !NeedsDraftLogits(params))) {
    drafting->is_done = true;
    return;
  }
  draft.tokens.push_back(token);
  if (NeedsDraftLogits(params)) {
    draft.logits.insert(draft.logits.end(), logits.begin(), logits.end());
  }
  drafting->text.push_back(token);
  drafting->is_done = ends || std::ssize(draft.tokens) == asked.num_tokens;
}

void DraftModel::Forget(RequestId request) {
  const auto begin = states_.lower_bound({request, 0});
  auto end = begin;
  while (end != states_.end() && end->first.first == request) ++end;
  states_.erase(begin, end);
}

}  // namespace espalier
