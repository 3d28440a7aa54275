#include "executor/host/draft_model.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "executor/host/allocating_loop.h"
#include "kernels/logits/score_edits.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

// That a sequence lacks: after a bonus token two.
constexpr size_t kUsualTokens = 2;

// Whether a sample, or a search, has not drafted all of what it can.
constexpr auto kIsDrafting = [](const auto& work) { return !work.is_done; };

}  // namespace

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(
    std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
    std::shared_ptr<DraftSampler> sampler) {
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
      new DraftModel(std::move(taken), std::move(pool), std::move(sampler)));
}

DraftModel::DraftModel(std::shared_ptr<Model> model,
                       std::shared_ptr<ThreadPool> pool,
                       std::shared_ptr<DraftSampler> sampler)
    : model_(std::move(model)),
      threads_(std::move(pool)),
      sampler_(std::move(sampler)),
      pool_(model_->description().num_pages, model_->description().page_size) {}

int DraftModel::max_tokens() const {
  const int64_t num_paged = int64_t{pool_.num_pages() - 1} * pool_.page_size();
  return static_cast<int>(
      std::clamp<int64_t>(num_paged, 0, description().max_context));
}

absl::StatusOr<std::vector<DraftedTokens>> DraftModel::Run(
    const StepPlan& plan) {
  num_rows_ = 0;
  draft_time_ = {};
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
  num_tokens_left_ = plan.max_draft_step_tokens;
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
  StepPlan step;
  DeferToNextPlan(&work, &step);
  RETURN_IF_ERROR(SampleDrafts(&work, &step, plan.stop));
  RETURN_IF_ERROR(FeedAndDraw(&work, std::move(step), plan.stop));
  while (std::ranges::any_of(work.samples, kIsDrafting) ||
         std::ranges::any_of(work.searches, kIsDrafting)) {
    RETURN_IF_ERROR(FeedAndDraw(&work, {}, plan.stop));
  }
  std::vector<DraftedTokens> drafts(plan.drafting.size());
  for (size_t i = 0; i < work.samples.size(); ++i) {
    Drafting& drafting = work.samples[i];
    if (!drafting.logits.empty()) {
      drafting.draft.logits = DraftLogits(std::move(drafting.logits));
    }
    drafts[work.places[i]] = std::move(drafting.draft);
  }
  for (const Searching& searching : work.searches) {
    const auto own = std::span(drafts).subspan(searching.first);
    searching.search.TakePaths(own);
    if (!searching.is_behind) continue;
    // Its beams are those that it began with.
    for (size_t rank = 0; rank < searching.beams.size(); ++rank) {
      own[rank].is_behind = true;
    }
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
                         .text = {asked[i].prompt, asked[i].generated},
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
      CommonLength(state.fed, drafting->text),
      drafting->text.size() - 1);  // the last one is fed for its logits
  state.fed.Truncate(num_kept);
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
          std::min(CommonLength(other.fed, beam.text), beam.text.size() - 1);
      if (length <= num_kept) continue;
      longest = &other;
      num_kept = length;
    }
    if (longest != nullptr) {
      state.fed = beam.text.First(num_kept);
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
    child.text.Append(token);
    if (has_child[parent_rank]) {
      const State& from = states_.at(parent.key);
      State fork = {from.fed, from.pages.Fork(from.pages.num_tokens()),
                    num_runs_};
      child.key.second = searching->num_keys++;
      states_.insert_or_assign(child.key, std::move(fork));
    }
    has_child[parent_rank] = true;
  }
  searching->beams = std::move(next);
  searching->is_done = searching->search.is_done();
}

// One row of each sequence: rows of a step do not see each other.
absl::Status DraftModel::FeedStems(std::span<Drafting* const> all,
                                   std::stop_token stop) {
  const std::map<RequestId, Stem> stems = StemsOf(all);
  size_t num_tokens_for_stems = NumTokensForStems(all);
  StepPlan step;
  for (const auto& [request, stem] : stems) {
    const size_t begin = num_fed(*stem.first);
    if (begin >= stem.num_tokens) continue;
    const size_t count =
        std::min(stem.num_tokens - begin, num_tokens_for_stems);
    if (count == 0) continue;
    if (!AddRow(*stem.first, begin + count, 0, &step)) {
      stem.first->is_done = true;
      continue;
    }
    num_tokens_for_stems -= count;
    num_tokens_left_ -= count;
  }
  if (!step.empty()) {
    step.stop = stop;
    RETURN_IF_ERROR(model_->Forward(step, {}));
  }
  ShareStems(stems, all);
  return absl::OkStatus();
}

std::map<RequestId, DraftModel::Stem> DraftModel::StemsOf(
    std::span<Drafting* const> all) const {
  std::map<RequestId, Stem> stems;
  for (Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    Drafting*& first = stems[drafting->asked->request].first;
    if (first == nullptr || num_fed(*first) < num_fed(*drafting)) {
      first = drafting;
    }
  }
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    Stem& stem = stems[drafting->asked->request];
    const size_t num_common = LengthOfStem(*stem.first, *drafting);
    if (stem.first == drafting || num_fed(*drafting) >= num_common) continue;
    stem.num_tokens = std::max(stem.num_tokens, num_common);
  }
  return stems;
}

size_t DraftModel::LengthOfStem(const Drafting& first,
                                const Drafting& other) const {
  return std::min(CommonLength(first.text, other.text),
                  std::min(first.text.size(), other.text.size()) - 1);
}

void DraftModel::ShareStems(const std::map<RequestId, Stem>& stems,
                            std::span<Drafting* const> all) {
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const Drafting& first = *stems.at(drafting->asked->request).first;
    if (&first == drafting || first.is_done) continue;
    const State& from = states_.at(first.key);
    const size_t count =
        std::min(LengthOfStem(first, *drafting), from.fed.size());
    if (num_fed(*drafting) >= count) continue;
    State& to = states_.at(drafting->key);
    to.fed = from.fed.First(count);
    to.pages = from.pages.Fork(static_cast<int>(count));
  }
}

void DraftModel::DeferToNextPlan(Work* work, StepPlan* step) {
  struct Waiting {
    size_t num_lacking = 0;
    Drafting* sample = nullptr;  // or
    Searching* search = nullptr;
  };
  std::vector<Waiting> all;
  for (Drafting& sample : work->samples) {
    if (!sample.is_done) all.push_back({num_lacking(sample), &sample, nullptr});
  }
  for (Searching& search : work->searches) {
    if (search.is_done) continue;
    Waiting& waiting = all.emplace_back(Waiting{.search = &search});
    for (const Drafting& beam : search.beams) {
      waiting.num_lacking += num_lacking(beam);
    }
  }
  std::ranges::stable_sort(all, {}, &Waiting::num_lacking);
  for (const Waiting& waiting : all) {
    if (waiting.num_lacking <= num_tokens_left_) {
      num_tokens_left_ -= waiting.num_lacking;
    } else if (waiting.sample != nullptr) {
      waiting.sample->draft.is_behind = AddChunk(*waiting.sample, step);
      waiting.sample->is_done = true;
    } else {
      DeferSearch(waiting.search, step);
    }
  }
}

void DraftModel::DeferSearch(Searching* search, StepPlan* step) {
  search->is_behind = true;
  for (const Drafting& beam : search->beams) {
    search->is_behind = AddChunk(beam, step) && search->is_behind;
  }
  search->is_done = true;
}

size_t DraftModel::NumTokensForStems(std::span<Drafting* const> all) const {
  size_t num_usual = 0;
  for (const Drafting* const drafting : all) {
    if (drafting->is_done) continue;
    const size_t num_tokens = num_lacking(*drafting);
    if (num_tokens <= kUsualTokens) num_usual += num_tokens;
  }
  // A part is for stems in any case, so that they end.
  return num_tokens_left_ - std::min(num_usual, num_tokens_left_ / 4 * 3);
}

bool DraftModel::AddChunk(const Drafting& drafting, StepPlan* step) {
  const size_t count = std::min(num_lacking(drafting), num_tokens_left_);
  if (count == 0) return true;
  if (!AddRow(drafting, num_fed(drafting) + count, 0, step)) return false;
  num_tokens_left_ -= count;
  return true;
}

absl::Status DraftModel::SampleDrafts(Work* work, StepPlan* step,
                                      std::stop_token stop) {
  if (sampler_ == nullptr) return absl::OkStatus();
  std::vector<Drafting*> sampling;
  for (Drafting& drafting : work->samples) {
    if (drafting.is_done || !sampler_->CanSample(*drafting.asked)) continue;
    // It feeds few tokens; what comes before those is fed as a prompt is.
    const size_t most = sampler_->max_row_tokens();
    if (num_lacking(drafting) > most &&
        !AddRow(drafting, drafting.text.size() - 1, 0, step)) {
      drafting.is_done = true;
      continue;
    }
    sampling.push_back(&drafting);
  }
  if (sampling.empty()) return absl::OkStatus();
  if (!step->empty()) {
    step->stop = stop;
    RETURN_IF_ERROR(model_->Forward(*step, {}));
  }
  *step = {};
  const Stopwatch watch;
  StepPlan rows;
  rows.stop = stop;
  std::erase_if(sampling, [&](Drafting* drafting) {
    return !AddSamplingRow(drafting, &rows);
  });
  if (sampling.empty()) return absl::OkStatus();
  std::vector<const DraftSequence*> sequences;
  int num_rows = 0;
  for (const Drafting* const drafting : sampling) {
    sequences.push_back(drafting->asked);
    num_rows += drafting->asked->num_tokens;
  }
  ASSIGN_OR_RETURN(std::vector<SampledDraft> drafts,
                   sampler_->Sample(rows, sequences));
  for (size_t i = 0; i < sampling.size(); ++i) {
    TakeSampled(std::move(drafts[i]), sampling[i]);
  }
  RecordPass(rows.tokens.size(), num_rows, watch.Elapsed());
  return absl::OkStatus();
}

bool DraftModel::AddSamplingRow(Drafting* drafting, StepPlan* step) {
  const int num_ahead = drafting->asked->num_tokens - 1;
  drafting->is_done = true;
  return AddRow(*drafting, drafting->text.size(), 1, step, num_ahead);
}

void DraftModel::TakeSampled(SampledDraft sampled, Drafting* drafting) {
  drafting->is_done = false;
  for (const TokenId token : sampled.tokens) {
    if (!drafting->is_done) Take(token, drafting);
  }
  drafting->is_done = true;
  DraftedTokens& draft = drafting->draft;
  if (!sampled.logits.empty()) {
    const size_t vocab_size = description().vocab_size;
    draft.logits = sampled.logits.First(draft.tokens.size() * vocab_size);
  }
  // The last one was not fed, nor is anything kept behind it.
  State& state = states_.at(drafting->key);
  const size_t num_unfed = draft.tokens.empty() ? 0 : 1;
  state.fed.GrowTo(drafting->text.size() - num_unfed, drafting->text);
  state.pages.Truncate(static_cast<int>(state.fed.size()));
}

absl::Status DraftModel::FeedAndDraw(Work* work, StepPlan step,
                                     std::stop_token stop) {
  const Stopwatch watch;
  const std::vector<Reader> readers = AddRows(work, &step);
  if (step.empty()) return absl::OkStatus();
  step.stop = stop;
  const size_t vocab_size = description().vocab_size;
  if (logits_.size() < readers.size() * vocab_size) {
    logits_.resize(readers.size() * vocab_size);
  }
  const std::span<float> logits(logits_.data(), readers.size() * vocab_size);
  RETURN_IF_ERROR(model_->Forward(step, logits));
  AllocatingLoop(*threads_, static_cast<int>(readers.size()), [&](int i) {
    Read(readers[i], logits.subspan(i * vocab_size, vocab_size));
  });
  for (Searching& searching : work->searches) {
    if (!searching.is_done) Advance(&searching);
  }
  RecordPass(step.tokens.size(), static_cast<int>(readers.size()),
             watch.Elapsed());
  return absl::OkStatus();
}

void DraftModel::RecordPass(size_t num_tokens, int num_rows,
                            absl::Duration time) {
  if (num_tokens > kUsualTokens * num_rows) return;  // it caught up
  num_rows_ += num_rows;
  draft_time_ += time;
}

std::vector<DraftModel::Reader> DraftModel::AddRows(Work* work,
                                                    StepPlan* step) {
  std::vector<Reader> readers;
  const auto add_row = [&](const Reader& reader) {
    const Drafting& drafting = *reader.drafting;
    if (!AddRow(drafting, drafting.text.size(), 1, step)) return false;
    readers.push_back(reader);
    return true;
  };
  for (Drafting& drafting : work->samples) {
    if (!drafting.is_done && !add_row({&drafting})) drafting.is_done = true;
  }
  for (Searching& searching : work->searches) {
    if (!searching.is_done && !MakeRoomFor(searching)) GiveUp(&searching);
    const int num_beams = static_cast<int>(searching.beams.size());
    for (int rank = 0; rank < num_beams && !searching.is_done; ++rank) {
      const bool has_pages =
          add_row({&searching.beams[rank], &searching, rank});
      if (!has_pages) searching.is_done = true;
    }
  }
  return readers;
}

bool DraftModel::MakeRoomFor(const Searching& searching) {
  int64_t num_needed = 0;
  for (const Drafting& beam : searching.beams) {
    num_needed += NumPagesForRow(beam, beam.text.size());
  }
  return MakeRoom(num_needed);
}

void DraftModel::GiveUp(Searching* searching) {
  searching->is_done = true;
  for (const Drafting& beam : searching->beams) {
    states_.at(beam.key).last_run = num_runs_ - 1;
  }
}

void DraftModel::Read(const Reader& reader,
                      std::span<const float> logits) const {
  if (reader.searching == nullptr) return Draw(logits, reader.drafting);
  reader.searching->search.Choose(reader.rank,
                                  reader.drafting->text.generated(), logits);
}

bool DraftModel::AddRow(const Drafting& drafting, size_t num_fed,
                        int num_logits, StepPlan* step, int num_ahead) {
  State& state = states_.at(drafting.key);
  const int first = static_cast<int>(state.fed.size());
  const int count = static_cast<int>(num_fed) - first;
  if (!MakeRoom(NumPagesForRow(drafting, num_fed + num_ahead)) ||
      !state.pages.Append(count + num_ahead, &step->page_copies).ok()) {
    state.fed.Truncate(0);
    state.pages.Clear();
    return false;
  }
  step->rows.push_back({.first_token = static_cast<int>(step->tokens.size()),
                        .num_tokens = count,
                        .first_position = first,
                        .num_logits = num_logits,
                        .first_logits = step->num_logits});
  step->num_logits += num_logits;
  drafting.text.CopyTo(first, num_fed, &step->tokens);
  state.fed.GrowTo(num_fed, drafting.text);
  for (const PageRef& page : state.pages.pages()) {
    step->page_indices.push_back(page.id());
  }
  step->page_indptr.push_back(static_cast<int>(step->page_indices.size()));
  return true;
}

int64_t DraftModel::NumPagesForRow(const Drafting& drafting,
                                   size_t num_tokens) const {
  const PageTable& table = states_.at(drafting.key).pages;
  const bool copies_tail =
      table.room_in_tail() > 0 && table.pages().back().shared();
  return NumPages(static_cast<int64_t>(num_tokens), pool_.page_size()) -
         std::ssize(table.pages()) + (copies_tail ? 1 : 0);
}

int64_t DraftModel::NumPagesAvailable() const {
  std::vector<bool> is_kept(pool_.num_pages());
  for (const auto& [key, state] : states_) {
    if (state.last_run != num_runs_) continue;
    for (const PageId page : state.pages.page_ids()) is_kept[page.value] = true;
  }
  return std::ranges::count(is_kept, false);
}

bool DraftModel::MakeRoom(int64_t num_pages) {
  if (pool_.num_free() >= num_pages) return true;
  if (NumPagesAvailable() < num_pages) return false;
  while (pool_.num_free() < num_pages) {
    const auto oldest = std::ranges::min_element(
        states_, {}, [](const auto& entry) { return entry.second.last_run; });
    CHECK(oldest->second.last_run != num_runs_) << "a sequence that drafts";
    states_.erase(oldest);
  }
  return true;
}

void DraftModel::Draw(std::span<const float> logits, Drafting* drafting) const {
  const DraftSequence& asked = *drafting->asked;
  const SelectionParams& params = *asked.params;
  const std::span<const TokenId> tail = drafting->text.generated();
  std::vector<TokenEdit> storage;
  const std::shared_ptr<const ScoreEdits> all = EditsOf(params);
  const ScoreEdits::View edits =
      all->OfRow({.tail = tail,
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
  Take(DrawDraft(row, params.verify_mode).token, drafting);
  if (!NeedsDraftLogits(params)) return;
  drafting->logits.reserve(asked.num_tokens * logits.size());
  // Of what it took.
  if (drafting->logits.size() < drafting->draft.tokens.size() * logits.size()) {
    drafting->logits.insert(drafting->logits.end(), logits.begin(),
                            logits.end());
  }
}

void DraftModel::Take(TokenId token, Drafting* drafting) const {
  const DraftSequence& asked = *drafting->asked;
  const SelectionParams& params = *asked.params;
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
  drafting->text.Append(token);
  drafting->is_done = ends || std::ssize(draft.tokens) == asked.num_tokens;
}

void DraftModel::Forget(RequestId request) {
  const auto begin = states_.lower_bound({request, 0});
  auto end = begin;
  while (end != states_.end() && end->first.first == request) ++end;
  states_.erase(begin, end);
}

}  // namespace espalier
