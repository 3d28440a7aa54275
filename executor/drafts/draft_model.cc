#include "executor/drafts/draft_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/allocating_loop.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "constrain/constraint.h"
#include "kernels/logits/score_edits.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

// Sets the logits of tokens that are illegal at `place` to -inf. Returns false,
// and sets none, if no token is legal, or the list of those that are takes
// long, or memory that others need.
bool KeepLegal(const Constraint& constraint, const ConstraintPlace& place,
               std::span<float> logits) {
  constexpr int64_t kMaxEffort = 1 << 16;  // some tenths of a millisecond
  if (constraint.is_full() ||
      !constraint.TryList(place.state, place.room, kMaxEffort)) {
    return false;
  }
  const std::span<const TokenId> legal =
      constraint.LegalTokens(place.state, place.room).tokens;
  if (legal.empty()) return false;
  constexpr float kIllegal = -std::numeric_limits<float>::infinity();
  auto next = logits.begin();
  for (const TokenId token : legal) {
    const auto kept = logits.begin() + token;
    std::fill(next, kept, kIllegal);
    next = kept + 1;
  }
  std::fill(next, logits.end(), kIllegal);
  return true;
}

// True if a sample or a search can draft more tokens.
constexpr auto kIsDrafting = [](const auto& work) { return !work.is_done; };

std::string GotDirectory(std::string_view directory) {
  return directory.empty() ? "" : Concat(", got ", directory);
}

}  // namespace

absl::Status CheckTakesDraftModel(const ModelDescription& model,
                                  std::string_view directory) {
  if (!model.encoder) return absl::OkStatus();
  return MakeFieldError(
      absl::StatusCode::kInvalidArgument, OptionName{"draft_model"},
      " must be unset for a model with an encoder", GotDirectory(directory),
      ": a draft model would have to read ",
      "the source, too; drafts by \"ngram\" and \"suffix\" need ", "none");
}

absl::Status CheckIsDraftModel(const ModelDescription& draft,
                               std::string_view directory) {
  if (!draft.encoder) return absl::OkStatus();
  return MakeFieldError(
      absl::StatusCode::kInvalidArgument, OptionName{"draft_model"},
      " must name a model without an encoder", GotDirectory(directory));
}

absl::Status CheckDraftModelFits(const ModelDescription& model,
                                 const ModelDescription& draft) {
  RETURN_IF_ERROR(CheckTakesDraftModel(model));
  if (draft.vocab_size == model.vocab_size) return absl::OkStatus();
  return InvalidArgument("the draft model has a vocabulary of ",
                         draft.vocab_size, " tokens, the model one of ",
                         model.vocab_size);
}

DraftModel::~DraftModel() = default;

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(
    std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
    std::shared_ptr<DraftSampler> sampler) {
  if (model == nullptr) return InvalidArgument("draft_model must not be null");
  ModelDescription description = model->description();
  BoundBeamsByTokens(&description.limits);
  RETURN_IF_ERROR(CheckDescription(description));
  if (!description.has_shareable_pages) {
    return InvalidArgument(
        "a draft model must keep nothing of a sequence but its pages "
        "(has_shareable_pages)");
  }
  RETURN_IF_ERROR(CheckIsDraftModel(description));
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
      sequences_(model_->description().num_pages,
                 model_->description().page_size) {}

int DraftModel::max_tokens() const {
  const int64_t num_paged =
      int64_t{pages().num_pages() - 1} * pages().page_size();
  return static_cast<int>(
      std::clamp<int64_t>(num_paged, 1, description().max_context));
}

absl::StatusOr<std::vector<DraftedTokens>> DraftModel::Run(const StepPlan& plan,
                                                           bool may_pend) {
  num_rows_ = 0;
  draft_time_ = {};
  may_pend_ = may_pend;
  ForgetEnded(plan.ended);
  const auto forget_all = [&] {
    num_pending_rows_ = 0;
    for (const DraftSequence& sequence : plan.drafting) {
      sequences_.Forget(sequence.request);
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
  for (const RequestId request : ended) sequences_.Forget(request);
}

absl::StatusOr<std::vector<DraftedTokens>> DraftModel::RunAll(
    const StepPlan& plan) {
  RETURN_IF_ERROR(TakePending());
  sequences_.BeginRun();
  num_tokens_left_ = plan.max_draft_step_tokens;
  Work work = WorkOf(plan);
  std::vector<Drafting*> all;
  for (Drafting& drafting : work.samples) {
    if (drafting.is_unread()) sequences_.Keep(drafting.key);
    if (!drafting.is_done) sequences_.Begin(drafting.key, drafting.text);
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
    // A deferred search still has its initial beams.
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
    // The last drafted token is not fed.
    const int num_ahead = asked[i].verified_before.num_tokens();
    const int64_t num_fed =
        std::ssize(*asked[i].prompt) + std::ssize(asked[i].generated) +
        asked[i].num_tokens - 1 + (num_ahead > 0 ? num_ahead + 1 : 0);
    const bool is_too_long = num_fed > description().max_context;
    const bool is_done = is_too_long || num_ahead > 0;
    Drafting drafting = {.asked = &asked[i],
                         .key = {asked[i].request, asked[i].sample},
                         .text = {asked[i].prompt, asked[i].generated},
                         .place = asked[i].place,
                         .is_too_long = is_too_long,
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

void DraftModel::Begin(Searching* searching) {
  const RequestId request = searching->beams.front().asked->request;
  std::vector<const DraftText*> texts;
  for (Drafting& beam : searching->beams) {
    beam.key = {request, searching->num_keys++};
    texts.push_back(&beam.text);
  }
  sequences_.BeginBeams(request, texts);
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
      child.key.second = searching->num_keys++;
      sequences_.Fork(parent.key, child.key);
    }
    has_child[parent_rank] = true;
  }
  searching->beams = std::move(next);
  searching->is_done = searching->search.is_done();
}

absl::Status DraftModel::SampleDrafts(Work* work, StepPlan* step,
                                      std::stop_token stop) {
  if (sampler_ == nullptr) return absl::OkStatus();
  std::vector<Drafting*> sampling;
  std::vector<Drafting*> unread;  // placed last in the run
  for (Drafting& drafting : work->samples) {
    if (!CanSample(*drafting.asked)) continue;
    if (may_pend_ && drafting.asked->verified_by.plan_row < 0) continue;
    if (drafting.is_unread()) {
      if (may_pend_ && !drafting.is_too_long) unread.push_back(&drafting);
      continue;
    }
    if (drafting.is_done) continue;
    // The sampler feeds few tokens; earlier ones are fed like a prompt.
    const size_t most = sampler_->max_row_tokens();
    if (num_lacking(drafting) > most &&
        !AddRow(drafting, drafting.text.size() - 1, 0, step)) {
      drafting.is_done = true;
      continue;
    }
    sampling.push_back(&drafting);
  }
  sampling.insert(sampling.end(), unread.begin(), unread.end());
  if (sampling.empty()) return absl::OkStatus();
  if (!step->empty()) {
    step->stop = stop;
    RETURN_IF_ERROR(Forward(*step, {}));
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
  pending_.reserve(sampling.size());
  ASSIGN_OR_RETURN(std::vector<SampledDraft> drafts,
                   may_pend_ ? sampler_->Start(rows, sequences)
                             : sampler_->Sample(rows, sequences));
  bool is_pending = false;
  for (size_t i = 0; i < sampling.size(); ++i) {
    is_pending = is_pending || !drafts[i].pending.empty();
    if (drafts[i].pending.empty()) {
      TakeSampled(std::move(drafts[i]), sampling[i]);
    } else {
      TakeStarted(std::move(drafts[i]), sampling[i]);
    }
  }
  if (is_pending) {
    num_pending_rows_ += num_rows;
  } else {
    num_rows_ += num_rows;
    draft_time_ += watch.Elapsed();
  }
  return absl::OkStatus();
}

absl::Status DraftModel::TakePending() {
  if (pending_.empty()) return absl::OkStatus();
  // This clears the pending drafts even if the sampler fails, because failed
  // drafts are discarded.
  std::vector<Pending> pending = std::exchange(pending_, {});
  const int num_rows = std::exchange(num_pending_rows_, 0);
  const absl::Duration time_before = std::exchange(pending_time_, {});
  ASSIGN_OR_RETURN(const absl::Duration time, sampler_->Wait());
  if (num_rows > 0) {
    num_rows_ += num_rows;
    draft_time_ += time_before + time;
  }
  for (Pending& started : pending) {
    const DraftSequences::Key key = started.key;
    if (!sequences_.Has(key)) continue;
    const DraftText text = TextAfter(std::move(started));
    sequences_.SetFed(key, text, text.size() - 1);
  }
  return absl::OkStatus();
}

DraftText DraftModel::TextAfter(Pending pending) {
  DraftText text = std::move(pending.text);
  if (const PendingDraft& before = pending.verified_before; !before.empty()) {
    // The finished run has read it, so it has been written.
    const VerifiedDraft verified =
        Within(*before.verified(), before.num_tokens());
    for (int i = 0; i < verified.num_accepted; ++i)
      text.Append(before.token(i));
    text.Append(verified.next);
  }
  const PendingDraft& draft = pending.draft;
  for (int i = 0; i < draft.num_tokens() && draft.token(i) >= 0; ++i) {
    text.Append(draft.token(i));
  }
  return text;
}

absl::Status DraftModel::Forward(const StepPlan& step,
                                 std::span<float> logits) {
  if (!pending_.empty()) {
    ASSIGN_OR_RETURN(const absl::Duration time, sampler_->Wait());
    pending_time_ += time;
  }
  return model_->Forward(step, logits);
}

bool DraftModel::CanSample(const DraftSequence& asked) const {
  return asked.constraint == nullptr &&
         asked.num_tokens <= sampler_->max_draft_tokens() &&
         sampler_->CanSample(asked);
}

bool DraftModel::AddSamplingRow(Drafting* drafting, StepPlan* step) {
  const int num_ahead = drafting->asked->num_tokens - 1;
  drafting->is_done = true;
  if (drafting->is_unread()) {
    return sequences_.AddRowAfter(
        drafting->key, drafting->text.size(),
        drafting->asked->verified_before.num_tokens() + 1 + num_ahead, step);
  }
  return AddRow(*drafting, drafting->text.size(), 1, step, num_ahead);
}

void DraftModel::TakeStarted(SampledDraft started, Drafting* drafting) {
  DraftedTokens& draft = drafting->draft;
  draft.tokens.resize(started.pending.num_tokens());
  draft.logits = std::move(started.logits);
  draft.pending = started.pending;
  // The rest of this draft happens in the next run (TakePending).
  pending_.push_back({.key = drafting->key,
                      .text = std::move(drafting->text),
                      .verified_before = drafting->asked->verified_before,
                      .draft = std::move(started.pending)});
  drafting->is_done = true;
}

void DraftModel::TakeSampled(SampledDraft sampled, Drafting* drafting) {
  if (drafting->is_unread()) return;  // nothing was sampled
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
  // The last drafted token was not fed.
  const size_t num_unfed = draft.tokens.empty() ? 0 : 1;
  sequences_.SetFed(drafting->key, drafting->text,
                    drafting->text.size() - num_unfed);
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
  RETURN_IF_ERROR(Forward(step, logits));
  AllocatingLoop(*threads_, static_cast<int>(readers.size()), [&](int i) {
    Read(readers[i], logits.subspan(i * vocab_size, vocab_size));
  });
  for (Searching& searching : work->searches) {
    if (!searching.is_done) Advance(&searching);
  }
  if (step.tokens.size() > kUsualTokens * readers.size()) {
    return absl::OkStatus();  // it caught up
  }
  num_rows_ += static_cast<int>(readers.size());
  draft_time_ += watch.Elapsed();
  return absl::OkStatus();
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
    if (!searching.is_done && !MakeRoomFor(searching, *step)) {
      GiveUp(&searching);
    }
    const int num_beams = static_cast<int>(searching.beams.size());
    for (int rank = 0; rank < num_beams && !searching.is_done; ++rank) {
      const bool has_pages =
          add_row({&searching.beams[rank], &searching, rank});
      if (!has_pages) searching.is_done = true;
    }
  }
  return readers;
}

bool DraftModel::MakeRoomFor(const Searching& searching, const StepPlan& step) {
  int64_t num_needed = 0;
  for (const Drafting& beam : searching.beams) {
    num_needed += sequences_.NumPagesForRow(beam.key, beam.text.size());
  }
  return sequences_.MakeRoom(num_needed, step);
}

void DraftModel::GiveUp(Searching* searching) {
  searching->is_done = true;
  for (const Drafting& beam : searching->beams) {
    sequences_.GiveUp(beam.key);
  }
}

void DraftModel::Read(const Reader& reader, std::span<float> logits) const {
  if (reader.searching == nullptr) return Draw(logits, reader.drafting);
  reader.searching->search.Choose(reader.rank,
                                  reader.drafting->text.generated(), logits);
}

void DraftModel::Draw(std::span<float> logits, Drafting* drafting) const {
  const DraftSequence& asked = *drafting->asked;
  const SelectionParams& params = *asked.params;
  if (asked.constraint != nullptr &&
      !KeepLegal(*asked.constraint, drafting->place, logits)) {
    drafting->is_done = true;
    return;
  }
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
  // Logits are kept only for tokens that Take() appended.
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
  // As LengthToEnd has it, token by token.
  if (token < 0 || (ends && !NeedsDraftLogits(params))) {
    drafting->is_done = true;
    return;
  }
  draft.tokens.push_back(token);
  drafting->text.Append(token);
  drafting->is_done = ends || std::ssize(draft.tokens) == asked.num_tokens;
  if (asked.constraint == nullptr) return;
  drafting->place = {asked.constraint->Advance(drafting->place.state, token),
                     drafting->place.room - 1};
}

// A step has one row per sequence, since rows of a step cannot attend to each
// other.
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
    RETURN_IF_ERROR(Forward(step, {}));
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
    if (stem.first == drafting) continue;
    const size_t num_common = LengthOfStem(*stem.first, *drafting);
    if (num_fed(*drafting) >= num_common) continue;
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
    const size_t count =
        std::min(LengthOfStem(first, *drafting), num_fed(first));
    if (num_fed(*drafting) >= count) continue;
    sequences_.Share(first.key, drafting->key, count);
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
  // Stems always get a share, so that they make progress.
  return num_tokens_left_ - std::min(num_usual, num_tokens_left_ / 4 * 3);
}

bool DraftModel::AddChunk(const Drafting& drafting, StepPlan* step) {
  const size_t count = std::min(num_lacking(drafting), num_tokens_left_);
  if (count == 0) return true;
  if (!AddRow(drafting, num_fed(drafting) + count, 0, step)) return false;
  num_tokens_left_ -= count;
  return true;
}

}  // namespace espalier
