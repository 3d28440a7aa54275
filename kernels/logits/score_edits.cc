#include "kernels/logits/score_edits.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

void BanAll(std::span<const TokenId> tokens, std::vector<TokenEdit>* edits) {
  for (const TokenId token : tokens) {
    edits->push_back({.token = token, .banned = true});
  }
}

std::vector<TokenId> Distinct(std::span<const TokenId> tokens) {
  std::vector<TokenId> distinct(tokens.begin(), tokens.end());
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return distinct;
}

std::vector<TokenEdit> ForceAll(std::span<const TokenId> tokens) {
  std::vector<TokenEdit> edits;
  for (const TokenId token : tokens) {
    edits.push_back({.token = token, .forced = true});
  }
  return edits;
}

// Combines two edits of one token. A ban replaces all other edits.
TokenEdit Together(const TokenEdit& a, const TokenEdit& b) {
  if (a.banned || b.banned) return {.token = a.token, .banned = true};
  return {.token = a.token,
          .repeated = a.repeated || b.repeated,
          .bias = a.bias + b.bias,
          .penalty = a.penalty + b.penalty,
          .decay = a.decay + b.decay};
}

// Sorts by token and combines the edits of each token.
void MergeByToken(std::vector<TokenEdit>* edits) {
  std::ranges::stable_sort(*edits, {}, &TokenEdit::token);
  size_t count = 0;
  for (const TokenEdit& edit : *edits) {
    if (count > 0 && (*edits)[count - 1].token == edit.token) {
      (*edits)[count - 1] = Together((*edits)[count - 1], edit);
    } else {
      (*edits)[count++] = edit;
    }
  }
  edits->resize(count);
}

// The edits of tokens in [0, vocab_size).
std::span<const TokenEdit> InVocabulary(std::span<const TokenEdit> edits,
                                        int vocab_size) {
  const auto token_of = &TokenEdit::token;
  const auto begin = std::ranges::lower_bound(edits, 0, {}, token_of);
  const auto end = std::ranges::lower_bound(edits, vocab_size, {}, token_of);
  return begin < end ? std::span(begin, end) : std::span<const TokenEdit>();
}

// Finds tokens in ascending order. Steps that double make it as fast for few
// tokens as for all.
class Finder {
 public:
  explicit Finder(std::span<const TokenEdit> edits) : edits_(edits) {}

  const TokenEdit* Find(TokenId token) {
    size_t step = 1;
    while (step < edits_.size() && edits_[step - 1].token < token) step *= 2;
    const auto near = edits_.first(std::min(step, edits_.size()));
    const auto found =
        std::ranges::lower_bound(near, token, {}, &TokenEdit::token);
    edits_ = edits_.subspan(found - near.begin());
    const bool is_there = !edits_.empty() && edits_.front().token == token;
    return is_there ? &edits_.front() : nullptr;
  }

 private:
  std::span<const TokenEdit> edits_;
};

// Merges two lists of edits; edits of one token are combined, `a` first.
void MergeEdits(std::span<const TokenEdit> a, std::span<const TokenEdit> b,
                std::vector<TokenEdit>* merged) {
  merged->reserve(a.size() + b.size());
  while (!a.empty() && !b.empty()) {
    const TokenId next = std::min(a.front().token, b.front().token);
    const bool of_a = a.front().token == next, of_b = b.front().token == next;
    merged->push_back(of_a && of_b ? Together(a.front(), b.front())
                      : of_a       ? a.front()
                                   : b.front());
    a = a.subspan(of_a ? 1 : 0);
    b = b.subspan(of_b ? 1 : 0);
  }
  merged->insert(merged->end(), a.begin(), a.end());
  merged->insert(merged->end(), b.begin(), b.end());
}

// Keeps the edits in `a` and `b` of allowed tokens, and adds an empty edit for
// each other allowed token. With `only_a`, tokens without an edit in `a` are
// skipped.
void Restrict(std::span<const TokenEdit> a, std::span<const TokenEdit> b,
              std::span<const TokenId> allowed, bool only_a, int vocab_size,
              std::vector<TokenEdit>* kept) {
  Finder in_a(a), in_b(b);
  for (const TokenId token : allowed) {
    if (token < 0 || token >= vocab_size) continue;
    const TokenEdit* const of_a = in_a.Find(token);
    const TokenEdit* const of_b = in_b.Find(token);
    if (only_a && of_a == nullptr) continue;
    kept->push_back(of_a != nullptr && of_b != nullptr ? Together(*of_a, *of_b)
                    : of_a != nullptr                  ? *of_a
                    : of_b != nullptr                  ? *of_b
                                      : TokenEdit{.token = token});
  }
}

// Returns the edits by the processors' lists only, and their bans, plus
// `banned`.
std::vector<TokenEdit> EditsOfLists(const ScoreProcessors& processors,
                                    bool bans_eos,
                                    std::span<const TokenId> banned) {
  std::vector<TokenEdit> all;
  for (const TokenBias& bias : processors.logit_bias) {
    all.push_back({.token = bias.token, .bias = bias.bias});
  }
  for (const auto& [tokens, bias] : processors.sequence_bias) {
    if (tokens.size() == 1) all.push_back({.token = tokens[0], .bias = bias});
  }
  const std::vector<TokenId> eos = Distinct(processors.eos_token_ids);
  for (const std::vector<TokenId>& word : processors.bad_words) {
    if (word.size() > 1 || std::ranges::binary_search(eos, word[0])) continue;
    all.push_back({.token = word[0], .banned = true});
  }
  BanAll(processors.suppress_tokens, &all);
  BanAll(banned, &all);
  if (bans_eos) BanAll(eos, &all);
  MergeByToken(&all);
  if (!processors.allowed_tokens.has_value()) return all;
  const std::vector<TokenId>& allowed = *processors.allowed_tokens;
  std::vector<TokenEdit> edits;
  Restrict(all, {}, allowed, /*only_a=*/false, allowed.back() + 1, &edits);
  return edits;
}

// Appends, for each earlier occurrence of the last `size` tokens of the text,
// the token that follows it (Knuth, Morris, Pratt 1977: each token is read
// once, however much of the text repeats).
void AppendFollowers(const RowText& text, size_t size,
                     std::vector<TokenId>* tokens) {
  if (text.size() <= size) return;
  std::vector<TokenId> pattern(size);
  for (size_t i = 0; i < size; ++i) {
    pattern[i] = text[text.size() - size + i];
  }
  // borders[i]: the length of the longest proper prefix of the pattern that is
  // also a suffix of its first i + 1 tokens (Knuth, Morris and Pratt).
  std::vector<size_t> borders(size);
  const auto grow = [&](size_t border, TokenId token) {
    while (border > 0 && pattern[border] != token) border = borders[border - 1];
    return border + (pattern[border] == token ? 1 : 0);
  };
  for (size_t i = 1; i < size; ++i) {
    borders[i] = grow(borders[i - 1], pattern[i]);
  }
  size_t matched = 0;
  const auto read = [&](TokenId token, TokenId next) {
    matched = grow(matched, token);
    if (matched < size) return;
    tokens->push_back(next);
    matched = borders[size - 1];
  };
  const std::span<const TokenId> prompt = text.prompt, tail = text.tail;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) read(prompt[i], prompt[i + 1]);
  if (!prompt.empty() && !tail.empty()) read(prompt.back(), tail.front());
  for (size_t i = 0; i + 1 < tail.size(); ++i) read(tail[i], tail[i + 1]);
}

}  // namespace

ScoreEdits::ScoreEdits(const ScoreProcessors& processors,
                       std::span<const TokenId> prompt)
    : repetition_penalty_(processors.repetition_penalty),
      frequency_penalty_(processors.frequency_penalty),
      presence_penalty_(processors.presence_penalty),
      ngram_size_(processors.no_repeat_ngram_size),
      min_new_tokens_(processors.min_new_tokens),
      needs_history_(processors.needs_history()),
      restricts_(processors.allowed_tokens.has_value()),
      prompt_(needs_history_
                  ? std::vector<TokenId>(prompt.begin(), prompt.end())
                  : std::vector<TokenId>()),
      prompt_has_edits_(!prompt_.empty() &&
                        (repetition_penalty_ != 1.0f || ngram_size_ == 1)),
      begin_index_(processors.begin_suppress_tokens.empty()
                       ? -1
                       : processors.begin_index),
      decay_({.tokens = Distinct(processors.eos_decay.tokens),
              .start_index = processors.eos_decay.start_index,
              .factor = processors.eos_decay.factor}),
      of_lists_(MakeOfLists(processors)),
      forced_first_(ForceAll(processors.forced_first_tokens)),
      forced_last_(ForceAll(processors.forced_last_tokens)),
      max_new_tokens_(processors.max_new_tokens) {
  if (!prompt_has_edits_) return;
  const Places& places = of_lists_->places;
  with_prompt_.after_min = WithPrompt(processors, places.after_min);
  if (min_new_tokens_ > 0) {
    with_prompt_.before_min = WithPrompt(processors, places.before_min);
  }
  if (begin_index_ >= 0) {
    with_prompt_.at_begin = WithPrompt(processors, places.at_begin);
  }
}

ScoreEdits::OfLists::OfLists(const ScoreProcessors& processors) {
  for (const std::vector<TokenId>& word : processors.bad_words) {
    DCHECK(!word.empty()) << "an empty bad word";
    if (word.size() > 1) sequences.Add(word, {.banned = true});
  }
  for (const auto& [tokens, bias] : processors.sequence_bias) {
    DCHECK(!tokens.empty()) << "an empty sequence";
    if (tokens.size() > 1) sequences.Add(tokens, {.bias = bias});
  }
  const int min_new_tokens = processors.min_new_tokens;
  places.after_min = EditsOfLists(processors, /*bans_eos=*/false, {});
  if (min_new_tokens > 0) {
    places.before_min = EditsOfLists(processors, /*bans_eos=*/true, {});
  }
  if (!processors.begin_suppress_tokens.empty()) {
    places.at_begin =
        EditsOfLists(processors, processors.begin_index < min_new_tokens,
                     processors.begin_suppress_tokens);
  }
}

// The longest of the processors' lists keeps the result, which does not own it.
std::shared_ptr<const ScoreEdits::OfLists> ScoreEdits::MakeOfLists(
    const ScoreProcessors& processors) {
  constexpr int64_t kShort = 16;  // elements, or tokens of sequences
  const SharedList<TokenId>& eos = processors.eos_token_ids;
  const SharedList<TokenId> allowed =
      processors.allowed_tokens.value_or(SharedList<TokenId>());
  const std::pair<int64_t, int> sizes[] = {
      {processors.num_bad_word_tokens(), 0},
      {processors.num_biased_tokens(), 1},
      {std::ssize(processors.logit_bias), 2},
      {std::ssize(processors.suppress_tokens), 3},
      {std::ssize(processors.begin_suppress_tokens), 4},
      {std::ssize(allowed), 5},
      {std::ssize(eos), 6}};
  const auto [size, longest] = *std::ranges::max_element(sizes);
  const auto make = [&] { return OfLists(processors); };
  if (size < kShort) return std::make_shared<const OfLists>(make());
  DerivedValues::Key key = {
      processors.bad_words.id(),
      processors.sequence_bias.id(),
      processors.logit_bias.id(),
      processors.suppress_tokens.id(),
      processors.begin_suppress_tokens.id(),
      allowed.id(),
      processors.begin_index < processors.min_new_tokens ? 1 : 0,
      processors.min_new_tokens > 0 ? 1 : 0};
  // A model's own ids are a list of each request.
  key.insert(key.end(), eos.begin(), eos.end());
  const auto keep_by = [&](const auto& list) {
    return list.template Derived<OfLists>(key, make);
  };
  switch (longest) {
    case 0:
      return keep_by(processors.bad_words);
    case 1:
      return keep_by(processors.sequence_bias);
    case 2:
      return keep_by(processors.logit_bias);
    case 3:
      return keep_by(processors.suppress_tokens);
    case 4:
      return keep_by(processors.begin_suppress_tokens);
    case 5:
      return keep_by(allowed);
    default:
      return keep_by(eos);
  }
}

std::vector<TokenEdit> ScoreEdits::WithPrompt(
    const ScoreProcessors& processors,
    std::span<const TokenEdit> without_text) const {
  std::vector<TokenEdit> of_prompt;
  for (const TokenId token : Distinct(prompt_)) {
    of_prompt.push_back({.token = token,
                         .banned = ngram_size_ == 1,
                         .repeated = ngram_size_ != 1});
  }
  std::vector<TokenEdit> edits;
  if (restricts_) {
    Restrict(without_text, of_prompt, *processors.allowed_tokens,
             /*only_a=*/true, processors.allowed_tokens->back() + 1, &edits);
  } else {
    MergeEdits(without_text, of_prompt, &edits);
  }
  return edits;
}

const std::vector<TokenEdit>& ScoreEdits::At(const Places& places,
                                             int num_generated) const {
  if (num_generated == begin_index_) return places.at_begin;
  return num_generated < min_new_tokens_ ? places.before_min : places.after_min;
}

const std::vector<TokenEdit>* ScoreEdits::ForcedAt(int num_generated) const {
  if (!forced_last_.empty() && num_generated + 1 == max_new_tokens_) {
    return &forced_last_;
  }
  return forced_first_.empty() || num_generated > 0 ? nullptr : &forced_first_;
}

ScoreEdits::View ScoreEdits::WithoutText(
    int num_generated, int vocab_size, std::vector<TokenEdit>* storage) const {
  if (const auto* const forced = ForcedAt(num_generated)) {
    return {InVocabulary(*forced, vocab_size), /*is_allow_list=*/true};
  }
  const auto shared =
      InVocabulary(At(of_lists_->places, num_generated), vocab_size);
  const std::vector<TokenEdit> decays = DecayEdits(num_generated);
  const auto of_place = InVocabulary(decays, vocab_size);
  if (of_place.empty()) return {shared, restricts_};
  storage->clear();
  Merge(shared, of_place, storage);
  return {*storage, restricts_};
}

void ScoreEdits::Merge(std::span<const TokenEdit> shared,
                       std::span<const TokenEdit> own,
                       std::vector<TokenEdit>* merged) const {
  if (!restricts_) return MergeEdits(shared, own, merged);
  merged->assign(shared.begin(), shared.end());
  Finder in_own(own);
  for (TokenEdit& edit : *merged) {
    const TokenEdit* const more = in_own.Find(edit.token);
    if (more != nullptr) edit = Together(edit, *more);
  }
}

ScoreEdits::View ScoreEdits::OfRow(const Row& row,
                                   std::vector<TokenEdit>* storage) const {
  if (ForcedAt(row.num_generated) != nullptr) {
    return WithoutText(row.num_generated, row.vocab_size, storage);
  }
  const Places& places = prompt_has_edits_ ? with_prompt_ : of_lists_->places;
  const std::span<const TokenEdit> common =
      InVocabulary(At(places, row.num_generated), row.vocab_size);
  const std::vector<TokenEdit> own = OwnEdits(row);
  const auto of_row = InVocabulary(own, row.vocab_size);
  if (of_row.empty() && row.allowed == nullptr) return {common, restricts_};
  storage->clear();
  if (row.allowed != nullptr) {
    Restrict(common, of_row, *row.allowed, restricts_, row.vocab_size, storage);
  } else {
    Merge(common, of_row, storage);
  }
  return {*storage, restricts_ || row.allowed != nullptr};
}

std::vector<TokenEdit> ScoreEdits::OwnEdits(const Row& row) const {
  std::vector<TokenEdit> edits = DecayEdits(row.num_generated);
  if (!needs_history_) return edits;
  EditByText(row, &edits);
  MergeByToken(&edits);
  return edits;
}

std::vector<TokenEdit> ScoreEdits::DecayEdits(int num_generated) const {
  std::vector<TokenEdit> edits;
  const float decay = decay_.At(num_generated);
  if (decay == 0.0f) return edits;
  for (const TokenId token : decay_.tokens) {
    edits.push_back({.token = token, .decay = decay});
  }
  return edits;
}

void ScoreEdits::EditByText(const Row& row,
                            std::vector<TokenEdit>* edits) const {
  PenaliseTail(row.tail, row.num_generated, edits);
  const RowText text = {.prompt = prompt_, .tail = row.tail};
  if (ngram_size_ == 1) {
    BanAll(row.tail, edits);
  } else if (ngram_size_ > 1) {
    std::vector<TokenId> banned;
    AppendFollowers(text, ngram_size_ - 1, &banned);
    BanAll(banned, edits);
  }
  of_lists_->sequences.AppendDue(text, edits);
}

void ScoreEdits::PenaliseTail(std::span<const TokenId> tail, int num_generated,
                              std::vector<TokenEdit>* edits) const {
  if (repetition_penalty_ != 1.0f) {
    for (const TokenId token : Distinct(tail)) {
      edits->push_back({.token = token, .repeated = true});
    }
  }
  if (frequency_penalty_ == 0.0f && presence_penalty_ == 0.0f) return;
  const auto generated =
      tail.last(std::min<size_t>(num_generated, tail.size()));
  std::vector<TokenId> tokens(generated.begin(), generated.end());
  std::ranges::sort(tokens);
  for (auto it = tokens.begin(); it != tokens.end();) {
    const auto end = std::upper_bound(it, tokens.end(), *it);
    const float count = static_cast<float>(end - it);
    edits->push_back(
        {.token = *it,
         .penalty = frequency_penalty_ * count + presence_penalty_});
    it = end;
  }
}

}  // namespace espalier
