// A tokenizer.json that is malformed, or uses unsupported features, is refused
// by field and value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/status_matchers.h"
#include "tests/text/tokenizer_file.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::espalier::testing::TokenizerFile;
using ::testing::HasSubstr;

constexpr auto kBadFile = absl::StatusCode::kInvalidArgument;

struct BadFile {
  const char* pointer;  // changed field
  const char* value;    // to this; nullptr: it is taken away
  const char* error;    // part of the expected error
};

const BadFile kBadFiles[] = {
    // The file.
    {"/version", "\"2.0\"", "version must be 1.0, got \"2.0\""},
    {"/version", "1", "version must be a string, got 1"},
    {"/model", "null", "model must be an object, got null"},
    {"/model", nullptr, "model must be an object, got nothing"},
    {"/model", "[]", "model must be an object, got []"},
    {"/extra", "true", "extra is not known, got true"},
    // The model.
    {"/model/type", "\"WordLevel\"",
     "model.type must be BPE or Unigram, got \"WordLevel\""},
    {"/model/type", "7", "model.type must be a string, got 7"},
    {"/model/dropout", "0.1", "model.dropout must be 0 or null, got 0.1"},
    {"/model/unk_token", "\"nope\"",
     "model.unk_token must be a piece of the vocab, got \"nope\""},
    {"/model/unk_token", "3", "model.unk_token must be a string, got 3"},
    {"/model/continuing_subword_prefix", "\"##\"",
     "model.continuing_subword_prefix must be empty or null, got \"##\""},
    {"/model/end_of_word_suffix", "\"</w>\"",
     "model.end_of_word_suffix must be empty or null, got \"</w>\""},
    {"/model/fuse_unk", "\"yes\"",
     "model.fuse_unk must be true or false, got \"yes\""},
    {"/model/byte_fallback", "true", "vocab has no <0x00>, got true"},
    {"/model/ignore_merges", "1",
     "model.ignore_merges must be true or false, got 1"},
    {"/model/surprise", "1", "model.surprise is not known, got 1"},
    {"/model/vocab", nullptr, "model.vocab must be an object, got nothing"},
    {"/model/vocab", "{}", "model.vocab must be an object with entries"},
    {"/model/vocab/a", "-1",
     "model.vocab[\"a\"] must be an id in [0, 4194304)"},
    {"/model/vocab/a", "4194304", "must be an id in [0, 4194304), got 4194304"},
    {"/model/vocab/a", "1.5", "model.vocab[\"a\"] must be an id"},
    {"/model/vocab/a", "4", "model.vocab: id 4 is that of "},
    {"/model/merges", nullptr, "model.merges must be a list, got nothing"},
    {"/model/merges/0", "\"ab\"",
     "model.merges[0] must be two pieces, got \"ab\""},
    {"/model/merges/0", "\"a b c\"", "model.merges[0] must be two pieces"},
    {"/model/merges/1", "[\"a\"]",
     "model.merges[1] must be two pieces, got [\"a\"]"},
    {"/model/merges/1", "[\"a\", 2]", "model.merges[1] must be two pieces"},
    {"/model/merges/1", "\"a x\"",
     "model.merges[1] needs \"x\", which model.vocab does not have"},
    {"/model/merges/1", "\"b c\"", "model.merges[1] needs \"bc\""},
    // Added tokens.
    {"/added_tokens", "{}", "added_tokens must be a list, got {}"},
    {"/added_tokens/0", "5", "added_tokens[0] must be an object, got 5"},
    {"/added_tokens/0/id", "\"0\"",
     "added_tokens[0].id must be an integer, got \"0\""},
    {"/added_tokens/0/id", "99999999",
     "added_tokens[0].id must be in [0, 4194304), got 99999999"},
    {"/added_tokens/0/id", "3",
     "id 3 of \"<unk>\" must be that of model.vocab"},
    {"/added_tokens/2/id", "3", "where 3 is \"a\""},
    {"/added_tokens/2/id", "1", "added_tokens: id 1 is that of "},
    {"/added_tokens/0/content", "\"\"",
     "added_tokens[0].content must be a string of 1 to 256 bytes, got \"\""},
    {"/added_tokens/1/special", "1",
     "added_tokens[1].special must be true or false, got 1"},
    {"/added_tokens/1/color", "1", "added_tokens[1].color is not known, got 1"},
    // The normalizer.
    {"/normalizer", "\"NFC\"", "normalizer must be an object, got \"NFC\""},
    {"/normalizer/type", "\"ByteLevel\"",
     "normalizer.type must be a normalizer that is supported, got "
     "\"ByteLevel\""},
    {"/normalizer/normalizers", "3",
     "normalizer.normalizers must be a list, got 3"},
    {"/normalizer/normalizers/0/type", "\"NFX\"",
     "normalizer.normalizers[0].type must be a normalizer that is supported"},
    {"/normalizer/normalizers/0/x", "1",
     "normalizer.normalizers[0].x is not known, got 1"},
    {"/normalizer/normalizers/1/pattern", "{}",
     "normalizer.normalizers[1].pattern must be {\"String\""},
    {"/normalizer/normalizers/1/pattern/Regex", "\"(\"",
     "normalizer.normalizers[1].pattern.Regex: pattern \"(\", byte 1: a group "
     "without its end is not supported"},
    {"/normalizer/normalizers/1/content", "null",
     "normalizer.normalizers[1].content must be a string, got null"},
    {"/normalizer/normalizers/0",
     R"({"type": "Precompiled", "precompiled_charsmap": "AA"})",
     "normalizers[0].precompiled_charsmap must be Base64, got \"AA\""},
    {"/normalizer/normalizers/0",
     R"({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="})",
     "precompiled_charsmap: a trie of 0 bytes in a map of 0"},
    {"/normalizer/normalizers/0", R"({"type": "Strip", "strip_left": true})",
     "normalizer.normalizers[0].strip_right must be true or false"},
    // The pre-tokenizer.
    {"/pre_tokenizer/type", "\"BertPreTokenizer\"",
     "pre_tokenizer.type must be a pre-tokenizer that is supported"},
    {"/pre_tokenizer/pretokenizers/0/behavior", "\"Sideways\"",
     "pre_tokenizer.pretokenizers[0].behavior must be Removed, Isolated"},
    {"/pre_tokenizer/pretokenizers/0/invert", "null",
     "pre_tokenizer.pretokenizers[0].invert must be true or false, got null"},
    {"/pre_tokenizer/pretokenizers/0/pattern", R"({"String": ""})",
     "pattern.String must be a string that is not empty, got \"\""},
    {"/pre_tokenizer/pretokenizers/0/pattern", R"x({"Regex": "a(?<n>b)"})x",
     "byte 2: this kind of group is not supported"},
    {"/pre_tokenizer/pretokenizers/0/pattern", R"({"Regex": "[a-z&&[b]]"})",
     "byte 4: && inside of a class is not supported"},
    {"/pre_tokenizer/pretokenizers/0/pattern", R"({"Regex": "\\p{Nope}"})",
     "the property \"Nope\" is not supported"},
    {"/pre_tokenizer/pretokenizers/1/replacement", "\"__\"",
     "pre_tokenizer.pretokenizers[1].replacement must be one character"},
    {"/pre_tokenizer/pretokenizers/1/prepend_scheme", "\"last\"",
     "prepend_scheme must be always, first or never, got \"last\""},
    {"/pre_tokenizer/pretokenizers/1/add_prefix_space", "false",
     "add_prefix_space must be true beside prepend_scheme, got false"},
    {"/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [
         {"type": "ByteLevel", "add_prefix_space": false},
         {"type": "ByteLevel", "add_prefix_space": false}]})",
     "pre_tokenizer.pretokenizers[1].type must be something else, once"},
    {"/pre_tokenizer", R"({"type": "ByteLevel"})",
     "pre_tokenizer.add_prefix_space must be true or false, got nothing"},
    // The post-processor.
    {"/post_processor/type", "\"Surround\"",
     "post_processor.type must be a post-processor that is supported"},
    {"/post_processor/single", "\"$A\"",
     "post_processor.single must be a list, got \"$A\""},
    {"/post_processor/single/1", R"({"Sequence": {"id": "B", "type_id": 0}})",
     "post_processor.single[1].Sequence.id must be A, once, got \"B\""},
    {"/post_processor/single", R"([{"SpecialToken": {"id": "<s>"}}])",
     "post_processor.single must be around a sequence A"},
    {"/post_processor/special_tokens", "{}",
     "post_processor.special_tokens[\"<s>\"] is missing"},
    {"/post_processor/special_tokens/<s>/ids", "[10]",
     "post_processor.special_tokens[\"<s>\"].ids[0] must be a token in [0, "
     "10), "
     "got 10"},
    {"/post_processor",
     R"({"type": "BertProcessing", "cls": ["<s>", 1], "sep": ["x"]})",
     "post_processor.sep must be a name and its token, got [\"x\"]"},
    // The decoder.
    {"/decoder/type", "\"CTC\"",
     "decoder.type must be a decoder that is supported, got \"CTC\""},
    {"/decoder/decoders", "null", "decoder.decoders must be a list, got null"},
    {"/decoder/decoders/0",
     R"({"type": "Strip", "content": "  ", "start": 1, "stop": 0})",
     "decoder.decoders[0].content must be one character, got \"  \""},
    {"/decoder/decoders/0",
     R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
     "decoder.decoders[0].start must be at least 0, got -1"},
    {"/decoder",
     R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
         {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})",
     "decoder.decoders[1].start must be 0 or 1, got 2"},
    {"/decoder",
     R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
         {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})",
     "decoder.decoders[1].type must be in front of what joins"},
};

// `pointer` is a JSON pointer; its last part may be a field that is not there.
void Change(const BadFile& bad, TokenizerFile* file) {
  const std::string pointer = bad.pointer;
  const size_t slash = pointer.rfind('/');
  json::value& parent =
      slash == 0 ? file->value : file->At(pointer.substr(0, slash));
  const std::string name = pointer.substr(slash + 1);
  if (parent.is_array()) {
    parent.as_array()[std::stoul(name)] = json::parse(bad.value);
  } else if (bad.value == nullptr) {
    parent.as_object().erase(name);
  } else {
    parent.as_object()[name] = json::parse(bad.value);
  }
}

TEST(JsonTokenizerErrorsTest, NameTheFieldAndItsValue) {
  EXPECT_OK(TokenizerFile().Parse());
  for (const BadFile& bad : kBadFiles) {
    TokenizerFile file;
    Change(bad, &file);
    EXPECT_THAT(file.Parse(), StatusIs(kBadFile, HasSubstr(bad.error)))
        << bad.pointer << " " << (bad.value == nullptr ? "" : bad.value);
  }
}

TEST(JsonTokenizerErrorsTest, UnigramNamesItsFields) {
  const auto parse = [](const std::string& model) {
    return JsonTokenizer::Parse(
        "{\"model\": {\"type\": \"Unigram\", " + model + "}}", {});
  };
  EXPECT_OK(parse(R"("unk_id": 0, "vocab": [["<unk>", 0], ["a", -1.5]])"));
  const std::pair<const char*, const char*> kBad[] = {
      {R"("vocab": {})", "model.vocab must be a list, got {}"},
      {R"("vocab": [])", "model.vocab must be a list with entries, got []"},
      {R"("vocab": [["a"]])", "model.vocab[0] must be one of 4194304 pieces"},
      {R"("vocab": [["a", "b"]])", "with its score, got [\"a\", \"b\"]"},
      {R"("vocab": [["a", 1]], "unk_id": 1)",
       "model.unk_id must be in [0, 1), got 1"},
      {R"("vocab": [["a", 1]], "unk_id": "a")",
       "model.unk_id must be an integer, got \"a\""},
      {R"("vocab": [["a", 1]], "byte_fallback": true)", "has no <0x00>"},
      {R"("vocab": [["a", 1]], "alpha": 0.1)", "model.alpha is not known"}};
  for (const auto& [model, error] : kBad) {
    EXPECT_THAT(parse(model), StatusIs(kBadFile, HasSubstr(error))) << model;
  }
}

TEST(JsonTokenizerErrorsTest, WhatIsNoJsonIsRefused) {
  for (const char* text :
       {"", "{", "[]", "3", "{\"model\": \"\xFF\"}", "{} {}", "null"}) {
    EXPECT_THAT(JsonTokenizer::Parse(text, {}),
                StatusIs(kBadFile, ::testing::_))
        << text;
  }
}

}  // namespace
}  // namespace espalier
