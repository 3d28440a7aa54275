// A small tokenizer.json to change in tests, and its tokenizer or error.
//
//   TokenizerFile file;
//   file.At("/model/type") = "WordPiece";
//   EXPECT_THAT(file.Parse(), StatusIs(kInvalid, HasSubstr("model.type")));
#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier::testing {

struct TokenizerFile {
  // BPE over "a", "b", "c" and joined ones, in words that "▁" begins.
  TokenizerFile()
      : value(json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 0, "content": "<unk>", "special": true, "normalized": false,
       "single_word": false, "lstrip": false, "rstrip": false},
      {"id": 1, "content": "<s>", "special": true, "normalized": false},
      {"id": 9, "content": "<tool>", "special": false, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "NFC"},
      {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "|"}, "behavior": "Isolated",
       "invert": false},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
       "split": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
       "split": true},
      {"type": "Fuse"}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
      "continuing_subword_prefix": null, "end_of_word_suffix": null,
      "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "b": 4, "c": 5,
                "ab": 6, "abc": 7, "▁abc": 8},
      "merges": [["a", "b"], "ab c", ["▁", "abc"]]}})")) {}

  json::value& At(std::string_view pointer) {
    return value.at_pointer({pointer.data(), pointer.size()});
  }

  absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(
      const TokenizerConfig& config = {}, const std::string& path = "") const {
    return JsonTokenizer::Parse(json::serialize(value), config, path);
  }

  json::value value;
};

}  // namespace espalier::testing
