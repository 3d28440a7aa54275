// Files of tokenizers that are wrong in some place: each loads, and encodes and
// decodes, or is refused with an error. Nothing else, whatever the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/status_matchers.h"
#include "tests/text/tokenizer_file.h"

namespace espalier {
namespace {

using ::espalier::testing::TokenizerFile;

constexpr int kNumMutations = 20'000;

// With every kind of step in some file.
std::vector<json::value> ValidFiles() {
  std::vector<json::value> files;
  const auto add = [&](std::string_view place, const char* value) {
    TokenizerFile file;
    if (!place.empty()) file.At(place) = json::parse(value);
    EXPECT_OK(file.Parse()) << json::serialize(file.value);
    files.push_back(std::move(file.value));
  };
  add("", "");
  add("/pre_tokenizer", R"tokenizer({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)"},
       "behavior": "MergedWithPrevious", "invert": true},
      {"type": "Digits", "individual_digits": true},
      {"type": "Punctuation", "behavior": "Contiguous"},
      {"type": "WhitespaceSplit"}, {"type": "Whitespace"}]})tokenizer");
  add("/pre_tokenizer", R"json({"type": "ByteLevel", "add_prefix_space": true,
      "trim_offsets": true, "use_regex": true})json");
  add("/normalizer", R"json({"type": "Sequence", "normalizers": [
      {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
      {"type": "Strip", "strip_left": true, "strip_right": true},
      {"type": "Prepend", "prepend": "a"},
      {"type": "Replace", "pattern": {"String": "b"}, "content": "cc"}]})json");
  add("/decoder", R"json({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})json");
  add("/post_processor", R"json({"type": "RobertaProcessing", "sep": ["<s>", 1],
      "cls": ["<unk>", 0], "trim_offsets": true, "add_prefix_space": true})json");
  add("/model", R"json({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
      "vocab": [["<unk>", 0.0], ["<s>", 0.0], ["▁", -2.5], ["a", -3.0],
                ["b", -3.5], ["ab", -4.0], ["▁abc", -1e-3]]})json");
  return files;
}

class FileMutator {
 public:
  explicit FileMutator(uint32_t seed) : random_(seed) {}

  // One to three places of `file` changed; then sometimes its bytes.
  std::string Mutate(json::value file) {
    const int num_changes = 1 + Below(3);
    for (int i = 0; i < num_changes; ++i) *NodeOf(&file) = Other(file);
    std::string text = json::serialize(file);
    if (Below(4) > 0) return text;
    const int num_bytes = 1 + Below(4);
    for (int i = 0; i < num_bytes; ++i) {
      text[Below(static_cast<int>(text.size()))] ^= 1 << Below(8);
    }
    if (Below(4) == 0) text.resize(Below(static_cast<int>(text.size())));
    return text;
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  json::value* NodeOf(json::value* node) {
    while (Below(6) > 0) {
      if (node->is_array() && !node->as_array().empty()) {
        json::array& list = node->as_array();
        node = &list[Below(static_cast<int>(list.size()))];
      } else if (node->is_object() && !node->as_object().empty()) {
        json::object& object = node->as_object();
        auto field = object.begin();
        std::advance(field, Below(static_cast<int>(object.size())));
        if (Below(20) == 0) {
          const std::string name(field->key());
          object.erase(name);
          return node;
        }
        node = &field->value();
      } else {
        break;
      }
    }
    return node;
  }

  json::value Other(json::value& file) {
    switch (Below(14)) {
      case 0:
        return nullptr;
      case 1:
        return Below(2) == 0;
      case 2:
        return INT64_MAX;
      case 3:
        return INT64_MIN;
      case 4:
        return UINT64_MAX;
      case 5:
        return 1.7e308;
      case 6:
        return Below(12) - 2;
      case 7:
        return "";
      case 8:
        return json::value(std::string(Below(300), 'a'));
      case 9:
        return json::value(std::string("\0\xEF\xBF\xBD\xF0\x9F\x8E\x88", 8));
      case 10:
        return json::value(Pattern());
      case 11:
        return json::array(Below(4), *NodeOf(&file));
      case 12:
        return json::object{{"type", *NodeOf(&file)}};
      default:
        return *NodeOf(&file);
    }
  }

  std::string Pattern() {
    constexpr const char* kParts[] = {
        "a",       "\\s", "\\p{L}", "[^a\\d]", "(?:",    ")",   "|", "*",
        "+",       "?",   "{2}",    "{0,9}",   "(?=",    "(?!", ".", "(?i:b)",
        "\\",      "[",   "]",      "{",       "(?<=a)", "b+?", "$", "^",
        "{65535}", "é",   "\\b",    "++",      "{,3}"};
    std::string pattern;
    const int num_parts = 1 + Below(8);
    for (int i = 0; i < num_parts; ++i) {
      pattern += kParts[Below(static_cast<int>(std::size(kParts)))];
    }
    return pattern;
  }

  std::mt19937 random_;
};

TEST(JsonTokenizerMutationTest, AFileLoadsOrIsRefused) {
  const std::vector<json::value> files = ValidFiles();
  FileMutator mutator(20260);
  int num_loaded = 0;
  for (int i = 0; i < kNumMutations; ++i) {
    const std::string text = mutator.Mutate(files[i % files.size()]);
    SCOPED_TRACE(text);
    const auto tokenizer = JsonTokenizer::Parse(text, {});
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.status().message().empty());
      continue;
    }
    ++num_loaded;
    for (const char* const line :
         {"", "abc ab<s>c|a  b 12,3", "é<tool>漢🎈\n"}) {
      for (const bool parse_special : {false, true}) {
        const auto tokens =
            (*tokenizer)
                ->Encode(line, {.add_special_tokens = true,
                                .parse_special = parse_special});
        if (!tokens.ok()) {
          EXPECT_FALSE(tokens.status().message().empty());
          continue;
        }
        EXPECT_OK((*tokenizer)->Decode(*tokens, {.show_special = true}));
      }
    }
  }
  EXPECT_GT(num_loaded, kNumMutations / 20);
  EXPECT_LT(num_loaded, kNumMutations);
}

}  // namespace
}  // namespace espalier
