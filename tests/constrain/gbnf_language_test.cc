// Grammars, against their definition.
#include "constrain/gbnf_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/pushdown_configurations.h"
#include "tests/constrain/grammar_oracle.h"
#include "tests/constrain/random_grammars.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::GrammarOracle;
using ::espalier::testing::RandomGrammar;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A compiled grammar, whatever automaton it is.
class Compiled {
 public:
  explicit Compiled(GrammarLanguage language) {
    if (auto* plain = std::get_if<ByteAutomaton>(&language)) {
      plain_.emplace(std::move(*plain));
      return;
    }
    auto automaton = std::make_shared<const PushdownAutomaton>(
        std::get<PushdownAutomaton>(std::move(language)));
    calls_ =
        std::make_unique<PushdownConfigurations>(automaton, automaton->bytes());
  }
  bool is_plain() const { return plain_.has_value(); }
  // Steps a state; negative: the byte is illegal.
  int Next(int state, char byte) const {
    const auto b = static_cast<uint8_t>(byte);
    return plain_ ? plain_->Next(state, b) : calls_->Next(state, b);
  }
  bool accepts(int state) const {
    return plain_ ? plain_->accepts(state) : calls_->accepts(state);
  }
  int min_bytes(int state) const {
    return plain_ ? plain_->min_bytes(state) : calls_->min_bytes(state);
  }
  bool Has(std::string_view text) const {
    int state = 0;
    for (const char c : text) {
      if ((state = Next(state, c)) < 0) return false;
    }
    return accepts(state);
  }
  const PushdownConfigurations& calls() const { return *calls_; }

 private:
  std::optional<ByteAutomaton> plain_;
  std::unique_ptr<PushdownConfigurations> calls_;
};

Compiled CompileOrDie(std::string_view grammar, GbnfOptions options = {}) {
  absl::StatusOr<GrammarLanguage> language = CompileGbnf(grammar, options);
  EXPECT_OK(language.status()) << grammar;
  return Compiled(*std::move(language));
}

std::set<std::string> TextsOf(const Compiled& compiled,
                              const std::vector<std::string>& texts) {
  std::set<std::string> found;
  for (const std::string& text : texts) {
    if (compiled.Has(text)) found.insert(text);
  }
  return found;
}

// A byte may follow if and only if a text continues with it; and the fewest
// bytes to an end are those of the shortest text.
void ExpectExactPrefixes(const Compiled& compiled,
                         const std::set<std::string>& texts,
                         std::string_view alphabet, int max_length) {
  const auto shortest_after = [&](const std::string& begin) {
    int shortest = -1;
    for (auto it = texts.lower_bound(begin);
         it != texts.end() && it->starts_with(begin); ++it) {
      const int more = static_cast<int>(it->size() - begin.size());
      if (shortest < 0 || more < shortest) shortest = more;
    }
    return shortest;
  };
  for (const std::string& begin : AllTexts(alphabet, max_length)) {
    int state = 0;
    for (const char c : begin) {
      if (state >= 0) state = compiled.Next(state, c);
    }
    const int shortest = shortest_after(begin);
    if (shortest >= 0) {
      ASSERT_GE(state, 0) << begin;
      EXPECT_EQ(compiled.min_bytes(state), shortest) << begin;
    } else if (state >= 0) {
      // Its texts are longer than those that are known.
      EXPECT_GT(compiled.min_bytes(state) + std::ssize(begin),
                static_cast<int>(texts.empty() ? 0 : max_length))
          << begin;
    }
  }
}

constexpr std::string_view kJson = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST(GbnfLanguageTest, ToyGrammarsHaveTheTextsOfTheirDefinition) {
  for (const auto& [grammar, alphabet, length, is_plain] :
       std::vector<std::tuple<const char*, const char*, int, bool>>{
           {"root ::= \"a\" | \"b\"+", "ab", 4, true},
           {"root ::= \"(\" root \")\" | \"x\"", "()x", 6, false},
           {"root ::= a\na ::= \"(\" a \")\" a |", "()", 8, false},
           // Right and left recursion are loops.
           {"root ::= \"a\" root | \"b\"", "ab", 6, true},
           {"root ::= root \"a\" | \"b\"", "ab", 6, true},
           {"root ::= a\na ::= \"x\" b\nb ::= \"y\" a | \"z\"", "xyz", 5, true},
           {"root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | \"x\"",
            "(+)x", 6, false},
           // A space in front of a rule that leads to itself at the end.
           {"root ::= v ws\nv ::= \"[\" ws v? ws \"]\"\nws ::= (\"s\" ws)?",
            "[]s", 6, false},
           // Ambiguous.
           {"root ::= s\ns ::= s s | \"a\"", "ab", 8, false},
           {"root ::= \"a\" root \"a\" | \"a\"?", "ab", 9, false},
           {"root ::= a | b\na ::= \"x\" a \"y\" | \"\"\nb ::= \"x\" b \"z\" | "
            "\"\"",
            "xyz", 6, false},
           {"root ::= \"a\" t \"b\" | \"a\" u \"c\" | \"x\"\nt ::= root\nu ::= "
            "root",
            "abcx", 6, false},
           // Empty loops, and rules without a text.
           {"root ::= \"b\" a\na ::= a?", "ab", 4, true},
           {"root ::= a* \"x\"\na ::= \"\" | \"y\"", "xy", 5, true},
           {"root ::= \"a\" n | \"b\"\nn ::= \"c\" n", "abc", 4, true},
           {"root ::= \"a\" (n \"d\")? | \"b\"\nn ::= \"c\" n \"c\"", "abcd", 4,
            true},
           {"root ::= x\nx ::= y | \"(\" x \")\"\ny ::= x | \"a\"", "()a", 6,
            false},
           {"root ::= \"x\" a\na ::= \"(\" a \")\" | \"z\" | b\nb ::= "
            "\"q\" b a \"w\"",
            "x(z)q", 5, false},
           {"root ::= \"x\" a \"y\" | \"k\"\na ::= \"(\" a \")\" | "
            "\"z\" | b\nb ::= \"q\" b a \"w\"",
            "xyk(z)", 5, false},
           {"root ::= \"x\" a \"y\"\na ::= \"(\" a \")\" | \"z\" | "
            "b\nb ::= \"q\" b a \"w\"",
            "xy(z)q", 5, false},
           // Recursive in alternatives without a text alone.
           {"root ::= \"x\" a \"y\"\na ::= \"z\" | b \"v\"\nb ::= \"q\" b a "
            "\"w\"",
            "xyzvqw", 4, true},
           {"root ::= \"x\" (b | \"y\" b)* \"z\"\nb ::= \"q\" root b", "xyzq",
            4, true},
           // Called rules with an empty text.
           {"root ::= \"<\" p p \">\"\np ::= \"(\" p \")\" |", "<()>", 6,
            false},
           {"root ::= p{2,3}\np ::= \"(\" p \")\" | \"a\"?", "()a", 6, false},
       }) {
    const GrammarOracle oracle(grammar);
    const std::vector<std::string> all = AllTexts(alphabet, length);
    const std::set<std::string> texts = oracle.Texts(all);
    const Compiled compiled = CompileOrDie(grammar);
    EXPECT_EQ(compiled.is_plain(), is_plain) << grammar;
    EXPECT_FALSE(texts.empty()) << grammar;
    EXPECT_EQ(TextsOf(compiled, all), texts) << grammar;
    ExpectExactPrefixes(compiled, texts, alphabet, length);
  }
}

TEST(GbnfLanguageTest, RandomGrammarsHaveTheTextsOfTheirDefinition) {
  std::mt19937_64 random(1);
  const std::vector<std::string> all = AllTexts("ab(", 5);
  int num_plain = 0;
  int num_calls = 0;
  int num_refused = 0;
  for (int i = 0; i < 150; ++i) {  // half of them are refused
    const std::string grammar = RandomGrammar(random);
    SCOPED_TRACE(grammar);
    const GrammarOracle oracle(grammar);
    const std::set<std::string> texts = oracle.Texts(all);
    absl::StatusOr<GrammarLanguage> language = CompileGbnf(grammar);
    if (!language.ok()) {
      const std::string message(language.status().message());
      const bool is_left = message.find("is left recursive") != message.npos;
      if (!is_left) {
        EXPECT_THAT(message, HasSubstr("no text")) << grammar;
        EXPECT_TRUE(texts.empty());
      }
      ++num_refused;
      continue;
    }
    const Compiled compiled(*std::move(language));
    ++(compiled.is_plain() ? num_plain : num_calls);
    EXPECT_EQ(TextsOf(compiled, all), texts);
    ExpectExactPrefixes(compiled, texts, "ab(", 5);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_plain, num_calls / 20);
  EXPECT_GT(num_calls, num_plain / 20);
  EXPECT_GT(num_calls, num_refused / 4);
}

TEST(GbnfLanguageTest, JsonNestsUpToTheLimitAndNotDeeper) {
  const Compiled json = CompileOrDie(kJson);
  ASSERT_FALSE(json.is_plain());
  EXPECT_TRUE(json.Has(R"({"a": [1, -2.5e3, {"b": "\u00e9 x"}], "c":null } )"));
  EXPECT_TRUE(json.Has("{\"\xC3\xA9\": \"\xF0\x9F\x98\x80\"}"));
  EXPECT_FALSE(json.Has(R"({"a": [1, }])"));
  EXPECT_FALSE(json.Has("[]"));
  EXPECT_FALSE(json.Has("{\"\xC3\": 1}"));
  const auto nested = [](int depth) {
    std::string text = "{\"a\":";
    for (int i = 1; i < depth; ++i) text += i % 2 == 0 ? "{\"a\":" : "[";
    text += "1";
    for (int i = depth - 1; i > 0; --i) text += i % 2 == 0 ? "}" : "]";
    return text + "}";
  };
  // The values within one another, the root's aside.
  EXPECT_TRUE(json.Has(nested(64)));
  EXPECT_FALSE(json.Has(nested(65)));
  const Compiled shallow = CompileOrDie(kJson, {.max_depth = 3});
  EXPECT_TRUE(shallow.Has(nested(3)));
  EXPECT_FALSE(shallow.Has(nested(4)));
}

TEST(GbnfLanguageTest, TextsWithinTheDepthAreThoseOfTheUnrolledGrammar) {
  const std::string pairs = "root ::= \"(\" root* \")\" | \"x\"";
  for (int depth = 0; depth <= 3; ++depth) {
    // Rules that are not recursive, one a level.
    std::string unrolled = "root ::= r0\n";
    for (int i = 0; i < depth; ++i) {
      unrolled += Concat("r", i, " ::= \"(\" r", i + 1, "* \")\" | \"x\"\n");
    }
    unrolled += Concat("r", depth, " ::= \"(\" \")\" | \"x\"\n");
    const Compiled limited = CompileOrDie(pairs, {.max_depth = depth});
    const Compiled plain = CompileOrDie(unrolled);
    EXPECT_TRUE(plain.is_plain());
    const std::vector<std::string> all = AllTexts("()x", 7);
    const std::set<std::string> texts = TextsOf(plain, all);
    EXPECT_EQ(TextsOf(limited, all), texts) << depth;
    ExpectExactPrefixes(limited, texts, "()x", 7);
  }
}

// A rule that ends another one takes its place on the stack.
TEST(GbnfLanguageTest, LastRulesTakeNoPlaceOnTheStack) {
  const Compiled chain =
      CompileOrDie("root ::= \"(\" root \")\" root | \"x\"", {.max_depth = 2});
  std::string text;
  for (int i = 0; i < 200; ++i) text += "((x)x)";
  EXPECT_TRUE(chain.Has(text + "x"));
  EXPECT_FALSE(chain.Has("(((x)x)x)x"));
  // At the limit there is room for one that ends another.
  const Compiled tail = CompileOrDie(
      "root ::= \"(\" a \")\" | \"x\"\na ::= \"-\" root", {.max_depth = 1});
  EXPECT_TRUE(tail.Has("(-x)"));
  EXPECT_FALSE(tail.Has("(-(-x))"));
  // Also of a rule that is copied into another one.
  const Compiled copied = CompileOrDie(
      "root ::= \"(\" root \")\" m | \"x\"\nm ::= \"-\" v\nv ::= \"[\" v "
      "\"]\" | \"y\"",
      {.max_depth = 1});
  EXPECT_TRUE(copied.Has("(x)-[y]"));
  EXPECT_FALSE(copied.Has("(x)-[[y]]"));
  EXPECT_FALSE(copied.Has("((x)-y)-y"));
  const Compiled full = CompileOrDie(
      "root ::= \"(\" root \")\" | \"a\" m\nm ::= \"-\" v\nv ::= \"[\" v "
      "\"]\" | \"y\"",
      {.max_depth = 1});
  EXPECT_TRUE(full.Has("(a-y)"));
  EXPECT_TRUE(full.Has("a-[y]"));
  EXPECT_FALSE(full.Has("(a-[y])"));
}

// After a pair, two more places are needed.
TEST(GbnfLanguageTest, ACallIsLegalOnlyIfItsRuleCanBeCompleted) {
  const Compiled pairs = CompileOrDie(
      "root ::= \"(\" root \")\" p \".\" | \"(z\" | \"x\"\np ::= \"<\" q "
      "\">\"\nq ::= \"y\" | \"[\" root \"]\"",
      {.max_depth = 2});
  EXPECT_TRUE(pairs.Has("(x)<y>."));
  EXPECT_TRUE(pairs.Has("((z)<y>."));
  int state = pairs.Next(pairs.Next(0, '('), '(');
  ASSERT_GE(state, 0);
  EXPECT_LT(pairs.Next(state, 'x'), 0);
  state = 0;
  for (const char c : std::string_view("(x)<")) state = pairs.Next(state, c);
  ASSERT_GE(state, 0);
  EXPECT_LT(pairs.Next(state, '['), 0);
  EXPECT_EQ(pairs.min_bytes(state), 3);
}

TEST(GbnfLanguageTest, AmbiguityHasABound) {
  // The ways double with each level; stacks of one height share their parts.
  std::string text;
  const Compiled doubled = CompileOrDie(
      "root ::= \"a\" t \"b\" | \"a\" u \"c\" | \"x\"\nt ::= \"_\" root\nu ::= "
      "\"_\" root");
  for (int i = 0; i < 60; ++i) text += "a_";
  text += "x";
  for (int i = 0; i < 60; ++i) text += i % 3 == 0 ? "b" : "c";
  EXPECT_TRUE(doubled.Has(text));
  // Each of the 300 alternatives is a way of its own.
  std::string grammar = "root ::= r0";
  for (int i = 1; i < 300; ++i) grammar += Concat(" | r", i);
  for (int i = 0; i < 300; ++i) {
    grammar += Concat("\nr", i, " ::= \"a\" r", i, " \"", i, "\" | \"x\"");
  }
  absl::StatusOr<GrammarLanguage> language = CompileGbnf(grammar);
  ASSERT_OK(language.status());
  const Compiled many(*std::move(language));
  EXPECT_EQ(many.Next(0, 'a'), PushdownConfigurations::kTooMany);
}

TEST(GbnfLanguageTest, SyntaxIsThatOfLlamaCpp) {
  const auto has = [](std::string_view grammar, std::string_view text) {
    return CompileOrDie(grammar).Has(text);
  };
  const std::string escapes =
      "root ::= \"\\x41\\u00e9\\U0001F600\\t\\n\\\"\\\\\\[\\]\\-\"";
  EXPECT_TRUE(has(escapes, "A\xC3\xA9\xF0\x9F\x98\x80\t\n\"\\[]-"));
  EXPECT_TRUE(has("root ::= [a-c\\]^-]", "-"));
  EXPECT_TRUE(has("root ::= [a-c\\]^-]", "]"));
  EXPECT_FALSE(has("root ::= [a-c\\]^-]", "d"));
  EXPECT_TRUE(has("root ::= [^\\x00-\\x7F]", "\xC3\xA9"));
  EXPECT_FALSE(has("root ::= [^\\x00-\\x7F]", "a"));
  EXPECT_TRUE(has("root ::= .", "\n"));
  EXPECT_TRUE(has("root ::= \"ab\"*", "abab"));
  EXPECT_FALSE(has("root ::= \"ab\"*", "abb"));
  EXPECT_TRUE(has("root ::= (\"a\" |\n \"b\"){ 2 , 3 } # end", "bab"));
  EXPECT_FALSE(has("root ::= (\"a\" | \"b\"){2,3}", "b"));
  EXPECT_TRUE(
      has("root ::= \"a\"{2} x-1 _y\r\nx-1 ::=\n  \"#\" # one\n"
          "# two\n\n_y ::= \"\"",
          "aa#"));
  // A line may continue a rule.
  EXPECT_TRUE(has("root ::= \"a\"\n  | \"b\"\n    \"c\"", "bc"));
  EXPECT_TRUE(has("root ::=\n  a\na ::= | \"b\"", ""));
}

TEST(GbnfLanguageTest, ErrorsNameTheConstructAndItsPlace) {
  for (const auto& [grammar, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "the grammar must have a rule named \"root\""},
           {"a ::= \"b\"", "the grammar must have a rule named \"root\""},
           {"root ::= \"a\" b\n",
            "at line 1, column 14: no rule \"b\" is "
            "defined"},
           {"root ::= \"a\"\nroot ::= \"b\"",
            "at line 2, column 1: rule \"root\" is defined twice"},
           {"start: \"a\"",
            "at line 1, column 1: a rule is written name ::= ..., got \"start: "
            "\\\"a\\\"\"; Lark is not supported, a grammar is in GBNF, as of "
            "llama.cpp"},
           {"%ignore WS", "at line 1, column 1: a directive of Lark"},
           {"?start: \"a\"", "?start: \\\"a\\\"\"; Lark is not supported"},
           {"!start : \"a\"", "!start : \\\"a\\\"\"; Lark is not supported"},
           {"WORD.2: \"a\"", "WORD.2: \\\"a\\\"\"; Lark is not supported"},
           {"// Sums.\nstart: a", "\"// Sums.\"; Lark is not supported"},
           {"root = \"a\"", "at line 1, column 1: a rule is written name ::="},
           {"root ::= /a/",
            "at line 1, column 10: a regular expression of Lark"},
           {"root ::= (\"a\"", "at line 1, column 10: the group is not closed"},
           {"root ::= \"a\")", "at line 1, column 13: \")\" closes no group"},
           {"root ::= \"a", "at line 1, column 10: the text is not closed"},
           {"root ::= [a", "at line 1, column 10: the class is not closed"},
           {"root ::= []", "at line 1, column 10: the class has no member"},
           {"root ::= [b-a]",
            "a range must be of two ascending characters, "
            "got \"b-a\""},
           {"root ::= \"\\q\"",
            "at line 1, column 11: escape \"\\\\q\" is not "
            "supported"},
           {"root ::= \"\\xZ\"", "\"\\x\" must have 2 hex digits"},
           {"root ::= \"\\uD800\"", "\"\\\\uD800\" is no code point"},
           {"root ::= *", "at line 1, column 10: nothing to repeat before"},
           {"root ::= \"a\"+*", "at line 1, column 14: nothing to repeat"},
           {"root ::= \"a\"{,2}", "counts are written {2}, {2,} or {2,5}"},
           {"root ::= \"a\"{3,2}", "counts must ascend"},
           {"root ::= \"a\"{9999999}", "must be at most 1048576 times"},
           {"root ::= <think>", "a token by its name or id is not supported"},
           {"root ::= \"a\" ;", "at line 1, column 14: unexpected \";\""},
           {"root ::= \"\xFF\"", "UTF-8"},
           {"root ::= a \"x\" | \"y\"\na ::= root \"z\"",
            "rule \"a\" is left recursive: a text of it may begin with one of "
            "rule \"root\", which may begin with one of the former"},
           {"root ::= \"b\"? root \"x\" | \"y\"",
            "rule \"root\" is left recursive: a text of it may begin with one "
            "of rule \"root\"; only"},
           {"root ::= root* \"a\"", "rule \"root\" is left recursive"},
           {"root ::= \"a\" root", "no text is complete"},
           {"root ::= root", "no text is complete"},
           {"root ::= \"a\" [^\\x00-\\U0010FFFF]", "no text is complete"},
       }) {
    EXPECT_THAT(CompileGbnf(grammar).status(),
                StatusIs(kInvalid, HasSubstr(message)))
        << grammar;
  }
}

TEST(GbnfLanguageTest, HostileGrammarsAreRefusedWithinTheBudget) {
  // Texts of 2^40 letters, of rules that double.
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) {
    doubling += Concat("r", i, " ::= r", i + 1, " r", i + 1, "\n");
  }
  doubling += "r40 ::= \"a\"\n";
  // As above, and each also leads back.
  std::string recursive = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) {
    recursive += Concat("r", i, " ::= \"x\" r", i + 1, " r", i + 1,
                        " | \"y\" r", i, " \"z\"\n");
  }
  recursive += "r40 ::= \"a\" r0 \"b\" | \"a\"\n";
  std::string nested = "root ::= ";
  nested.append(100'000, '(');
  std::string many = "root ::= r0\n";
  for (int i = 0; i < 100'000; ++i) many += Concat("r", i, "::=r", i + 1, "\n");
  many += "r100000::=\"a\"";
  std::string loop = "root ::= r0\n";
  for (int i = 0; i < 80'000; ++i) {
    loop += Concat("r", i, "::=\"(\"r", (i + 1) % 80'000, "\")\"\n");
  }
  std::string repeated = "root ::= ((((\"ab\"{9999}){9999}){9999}){9999})";
  for (const std::string& grammar : {doubling, nested, many, loop, repeated}) {
    EXPECT_THAT(CompileGbnf(grammar).status(),
                StatusIs(kInvalid, HasSubstr("")))
        << grammar.substr(0, 100);
  }
  // The shortest text of the one has 2^31 letters, that of the other 2^40.
  std::string long_texts = "root ::= r0\n";
  for (int i = 0; i < 31; ++i) {
    long_texts +=
        Concat("r", i, " ::= r", i + 1, " r", i + 1, " | \"(\" r0 \")\"\n");
  }
  long_texts += "r31 ::= \"x\"";
  for (const std::string& grammar : {long_texts, recursive}) {
    EXPECT_THAT(CompileGbnf(grammar).status(),
                StatusIs(kInvalid,
                         "each text has 2147483647 bytes or more, "
                         "the limit"));
  }
  // Nested deeper than any text may be.
  std::string chain = "root ::= \"a\" r1 \"b\"\n";
  for (int i = 1; i < 70; ++i) {
    chain += Concat("r", i, " ::= \"a\" r", i + 1, " \"b\"\n");
  }
  chain += "r70 ::= \"x\" | \"y\" root \"z\"\n";
  EXPECT_THAT(
      CompileGbnf(chain).status(),
      StatusIs(kInvalid, HasSubstr("more than 64 rules or references that "
                                   "lead back to themselves")));
}

}  // namespace
}  // namespace espalier
