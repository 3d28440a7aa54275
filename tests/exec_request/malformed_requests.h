// Request lines that must be refused, each with the whole message of its
// error; all are INVALID_ARGUMENT. They are written for models/en-fr
// (6,000 tokens, a context of 1,024).
#pragma once

#include <string>
#include <vector>

namespace espalier::testing {

struct MalformedRequest {
  std::string line;
  std::string message;
};

// A line whose params are `params`, otherwise good.
inline std::string WithParams(const std::string& params) {
  return R"({"prompt_tokens": [1, 4, 5], "params": )" + params + "}";
}

inline std::vector<MalformedRequest> MalformedRequests() {
  const auto params = [](const char* text, const char* message) {
    return MalformedRequest{WithParams(text), message};
  };
  return {
      // The line.
      {"", "not JSON at byte 0: incomplete JSON"},
      {"{", "not JSON at byte 1: incomplete JSON"},
      {"nonsense", "not JSON at byte 0: syntax error"},
      {R"({"prompt": "a"} x)", "not JSON at byte 16: extra data"},
      {"{\"prompt\": \"\xff\"}", "not UTF-8 at byte 12"},
      {"{\"prompt\": \"\xed\xa0\x80\"}", "not UTF-8 at byte 12"},
      {R"({"prompt": "\ud800"})", "not JSON at byte 18: syntax error"},
      {"[]", "a request must be a JSON object, got []"},
      {"7", "a request must be a JSON object, got 7"},
      {"null", "a request must be a JSON object, got null"},
      {"\"text\"", "a request must be a JSON object, got \"text\""},
      {std::string(50, '[') + std::string(50, ']'),
       "not JSON at byte 32: too deep"},
      // Its fields.
      {"{}", "a request needs one of prompt and prompt_tokens, got neither"},
      {R"({"id": 1, "params": {}})",
       "a request needs one of prompt and prompt_tokens, got neither"},
      {R"({"prompt": "a", "prompt_tokens": [1]})",
       "a request needs one of prompt and prompt_tokens, got both"},
      {R"({"prompt": "a", "promt": "b"})", "unknown field \"promt\""},
      {R"({"prompt": "a", "stream": true})", "unknown field \"stream\""},
      {R"({"prompt": "a", "num_beams": 2})", "unknown field \"num_beams\""},
      {R"({"id": null, "prompt": "a"})",
       "id must be a string or a number, got null"},
      {R"({"id": [1], "prompt": "a"})",
       "id must be a string or a number, got [1]"},
      {R"({"id": true, "prompt": "a"})",
       "id must be a string or a number, got true"},
      {R"({"prompt": 7})", "prompt must be a string, got 7"},
      {R"({"prompt": null})", "prompt must be a string, got null"},
      {R"({"prompt": ["a"]})", "prompt must be a string, got [\"a\"]"},
      {R"({"prompt": ""})", "prompt must not be empty, got \"\""},
      {R"({"prompt_tokens": []})", "prompt_tokens must not be empty, got []"},
      {R"({"prompt_tokens": 5})", "prompt_tokens must be a list, got 5"},
      {R"({"prompt_tokens": "1 4"})",
       "prompt_tokens must be a list, got \"1 4\""},
      {R"({"prompt_tokens": [1, "4"]})",
       "prompt_tokens[1] must be an integer, got \"4\""},
      {R"({"prompt_tokens": [1.5]})",
       "prompt_tokens[0] must be an integer, got 1.5"},
      {R"({"prompt_tokens": [[1]]})",
       "prompt_tokens[0] must be an integer, got [1]"},
      {R"({"prompt_tokens": [1, -1]})",
       "prompt_tokens[1] must be a token id, got -1"},
      {R"({"prompt_tokens": [1, 6000]})",
       "prompt_tokens[1] must be a token id in [0, 6000), got 6000"},
      {R"({"prompt_tokens": [4294967297]})",
       "prompt_tokens[0] must be a token id, got 4294967297"},
      {R"({"prompt_tokens": [1e300]})",
       "prompt_tokens[0] must be an integer, got 1e+300"},
      {R"({"prompt": "a", "params": []})", "params must be an object, got []"},
      {R"({"prompt": "a", "params": null})",
       "params must be an object, got null"},
      // Params: names.
      params(R"({"beams": 2})", "unknown field \"beams\" in params"),
      params(R"({"NUM_BEAMS": 2})", "unknown field \"NUM_BEAMS\" in params"),
      params(R"({"": 2})", "unknown field \"\" in params"),
      params(R"({"temperature": 0.5})",
             "unknown field \"temperature\" in params"),
      params(R"({"stop": ["a"]})", "unknown field \"stop\" in params"),
      params(R"({"n": 1, "num_return_sequences": 1})",
             "num_return_sequences and n are the same field, got both"),
      params(R"({"max_tokens": 9, "max_new_tokens": 9})",
             "max_new_tokens and max_tokens are the same field, got both"),
      // Params: types.
      params(R"({"num_beams": "4"})",
             "num_beams must be an integer, got \"4\""),
      params(R"({"num_beams": 4.0})", "num_beams must be an integer, got 4.0"),
      params(R"({"num_beams": null})",
             "num_beams must be an integer, got null"),
      params(R"({"num_beams": true})",
             "num_beams must be an integer, got true"),
      params(R"({"num_beams": 18446744073709551615})",
             "num_beams must be an integer, got 18446744073709551615"),
      params(R"({"length_penalty": "1"})",
             "length_penalty must be a number, got \"1\""),
      params(R"({"early_stopping": "always"})",
             "early_stopping must be true, false or \"never\", got "
             "\"always\""),
      params(R"({"early_stopping": 1})",
             "early_stopping must be true, false or \"never\", got 1"),
      params(R"({"max_new_tokens": [9]})",
             "max_new_tokens must be an integer, got [9]"),
      params(R"({"eos_token_id": "</s>"})",
             "eos_token_id must be a token id or a list of token ids, got "
             "\"</s>\""),
      params(R"({"eos_token_id": [2, 2.5]})",
             "eos_token_id[1] must be an integer, got 2.5"),
      params(R"({"bad_words_ids": [5]})",
             "bad_words_ids[0] must be a list, got 5"),
      params(R"({"bad_words_ids": [[5], ["a"]]})",
             "bad_words_ids[1][0] must be an integer, got \"a\""),
      params(R"({"suppress_tokens": 5})",
             "suppress_tokens must be a list, got 5"),
      params(R"({"do_sample": 0})", "do_sample must be true or false, got 0"),
      // Params: ranges.
      params(R"({"num_beams": 0})", "num_beams must be at least 1, got 0"),
      params(R"({"num_beams": -3})", "num_beams must be at least 1, got -3"),
      params(R"({"num_beams": 1048577})",
             "num_beams must be at most 1048576, got 1048577"),
      params(R"({"num_return_sequences": 0})",
             "num_return_sequences must be at least 1, got 0"),
      params(R"({"num_beams": 2, "num_return_sequences": 3})",
             "num_return_sequences must be at most 2 (num_beams), got 3"),
      params(R"({"n": 2})",
             "num_return_sequences must be at most 1 (num_beams), got 2"),
      params(R"({"max_new_tokens": 0})",
             "max_new_tokens must be at least 1, got 0"),
      params(R"({"max_new_tokens": 1022})",
             "max_new_tokens must be at most 1021 (a context of 1024 less 3 "
             "prompt tokens), got 1022"),
      params(R"({"min_new_tokens": -1})",
             "min_new_tokens must be at least 0, got -1"),
      params(R"({"eos_token_id": 6000})",
             "eos_token_id[0] must be a token id in [0, 6000), got 6000"),
      params(R"({"eos_token_id": [2, -1]})",
             "eos_token_id[1] must be a token id in [0, 6000), got -1"),
      params(R"({"repetition_penalty": 0})",
             "repetition_penalty must be positive and within float32, got 0"),
      params(R"({"repetition_penalty": -1.5})",
             "repetition_penalty must be positive and within float32, got "
             "-1.5"),
      params(R"({"repetition_penalty": 1e39})",
             "repetition_penalty must be positive and within float32, got "
             "1e+39"),
      params(R"({"repetition_penalty": 1e-60})",
             "repetition_penalty must be positive and within float32, got "
             "1e-60"),
      params(R"({"length_penalty": 400})",
             "length_penalty must keep length^length_penalty within float32 "
             "up to 256 tokens (max_new_tokens), got 400"),
      params(R"({"length_penalty": -400})",
             "length_penalty must keep length^length_penalty within float32 "
             "up to 256 tokens (max_new_tokens), got -400"),
      params(R"({"no_repeat_ngram_size": -2})",
             "no_repeat_ngram_size must be at least 0, got -2"),
      params(R"({"bad_words_ids": [[7], []]})",
             "bad_words_ids[1] must not be empty, got []"),
      params(R"({"bad_words_ids": [[7, 9999]]})",
             "bad_words_ids[0][1] must be a token id in [0, 6000), got 9999"),
      params(R"({"suppress_tokens": [7, 6001]})",
             "suppress_tokens[1] must be a token id in [0, 6000), got 6001"),
      params(R"({"do_sample": true})",
             "do_sample must be false (sampling is not there yet), got true"),
  };
}

}  // namespace espalier::testing
