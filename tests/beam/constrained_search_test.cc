// Searches whose text is in a language, against all its texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "beam/group_search.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/selection_options.h"
#include "constrain/choice_language.h"
#include "constrain/gbnf_language.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::LogitsModel;
using testing::SearchAsTheEngine;
using testing::ToyLogitsModel;

constexpr TokenId kEosId = 0;

// Tokens of several letters, two of which are spelt alike.
const std::vector<std::string>& LetterTokens() {
  static const auto* const kTokens = new std::vector<std::string>{
      "", "a", "b", "c", "ab", "bc", "abc", "a", "d"};
  return *kTokens;
}

std::shared_ptr<const TextConstraint> Constrain(ByteAutomaton automaton,
                                                std::vector<TokenId> end_ids = {
                                                    kEosId}) {
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(std::move(automaton)),
      std::make_shared<const TokenVocabulary>(LetterTokens()));
  EXPECT_OK(texts);
  auto constraint = TextConstraint::Make(*std::move(texts), std::move(end_ids));
  EXPECT_OK(constraint);
  return *std::move(constraint);
}

const std::vector<std::string>& LetterPatterns() {
  static const auto* const kPatterns = new std::vector<std::string>{
      "(a|b|c)+", "a[bc]{0,3}",   "(ab|abc|c)c?", "[abc]{3}",  "a*",
      "(ab?c?)*", "abcabc|ab|d?", "[^d]{2,5}",    "(a|bc){2}", "(aa?|b){1,3}d"};
  return *kPatterns;
}

LogitsModel ModelOfLetters() {
  return ToyLogitsModel(
      {.vocab_size = static_cast<int>(LetterTokens().size())});
}

Request SearchOf(int64_t num_beams, int64_t max_new_tokens) {
  Request request;
  request.prompt_tokens = {1, 2};
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  request.params.early_stopping = EarlyStopping::kNever;
  request.params.max_new_tokens = max_new_tokens;
  request.params.eos_token_id = {kEosId};
  request.params.seed = 1;
  return request;
}

std::string SpeltBy(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += LetterTokens()[token];
  return text;
}

// The fewest tokens that complete `text`; a large number if none do. The
// vocabulary has each letter.
int TokensToComplete(const ByteAutomaton& automaton, const std::string& text) {
  std::vector<std::string> texts = {text};
  for (int count = 0; count <= 8 && !texts.empty(); ++count) {
    std::vector<std::string> longer;
    std::set<ByteAutomaton::State> states;
    for (const std::string& one : texts) {
      const ByteAutomaton::MatchResult match = automaton.Match(one);
      if (match.in_language) return count;
      if (match.num_matched < std::ssize(one)) continue;
      if (!states.insert(match.state).second) continue;
      for (const std::string& token : LetterTokens()) {
        if (!token.empty()) longer.push_back(one + token);
      }
    }
    texts = std::move(longer);
  }
  return 1000;
}

// True if `token` may follow `before`, which is no end, as one of `room`.
bool MayFollow(const ByteAutomaton& automaton, const std::string& before,
               TokenId token, int room) {
  if (token == kEosId) return automaton.Match(before).in_language;
  return TokensToComplete(automaton, before + LetterTokens()[token]) < room;
}

// True if a text of the language can have no token more.
bool MustEnd(const ByteAutomaton& automaton, const std::string& text,
             int room) {
  if (!automaton.Match(text).in_language) return false;
  for (TokenId token = 1; token < std::ssize(LetterTokens()); ++token) {
    if (MayFollow(automaton, text, token, room)) return false;
  }
  return true;
}

// All outputs by the definition, with the sums of their log-probabilities.
//   renormalizes  those of the tokens that may follow are made to add up to 1
void EnumerateTexts(const ByteAutomaton& automaton, const LogitsModel& model,
                    int room, const Hypothesis& prefix,
                    std::vector<TokenId> prompt, bool renormalizes,
                    std::vector<Hypothesis>* all) {
  std::vector<TokenId> history = prompt;
  history.insert(history.end(), prefix.tokens.begin(), prefix.tokens.end());
  const std::vector<float> log_probs = testing::LogSoftmax(model(history));
  const std::string before = SpeltBy(prefix.tokens);
  double sum = 0;
  for (TokenId token = 0; token < std::ssize(LetterTokens()); ++token) {
    if (!MayFollow(automaton, before, token, room)) continue;
    sum += std::exp(static_cast<double>(log_probs[token]));
  }
  const double log_mass = renormalizes ? std::log(sum) : 0;
  for (TokenId token = 0; token < std::ssize(LetterTokens()); ++token) {
    if (!MayFollow(automaton, before, token, room)) continue;
    Hypothesis next = prefix;
    next.tokens.push_back(token);
    next.cum_log_prob += static_cast<float>(log_probs[token] - log_mass);
    if (token == kEosId) {
      next.finish_reason = FinishReason::kEos;
      all->push_back(next);
    } else if (MustEnd(automaton, SpeltBy(next.tokens), room - 1)) {
      next.finish_reason = FinishReason::kStop;
      all->push_back(next);
    } else {
      EnumerateTexts(automaton, model, room - 1, next, prompt, renormalizes,
                     all);
    }
  }
}

std::vector<Hypothesis> AllOutputs(const std::string& pattern, int max_length,
                                   bool renormalizes = false) {
  const auto automaton = CompileRegex(pattern);
  std::vector<Hypothesis> all;
  EnumerateTexts(*automaton, ModelOfLetters(), max_length, {}, {1, 2},
                 renormalizes, &all);
  std::ranges::stable_sort(all, [](const Hypothesis& a, const Hypothesis& b) {
    return a.cum_log_prob / a.tokens.size() > b.cum_log_prob / b.tokens.size();
  });
  return all;
}

TEST(ConstrainedSearchTest, BeamsEnoughFindAllTextsInTheirOrder) {
  size_t num_found = 0;
  for (const std::string& pattern : LetterPatterns()) {
    for (const int max_length : {2, 3, 4}) {
      const std::vector<Hypothesis> all = AllOutputs(pattern, max_length);
      const auto constraint = Constrain(*CompileRegex(pattern));
      const Request request = SearchOf(std::ssize(all) + 2, max_length);
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
      ASSERT_EQ(result.hypotheses.size(), all.size()) << pattern;
      for (size_t i = 0; i < all.size(); ++i) {
        const Hypothesis& found = result.hypotheses[i];
        EXPECT_EQ(found.tokens, all[i].tokens) << pattern;
        EXPECT_EQ(found.finish_reason, all[i].finish_reason) << pattern;
        EXPECT_NEAR(found.cum_log_prob, all[i].cum_log_prob, 1e-4);
      }
      num_found += all.size();
    }
  }
  EXPECT_GT(num_found, 1000);
}

// As transformers' renormalize_logits after prefix_allowed_tokens_fn.
TEST(ConstrainedSearchTest, RenormalizedScoresAreThoseOfLegalTokens) {
  int num_other_orders = 0;
  for (const std::string& pattern : LetterPatterns()) {
    const std::vector<Hypothesis> all = AllOutputs(pattern, 4, true);
    const std::vector<Hypothesis> plain = AllOutputs(pattern, 4);
    Request request = SearchOf(std::ssize(all) + 2, 4);
    request.params.renormalize_logits = true;
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(ModelOfLetters(), request, nullptr,
                                           Constrain(*CompileRegex(pattern))));
    ASSERT_EQ(result.hypotheses.size(), all.size()) << pattern;
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Hypothesis& found = result.hypotheses[i];
      EXPECT_EQ(found.tokens, all[i].tokens) << pattern;
      EXPECT_NEAR(found.cum_log_prob, all[i].cum_log_prob, 1e-4);
      sum += std::exp(static_cast<double>(found.cum_log_prob));
      num_other_orders += found.tokens != plain[i].tokens;
    }
    EXPECT_NEAR(sum, 1, 1e-4) << pattern;
  }
  EXPECT_GT(num_other_orders, 10);
}

// Beam search among legal tokens by its definition: those of the k best
// candidates that end are kept, and the k best that do not live on.
std::vector<Hypothesis> SearchByDefinition(const ByteAutomaton& automaton,
                                           size_t num_beams, int max_length) {
  struct Found {
    Hypothesis hypothesis;
    bool ends = false;
  };
  std::vector<Hypothesis> live(1);
  std::vector<Hypothesis> ended;
  for (int length = 1; length <= max_length && !live.empty(); ++length) {
    std::vector<Found> candidates;
    for (const Hypothesis& beam : live) {
      std::vector<TokenId> history = {1, 2};
      history.insert(history.end(), beam.tokens.begin(), beam.tokens.end());
      const std::vector<float> log_probs =
          testing::LogSoftmax(ModelOfLetters()(history));
      const std::string before = SpeltBy(beam.tokens);
      for (TokenId token = 0; token < std::ssize(LetterTokens()); ++token) {
        const int room = max_length - length + 1;
        if (!MayFollow(automaton, before, token, room)) continue;
        Found& found = candidates.emplace_back();
        found.hypothesis = beam;
        found.hypothesis.tokens.push_back(token);
        found.hypothesis.cum_log_prob += log_probs[token];
        found.ends =
            token == kEosId ||
            MustEnd(automaton, before + LetterTokens()[token], room - 1);
      }
    }
    std::ranges::stable_sort(candidates, [](const Found& x, const Found& y) {
      return x.hypothesis.cum_log_prob > y.hypothesis.cum_log_prob;
    });
    live.clear();
    for (size_t rank = 0; rank < candidates.size(); ++rank) {
      const auto& [hypothesis, ends] = candidates[rank];
      if (rank < num_beams && ends) ended.push_back(hypothesis);
      if (!ends && live.size() < num_beams) live.push_back(hypothesis);
    }
  }
  std::ranges::stable_sort(ended, [](const Hypothesis& x, const Hypothesis& y) {
    return x.cum_log_prob / x.tokens.size() > y.cum_log_prob / y.tokens.size();
  });
  if (ended.size() > num_beams) ended.resize(num_beams);
  return ended;
}

TEST(ConstrainedSearchTest, FewBeamsFindWhatTheDefinitionFinds) {
  for (const std::string& pattern : LetterPatterns()) {
    const ByteAutomaton automaton = *CompileRegex(pattern);
    const auto constraint = Constrain(automaton);
    for (const int num_beams : {2, 3, 5, 8}) {
      const std::vector<Hypothesis> expected =
          SearchByDefinition(automaton, num_beams, 5);
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(ModelOfLetters(), SearchOf(num_beams, 5), nullptr,
                            constraint));
      ASSERT_EQ(result.hypotheses.size(), expected.size()) << pattern;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(result.hypotheses[i].tokens, expected[i].tokens) << pattern;
      }
    }
  }
}

// Each way to decode gives outputs that the definition has.
TEST(ConstrainedSearchTest, AllWaysToDecodeGiveTextsOfTheLanguage) {
  for (const std::string& pattern : LetterPatterns()) {
    std::map<std::vector<TokenId>, FinishReason> all;
    for (const Hypothesis& output : AllOutputs(pattern, 5)) {
      all[output.tokens] = output.finish_reason;
    }
    const auto constraint = Constrain(*CompileRegex(pattern));
    for (int way = 0; way < 6; ++way) {
      Request request = SearchOf(way < 2 ? 1 : 6, 5);
      GenerationParams& params = request.params;
      if (way == 1) params.num_return_sequences = 30;
      if (way == 1 || way == 4) params.do_sample = true;
      if (way == 3) params.num_beam_groups = 3;
      if (way == 3) params.diversity_penalty = 0.5;
      if (way == 5) params.stochastic = true;
      params.seed = 10 + way;
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
      EXPECT_FALSE(result.hypotheses.empty()) << pattern << " " << way;
      for (const Hypothesis& found : result.hypotheses) {
        const auto output = all.find(found.tokens);
        ASSERT_NE(output, all.end()) << pattern << " " << way;
        EXPECT_EQ(found.finish_reason, output->second) << pattern;
      }
    }
  }
}

// Samples follow the product of the probabilities among legal tokens.
void CheckSamples(const std::string& pattern, int max_length) {
  const auto constraint = Constrain(*CompileRegex(pattern));
  std::map<std::vector<TokenId>, double> expected;
  for (const Hypothesis& output : AllOutputs(pattern, max_length)) {
    double probability = 1;
    std::vector<TokenId> history = {1, 2};
    Constraint::State state = constraint->start();
    int room = max_length;
    for (const TokenId token : output.tokens) {
      const std::vector<float> logits = ModelOfLetters()(history);
      double sum = 0;
      for (const TokenId legal : constraint->LegalTokens(state, room).tokens) {
        sum += std::exp(double{logits[legal]});
      }
      probability *= std::exp(double{logits[token]}) / sum;
      history.push_back(token);
      state = constraint->Advance(state, token);
      --room;
    }
    expected[output.tokens] = probability;
  }
  constexpr int kNumSamples = 4000;
  Request request = SearchOf(1, max_length);
  request.params.do_sample = true;
  request.params.num_return_sequences = kNumSamples;
  ASSERT_OK_AND_ASSIGN(
      const Result result,
      SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
  std::map<std::vector<TokenId>, int> counts;
  for (const Hypothesis& found : result.hypotheses) ++counts[found.tokens];
  double chi_square = 0;
  double total = 0;
  for (const auto& [tokens, probability] : expected) {
    const double mean = probability * kNumSamples;
    total += probability;
    chi_square += (counts[tokens] - mean) * (counts[tokens] - mean) / mean;
  }
  EXPECT_NEAR(total, 1, 1e-6);
  // Beyond it lies one in 10^5 with so many degrees of freedom.
  const double freedom = static_cast<double>(expected.size()) - 1;
  EXPECT_LT(chi_square, freedom + 4.3 * std::sqrt(2 * freedom) + 12);
}

TEST(ConstrainedSearchTest, SamplesFollowTheRenormalizedProduct) {
  CheckSamples("(ab|abc|c)c?", 5);
  // With room for two and three tokens not all may follow.
  CheckSamples("(ab|abc|c)c?", 2);
  CheckSamples("(a|bc)*d", 3);
}

// With less than the least room a request is refused, and with it each text has
// the fewest tokens.
TEST(ConstrainedSearchTest, OutputsCompleteATextInTheLeastRoom) {
  for (const std::string& pattern : LetterPatterns()) {
    const ByteAutomaton automaton = *CompileRegex(pattern);
    const auto constraint = Constrain(automaton);
    const int least = constraint->MinRoom(/*is_empty_text_legal=*/true);
    EXPECT_EQ(least, std::max(1, TokensToComplete(automaton, ""))) << pattern;
    for (const bool ends_by_id : {true, false}) {
      const auto with_ids =
          Constrain(automaton, ends_by_id ? std::vector<TokenId>{kEosId}
                                          : std::vector<TokenId>{});
      const int room = with_ids->MinRoom(true);
      Request request = SearchOf(1, room);
      request.params.ignore_eos = !ends_by_id;
      request.params.do_sample = true;
      request.params.num_return_sequences = 50;
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(ModelOfLetters(), request, nullptr, with_ids));
      for (const Hypothesis& found : result.hypotheses) {
        EXPECT_TRUE(automaton.Match(SpeltBy(found.tokens)).in_language);
        EXPECT_NE(found.finish_reason, FinishReason::kLength);
        EXPECT_LE(found.tokens.size(), room);
      }
    }
  }
}

// No end id before min_new_tokens, and none is necessary at the end of the
// room.
TEST(ConstrainedSearchTest, OutputsCompleteATextWithAllLimits) {
  for (const std::string pattern : {"(ab)*", "[abc]*", "(ab?c?)*"}) {
    const ByteAutomaton automaton = *CompileRegex(pattern);
    for (int way = 0; way < 12; ++way) {
      const bool ends_by_id = way % 2 == 0;
      const auto constraint =
          Constrain(automaton, ends_by_id ? std::vector<TokenId>{kEosId}
                                          : std::vector<TokenId>{});
      for (const int max_new_tokens : {3, 4, 7}) {
        Request request = SearchOf(way < 4 ? 1 : 6, max_new_tokens);
        GenerationParams& params = request.params;
        params.ignore_eos = !ends_by_id;
        params.min_new_tokens = ends_by_id ? max_new_tokens : 0;
        if (way < 4) params.num_return_sequences = 20;
        if (way < 4 || way / 2 == 2) params.do_sample = true;
        if (way / 2 == 1) params.top_k = 2;
        if (way / 2 == 3) params.num_beam_groups = 3;
        if (way / 2 == 4) params.stochastic = true;
        ASSERT_OK_AND_ASSIGN(
            const Result result,
            SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
        EXPECT_FALSE(result.hypotheses.empty()) << pattern << " " << way;
        for (const Hypothesis& found : result.hypotheses) {
          EXPECT_TRUE(automaton.Match(SpeltBy(found.tokens)).in_language)
              << pattern << " " << way << " " << SpeltBy(found.tokens);
          EXPECT_EQ(found.finish_reason, FinishReason::kStop) << pattern;
        }
      }
    }
  }
}

// A request whose states need too much memory ends with that error.
TEST(ConstrainedSearchTest, ASearchEndsWhereListsTakeTooMuchMemory) {
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(*CompileRegex("[ab]+")),
      std::make_shared<const TokenVocabulary>(LetterTokens()));
  ASSERT_OK(texts);
  ASSERT_OK_AND_ASSIGN(
      const std::shared_ptr<const Constraint> constraint,
      TextConstraint::Make(*std::move(texts), {kEosId}, /*max_list_bytes=*/1));
  const Request request = SearchOf(2, 5);
  GroupSearch search(request, *MakeSelectionParams(request.params), constraint,
                     nullptr);
  PlanSelection selection;
  search.strategy().DescribeSelection(&selection);
  EXPECT_THAT(search.Advance({.candidates = {{0, 1, -1.0f}}}, nullptr),
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::HasSubstr("constraint")));
}

// After "db" a text may be read in too many ways, so the tokens after "d" are
// not known.
TEST(ConstrainedSearchTest, ASearchEndsWhereAGrammarIsTooAmbiguous) {
  std::string grammar = "root ::= \"d\" q\nq ::= \"b\" s | \"c\"\ns ::= r0";
  for (int i = 1; i < 300; ++i) grammar += Concat(" | r", i);
  for (int i = 0; i < 300; ++i) {
    grammar += Concat("\nr", i, " ::= \"a\" r", i, " \"", i, "\" | \"c\"");
  }
  absl::StatusOr<GrammarLanguage> language = CompileGbnf(grammar);
  ASSERT_OK(language);
  ASSERT_OK_AND_ASSIGN(
      const std::shared_ptr<const Constraint> constraint,
      PushdownConstraint::Make(
          std::make_shared<const PushdownAutomaton>(
              std::get<PushdownAutomaton>(*std::move(language))),
          std::make_shared<const TokenVocabulary>(
              std::vector<std::string>{"", "a", "b", "c", "d"}),
          {.end_ids = {kEosId}}));
  const Request request = SearchOf(2, 5);
  GroupSearch search(request, *MakeSelectionParams(request.params), constraint,
                     nullptr);
  PlanSelection selection;
  search.strategy().DescribeSelection(&selection);
  ASSERT_OK(search.Advance({.candidates = {{0, 4, -1.0f}}}, nullptr));
  search.UpdateSelection(&selection);
  EXPECT_THAT(search.Advance({.candidates = {}}, nullptr),
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::HasSubstr("constraint.grammar")));
}

// The lists of a language that recurs, and the states that they keep, count to
// the byte, also if it has tables for devices.
TEST(ConstrainedSearchTest, StatesOfAGrammarCount) {
  const auto constrain = [](int64_t max_list_bytes) {
    GrammarLanguage language =
        *CompileGbnf("root ::= \"a\" root \"b\" | \"c\" root \"c\" | \"d\"");
    return *PushdownConstraint::Make(
        std::make_shared<const PushdownAutomaton>(
            std::get<PushdownAutomaton>(std::move(language))),
        std::make_shared<const TokenVocabulary>(
            std::vector<std::string>{"", "a", "b", "c", "d", "aa", "ac"}),
        {.end_ids = {kEosId}, .max_list_bytes = max_list_bytes});
  };
  const std::vector<TokenId> path = {1, 5, 3, 6, 1, 1, 3, 5};
  constexpr int kRoom = 60;
  const auto unbounded = constrain(int64_t{1} << 30);
  ASSERT_TRUE(unbounded->tables().has_value());
  int64_t num_bytes = 0;
  std::set<const TokenId*> lists;
  std::set<Constraint::State> states;
  Constraint::State state = unbounded->start();
  for (int i = 0; i < std::ssize(path); ++i) {
    const Constraint::Legal legal = unbounded->LegalTokens(state, kRoom - i);
    if (lists.insert(legal.tokens.data()).second) {
      num_bytes += static_cast<int64_t>(legal.tokens.size_bytes());
    }
    for (const Constraint::State kept : legal.states) {
      if (states.insert(kept).second) num_bytes += unbounded->StateBytes(kept);
    }
    state = unbounded->Advance(state, path[i]);
  }
  for (const int64_t too_few : {0, 1}) {
    const Request request = SearchOf(2, kRoom);
    GroupSearch search(request, *MakeSelectionParams(request.params),
                       constrain(num_bytes - too_few), nullptr);
    absl::Status status = absl::OkStatus();
    for (const TokenId token : path) {
      ASSERT_OK(status);
      PlanSelection selection;
      search.strategy().DescribeSelection(&selection);
      status = search.Advance({.candidates = {{0, token, -1.0f}}}, nullptr);
    }
    EXPECT_EQ(status.ok(), too_few == 0) << status;
  }
}

// With masks of the executor, only searches that count candidates need lists:
// not samples, and best-first beams only at first and after a result that
// lacked some.
TEST(ConstrainedSearchTest, SearchesThatCountCandidatesNeedLists) {
  const auto constraint = Constrain(*CompileRegex("(a|b|c)+"));
  const auto needs_lists = [&](const std::function<void(Request*)>& change) {
    Request request = SearchOf(2, 6);
    change(&request);
    GroupSearch search(request,
                       *MakeSelectionParams(request.params, {}, constraint,
                                            /*has_token_masks=*/true),
                       constraint, nullptr);
    PlanSelection selection;
    search.strategy().DescribeSelection(&selection);
    EXPECT_OK(search.Advance({.candidates = {{0, 1, -1.0f}, {0, 2, -1.5f}}},
                             nullptr));
    const bool needs = search.strategy().needs_lists();
    search.AskForAll();
    EXPECT_TRUE(search.strategy().needs_lists() ||
                KindOf(request.params) == SelectionKind::kDraws);
    return needs;
  };
  EXPECT_FALSE(needs_lists([](Request*) {}));
  EXPECT_FALSE(needs_lists([](Request* request) {
    request->params.num_beams = 1;
    request->params.do_sample = true;
    request->params.num_return_sequences = 2;
  }));
  EXPECT_TRUE(
      needs_lists([](Request* request) { request->params.stochastic = true; }));
  EXPECT_TRUE(needs_lists([](Request* request) {
    request->params.num_beam_groups = 2;
    request->params.diversity_penalty = 1;
  }));
}

// Devices find legal tokens by places, and the host by lists: a selection has
// either, and they agree.
TEST(ConstrainedSearchTest, PlacesAreThoseOfTheLists) {
  const auto constraint = *TextConstraint::Make(
      *TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(*CompileRegex("(a|bc*|dd)+")),
          std::make_shared<const TokenVocabulary>(LetterTokens())),
      {kEosId});
  constexpr TokenId kA = 1, kB = 2, kC = 3, kD = 8;
  Request request = SearchOf(2, 6);
  const auto lists = MakeSelectionParams(request.params, {}, constraint);
  EXPECT_FALSE(lists->constraint.has_value());
  const auto tables = MakeSelectionParams(request.params, {}, constraint,
                                          /*has_token_masks=*/true);
  EXPECT_EQ(tables->constraint->next, constraint->tables()->next);
  using Describe = std::function<void(PlanSelection*)>;
  const auto expect_places = [&](const Describe& describe) -> PlanSelection {
    PlanSelection by_lists;
    by_lists.params = lists;
    describe(&by_lists);
    EXPECT_TRUE(by_lists.places.empty());
    PlanSelection by_tables;
    by_tables.params = tables;
    describe(&by_tables);
    EXPECT_TRUE(by_tables.allowed.empty());
    EXPECT_EQ(std::ssize(by_tables.places), by_tables.num_logits());
    EXPECT_EQ(by_tables.places.size(), by_lists.allowed.size());
    for (size_t row = 0; row < by_tables.places.size(); ++row) {
      const auto [state, room] = by_tables.places[row];
      if (state == Constraint::kNone) {
        EXPECT_TRUE(by_lists.allowed[row].empty());
        continue;
      }
      EXPECT_EQ(by_lists.allowed[row].data(),
                constraint->LegalTokens(state, room).tokens.data());
    }
    return by_tables;
  };
  GroupSearch beams(request, *tables, constraint, nullptr);
  for (const TokenId token : {kA, kB, kC, kD}) {
    expect_places([&](PlanSelection* selection) {
      beams.strategy().DescribeSelection(selection);
    });
    ASSERT_OK(beams.Advance({.candidates = {{0, token, -1.0f}, {0, kD, -2.0f}}},
                            nullptr));
  }
  request.params = {};
  request.params.max_new_tokens = 6;
  GroupSearch sample(request, *MakeSelectionParams(request.params), constraint,
                     nullptr);
  ASSERT_OK(sample.Advance({.candidates = {{0, kD, -1.0f}}}, nullptr));
  const PlanSelection drafted = expect_places([&](PlanSelection* selection) {
    sample.strategy().DescribeSelection(selection);
    sample.strategy().DescribeDrafts({{kD, kA, kC, kB}}, selection);
  });
  EXPECT_EQ(drafted.places[3], ConstraintPlace());
}

// After "b" a list is needed that is beyond the memory.
TEST(ConstrainedSearchTest, OnlyARequestThatNeedsMoreMemoryEnds) {
  const auto constrain = [](int64_t max_list_bytes) {
    return *TextConstraint::Make(
        *TokenConstraint::Make(
            std::make_shared<const ByteAutomaton>(*CompileRegex("d*(bc*)?")),
            std::make_shared<const TokenVocabulary>(LetterTokens())),
        {kEosId}, max_list_bytes);
  };
  constexpr TokenId kB = 2;
  constexpr TokenId kC = 3;
  constexpr TokenId kD = 8;
  // The list of the start, which is also that after "d".
  const auto unbounded = constrain(1 << 20);
  const std::shared_ptr<const Constraint> constraint =
      constrain(static_cast<int64_t>(
          unbounded->LegalTokens(unbounded->start(), 100).tokens.size_bytes()));
  const Request request = SearchOf(2, 9);
  const auto search = [&] {
    return std::make_unique<GroupSearch>(
        request, *MakeSelectionParams(request.params), constraint, nullptr);
  };
  const auto advance = [](GroupSearch& of, TokenId token) {
    PlanSelection selection;
    of.strategy().DescribeSelection(&selection);
    return of.Advance({.candidates = {{0, token, -1.0f}}}, nullptr);
  };
  const auto within = search();
  const auto beyond = search();
  EXPECT_OK(advance(*within, kD));
  EXPECT_OK(advance(*within, kD));
  EXPECT_OK(advance(*beyond, kD));
  EXPECT_OK(advance(*beyond, kB));
  const absl::Status too_many = advance(*beyond, kC);
  EXPECT_THAT(too_many,
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::StartsWith("constraint must need")));
  EXPECT_TRUE(IsPermanent(too_many));
  // Lists that another request has needed do not count.
  EXPECT_OK(advance(*within, kD));
  const auto later = search();
  EXPECT_OK(advance(*later, kD));
  EXPECT_OK(advance(*later, kD));
}

// Together they need more than one request may.
TEST(ConstrainedSearchTest, ListsThatAnotherRequestNeedsDoNotCount) {
  const auto constrain = [](int64_t max_list_bytes) {
    return *TextConstraint::Make(
        *TokenConstraint::Make(
            std::make_shared<const ByteAutomaton>(*CompileRegex("b+|c+|d+a")),
            std::make_shared<const TokenVocabulary>(LetterTokens())),
        {kEosId}, max_list_bytes);
  };
  constexpr TokenId kB = 2;
  constexpr TokenId kC = 3;
  const auto unbounded = constrain(1 << 20);
  const auto bytes_after = [&](TokenId token) {
    const auto state = unbounded->Advance(unbounded->start(), token);
    return static_cast<int64_t>(
        unbounded->LegalTokens(state, 100).tokens.size_bytes());
  };
  const auto bytes_of_start = static_cast<int64_t>(
      unbounded->LegalTokens(unbounded->start(), 100).tokens.size_bytes());
  const std::shared_ptr<const TextConstraint> constraint =
      constrain(bytes_of_start + std::max(bytes_after(kB), bytes_after(kC)));
  for (const TokenId token : {kB, kC, kB}) {
    const Request request = SearchOf(2, 9);
    GroupSearch search(request, *MakeSelectionParams(request.params),
                       constraint, nullptr);
    for (int i = 0; i < 3; ++i) {
      PlanSelection selection;
      search.strategy().DescribeSelection(&selection);
      EXPECT_OK(search.Advance({.candidates = {{0, token, -1.0f}}}, nullptr));
    }
  }
}

// Choices that tokens spell in one way are allowed sequences, with an EOS where
// a choice begins another one.
TEST(ConstrainedSearchTest, ChoicesAreAllowedSequencesWhereTheyAreSpeltOnce) {
  const std::vector<std::string> texts = {"d", "dd", "cd", "ddc", "cdcc"};
  Request with_sequences = SearchOf(5, 6);
  with_sequences.params.allowed_sequences = {
      {8, kEosId}, {8, 8, kEosId}, {3, 8, kEosId}, {8, 8, 3}, {3, 8, 3, 3}};
  const auto constraint = Constrain(*CompileChoice(texts));
  for (int way = 0; way < 4; ++way) {
    Request request = with_sequences;
    if (way == 1) request.params.num_beams = 2;
    if (way == 1) request.params.num_return_sequences = 2;
    if (way == 2) request.params.stochastic = true;
    if (way == 3) request.params.num_beams = 1;
    if (way == 3) request.params.do_sample = true;
    ASSERT_OK_AND_ASSIGN(const Result sequences,
                         SearchAsTheEngine(ModelOfLetters(), request));
    request.params.allowed_sequences.reset();
    ASSERT_OK_AND_ASSIGN(
        const Result choices,
        SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
    ASSERT_EQ(choices.hypotheses.size(), sequences.hypotheses.size());
    for (size_t i = 0; i < choices.hypotheses.size(); ++i) {
      EXPECT_EQ(choices.hypotheses[i].tokens, sequences.hypotheses[i].tokens);
      EXPECT_EQ(choices.hypotheses[i].score, sequences.hypotheses[i].score);
    }
  }
}

// An id that ends sequences is no part of a text, even if it has one.
TEST(ConstrainedSearchTest, AStopIdEndsATextWhereItMayEnd) {
  Request request = SearchOf(8, 3);
  request.params.stop_token_ids = {8};
  std::vector<std::string> vocabulary = LetterTokens();
  vocabulary[8] = "";
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(*CompileRegex("a|ad?a*")),
      std::make_shared<const TokenVocabulary>(std::move(vocabulary)));
  ASSERT_OK(texts);
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       TextConstraint::Make(*std::move(texts), {kEosId, 8}));
  ASSERT_OK_AND_ASSIGN(
      const Result result,
      SearchAsTheEngine(ModelOfLetters(), request, nullptr, constraint));
  int num_stopped = 0;
  for (const Hypothesis& found : result.hypotheses) {
    const auto stop = std::ranges::find(found.tokens, 8);
    if (stop == found.tokens.end()) continue;
    EXPECT_EQ(stop + 1, found.tokens.end());
    EXPECT_GE(found.tokens.size(), 2);
    EXPECT_EQ(found.finish_reason, FinishReason::kStop);
    ++num_stopped;
  }
  EXPECT_GT(num_stopped, 0);
}

}  // namespace
}  // namespace espalier
