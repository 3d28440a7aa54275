// Strings and repetitions with a counter, against the same without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_arrays.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/start_after.h"
#include "constrain/text_constraint.h"
#include "tests/constrain/random_patterns.h"
#include "tests/constrain/random_schemas.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::RandomSchema;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using State = Constraint::State;

constexpr int kMuchRoom = 1'000'000;

// Token 0 adds no text, and ends it. Others have several characters, parts of
// some, escapes, and the ends of strings.
std::vector<std::string> MakeStringTokens() {
  std::vector<std::string> tokens = {""};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  for (const char* const token :
       {"aa",     "aaa",    "ab",   "abab",     "aaaaaaa",  "b\"",
        "a\",",   "a\",\"", "\"a",  "\"aa\"",   "{\"",      "\":",
        "\": \"", "[\"",    "\"]",  "a\"]",     "\"}",      "\",\"b",
        "\\n",    "\\\"",   "a\\n", "\\u001",   "\\u00",    "é",
        "éa",     "aé",     "\xA9", "a\xC3",    "\xE2\x82", "\x82\xAC",
        "€",      "😀",      "😀a",   "\xF0\x9F", "12",       "null",
        "true"}) {
    tokens.emplace_back(token);
  }
  return tokens;
}

const std::vector<std::string>& StringTokens() {
  static const auto* const tokens =
      new std::vector<std::string>(MakeStringTokens());
  return *tokens;
}

const std::shared_ptr<const TokenVocabulary>& StringVocabulary() {
  static const auto* const vocabulary =
      new std::shared_ptr<const TokenVocabulary>(
          std::make_shared<const TokenVocabulary>(StringTokens()));
  return *vocabulary;
}

absl::StatusOr<std::shared_ptr<const TextConstraint>> UnrolledTexts(
    ByteAutomaton automaton) {
  ASSIGN_OR_RETURN(TokenConstraint texts,
                   TokenConstraint::Make(std::make_shared<const ByteAutomaton>(
                                             std::move(automaton)),
                                         StringVocabulary()));
  return TextConstraint::Make(std::move(texts), {0});
}

absl::StatusOr<std::shared_ptr<const PushdownConstraint>> CountedTexts(
    PushdownAutomaton automaton) {
  return PushdownConstraint::Make(
      std::make_shared<const PushdownAutomaton>(std::move(automaton)),
      StringVocabulary(), {.end_ids = {0}});
}

std::shared_ptr<const PushdownConstraint> CountedSchema(
    const std::string& schema, int64_t max_unrolled_length = 16) {
  auto language = CompileJsonSchemaWithCalls(
      schema, {.max_unrolled_length = max_unrolled_length,
               .max_unrolled_least = max_unrolled_length,
               .max_unrolled_lengths = 0});
  EXPECT_TRUE(language.ok()) << language.status();
  auto constraint =
      CountedTexts(std::get<PushdownAutomaton>(*std::move(language)));
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return *std::move(constraint);
}

// Compares the tokens that are legal in all states that tokens lead to, as far
// as `max_states`.
void ExpectSameTokens(const Constraint& counted, const Constraint& unrolled,
                      int max_states) {
  std::map<std::pair<State, State>, std::string> reached;
  std::vector<std::pair<State, State>> queue;
  const auto add = [&](State a, State b, const std::string& text) {
    const bool is_new = reached.try_emplace({a, b}, text).second;
    if (is_new && std::ssize(queue) < max_states) queue.emplace_back(a, b);
  };
  add(counted.start(), unrolled.start(), "");
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [a, b] = queue[i];
    const std::string text = reached.at(queue[i]);
    const Constraint::Legal legal = counted.LegalTokens(a, kMuchRoom);
    const Constraint::Legal wanted = unrolled.LegalTokens(b, kMuchRoom);
    ASSERT_EQ(legal.error, nullptr);
    ASSERT_TRUE(std::ranges::equal(legal.tokens, wanted.tokens))
        << "after " << text;
    ASSERT_EQ(legal.num_last, wanted.num_last) << "after " << text;
    for (const int room : {1, 2, 3, 5, 8}) {
      const Constraint::Legal near = counted.LegalTokens(a, room);
      EXPECT_TRUE(std::ranges::includes(unrolled.LegalTokens(b, room).tokens,
                                        near.tokens));
    }
    for (TokenId t = 0; t < std::ssize(StringTokens()); ++t) {
      const State next = counted.Advance(a, t);
      const State other = unrolled.Advance(b, t);
      ASSERT_EQ(next == Constraint::kNone, other == Constraint::kNone)
          << t << " after " << text;
      if (next == Constraint::kNone) continue;
      EXPECT_EQ(counted.ends(next, kMuchRoom), unrolled.ends(other, kMuchRoom));
      EXPECT_EQ(counted.accepts(next, kMuchRoom),
                unrolled.accepts(other, kMuchRoom));
      if (t > 0) add(next, other, text + StringTokens()[t]);
    }
  }
}

// Draws legal tokens until the sequence ends. Returns the text.
std::string WalkThrough(const Constraint& constraint, int room,
                        std::mt19937_64& random) {
  std::string text;
  State state = constraint.start();
  for (;; --room) {
    const Constraint::Legal legal = constraint.LegalTokens(state, room);
    if (legal.tokens.empty()) return "no token after " + text;
    const TokenId token = legal.tokens[random() % legal.tokens.size()];
    text += StringTokens()[token];
    state = constraint.Advance(state, token);
    if (state == Constraint::kNone) return "illegal: " + text;
    if (!constraint.ends(state, room - 1)) continue;
    return constraint.accepts(state, room - 1) ? text : "outside: " + text;
  }
}

void ExpectSameLanguage(const std::string& schema, int64_t max_unrolled_length,
                        int max_states, int* num_counted) {
  SCOPED_TRACE(Concat(schema, " beyond ", max_unrolled_length));
  const CompileLimits limits = {.max_states = 20'000, .max_steps = 8'000'000};
  auto automaton = CompileJsonSchema(schema, {.max_depth = 1}, limits);
  // Two fifths of the steps are for a language without other calls.
  auto language = CompileJsonSchemaWithCalls(
      schema,
      {.max_depth = 1,
       .max_unrolled_length = max_unrolled_length,
       .max_unrolled_least = max_unrolled_length,
       .max_unrolled_lengths = 0},
      {.max_states = 50'000, .max_steps = 40'000'000});
  if (!automaton.ok() || !language.ok()) {
    EXPECT_TRUE(!automaton.ok() || automaton->num_states() > 5'000)
        << language.status();
    return;
  }
  if (auto* const plain = std::get_if<ByteAutomaton>(&*language)) {
    EXPECT_TRUE(*plain == *automaton);
    return;
  }
  ++*num_counted;
  const ByteAutomaton texts = *automaton;
  ASSERT_OK_AND_ASSIGN(const auto unrolled,
                       UnrolledTexts(*std::move(automaton)));
  ASSERT_OK_AND_ASSIGN(
      const auto counted,
      CountedTexts(std::get<PushdownAutomaton>(*std::move(language))));
  ExpectSameTokens(*counted, *unrolled, max_states);
  std::mt19937_64 random(1);
  const int least = counted->MinRoom(true);
  EXPECT_GE(least, unrolled->MinRoom(true));
  for (int i = 0; i < 20; ++i) {
    const std::string text = WalkThrough(*counted, least + i / 2, random);
    EXPECT_TRUE(texts.Match(text).in_language) << text;
  }
}

TEST(CountedStringsTest, TokensAreThoseOfUnrolledStrings) {
  int num_counted = 0;
  for (const std::string schema : {
           R"({"type": "string", "maxLength": 9})",
           R"({"type": "string", "maxLength": 10, "pattern": "^[ab]*\"?$"})",
           R"({"type": "string", "maxLength": 4, "pattern": "^(aba|é)*$"})",
           R"({"type": "string", "maxLength": 4, "pattern": "a"})",
           R"({"type": "string", "maxLength": 6, "minLength": 3})",
           R"({"type": ["string", "integer"], "maxLength": 3})",
           R"({"type": "string", "not": {"minLength": 4}})",
           R"({"type": "string", "minLength": 5})",
           R"({"type": "string", "minLength": 9})",
           R"({"type": "string", "minLength": 4, "maxLength": 4})",
           R"({"type": "string", "minLength": 4, "maxLength": 5})",
           R"({"type": "string", "minLength": 4, "maxLength": 20})",
           R"({"type": "string", "minLength": 4, "pattern": "^[ab]*\"?$"})",
           R"({"type": "string", "minLength": 4, "pattern": "^(aba|é)*$"})",
           R"({"type": "string", "minLength": 5, "pattern": "^(aba|é)*b$"})",
           R"({"type": "string", "minLength": 4, "pattern": "a"})",
           R"({"type": "string", "minLength": 4, "pattern": "^a*(b{0,9})$"})",
           R"({"type": "string", "minLength": 5, "maxLength": 7,
               "pattern": "^(aa)*$"})",
           R"({"type": "string", "minLength": 4, "pattern": "^[é€😀\\n]*$"})",
           R"({"type": "string", "minLength": 9, "pattern": "^a{3}$"})",
           R"({"type": ["string", "integer"], "minLength": 4})",
           R"({"type": "string", "not": {"maxLength": 4}})",
           R"({"type": "string", "anyOf": [{"pattern": "^a", "minLength": 5},
                                           {"maxLength": 3}]})",
           R"({"minLength": 4})",
           R"({"items": {"type": "string", "minLength": 3}, "type": "array"})",
           R"({"type": "object", "additionalProperties": false,
               "required": ["b"], "properties": {
                 "a": {"type": "string", "minLength": 3},
                 "b": {"type": "string", "minLength": 4, "maxLength": 6}}})",
           R"({"type": "object", "additionalProperties": {"type": "null"},
               "propertyNames": {"minLength": 3}})",
           R"({"type": "string", "anyOf": [{"pattern": "^a", "maxLength": 5},
                                           {"pattern": "b$", "maxLength": 3},
                                           {"maxLength": 2}]})",
           R"({"type": "string",
               "anyOf": [{"maxLength": 3}, {"pattern": "^a*$"}]})",
           R"({"type": "string", "oneOf": [{"maxLength": 2},
                                           {"maxLength": 4}]})",
           R"({"enum": ["aaaa", "b", "é"], "maxLength": 3})",
           R"({"maxLength": 3})",
           R"({"items": {"type": "string", "maxLength": 3}, "type": "array"})",
           R"({"type": "array", "contains": {"maxLength": 2}, "maxItems": 2,
               "items": {"type": "string"}})",
           R"({"type": "object", "additionalProperties": false,
               "required": ["b"], "properties": {
                 "a": {"type": "string", "maxLength": 3},
                 "b": {"type": "string", "maxLength": 4, "pattern": "^a*"}}})",
           R"({"type": "object", "propertyNames": {"maxLength": 3},
               "properties": {"a": {"maxLength": 2}},
               "additionalProperties": {"type": "null"}})",
           R"({"type": "object", "maxProperties": 1,
               "patternProperties": {"^a": {"type": "null"}},
               "propertyNames": {"maxLength": 3}})",
       }) {
    for (const int64_t max_unrolled_length : {0, 1, 2, 3, 8}) {
      ExpectSameLanguage(schema, max_unrolled_length, 400, &num_counted);
    }
  }
  EXPECT_GT(num_counted, 40);
}

TEST(CountedStringsTest, RandomSchemasHaveTheirTokens) {
  int num_counted = 0;
  const int num_schemas = Cases(300, 60);
  for (int i = 0; i < num_schemas; ++i) {
    std::mt19937_64 random(i);
    json::object schema = RandomSchema(6, random).as_object();
    if (i % 3 != 0) schema["maxLength"] = 1 + random() % 4;
    if (i % 3 != 1) schema["minLength"] = 1 + random() % 4;
    ExpectSameLanguage(WriteJson(schema), static_cast<int64_t>(random() % 2),
                       40, &num_counted);
  }
  EXPECT_GT(num_counted, num_schemas / 4);
}

std::string Copies(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

State AfterBytes(const Constraint& constraint, State state,
                 std::string_view text) {
  for (const char byte : text) {
    if (state == Constraint::kNone) return state;
    state = constraint.Advance(
        state, 1 + static_cast<TokenId>(static_cast<unsigned char>(byte)));
  }
  return state;
}

TEST(CountedStringsTest, ALongLimitIsExact) {
  const int max_length = Cases(100'000, 5'000);
  const auto constraint = CountedSchema(
      Concat(R"({"type": "string", "maxLength": )", max_length, "}"));
  for (const std::string text :
       {"a", "é", "€", "😀", "\\n", "\\\"", "\\u001f"}) {
    State state = AfterBytes(*constraint, constraint->start(), "\"");
    state = AfterBytes(*constraint, state, Copies(text, max_length));
    ASSERT_NE(state, Constraint::kNone) << text;
    EXPECT_EQ(AfterBytes(*constraint, state, text), Constraint::kNone) << text;
    EXPECT_EQ(AfterBytes(*constraint, state, "a"), Constraint::kNone) << text;
    state = AfterBytes(*constraint, state, "\"");
    ASSERT_NE(state, Constraint::kNone) << text;
    EXPECT_TRUE(constraint->ends(state, kMuchRoom));
  }
}

// Compares what tokens may follow, and texts that end near the least room.
void ExpectSameRegex(const std::string& pattern, bool is_counted) {
  SCOPED_TRACE(pattern);
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton texts, CompileRegex(pattern));
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language,
                       CompileRegexWithCalls(pattern, /*max_unrolled=*/1));
  auto* const automaton = std::get_if<PushdownAutomaton>(&language);
  ASSERT_EQ(automaton != nullptr, is_counted);
  if (!is_counted) {
    EXPECT_TRUE(std::get<ByteAutomaton>(language) == texts);
    return;
  }
  ASSERT_OK_AND_ASSIGN(const auto unrolled, UnrolledTexts(texts));
  ASSERT_OK_AND_ASSIGN(const auto counted, CountedTexts(std::move(*automaton)));
  ExpectSameTokens(*counted, *unrolled, 400);
  std::mt19937_64 random(1);
  const int least = counted->MinRoom(true);
  EXPECT_GE(least, unrolled->MinRoom(true));
  for (int i = 0; i < 20; ++i) {
    const std::string text = WalkThrough(*counted, least + i / 2, random);
    EXPECT_TRUE(texts.Match(text).in_language) << text;
  }
}

TEST(CountedStringsTest, RepetitionsHaveTheTokensOfUnrolledOnes) {
  for (const char* const pattern : {"a{0,5};",
                                    "a{1,9}b",
                                    "[ab]{3,7}\n",
                                    R"([a-zé€😀]{1,6}")",
                                    ".{0,4}\n",
                                    R"([ab]{0,6}[0-9]b")",
                                    R"("[^"]{0,7}")",
                                    "a{0,3}nb{0,4}a",
                                    R"((?:a{0,5}"|b{2,8}n)*)",
                                    "(?:[ab]{1,4},){3}",
                                    R"((?:a{1,3}|bb|)[0-9]{2,5}n)",
                                    R"(null|a{2,6}|\{[ab]{0,5}\})",
                                    R"((?:\[a{0,4}\]){0,5})",
                                    "(?:aa|b)[ab]{0,4}\"|é{2,5}a",
                                    "^a{0,5};",
                                    "a{0,5};$",
                                    R"(^"[ab]{0,7}"$)",
                                    R"(\Aa{1,4};\z)",
                                    "(?:xa{0,5});",
                                    "(?:^a{0,5};$)",
                                    "a{0,5}(?:;|b)",
                                    "a{0,5};+",
                                    "[ab]{0,5}n{1,4};{2,5}",
                                    "(?:a{0,4}(?:(;)))*"}) {
    ExpectSameRegex(pattern, /*is_counted=*/true);
  }
}

// They end the text, or a byte does not tell their end.
TEST(CountedStringsTest, RepetitionsWithoutAnEndHaveTheirTokens) {
  for (const char* const pattern :
       {"a{0,5}", "[ab]{3,7}", "a{0,5}b?", "[ab]{0,5}b", "[é]{0,5}ü",
        "[a-zé€😀]{1,6}[ab]?", "a{0,3}b{0,4}a{2,5}n", "[ab]{0,6}abb",
        "a|[ab]{2,5}(?:ba|é)?", "(?:a{0,4})?b?", "(?:a{0,4},|b)?",
        "x(?:[ab]{0,6}|é)(?:b|ab)", "[ab]{0,4}(?:;a{0,4})?", ".{1,4}"}) {
    ExpectSameRegex(pattern, /*is_counted=*/true);
  }
}

TEST(CountedStringsTest, OtherRepetitionsAreUnrolled) {
  // They may have two counts, or few.
  for (const char* const pattern :
       {"a*a{1,5}b", "(?:a{1,3}b?)*", "[ab]*b{2,9};", "(?:a|ab)[bc]{1,4};",
        "(?:ab){1,5};", "a{3};", "a{4,};", "a{1,2};"}) {
    ExpectSameRegex(pattern, /*is_counted=*/false);
  }
  // They have anchors.
  for (const char* const pattern :
       {"(?:^|x)a{0,5};", "(?:a{0,5};|^b)", "x?^a{0,5};", "a{0,5};(?:$|b)"}) {
    ExpectSameRegex(pattern, /*is_counted=*/false);
  }
}

TEST(CountedStringsTest, PatternsWithoutATextAreRefused) {
  for (const char* const pattern :
       {"a{0,1100};$b", "b$a{0,1100};", "a{0,1100};[0-9]{0,1100}$;",
        "a{0,5};^b", "a{0,1100};[^\\s\\S]",
        "[^\\d\\D](?:a{0,1100};)?b{2,9};"}) {
    SCOPED_TRACE(pattern);
    const absl::Status copied = CompileRegex(pattern).status();
    EXPECT_EQ(copied.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CompileRegexWithCalls(pattern, 1).status(), copied);
    EXPECT_EQ(CompileRegexLanguage(pattern).status(), copied);
  }
  EXPECT_EQ(CompileRegexLanguage("a{0,1048576}b[^\\s\\S]").status(),
            CompileRegex("[^\\s\\S]").status());
}

TEST(CountedStringsTest, RepetitionsOfAnEmptyClassAreTheEmptyText) {
  for (const char* const pattern :
       {R"([^\w\W]{0,17}[;x])", R"([ab]{0,4};(?:[^\s\S]{0,20};)?)",
        R"((?:[^\d\D]{0,9}[ab]{0,4};){2})"}) {
    const bool is_counted =
        std::string(pattern).find("[ab]") != std::string::npos;
    ExpectSameRegex(pattern, is_counted);
  }
  ASSERT_OK_AND_ASSIGN(
      const GrammarLanguage language,
      CompileRegexLanguage(R"("[^"]{0,1000000}"(?:[^\s\S]{0,20};)?)"));
  EXPECT_TRUE(std::holds_alternative<PushdownAutomaton>(language));
}

// A byte tells the end of their repetitions, so that a device has their masks.
TEST(CountedStringsTest, CountersComeBeforeManyCopies) {
  for (const char* const pattern :
       {R"("[^"]{0,1100}")", R"("[^"]{0,10000}")", "(?:x[a-z]{0,1000000});",
        "[a-z]{0,2000}(?:;|,)x?", "\\p{L}{1,200};", "^(?:\\d{0,90};){20}$",
        "(?:ab){0,9}x[a-z]{0,1100};", "[ab]{0,2000}[0-9]{1,2000};+"}) {
    ASSERT_OK_AND_ASSIGN(const GrammarLanguage language,
                         CompileRegexLanguage(pattern));
    const auto* const counted = std::get_if<PushdownAutomaton>(&language);
    ASSERT_NE(counted, nullptr) << pattern;
    EXPECT_LT(counted->num_states(), 700) << pattern;
    EXPECT_NE(PushdownArrays::Make(*counted, counted->bytes()), nullptr);
  }
}

// With a counter, these would be read in two ways at once.
TEST(CountedStringsTest, CopiesComeBeforeCountersWithSeveralWays) {
  for (const char* const pattern :
       {"[a-z]{0,1000};", "[a-z]{0,2000}", "[a-z]{0,2000}[aé]",
        "[a-z]{0,2000};|aaa[0-9]", "(?:ab){0,40000}x[a-z]{0,1100}"}) {
    ASSERT_OK_AND_ASSIGN(const GrammarLanguage language,
                         CompileRegexLanguage(pattern));
    EXPECT_TRUE(std::holds_alternative<ByteAutomaton>(language)) << pattern;
  }
  for (const char* const pattern :
       {".{0,1000000}", "[0-9]?[a-z]{0,1000000}(?:[aé]|y+)",
        "[a-z]{0,1000000};|aaa[0-9]"}) {
    ASSERT_OK_AND_ASSIGN(const GrammarLanguage language,
                         CompileRegexLanguage(pattern));
    const auto* const counted = std::get_if<PushdownAutomaton>(&language);
    ASSERT_NE(counted, nullptr) << pattern;
    EXPECT_LT(counted->num_states(), 40) << pattern;
  }
  // It would have more ways than the limit.
  EXPECT_THAT(CompileRegexLanguage(".{0,1000000}[a-z]{0,300}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its largest repetition is {0,1000000} at "
                                 "byte 1")));
}

// A count ends where no more characters may follow.
TEST(CountedStringsTest, ALongRepetitionAtTheEndIsExact) {
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language,
                       CompileRegexLanguage("x[aé]{1,300000}"));
  ASSERT_OK_AND_ASSIGN(
      const auto counted,
      CountedTexts(std::get<PushdownAutomaton>(std::move(language))));
  State state = AfterBytes(*counted, counted->start(), "x");
  EXPECT_EQ(counted->Advance(state, 0), Constraint::kNone);
  EXPECT_EQ(counted->MinRoom(true), 2);
  state = AfterBytes(*counted, state, Copies("é", 299'999));
  ASSERT_NE(state, Constraint::kNone);
  EXPECT_NE(counted->Advance(state, 0), Constraint::kNone);
  EXPECT_FALSE(counted->ends(state, 1));
  state = AfterBytes(*counted, state, "é");
  ASSERT_NE(state, Constraint::kNone);
  EXPECT_TRUE(counted->ends(state, kMuchRoom));
  EXPECT_TRUE(counted->accepts(state, kMuchRoom));
}

TEST(CountedStringsTest, RandomPatternsHaveTheirTexts) {
  std::mt19937_64 random(5);
  int num_counted = 0;
  const int num_patterns = Cases(400, 40);
  const std::vector<std::string> texts = testing::AllTexts("abc", 5);
  for (int i = 0; i < 2 * num_patterns; ++i) {
    constexpr const char* kAnchors[] = {"", "", "", "^", "(?:^|b)", "(?:$|b)?"};
    const std::string pattern =
        Concat(kAnchors[i < num_patterns ? 0 : random() % 6],
               testing::RandomPattern(3, random),
               kAnchors[i < num_patterns ? 0 : random() % 6], "[ab]{", i % 3,
               ",", i % 3 + 2 + i % 2, i % 2 == 0 ? "}c" : "}",
               testing::RandomPattern(4, random));
    SCOPED_TRACE(pattern);
    const absl::StatusOr<ByteAutomaton> unrolled = CompileRegex(pattern);
    const absl::StatusOr<GrammarLanguage> language =
        CompileRegexWithCalls(pattern, /*max_unrolled=*/1);
    ASSERT_EQ(language.ok(), unrolled.ok()) << language.status();
    if (!unrolled.ok()) continue;
    const auto* const counted = std::get_if<PushdownAutomaton>(&*language);
    if (counted == nullptr) {
      EXPECT_TRUE(std::get<ByteAutomaton>(*language) == *unrolled);
      continue;
    }
    ++num_counted;
    const PushdownConfigurations configurations(
        std::make_shared<const PushdownAutomaton>(*counted), counted->bytes());
    for (const std::string& text : texts) {
      const auto match = configurations.Match(text);
      const auto expected = unrolled->Match(text);
      ASSERT_EQ(match.in_language, expected.in_language) << text;
      ASSERT_EQ(match.num_matched, expected.num_matched) << text;
    }
  }
  EXPECT_GT(num_counted, num_patterns / 8);
}

TEST(CountedStringsTest, ALongRepetitionTakesFewStates) {
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language,
                       CompileRegexWithCalls("x[a-zé]{1,100000};", 1024));
  auto& automaton = std::get<PushdownAutomaton>(language);
  EXPECT_LT(automaton.num_states(), 20);
  ASSERT_OK_AND_ASSIGN(const auto counted, CountedTexts(std::move(automaton)));
  State state = AfterBytes(*counted, counted->start(), "x");
  EXPECT_EQ(AfterBytes(*counted, state, ";"), Constraint::kNone);
  for (const int num_letters : {1, 49'999, 50'000}) {
    state = AfterBytes(*counted, state, Copies("é", num_letters));
    ASSERT_NE(state, Constraint::kNone);
    EXPECT_NE(AfterBytes(*counted, state, ";"), Constraint::kNone);
  }
  EXPECT_EQ(AfterBytes(*counted, state, "\xC3"), Constraint::kNone);
  EXPECT_EQ(AfterBytes(*counted, state, "a"), Constraint::kNone);
  state = AfterBytes(*counted, state, ";");
  ASSERT_NE(state, Constraint::kNone);
  EXPECT_TRUE(counted->ends(state, kMuchRoom));
}

TEST(CountedStringsTest, ShortRepetitionsAreCountedWhereCopiesAreTooMany) {
  const CompileLimits limits = {.max_states = 1000};
  EXPECT_FALSE(
      CompileRegex("[a-z]{1,900};[0-9]{1,900};", RegexMatching::kWhole, limits)
          .ok());
  ASSERT_OK_AND_ASSIGN(
      const GrammarLanguage language,
      CompileRegexLanguage("[a-z]{1,900};[0-9]{1,900};", limits));
  EXPECT_LT(std::get<PushdownAutomaton>(language).num_states(), 20);
  EXPECT_THAT(CompileRegexLanguage("(?:ab){1,900}", limits),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "it needs more than 1000 states, the limit; its "
                       "largest repetition is {1,900} at byte 6"));
}

TEST(CountedStringsTest, CountsFarFromTheLimitHaveOneList) {
  const auto counted =
      CountedSchema(R"({"type": "string", "maxLength": 100000})");
  ASSERT_OK_AND_ASSIGN(
      ByteAutomaton strings,
      CompileJsonSchema(std::string_view(R"({"type": "string"})")));
  ASSERT_OK_AND_ASSIGN(const auto endless, UnrolledTexts(std::move(strings)));
  const auto begin = [](const Constraint& constraint) {
    return AfterBytes(constraint, constraint.start(), "\"");
  };
  const auto first = counted->LegalTokens(begin(*counted), kMuchRoom);
  EXPECT_TRUE(std::ranges::equal(
      first.tokens, endless->LegalTokens(begin(*endless), kMuchRoom).tokens));
  State state = begin(*counted);
  int64_t bytes_before = 0;
  for (int count = 1; count <= 100'000; ++count) {
    state = AfterBytes(*counted, state, "a");
    if (count % 1000 != 0 || count == 100'000) continue;
    const auto legal = counted->LegalTokens(state, kMuchRoom);
    EXPECT_EQ(legal.tokens.data(), first.tokens.data()) << count;
    EXPECT_EQ(legal.states.data(), first.states.data()) << count;
    EXPECT_EQ(counted->LegalTokens(state, 2).tokens.data(),
              counted->LegalTokens(begin(*counted), 2).tokens.data());
    if (bytes_before == 0) bytes_before = counted->num_bytes();
  }
  // A place in the text takes some bytes.
  EXPECT_LT(counted->num_bytes() - bytes_before, 100'000 * 512);
  EXPECT_LT(counted->LegalTokens(state, kMuchRoom).tokens.size(),
            first.tokens.size() / 4);
}

TEST(CountedStringsTest, TextsMayComeBeforeThem) {
  ASSERT_OK_AND_ASSIGN(
      GrammarLanguage language,
      CompileJsonSchemaWithCalls(
          R"({"items": {"type": "string", "maxLength": 4}, "type": "array"})",
          {.max_unrolled_length = 1, .max_unrolled_lengths = 0}));
  CompileBudget budget;
  ASSERT_OK_AND_ASSIGN(GrammarLanguage delayed,
                       StartAfter("b", std::move(language), &budget));
  ASSERT_OK_AND_ASSIGN(
      const auto counted,
      CountedTexts(std::get<PushdownAutomaton>(std::move(delayed))));
  ASSERT_OK_AND_ASSIGN(
      ByteAutomaton automaton,
      CompileJsonSchema(std::string_view(
          R"({"items": {"type": "string", "maxLength": 4}, "type": "array"})")));
  ASSERT_OK_AND_ASSIGN(ByteAutomaton texts,
                       StartAfter("b", std::move(automaton), &budget));
  ASSERT_OK_AND_ASSIGN(const auto unrolled, UnrolledTexts(std::move(texts)));
  ExpectSameTokens(*counted, *unrolled, 300);
}

TEST(CountedStringsTest, TextsMayComeBeforeALeast) {
  const std::string schema = R"({"type": "string", "minLength": 4})";
  ASSERT_OK_AND_ASSIGN(
      GrammarLanguage language,
      CompileJsonSchemaWithCalls(
          schema, {.max_unrolled_least = 1, .max_unrolled_lengths = 0}));
  CompileBudget budget;
  ASSERT_OK_AND_ASSIGN(GrammarLanguage delayed,
                       StartAfter("b", std::move(language), &budget));
  ASSERT_OK_AND_ASSIGN(
      const auto counted,
      CountedTexts(std::get<PushdownAutomaton>(std::move(delayed))));
  ASSERT_OK_AND_ASSIGN(ByteAutomaton automaton,
                       CompileJsonSchema(std::string_view(schema)));
  ASSERT_OK_AND_ASSIGN(ByteAutomaton texts,
                       StartAfter("b", std::move(automaton), &budget));
  ASSERT_OK_AND_ASSIGN(const auto unrolled, UnrolledTexts(std::move(texts)));
  ExpectSameTokens(*counted, *unrolled, 300);
}

TEST(CountedStringsTest, WithReferencesThatLeadBackLimitsHold) {
  const auto constraint = CountedSchema(R"({
      "type": "object", "additionalProperties": false, "required": ["name"],
      "properties": {"name": {"type": "string", "maxLength": 3},
                     "next": {"$ref": "#"}}})",
                                        1);
  const auto& texts = constraint->configurations();
  EXPECT_TRUE(
      texts.Match(R"({"name":"abc","next":{"name":"éé€"}})").in_language);
  EXPECT_FALSE(
      texts.Match(R"({"name":"abc","next":{"name":"éé€a"}})").in_language);
  EXPECT_FALSE(texts.Match(R"({"name":"abcd"})").in_language);
}

TEST(CountedStringsTest, StringsThatNeedMoreDoNotExist) {
  EXPECT_EQ(Message(CompileJsonSchemaWithCalls(
                        R"({"type": "string", "pattern": "^a{9}$",
                            "maxLength": 8})",
                        {.max_unrolled_length = 2, .max_unrolled_lengths = 0})
                        .status()),
            "#: no JSON value satisfies the schema");
  const auto constraint = CountedSchema(
      R"({"type": "object", "additionalProperties": false, "properties": {
            "a": {"type": "string", "pattern": "^a{9}$", "maxLength": 8},
            "b": {"type": "string", "maxLength": 8}}})",
      2);
  EXPECT_FALSE(constraint->configurations().Match("{\"a").num_matched == 3);
  EXPECT_TRUE(constraint->configurations().Match("{\"b\":\"\"}").in_language);
}

// With any room a list has the tokens after which the text can still end, of
// which there is one unless the text needs more.
void ExpectListsByRoom(const Constraint& constraint, State state,
                       std::string_view text) {
  int least = 1;
  while (constraint.ends(state, least)) ++least;
  for (const int more : {-1, 0, 1, 2, 3, 7, 30, kMuchRoom}) {
    const int room = least + more;
    if (room < 1) continue;
    const Constraint::Legal legal = constraint.LegalTokens(state, room);
    ASSERT_EQ(legal.error, nullptr);
    std::vector<TokenId> tokens;
    int num_last = 0;
    for (TokenId t = 0; t < std::ssize(StringTokens()); ++t) {
      const State next = constraint.Advance(state, t);
      if (next == Constraint::kNone) continue;
      const bool ends = constraint.ends(next, room - 1);
      if (ends && !constraint.accepts(next, room - 1)) continue;
      tokens.push_back(t);
      num_last += ends ? 1 : 0;
    }
    ASSERT_TRUE(std::ranges::equal(legal.tokens, tokens))
        << room << " after " << text;
    EXPECT_EQ(legal.num_last, num_last);
    EXPECT_TRUE(more < 0 || !tokens.empty()) << room << " after " << text;
    EXPECT_TRUE(constraint.IsListed(state, room));
  }
}

TEST(CountedStringsTest, AListBelowTheLeastIsThatOfItsRoom) {
  for (
      const std::string schema : {
          R"({"type": "string", "minLength": 60})",
          R"({"type": "string", "minLength": 60, "maxLength": 60})",
          R"({"type": "string", "minLength": 60, "maxLength": 90})",
          R"({"type": "string", "minLength": 60, "pattern": "^(aba|é)*$"})",
          R"({"type": "string", "minLength": 60, "pattern": "^[€\\n]*$"})",
          R"({"type": "string", "minLength": 60, "pattern": "^(bcd)*$"})",
          R"({"type": "string", "minLength": 60, "pattern": "^(xüö|ab{9})*$"})",
          R"({"type": "string", "minLength": 60, "pattern": "^ü*$"})",
          R"({"type": "string", "minLength": 60, "pattern": "^(bcd)*$",
               "maxLength": 64})",
          R"({"type": ["string", "null"], "not": {"maxLength": 60}})",
          R"({"items": {"type": "string", "minLength": 60}, "type": "array"})",
          R"({"type": "object", "required": ["b"], "properties": {
                 "b": {"type": "string", "minLength": 60}}})",
      }) {
    SCOPED_TRACE(schema);
    const auto constraint = CountedSchema(schema);
    std::mt19937_64 random(2);
    for (int i = 0; i < 8; ++i) {
      const int room = constraint->MinRoom(true) + 3 * i;
      State state = constraint->start();
      std::string text;
      for (int left = room; !constraint->ends(state, left); --left) {
        ExpectListsByRoom(*constraint, state, text);
        const auto legal = constraint->LegalTokens(state, left).tokens;
        ASSERT_FALSE(legal.empty()) << text;
        const TokenId token = legal[random() % legal.size()];
        text += StringTokens()[token];
        state = constraint->Advance(state, token);
        ASSERT_NE(state, Constraint::kNone);
        if (token == 0) break;
      }
    }
  }
}

TEST(CountedStringsTest, ALongLeastIsExact) {
  const int least = Cases(100'000, 5'000);
  for (const std::string& most :
       {Concat(least), Concat(least + 9), std::string()}) {
    const auto constraint = CountedSchema(
        Concat(R"({"type": "string", "minLength": )", least,
               most.empty() ? "" : ", \"maxLength\": " + most, "}"));
    const auto& texts = constraint->configurations();
    for (const std::string text : {"a", "é", "\\n", "\\u001f"}) {
      const std::string begin = "\"" + Copies(text, least - 1);
      EXPECT_FALSE(texts.Match(begin + "\"").in_language);
      EXPECT_TRUE(texts.Match(begin + text + "\"").in_language);
      EXPECT_EQ(texts.Match(begin + Copies(text, 9)).num_matched ==
                    std::ssize(begin) + 9 * std::ssize(text),
                most != Concat(least));
    }
  }
}

TEST(CountedStringsTest, CountsFarFromTheLeastHaveOneList) {
  const auto constraint =
      CountedSchema(R"({"type": "string", "minLength": 5000})");
  const State first = AfterBytes(*constraint, constraint->start(), "\"");
  const auto far = constraint->LegalTokens(first, kMuchRoom);
  State state = first;
  for (int count = 1; count < 4900; ++count) {
    state = AfterBytes(*constraint, state, "a");
    ASSERT_EQ(constraint->LegalTokens(state, kMuchRoom).tokens.data(),
              far.tokens.data());
    // With as much room beyond what is needed.
    int room = 1;
    if (count % 100 == 0) {
      while (constraint->ends(state, room)) ++room;
      EXPECT_EQ(room, constraint->MinRoom(true) - 1 - count);
      EXPECT_EQ(constraint->LegalTokens(state, room).tokens.data(),
                constraint->LegalTokens(first, room + count).tokens.data());
    }
  }
}

TEST(CountedStringsTest, ALeastNeedsATokenOfEachByte) {
  ASSERT_OK_AND_ASSIGN(
      GrammarLanguage language,
      CompileJsonSchemaWithCalls(R"({"type": "string", "minLength": 5000})"));
  auto automaton = std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(std::move(language)));
  std::vector<std::string> tokens = StringTokens();
  std::erase(tokens, "x");
  EXPECT_THAT(
      Message(PushdownConstraint::Make(
                  automaton, std::make_shared<const TokenVocabulary>(tokens),
                  {.end_ids = {0}})
                  .status()),
      StartsWith("strings of so many characters at least need a vocabulary"));
}

// A least length has a counter only if each text that is too short can be
// continued by one character.
TEST(CountedStringsTest, TheLeastOfSomeStringsIsUnrolled) {
  const auto is_counted = [](std::string_view schema) {
    const auto language = CompileJsonSchemaWithCalls(
        schema, {.max_unrolled_least = 16, .max_unrolled_lengths = 0});
    EXPECT_TRUE(language.ok()) << language.status();
    return std::holds_alternative<PushdownAutomaton>(*language);
  };
  EXPECT_TRUE(is_counted(R"({"type": "string", "minLength": 40})"));
  EXPECT_TRUE(is_counted(
      R"({"type": "string", "minLength": 40, "pattern": "^(abc)*$"})"));
  EXPECT_TRUE(
      is_counted(R"({"type": "string", "minLength": 40, "maxLength": 40})"));
  EXPECT_FALSE(is_counted(
      R"({"type": "string", "minLength": 40, "pattern": "^a*b{0,60}$"})"));
  EXPECT_FALSE(is_counted(
      R"({"type": "string", "anyOf": [{"minLength": 40}, {"maxLength": 3}]})"));
  // Longer ones are not unrolled, and then have to have a counter.
  EXPECT_OK(CompileJsonSchemaWithCalls(
      R"({"properties": {"a": {"minLength": 1000000}}})"));
  const std::pair<const char*, const char*> refused[] = {
      {R"({"type": "string", "minLength": 1000000, "pattern": "^a*b?$"})",
       "#: minLength 1000000: it needs more than 262144 states"},
      {R"({"type": "string", "minLength": 1000000000})",
       "#/minLength: must be less than 1000000000, got 1000000000"},
      {R"({"type": "string", "minLength": 3000000000})",
       "#/minLength: must be less than 1000000000, got 3000000000"},
      {R"({"type": "string", "not": {"maxLength": 3000000000}})",
       "#: maxLength 3000000000: it needs more than 262144 states"}};
  for (const auto& [schema, error] : refused) {
    EXPECT_THAT(Message(CompileJsonSchemaWithCalls(schema).status()),
                StartsWith(error));
  }
  const auto constraint = CountedSchema(
      R"({"type": "string", "minLength": 40, "maxLength": 100000})");
  const auto& texts = constraint->configurations();
  for (const int length : {39, 40, 99'999, 100'000, 100'001}) {
    EXPECT_EQ(texts.Match("\"" + Copies("a", length) + "\"").in_language,
              length >= 40 && length <= 100'000);
  }
}

// Short strings have no counter, so that a device has their masks.
TEST(CountedStringsTest, FewLengthsAreUnrolled) {
  const auto is_counted = [](std::string_view schema) {
    const auto language = CompileJsonSchemaWithCalls(schema);
    EXPECT_TRUE(language.ok()) << language.status();
    return std::holds_alternative<PushdownAutomaton>(*language);
  };
  EXPECT_FALSE(is_counted(R"({"type": "string", "maxLength": 1000})"));
  EXPECT_TRUE(is_counted(R"({"type": "string", "maxLength": 2000})"));
  EXPECT_FALSE(is_counted(R"({"properties": {"a": {"maxLength": 500},
                                             "b": {"maxLength": 500}}})"));
  EXPECT_TRUE(is_counted(R"({"properties": {"a": {"maxLength": 600},
                                            "b": {"maxLength": 600}}})"));
  EXPECT_TRUE(is_counted(R"({"format": "email", "maxLength": 600})"));
}

// Far from the limit another count makes no list necessary.
TEST(CountedStringsTest, OneListIsMadeForCountsFarFromTheLimit) {
  const auto constraint =
      CountedSchema(R"({"type": "string", "maxLength": 5000})");
  const auto after = [&](std::string_view text) {
    State state = constraint->start();
    for (const char c : text) {
      state = constraint->Advance(state, 1 + static_cast<uint8_t>(c));
    }
    return state;
  };
  EXPECT_FALSE(constraint->IsListed(after("\"a"), kMuchRoom));
  constraint->LegalTokens(after("\"a"), kMuchRoom);
  EXPECT_NE(after("\"a"), after("\"abc"));
  EXPECT_TRUE(constraint->IsListed(after("\"a"), kMuchRoom));
  EXPECT_TRUE(constraint->IsListed(after("\"abc"), kMuchRoom));
}

}  // namespace
}  // namespace espalier
