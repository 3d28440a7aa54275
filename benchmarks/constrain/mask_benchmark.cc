// Masks of JSON Schemas on one core: the time of the legal tokens of each step
// of random texts.
//
//   mask_benchmark [VOCABULARY SCHEMAS]
//
// VOCABULARY has a token a line, its bytes in hexadecimal; without it, tokens
// are random. SCHEMAS has a line of JSON for each schema, with `name` and
// `schema`; without it, the schemas are those below.
//
// A step chooses one of the legal tokens, each as likely, with room for 400
// more than a text needs. Each text has a constraint of its own, so that its
// first step in a state makes the list of the state's tokens, and later ones
// find it. Each text is made three times, and the time of a step is the least.
// A line has microseconds of CPU, the median, the 99th percentile and the
// largest: of the first step in each state, and of all steps.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/text_constraint.h"

namespace espalier {
namespace {

constexpr int kNumTexts = 4;
constexpr int kNumRepeats = 3;
constexpr int32_t kRoom = 400;  // beyond what a text needs

struct Schema {
  std::string name;
  std::string text;
};

std::vector<Schema> OwnSchemas() {
  std::string fields;
  std::string names;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "\"field_" + std::to_string(i) + "\"";
    if (i > 0) fields += ", ", names += ", ";
    fields += name + R"(: {"type": )" +
              (i % 3 == 0   ? R"("string"})"
               : i % 3 == 1 ? R"("number"})"
                            : R"("array", "items": {"type": "string"}})");
    names += name;
  }
  const std::string closed = R"("additionalProperties": false)";
  return {
      {"any object", R"({"type": "object"})"},
      {"person",
       R"({"type": "object", "required": ["name", "age", "email"],
           "properties": {"name": {"type": "string"},
                          "age": {"type": "integer"},
                          "email": {"type": "string", "format": "email"}},
           )" +
           closed + "}"},
      {"50 required", R"({"type": "object", "properties": {)" + fields +
                          R"(}, "required": [)" + names + "], " + closed + "}"},
      {"50 optional",
       R"({"type": "object", "properties": {)" + fields + "}, " + closed + "}"},
      {"maxLength", R"({"type": "string", "maxLength": 10000})"},
      {"tree", R"({"type": "object", "required": ["v", "c"], "properties": {
           "v": {"type": "integer"},
           "c": {"type": "array", "items": {"$ref": "#"}}}, )" +
                   closed + "}"},
      {"date", R"({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"})"},
      {"integers", R"({"type": "array", "items": {"type": "integer",
           "minimum": 0, "maximum": 255}, "minItems": 1, "maxItems": 1000})"},
      {"words", R"({"type": "string", "pattern": "^[^@\\s]+@[a-z.]+$"})"},
  };
}

std::vector<std::string> RandomTokens() {
  constexpr std::string_view kPunctuation = "\"':,.{}[]()\\_- \n";
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  while (tokens.size() < 128'256) {
    std::string token = random() % 2 == 0 ? " " : "";
    if (random() % 10 == 0) {
      token += kPunctuation[random() % kPunctuation.size()];
      token += kPunctuation[random() % kPunctuation.size()];
    }
    const int length = 2 + static_cast<int>(random() % 8);
    for (int i = 0; i < length; ++i) {
      token += static_cast<char>('a' + random() % 26);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::ifstream Open(const std::string& path) {
  std::ifstream file(path);
  CHECK(file.is_open()) << "cannot read " << path;
  return file;
}

std::vector<std::string> ReadTokens(const std::string& path) {
  std::ifstream file = Open(path);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    std::string& token = tokens.emplace_back();
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      token += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
  }
  return tokens;
}

std::vector<Schema> ReadSchemas(const std::string& path) {
  std::ifstream file = Open(path);
  std::vector<Schema> schemas;
  for (std::string line; std::getline(file, line);) {
    const auto value = ParseJson(line);
    CHECK(value.ok()) << value.status();
    const json::object& object = value->as_object();
    schemas.push_back({std::string(object.at("name").as_string()),
                       WriteJson(object.at("schema"))});
  }
  return schemas;
}

std::shared_ptr<const LanguageConstraint> MakeConstraint(
    const std::variant<std::shared_ptr<const ByteAutomaton>,
                       std::shared_ptr<const PushdownAutomaton>>& language,
    const std::shared_ptr<const TokenVocabulary>& vocabulary) {
  if (const auto* const calls =
          std::get_if<std::shared_ptr<const PushdownAutomaton>>(&language)) {
    auto made = PushdownConstraint::Make(*calls, vocabulary, {});
    CHECK(made.ok()) << made.status();
    return *made;
  }
  auto texts = TokenConstraint::Make(
      std::get<std::shared_ptr<const ByteAutomaton>>(language), vocabulary);
  CHECK(texts.ok()) << texts.status();
  auto made = TextConstraint::Make(*std::move(texts), {});
  CHECK(made.ok()) << made.status();
  return *made;
}

double ThreadMicroseconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 +
         static_cast<double>(time.tv_nsec) / 1e3;
}

// Microseconds of each step, and if it is the first in its state.
struct Step {
  double time = 0;
  bool is_first = false;
};

void Print(const std::string& name, const std::vector<Step>& steps) {
  std::printf("%-44.44s", name.c_str());
  for (const bool only_firsts : {true, false}) {
    std::vector<double> times;
    for (const Step& step : steps) {
      if (step.is_first || !only_firsts) times.push_back(step.time);
    }
    std::sort(times.begin(), times.end());
    const size_t count = times.size();
    std::printf(" |%6zu%9.2f%9.1f%9.1f", count, times[count / 2],
                times[count * 99 / 100], times.back());
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<Step> TimeText(const LanguageConstraint& constraint,
                           uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  std::set<Constraint::State> listed;
  Constraint::State at = constraint.start();
  for (int32_t room = constraint.MinRoom(false) + kRoom;; --room) {
    const double begin = ThreadMicroseconds();
    const Constraint::Legal legal = constraint.LegalTokens(at, room);
    const double time = ThreadMicroseconds() - begin;
    steps.push_back({time, listed.insert(at).second});
    at = constraint.Advance(at, legal.tokens[random() % legal.tokens.size()]);
    if (constraint.ends(at, room - 1)) return steps;
  }
}

std::vector<Step> TimeSchema(
    const Schema& schema,
    const std::shared_ptr<const TokenVocabulary>& vocabulary) {
  auto language = CompileJsonSchemaWithCalls(schema.text);
  CHECK(language.ok()) << schema.name << ": " << language.status();
  std::variant<std::shared_ptr<const ByteAutomaton>,
               std::shared_ptr<const PushdownAutomaton>>
      automaton;
  if (auto* const calls = std::get_if<PushdownAutomaton>(&*language)) {
    automaton = std::make_shared<const PushdownAutomaton>(std::move(*calls));
  } else {
    automaton = std::make_shared<const ByteAutomaton>(
        std::get<ByteAutomaton>(*std::move(language)));
  }
  std::vector<Step> all;
  for (uint64_t seed = 0; seed < kNumTexts; ++seed) {
    std::vector<Step> steps;
    for (int i = 0; i < kNumRepeats; ++i) {
      const std::vector<Step> again =
          TimeText(*MakeConstraint(automaton, vocabulary), seed);
      if (steps.empty()) steps = again;
      for (size_t s = 0; s < steps.size(); ++s) {
        steps[s].time = std::min(steps[s].time, again[s].time);
      }
    }
    all.insert(all.end(), steps.begin(), steps.end());
  }
  return all;
}

int Main(int argc, char** argv) {
  if (argc != 1 && argc != 3) {
    std::cerr << "usage: mask_benchmark [VOCABULARY SCHEMAS]\n";
    return 1;
  }
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      argc == 3 ? ReadTokens(argv[1]) : RandomTokens());
  std::printf("%-44s |%6s%9s%9s%9s |%6s%9s%9s%9s\n", "us of CPU", "states",
              "p50", "p99", "max", "steps", "p50", "p99", "max");
  std::vector<Step> all;
  for (const Schema& schema : argc == 3 ? ReadSchemas(argv[2]) : OwnSchemas()) {
    const std::vector<Step> steps = TimeSchema(schema, vocabulary);
    all.insert(all.end(), steps.begin(), steps.end());
    Print(schema.name, steps);
  }
  Print("all", all);
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) { return espalier::Main(argc, argv); }
