// Cost of a constraint on one core: compiling a language, and finding the legal
// tokens of its states, which a step needs for each distinct state.
//
//   constrain_benchmark
//
// Masks visits all states of the automaton, each once an iteration, with a
// vocabulary of 128,256 tokens; NearMasks with room for one token more than a
// text needs. Their counters are microseconds of CPU for a state: the median,
// the 99th percentile and the largest. Tokens of the vocabulary are random: all
// bytes, and words of 2 to 11 letters, half of them after a space. Kept is a
// list that is asked for again, far from the end of the room and near it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "constrain/choice_language.h"
#include "constrain/gbnf_language.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "constrain/token_constraint.h"
#include "constrain/tokens_to_end.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 128'256;

constexpr char kDate[] = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
constexpr char kNumber[] = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
constexpr char kString[] =
    "\"([^\"\\\\\\u0000-\\u001f]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-f]{4})*\"";
constexpr char kEmail[] = "[\\w.+-]+@[\\w-]+(\\.[\\w-]+)+";

// An object of three fields, as JSON without spaces.
std::string Person() {
  return std::string("\\{\"name\":") + kString + ",\"age\":" + kNumber +
         ",\"emails\":\\[(" + kString + "(," + kString + ")*)?\\]\\}";
}

// JSON, as llama.cpp has it.
constexpr char kJsonGrammar[] = R"(root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))*
  "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)?
  ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";

std::shared_ptr<const TokenVocabulary> Vocabulary() {
  static const auto* const vocabulary = [] {
    std::mt19937 random(1);
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
    while (tokens.size() < kVocabSize) {
      std::string token = random() % 2 == 0 ? " " : "";
      const int length = 2 + static_cast<int>(random() % 10);
      for (int i = 0; i < length; ++i) {
        token += static_cast<char>('a' + random() % 26);
      }
      tokens.push_back(std::move(token));
    }
    return new std::shared_ptr<const TokenVocabulary>(
        std::make_shared<const TokenVocabulary>(std::move(tokens)));
  }();
  return *vocabulary;
}

// Words, punctuation before and after words, characters beyond ASCII, and
// numbers: 5, 2, 2 and 1 of 10.
const std::vector<std::string>& MixedTexts() {
  static const auto* const texts = [] {
    constexpr std::string_view kPunctuation =
        "\"':,.{}[]()<>/\\_-+=*&^%$#@!?;|~` \n\t";
    std::mt19937 random(3);
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
    const auto append = [&](int kind, std::string* token) {
      const int length = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < length; ++i) {
        if (kind == 0) *token += static_cast<char>('a' + random() % 26);
        if (kind == 1) *token += kPunctuation[random() % kPunctuation.size()];
        if (kind == 2) {
          *token += static_cast<char>(0xE4 + random() % 6);
          *token += static_cast<char>(0x80 + random() % 64);
          *token += static_cast<char>(0x80 + random() % 64);
        }
        if (kind == 3) *token += static_cast<char>('0' + random() % 10);
      }
    };
    while (tokens.size() < kVocabSize) {
      std::string token;
      const int kind = static_cast<int>(random() % 10);
      if (kind < 5) {
        if (random() % 2 == 0) token += ' ';
        append(0, &token);
        append(0, &token);
      } else if (kind < 7) {
        append(1, &token);
        if (random() % 2 == 0) append(0, &token);
        if (random() % 3 == 0) append(1, &token);
      } else {
        append(kind < 9 ? 2 : 3, &token);
      }
      tokens.push_back(std::move(token));
    }
    return new std::vector<std::string>(std::move(tokens));
  }();
  return *texts;
}

const TokenSuffixes& MixedTokens() {
  static const auto* const suffixes = new TokenSuffixes(MixedTexts());
  return *suffixes;
}

ByteAutomaton CompileOrDie(const std::string& pattern) {
  auto automaton = CompileRegex(pattern);
  CHECK(automaton.ok()) << automaton.status();
  return *std::move(automaton);
}

void Compile(benchmark::State& state, const std::string& pattern) {
  for (auto _ : state) benchmark::DoNotOptimize(CompileOrDie(pattern));
  const ByteAutomaton automaton = CompileOrDie(pattern);
  state.counters["states"] = automaton.num_states();
  state.counters["table_bytes"] = static_cast<double>(automaton.table_bytes());
}
BENCHMARK_CAPTURE(Compile, Date, kDate)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Compile, Email, kEmail)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Compile, String, kString)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Compile, Person, Person())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Compile, Letters, "\\p{L}{1,200}")
    ->Unit(benchmark::kMicrosecond);

void CompileChoices(benchmark::State& state) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < state.range(0); ++i) {
    texts.push_back("item " + std::to_string(i * 7919));
  }
  for (auto _ : state) {
    auto automaton = CompileChoice(texts);
    CHECK(automaton.ok()) << automaton.status();
    benchmark::DoNotOptimize(automaton);
  }
}
BENCHMARK(CompileChoices)
    ->Arg(10)
    ->Arg(1'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMicrosecond);

// The fewest tokens to the end of a text, for each state.
void Count(benchmark::State& state, const ByteAutomaton& automaton,
           const TokenSuffixes& tokens = Vocabulary()->suffixes) {
  constexpr int64_t kMaxSteps = CompileLimits().max_steps;
  for (auto _ : state) {
    benchmark::DoNotOptimize(CountTokensToEnd(automaton, tokens, kMaxSteps));
  }
  const TokensToEnd counts = CountTokensToEnd(automaton, tokens, kMaxSteps);
  state.counters["states"] = automaton.num_states();
  state.counters["fewest"] = counts.more[ByteAutomaton::kStart];
  state.counters["is_exact"] = counts.is_exact;
}
void CountRegex(benchmark::State& state, const std::string& pattern) {
  Count(state, CompileOrDie(pattern));
}
void CountSchema(benchmark::State& state, const std::string& schema) {
  const auto automaton = CompileJsonSchema(schema, {});
  CHECK(automaton.ok()) << automaton.status();
  Count(state, *automaton);
}
BENCHMARK_CAPTURE(CountRegex, Date, kDate)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(CountRegex, Person, Person())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(CountRegex, Letters, "\\p{L}{1,200}")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(CountSchema, AnyValue, "{}")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(CountSchema, LongString,
                  R"({"type": "string", "maxLength": 1000})")
    ->Unit(benchmark::kMicrosecond);
void CountMixedRegex(benchmark::State& state, const std::string& pattern) {
  Count(state, CompileOrDie(pattern), MixedTokens());
}
void CountMixedSchema(benchmark::State& state, const std::string& schema) {
  const auto automaton = CompileJsonSchema(schema, {});
  CHECK(automaton.ok()) << automaton.status();
  Count(state, *automaton, MixedTokens());
}
BENCHMARK_CAPTURE(CountMixedRegex, Person, Person())
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(CountMixedSchema, AnyValue, "{}")
    ->Unit(benchmark::kMicrosecond);
void CountChoices(benchmark::State& state) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < state.range(0); ++i) {
    texts.push_back("item " + std::to_string(i * 7919));
  }
  const auto automaton = CompileChoice(texts);
  CHECK(automaton.ok()) << automaton.status();
  Count(state, *automaton);
}
BENCHMARK(CountChoices)->Arg(100'000)->Unit(benchmark::kMicrosecond);

double ThreadMicroseconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 +
         static_cast<double>(time.tv_nsec) / 1e3;
}

void TimeMasks(benchmark::State& state, const std::string& pattern,
               bool is_near) {
  const auto constraint = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(CompileOrDie(pattern)),
      Vocabulary());
  CHECK(constraint.ok()) << constraint.status();
  const int num_states = constraint->automaton().num_states();
  std::vector<double> times;
  std::vector<TokenId> tokens;
  for (auto _ : state) {
    for (int s = 0; s < num_states; ++s) {
      const double begin = ThreadMicroseconds();
      const int32_t room =
          is_near ? constraint->min_tokens(s) + 1 : TokenConstraint::kNever;
      constraint->LegalTokens(s, room - 1, &tokens);
      times.push_back(ThreadMicroseconds() - begin);
    }
  }
  std::sort(times.begin(), times.end());
  state.counters["states"] = num_states;
  state.counters["p50_us"] = times[times.size() / 2];
  state.counters["p99_us"] = times[times.size() * 99 / 100];
  state.counters["max_us"] = times.back();
}
void Masks(benchmark::State& state, const std::string& pattern) {
  TimeMasks(state, pattern, /*is_near=*/false);
}
void NearMasks(benchmark::State& state, const std::string& pattern) {
  TimeMasks(state, pattern, /*is_near=*/true);
}
BENCHMARK_CAPTURE(Masks, Date, kDate)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Masks, Email, kEmail)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Masks, Person, Person())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(NearMasks, Person, Person())->Unit(benchmark::kMicrosecond);

std::shared_ptr<const PushdownAutomaton> GrammarOrDie() {
  absl::StatusOr<GrammarLanguage> language = CompileGbnf(kJsonGrammar);
  CHECK(language.ok()) << language.status();
  return std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(*std::move(language)));
}

void CompileGrammar(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(GrammarOrDie());
  state.counters["states"] = GrammarOrDie()->num_states();
}
BENCHMARK(CompileGrammar)->Unit(benchmark::kMicrosecond);

void CountGrammar(benchmark::State& state) {
  const auto automaton = GrammarOrDie();
  for (auto _ : state) {
    CompileBudget budget;
    benchmark::DoNotOptimize(
        CountPushdownCosts(*automaton, MixedTokens(), &budget));
  }
}
BENCHMARK(CountGrammar)->Unit(benchmark::kMicrosecond);

// Lists of the states of 40 texts of random tokens, each made once.
void GrammarMasks(benchmark::State& state) {
  const auto automaton = GrammarOrDie();
  const auto vocabulary = std::make_shared<const TokenVocabulary>(MixedTexts());
  std::vector<double> times;
  for (auto _ : state) {
    const auto made = PushdownConstraint::Make(automaton, vocabulary, {});
    CHECK(made.ok()) << made.status();
    const PushdownConstraint& constraint = **made;
    std::mt19937_64 random(7);
    times.clear();
    std::set<int32_t> listed;
    for (int i = 0; i < 40; ++i) {
      int32_t at = constraint.start();
      for (int32_t room = 200;; --room) {
        const double begin = ThreadMicroseconds();
        const Constraint::Legal legal = constraint.LegalTokens(at, room);
        const double time = ThreadMicroseconds() - begin;
        if (listed.insert(at).second) times.push_back(time);
        at = constraint.Advance(at,
                                legal.tokens[random() % legal.tokens.size()]);
        if (constraint.ends(at, room - 1)) break;
      }
    }
    state.counters["configurations"] =
        static_cast<double>(constraint.configurations().num_configurations());
  }
  std::sort(times.begin(), times.end());
  state.counters["lists"] = static_cast<double>(times.size());
  state.counters["p50_us"] = times[times.size() / 2];
  state.counters["p99_us"] = times[times.size() * 99 / 100];
  state.counters["max_us"] = times.back();
}
BENCHMARK(GrammarMasks)->Unit(benchmark::kMillisecond);

void Kept(benchmark::State& state, bool is_near) {
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(CompileOrDie(Person())),
      Vocabulary());
  CHECK(texts.ok()) << texts.status();
  const auto constraint = TextConstraint::Make(*std::move(texts), {});
  CHECK(constraint.ok()) << constraint.status();
  // Inside a string, where an escape needs more tokens than other texts.
  const TokenConstraint& of_texts = (*constraint)->texts();
  const ByteAutomaton::State in_string =
      of_texts.automaton().Next(ByteAutomaton::kStart, "{\"name\":\"a");
  const int32_t room = is_near ? of_texts.min_more_tokens(in_string) : 1000;
  for (auto _ : state) {
    benchmark::DoNotOptimize((*constraint)->LegalTokens(in_string, room));
  }
}
BENCHMARK_CAPTURE(Kept, Far, false);
BENCHMARK_CAPTURE(Kept, Near, true);

void Advance(benchmark::State& state) {
  const auto constraint = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(CompileOrDie(Person())),
      Vocabulary());
  CHECK(constraint.ok()) << constraint.status();
  // A state inside a string, where any word is legal.
  const ByteAutomaton::State state_in_string =
      constraint->automaton().Next(ByteAutomaton::kStart, "{\"name\":\"a");
  CHECK(state_in_string != ByteAutomaton::kNone) << Person();
  std::mt19937 random(2);
  std::vector<TokenId> tokens(4096);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(256 + random() % 5000);
    CHECK(constraint->Advance(state_in_string, token) !=
          TokenConstraint::kNone);
  }
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        constraint->Advance(state_in_string, tokens[i++ % tokens.size()]));
  }
}
BENCHMARK(Advance);

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
