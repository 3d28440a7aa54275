// The lines of malformed_requests.h with wrong params, and no other fault.
#pragma once

#include <string>
#include <vector>

#include "tests/request/json/malformed_request.h"

namespace espalier::testing {

inline std::vector<MalformedRequest> MalformedParams() {
  const auto params = [](const char* text, const char* message) {
    return MalformedRequest{WithParams(text), message};
  };
  return {
      // Params: names.
      params(R"({"beams": 2})",
             "unknown field \"beams\" in params; did you mean num_beams?"),
      params(R"({"NUM_BEAMS": 2})",
             "unknown field \"NUM_BEAMS\" in params; did you mean num_beams?"),
      params(R"({"prompt": "a"})",
             "unknown field \"prompt\" in params; it belongs beside params"),
      params(R"({"promt": "a"})",
             "unknown field \"promt\" in params; did you mean prompt beside "
             "params?"),
      params(R"({"beam_size": 4})",
             "unknown field \"beam_size\" in params; did you mean num_beams?"),
      params(R"({"max_completion_tokens": 4})",
             "unknown field \"max_completion_tokens\" in params; did you mean "
             "max_new_tokens?"),
      params(R"({"eos": 4})",
             "unknown field \"eos\" in params; did you mean eos_token_id?"),
      params(R"({"use_beam_search": true})",
             "unknown field \"use_beam_search\" in params; beams are num_beams "
             "N"),
      params(R"({"text": "a"})",
             "unknown field \"text\" in params; did you mean prompt beside "
             "params?"),
      params(R"({"top_a": 1})",
             "unknown field \"top_a\" in params; there is nothing like it"),
      params(R"({"grammar": "root ::= a"})",
             "unknown field \"grammar\" in params; did you mean constraint?"),
      params(R"({"guided_regex": "a"})",
             "unknown field \"guided_regex\" in params; did you mean "
             "constraint?"),
      params(R"({"": 2})", "unknown field \"\" in params"),
      params(R"({"watermark": null})", "unknown field \"watermark\" in params"),
      params(R"({"n": 1, "num_return_sequences": 1})",
             "num_return_sequences and n are the same field, got both"),
      params(R"({"max_tokens": 9, "max_new_tokens": 9})",
             "max_new_tokens and max_tokens are the same field, got both"),
      // Params: types.
      params(R"({"num_beams": "4"})",
             "num_beams must be an integer, got \"4\""),
      params(R"({"num_beams": 4.0})", "num_beams must be an integer, got 4.0"),
      params(R"({"stop": [null]})", "stop[0] must be a string, got null"),
      params(R"({"sequence_bias": {"7": 1}})",
             "sequence_bias must be a list, got {\"7\": 1}"),
      params(R"({"sequence_bias": [[[7], 1], [7, 1]]})",
             "sequence_bias[1][0] must be a list, got 7"),
      params(R"({"sequence_bias": [[[7]]]})",
             "sequence_bias[0] must be a list of token ids and a bias, "
             "[[7, 8], -1.5], got [[7]]"),
      params(R"({"sequence_bias": [[[7], "1"]]})",
             "sequence_bias[0][1] must be a number, got \"1\""),
      params(R"({"sequence_bias": [[[7], 1], [[], 1]]})",
             "sequence_bias[1][0] must not be empty, got []"),
      params(R"({"sequence_bias": [[[7], 1], [[7, 9999], 1]]})",
             "sequence_bias[1][0][1] must be a token id in [0, 6000), got "
             "9999"),
      params(R"({"sequence_bias": [[[7, 8], 1], [[7], 1], [[7, 8], 1]]})",
             "sequence_bias must name each sequence once, got one of 2 tokens "
             "that ends in 8 twice"),
      params(
          R"({"sequence_bias": [[[7], 1e39]]})",
          "sequence_bias[0][1] must be finite and within float32, got 1e+39"),
      params(R"({"num_beams": 2, "sequence_bias": [[[7], 2e38], [[8], 2e38]]})",
             "sequence_bias of a sequence that ends in token 7 must keep sums "
             "of scores within float32 over 256 tokens (max_new_tokens), got "
             "2e+38"),
      params(
          R"({"sequence_bias": [[[7], 3e38], [[9, 7], -3e38]]})",
          "sequence_bias of a sequence that ends in token 7 must keep sums of "
          "scores within float32 over 256 tokens (max_new_tokens), got -3e+38"),
      params(R"({"logit_bias": {"7": -3e38}, "frequency_penalty": 1e36})",
             "logit_bias of token 7 must keep sums of scores within float32 "
             "over 256 tokens (max_new_tokens), got -3e+38"),
      params(R"({"exponential_decay_length_penalty": 3})",
             "exponential_decay_length_penalty must be a list of an integer "
             "and a number, [start_index, factor], got 3"),
      params(R"({"exponential_decay_length_penalty": [1.5, 2]})",
             "exponential_decay_length_penalty[0] must be an integer, got "
             "1.5"),
      params(R"({"exponential_decay_length_penalty": [-1, 2]})",
             "exponential_decay_length_penalty[0] must be at least 0, got -1"),
      params(R"({"exponential_decay_length_penalty": [1, 0]})",
             "exponential_decay_length_penalty[1] must be above 0, got 0"),
      params(R"({"exponential_decay_length_penalty": [1, 2]})",
             "exponential_decay_length_penalty[1] must keep sums of scores "
             "within float32 over 256 tokens (max_new_tokens), got 2"),
      params(R"({"begin_suppress_tokens": [7, -1]})",
             "begin_suppress_tokens[1] must be a token id in [0, 6000), got "
             "-1"),
      params(R"({"logprobs": 1, "logprobs_mode": "processed_logits"})",
             "logprobs_mode must be \"raw_logprobs\" or "
             "\"processed_logprobs\", got \"processed_logits\""),
      params(R"({"logprobs_mode": "processed_logprobs"})",
             "logprobs_mode must be \"raw_logprobs\" without logprobs, got "
             "\"processed_logprobs\""),
      params(R"({"logit_bias": {"7": null}})",
             "logit_bias of token 7 must be a number, got null"),
      params(R"({"num_beams": true})",
             "num_beams must be an integer, got true"),
      params(R"({"num_beams": 18446744073709551615})",
             "num_beams must be an integer in [1, 1048576], got "
             "18446744073709551615"),
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
      params(R"({"bad_words": 5})",
             "bad_words must be a string or a list of strings, got 5"),
      params(R"({"bad_words": ["a", [7]]})",
             "bad_words[1] must be a string, got [7]"),
      params(R"({"bad_words_ids": [5]})",
             "bad_words_ids[0] must be a list, got 5"),
      params(R"({"bad_words_ids": [[5], ["a"]]})",
             "bad_words_ids[1][0] must be an integer, got \"a\""),
      params(R"({"suppress_tokens": "5"})",
             "suppress_tokens must be a token id or a list of token ids, got "
             "\"5\""),
      params(R"({"do_sample": 0})", "do_sample must be true or false, got 0"),
      params(R"({"stochastic": "true"})",
             "stochastic must be true or false, got \"true\""),
      params(R"({"length_penalty_form": "Wu"})",
             "length_penalty_form must be \"power\" or \"wu\", got \"Wu\""),
      params(R"({"length_penalty_form": 6})",
             "length_penalty_form must be \"power\" or \"wu\", got 6"),
      params(R"({"patience": true})", "patience must be a number, got true"),
      params(R"({"num_beam_groups": 1.5})",
             "num_beam_groups must be an integer, got 1.5"),
      params(R"({"diversity_penalty": []})",
             "diversity_penalty must be a number, got []"),
      params(R"({"temperature": "hot"})",
             "temperature must be a number, got \"hot\""),
      params(R"({"temperature": 1e999})",
             "temperature must be a number within float64, got 1e999"),
      params(R"({"top_k": 2.0})", "top_k must be an integer, got 2.0"),
      params(R"({"min_p": {}})", "min_p must be a number, got {}"),
      params(R"({"typical_p": false})",
             "typical_p must be a number, got false"),
      params(R"({"seed": -1})", "seed must be an integer in [0, 2^64), got -1"),
      params(R"({"seed": 0.5})",
             "seed must be an integer in [0, 2^64), got 0.5"),
      params(R"({"seed": 18446744073709551616})",
             "seed must be an integer in [0, 2^64), got "
             "18446744073709551616"),
      params(R"({"num_beams": 100000000000000000000001})",
             "num_beams must be an integer in [1, 1048576], got "
             "100000000000000000000001"),
      params(R"({"min_new_tokens": -1e19})",
             "min_new_tokens must be an integer in [0, 2^63), got -1e19"),
      params(R"({"max_tokens": 1e300})",
             "max_tokens must be an integer in [1, 2^63), got 1e300"),
      params(R"({"priority": 9223372036854775808})",
             "priority must be an integer in [-2^52, 2^52], got "
             "9223372036854775808"),
      params(R"({"speculate": "ngram:99999999999999999999"})",
             "speculate.num_tokens must be an integer in [1, 32], got "
             "99999999999999999999"),
      params(R"({"speculate": {"method": "ngram", "num_tokens": 1e300}})",
             "speculate.num_tokens must be an integer in [1, 32], got 1e300"),
      params(R"({"frequency_penalty": "1"})",
             "frequency_penalty must be a number, got \"1\""),
      params(R"({"presence_penalty": [1]})",
             "presence_penalty must be a number, got [1]"),
      params(R"({"logit_bias": [[7, 1]]})",
             "logit_bias must be an object of token ids and biases, got "
             "[[7, 1]]"),
      params(R"({"logit_bias": {"the": 1}})",
             "logit_bias must have token ids as keys, got \"the\""),
      params(R"({"logit_bias": {"07": 1}})",
             "logit_bias must have token ids as keys, got \"07\""),
      params(R"({"logit_bias": {"7": "up"}})",
             "logit_bias of token 7 must be a number, got \"up\""),
      params(R"({"allowed_token_ids": true})",
             "allowed_token_ids must be a token id or a list of token ids, got "
             "true"),
      params(
          R"({"constraint": "a"})",
          "constraint must be an object with regex, a string, choice, a list "
          "of strings, json_schema, a schema, grammar, a string, tool_calls, "
          "an object, items, the name of a catalogue, or must_contain, a list "
          "of "
          "strings, got \"a\""),
      params(
          R"({"constraint": {}})",
          "constraint must be an object with regex, a string, choice, a list "
          "of strings, json_schema, a schema, grammar, a string, tool_calls, "
          "an object, items, the name of a catalogue, or must_contain, a list "
          "of "
          "strings, got {}"),
      params(R"({"constraint": {"json_schema": "{}"}})",
             "constraint.json_schema must be an object or a boolean, got "
             "\"{}\""),
      params(R"({"constraint": {"json_schema": {}, "whitespace": "some"}})",
             "constraint.whitespace must be \"bounded\", \"none\" or a regular "
             "expression of white space: a text that it matches has \"s\", but "
             "between its parts JSON has space, \\t, \\n and \\r alone, got "
             "\"some\""),
      params(R"({"constraint": {"json_schema": {}, "whitespace": " (?= ) "}})",
             "constraint.whitespace must be \"bounded\", \"none\" or a regular "
             "expression of white space: at byte 1: look-ahead \"(?=\" is not "
             "supported, got \" (?= ) \""),
      params(R"({"constraint": {"json_schema": {}, "whitespace": 1}})",
             "constraint.whitespace must be a string, got 1"),
      params(R"({"constraint": {"json_schema": {}, )"
             R"("disable_additional_properties": 1}})",
             "constraint.disable_additional_properties must be true or false, "
             "got 1"),
      params(R"({"constraint": {"regex": "a", )"
             R"("disable_additional_properties": true}})",
             "constraint.disable_additional_properties must be unset without a "
             "schema, got regex"),
      params(R"({"constraint": {"regex": "a", "whitespace": "none"}})",
             "constraint.whitespace must be unset without a schema, got regex"),
      params(R"({"constraint": {"regex": ["a"]}})",
             "constraint.regex must be a string, got [\"a\"]"),
      params(R"({"constraint": {"grammar": {"root": "a"}}})",
             "constraint.grammar must be a string, got {\"root\": \"a\"}"),
      params(R"({"constraint": {"grammar": "root ::= [0-9]", "regex": "a"}})",
             "constraint must have one kind of language, got grammar and "
             "regex"),
      params(R"({"constraint": {"choice": ["a", 7]}})",
             "constraint.choice[1] must be a string, got 7"),
      params(R"({"constraint": {"regex": "a", "choice": ["a"]}})",
             "constraint must have one kind of language, got regex and choice"),
      params(R"({"constraint": {"must_contain": "a"}})",
             "constraint.must_contain must be a list, got \"a\""),
      params(R"({"constraint": {"must_contain": ["a", 7]}})",
             "constraint.must_contain[1] must be a string, got 7"),
      params(R"({"constraint": {"must_contain": []}})",
             "constraint.must_contain must not be empty, got []"),
      params(R"({"constraint": {"regex": "a", "must_contain": []}})",
             "constraint.must_contain must not be empty, got []"),
      params(R"({"constraint": {"must_contain": ["a"], "exclude": [[7]]}})",
             "constraint.exclude must be unset without items, got "
             "must_contain"),
      params(R"({"constraint": {"items": ["songs"]}})",
             "constraint.items must be a string, got [\"songs\"]"),
      params(R"({"constraint": {"items": "songs", "regex": "a"}})",
             "constraint must have one kind of language, got items and regex"),
      params(R"({"constraint": {"items": "songs", "whitespace": "none"}})",
             "constraint.whitespace must be unset without a schema, got items"),
      params(R"({"constraint": {"regex": "a", "exclude": [[7]]}})",
             "constraint.exclude must be unset without items, got regex"),
      params(R"({"constraint": {"exclude_prefixes": [[7]], "choice": ["a"]}})",
             "constraint.exclude_prefixes must be unset without items, got "
             "choice"),
      params(R"({"constraint": {"items": "songs", "exclude": "Hello"}})",
             "constraint.exclude must be a list, got \"Hello\""),
      params(R"({"constraint": {"items": "songs", "exclude": [[7], 8]}})",
             "constraint.exclude[1] must be a list of token ids or a text, got "
             "8"),
      params(R"({"constraint": {"items": "songs", "exclude": [[7, "a"]]}})",
             "constraint.exclude[0][1] must be an integer, got \"a\""),
      params(R"({"constraint": {"items": "songs", "exclude_prefixes": ["a"]}})",
             "constraint.exclude_prefixes[0] must be a list, got \"a\""),
      params(R"({"constraint": {"regexp": "a"}})",
             "constraint must have no field \"regexp\"; did you mean regex?"),
      params(R"({"allowed_sequences": [7]})",
             "allowed_sequences[0] must be a list, got 7"),
      params(R"({"allowed_sequences": [[7, "a"]]})",
             "allowed_sequences[0][1] must be an integer, got \"a\""),
      params(R"({"stop_token_ids": true})",
             "stop_token_ids must be a token id or a list of token ids, got "
             "true"),
      params(R"({"ignore_eos": 1})", "ignore_eos must be true or false, got 1"),
      params(R"({"stop": 7})",
             "stop must be a string or a list of strings, got 7"),
      params(R"({"stop": ["a", 7]})", "stop[1] must be a string, got 7"),
      params(R"({"stop": ""})", "stop must not be empty, got \"\""),
      params(R"({"bad_words": ""})", "bad_words must not be empty, got \"\""),
      params(R"({"logprobs": true})", "logprobs must be an integer, got true"),
      params(R"({"prompt_logprobs": "5"})",
             "prompt_logprobs must be an integer, got \"5\""),
      params(R"({"speculate": true})",
             "speculate must be \"off\", \"METHOD[:NUM_TOKENS[:MODE]]\" or an "
             "object, got true"),
      params(R"({"speculate": ["ngram"]})",
             "speculate must be \"off\", \"METHOD[:NUM_TOKENS[:MODE]]\" or an "
             "object, got [\"ngram\"]"),
      params(R"({"speculate": "ngram:5:coupled:"})",
             "speculate must be \"off\", \"METHOD[:NUM_TOKENS[:MODE]]\" or an "
             "object, got \"ngram:5:coupled:\""),
      params(R"({"speculate": "eagle"})",
             "speculate.method must be \"ngram\", \"suffix\", \"constraint\", "
             "\"draft\" or "
             "\"off\", got \"eagle\""),
      params(R"({"speculate": ""})",
             "speculate.method must be \"ngram\", \"suffix\", \"constraint\", "
             "\"draft\" or "
             "\"off\", got \"\""),
      params(R"({"speculate": "none"})",
             "speculate.method must be \"ngram\", \"suffix\", \"constraint\", "
             "\"draft\" or "
             "\"off\", got \"none\""),
      params(R"({"speculate": "ngram:few"})",
             "speculate.num_tokens must be an integer, got \"few\""),
      params(R"({"speculate": "ngram:"})",
             "speculate.num_tokens must be an integer, got \"\""),
      params(R"({"speculate": "ngram:5:exact"})",
             "speculate.mode must be \"rejection\" or \"coupled\", got "
             "\"exact\""),
      params(R"({"speculate": {}})",
             "speculate must have a method, \"ngram\", \"suffix\", "
             "\"constraint\", "
             "\"draft\" or \"off\", got none"),
      params(R"({"speculate": {"method": ["ngram"]}})",
             "speculate.method must be \"ngram\", \"suffix\", \"constraint\", "
             "\"draft\" or "
             "\"off\", got [\"ngram\"]"),
      params(R"({"speculate": {"method": "ngram", "num_tokens": "5"}})",
             "speculate.num_tokens must be an integer, got \"5\""),
      params(R"({"speculate": {"method": null, "mode": "coupled"}})",
             "speculate must have a method, \"ngram\", \"suffix\", "
             "\"constraint\", \"draft\" or "
             "\"off\", got none"),
      params(R"({"speculate": {"method": "ngram", "num_token": 5}})",
             "speculate must have no field \"num_token\"; did you mean "
             "num_tokens?"),
      params(R"({"prefix_cache": "on"})",
             "prefix_cache must be true or false, got \"on\""),
      params(R"({"cache_salt": 7})", "cache_salt must be a string, got 7"),
      params(R"({"decoder_prompt": 7})",
             "decoder_prompt must be a string, got 7"),
      params(R"({"decoder_input_ids": [[7]]})",
             "decoder_input_ids[0] must be an integer, got [7]"),
      params(R"({"tenant": 7})", "tenant must be a string, got 7"),
      params(R"({"deadline_ms": "1s"})",
             "deadline_ms must be an integer, got \"1s\""),
      params(R"({"priority": 0.5})", "priority must be an integer, got 0.5"),
      params(R"({"priority": "high"})",
             "priority must be an integer, got \"high\""),
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
             "n must be 1 in greedy search (num_beams is 1 "
             "and do_sample false), got 2; raise num_beams for the best of a "
             "search, or add do_sample for samples"),
      params(R"({"max_new_tokens": 0})",
             "max_new_tokens must be at least 1, got 0"),
      params(R"({"max_new_tokens": 1022})",
             "max_new_tokens must be at most 1021 (a context of 1024 less 3 "
             "prompt tokens), got 1022"),
      params(R"({"min_new_tokens": -1})",
             "min_new_tokens must be at least 0, got -1"),
      params(R"({"eos_token_id": 6000})",
             "eos_token_id must be a token id in [0, 6000), got 6000"),
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
      params(R"({"bad_words": ["a", ""]})",
             "bad_words[1] must not be empty, got \"\""),
      params(R"({"bad_words": "  "})",
             "bad_words[0] must not be spaces alone, got \"  \""),
      params(R"({"bad_words_ids": [[7], []]})",
             "bad_words_ids[1] must not be empty, got []"),
      params(R"({"bad_words_ids": [[7, 9999]]})",
             "bad_words_ids[0][1] must be a token id in [0, 6000), got 9999"),
      params(R"({"suppress_tokens": [7, 6001]})",
             "suppress_tokens[1] must be a token id in [0, 6000), got 6001"),
      params(R"({"logit_bias": {"6000": 1}})",
             "logit_bias must name token ids in [0, 6000), got 6000"),
      params(R"({"logit_bias": {"7": 1e39}})",
             "logit_bias of token 7 must be finite and within float32, got "
             "1e+39"),
      params(R"({"frequency_penalty": 1e39})",
             "frequency_penalty must be finite and within float32, got 1e+39"),
      params(R"({"presence_penalty": -1e39})",
             "presence_penalty must be finite and within float32, got -1e+39"),
      params(R"({"allowed_token_ids": []})",
             "allowed_token_ids must not be empty, got []"),
      params(R"({"allowed_token_ids": [7, 6000]})",
             "allowed_token_ids[1] must be a token id in [0, 6000), got 6000"),
      params(R"({"stop_token_ids": [6000]})",
             "stop_token_ids must be a token id in [0, 6000), got 6000"),
      params(R"({"stop": [""]})", "stop[0] must not be empty, got \"\""),
      params(R"({"logprobs": -1})", "logprobs must be at least 0, got -1"),
      params(R"({"logprobs": 65})", "logprobs must be at most 64, got 65"),
      params(R"({"prompt_logprobs": -1})",
             "prompt_logprobs must be at least 0, got -1"),
      params(R"({"prompt_logprobs": 65})",
             "prompt_logprobs must be at most 64, got 65"),
      params(R"({"prompt_logprobs": 0, "logprobs_start": -1})",
             "logprobs_start must be at least 0, got -1"),
      params(R"({"logprobs": 1, "legal_log_mass": true})",
             "legal_log_mass must be false without constraint or "
             "allowed_sequences, got true"),
      params(R"({"num_beams": 2, "num_beam_groups": 2, "beam_indices": true})",
             "beam_indices must be false without beams, and with stochastic or "
             "num_beam_groups, got true"),
      params(R"({"beam_indices": true})",
             "beam_indices must be false without beams, and with stochastic or "
             "num_beam_groups, got true"),
      params(R"({"allowed_sequences": [[5]], "legal_log_mass": true})",
             "legal_log_mass must be false without logprobs, got true"),
      params(R"({"logprobs_start": 1})",
             "logprobs_start must be 0 without prompt_logprobs, got 1"),
      params(R"({"speculate": "ngram:0"})",
             "speculate.num_tokens must be at least 1, got 0"),
      params(R"({"speculate": {"method": "suffix", "num_tokens": 33}})",
             "speculate.num_tokens must be at most 32, got 33"),
      params(R"({"deadline_ms": 0})", "deadline_ms must be at least 1, got 0"),
      params(R"({"deadline_ms": 2147483648})",
             "deadline_ms must be at most 2147483647, got 2147483648"),
      params(R"({"prefix_cache": false, "cache_salt": "a"})",
             "cache_salt must be empty with prefix_cache off, got \"a\""),
      params(R"({"priority": 4503599627370497})",
             "priority must be at most 4503599627370496, got "
             "4503599627370497"),
      params(R"({"priority": -9223372036854775808})",
             "priority must be at least -4503599627370496, got "
             "-9223372036854775808"),
      // Sampling.
      params(R"({"do_sample": true, "n": 0})", "n must be at least 1, got 0"),
      params(R"({"do_sample": true, "n": 1048577})",
             "n must be at most 1048576, got 1048577"),
      params(R"({"do_sample": true, "best_of": 0})",
             "best_of must be at least 1, got 0"),
      params(R"({"do_sample": true, "n": 3, "best_of": 2})",
             "best_of must be at least 3 (n), got 2"),
      params(R"({"do_sample": true, "best_of": 1048577})",
             "best_of must be at most 1048576, got 1048577"),
      params(R"({"best_of": 1})",
             "best_of must be unset without do_sample, got 1"),
      params(R"({"num_beams": 4, "best_of": 4})",
             "best_of must be unset with beams, got 4"),
      params(R"({"do_sample": true, "temperature": -0.5})",
             "temperature must be at least 0, got -0.5"),
      params(R"({"do_sample": true, "temperature": 1e39})",
             "temperature must be finite and within float32, got 1e+39"),
      params(R"({"do_sample": true, "top_k": -1})",
             "top_k must be at least 0, got -1"),
      params(R"({"do_sample": true, "top_p": 0})",
             "top_p must be in (0, 1], got 0"),
      params(R"({"do_sample": true, "top_p": 1.5})",
             "top_p must be in (0, 1], got 1.5"),
      params(R"({"do_sample": true, "min_p": -0.1})",
             "min_p must be in [0, 1], got -0.1"),
      params(R"({"do_sample": true, "min_p": 2})",
             "min_p must be in [0, 1], got 2"),
      params(R"({"do_sample": true, "typical_p": 0})",
             "typical_p must be in (0, 1], got 0"),
      params(R"({"temperature": 0.5})",
             "temperature must be 1 without do_sample or stochastic, got 0.5"
             "; add do_sample to draw by it"),
      params(R"({"top_k": 50})",
             "top_k must be 0 without do_sample or stochastic, got 50"
             "; add do_sample to draw by it"),
      params(R"({"num_beams": 4, "top_p": 0.9})",
             "top_p must be 1 without do_sample or stochastic, got 0.9"
             "; add do_sample to draw by it"),
      params(R"({"min_p": 0.1})",
             "min_p must be 0 without do_sample or stochastic, got 0.1"
             "; add do_sample to draw by it"),
      params(R"({"typical_p": 0.9})",
             "typical_p must be 1 without do_sample or stochastic, got 0.9"
             "; add do_sample to draw by it"),
      params(R"({"do_sample": true, "num_beams": 4, "temperature": 0})",
             "temperature must be above 0 with beams, got 0"),
      // Beams.
      params(R"({"num_beams": 4, "num_beam_groups": 0})",
             "num_beam_groups must be at least 1, got 0"),
      params(R"({"num_beam_groups": 2})",
             "num_beam_groups must be at most 1 (num_beams), got 2"),
      params(R"({"num_beams": 4, "num_beam_groups": 3})",
             "num_beam_groups must divide num_beams, 4, got 3"),
      params(R"({"num_beams": 4, "num_beam_groups": 2, "do_sample": true})",
             "do_sample must be false with num_beam_groups above 1, got true"),
      params(R"({"num_beams": 4, "diversity_penalty": 0.5})",
             "diversity_penalty must be 0 without num_beam_groups above 1, "
             "got 0.5"),
      params(R"({"num_beams": 4, "num_beam_groups": 2,)"
             R"( "diversity_penalty": -1})",
             "diversity_penalty must be at least 0, got -1"),
      params(R"({"num_beams": 4, "num_beam_groups": 2,)"
             R"( "diversity_penalty": 1e39})",
             "diversity_penalty must be finite and within float32, got 1e+39"),
      params(R"({"num_beams": 4, "patience": 2})",
             "patience must be 1 without early_stopping true, got 2"),
      params(R"({"num_beams": 4, "early_stopping": "never", "patience": 2})",
             "patience must be 1 without early_stopping true, got 2"),
      params(R"({"num_beams": 4, "early_stopping": true, "patience": 0})",
             "patience must be above 0, got 0"),
      params(R"({"num_beams": 4, "n": 3, "early_stopping": true,)"
             R"( "patience": 0.5})",
             "patience must end the search with at least 3 (n) and at most "
             "1048576 finished hypotheses, got 0.5"),
      params(R"({"num_beams": 4, "early_stopping": true, "patience": 1e9})",
             "patience must end the search with at least 1 "
             "(num_return_sequences) and at most 1048576 finished hypotheses, "
             "got 1e+09"),
      params(R"({"length_penalty_form": "wu", "length_penalty": 400})",
             "length_penalty must keep ((5 + length) / 6)^length_penalty "
             "within float32 up to 256 tokens (max_new_tokens), got 400"),
      // Stochastic beams.
      params(R"({"stochastic": true, "n": 2})",
             "n must be at most 1 (num_beams), got 2"),
      params(R"({"stochastic": true, "best_of": 2})",
             "best_of must be unset with beams, got 2"),
      params(R"({"stochastic": true, "num_beams": 4, "do_sample": true})",
             "do_sample must be false with stochastic, got true"),
      params(R"({"stochastic": true, "num_beams": 4, "num_beam_groups": 2})",
             "num_beam_groups must be 1 with stochastic, got 2"),
      params(R"({"stochastic": true, "num_beams": 4, "length_penalty": 2})",
             "length_penalty must be 1 with stochastic, got 2"),
      params(R"({"stochastic": true, "length_counts_eos": false})",
             "length_counts_eos must be true with stochastic, got false"),
      params(R"({"stochastic": true, "length_penalty_form": "wu"})",
             "length_penalty_form must be \"power\" with stochastic, got "
             "\"wu\""),
      params(R"({"stochastic": true, "early_stopping": true})",
             "early_stopping must be false with stochastic, got true"),
      params(R"({"stochastic": true, "early_stopping": "never"})",
             "early_stopping must be false with stochastic, got \"never\""),
      params(R"({"stochastic": true, "patience": 2})",
             "patience must be 1 without early_stopping true, got 2"),
      params(R"({"stochastic": true, "temperature": 0})",
             "temperature must be above 0 with beams, got 0"),
      // Stops and constraints of the output.
      params(R"({"include_stop": true})",
             "include_stop must be false without stop, got true"),
      params(R"({"allowed_sequences": []})",
             "allowed_sequences must not be empty, got []"),
      params(R"({"allowed_sequences": [[7], []]})",
             "allowed_sequences[1] must not be empty, got []"),
      params(R"({"allowed_sequences": [[7, 6000]]})",
             "allowed_sequences[0][1] must be a token id in [0, 6000), got "
             "6000"),
      params(R"({"allowed_sequences": [[7, 8], [7, 8, 9]], "max_tokens": 2})",
             "allowed_sequences[1] must have at most 2 tokens (max_tokens), "
             "got 3"),
      params(R"({"allowed_sequences": [[7, 2, 8]]})",
             "allowed_sequences[0][1] must not be an EOS id unless it is the "
             "last, got 2"),
      params(R"({"allowed_sequences": [[7, 8, 9]], "stop_token_ids": [8]})",
             "allowed_sequences[0][1] must not be an ending id unless it is "
             "the last, got 8"),
      params(R"({"allowed_sequences": [[7]], "allowed_token_ids": [7]})",
             "allowed_token_ids must be unset with allowed_sequences, got 1 "
             "id"),
      params(R"({"allowed_sequences": [[7]], "stop": "a"})",
             "stop must be empty with allowed_sequences, got 1 string"),
      params(R"({"start_after": ["a"]})",
             "start_after must be a string, got [\"a\"]"),
      params(
          R"({"constraint": {"items": "songs", "exclude": [[7], [8, 6000]]}})",
          "constraint.exclude[1][1] must be a token id in [0, 6000), got "
          "6000"),
      params(R"({"constraint": {"must_contain": ["a", ""]}})",
             "constraint.must_contain[1] must not be empty, got \"\""),
      params(R"({"constraint": {"must_contain": ["1", "2", "3", "4", "5", "6",)"
             R"( "7", "8", "9"]}})",
             "constraint.must_contain must have at most 8 strings, got 9"),
      params(R"({"constraint": {"items": "songs", "must_contain": ["a"]}})",
             "constraint.must_contain must be empty with items, got 1 string"),
      params(R"({"constraint": {"items": "songs", "exclude_prefixes": [[]]}})",
             "constraint.exclude_prefixes[0] must not be empty, got []"),
      params(R"({"constraint": {"items": "songs"}, "start_after": "</think>"})",
             "start_after must be unset with constraint.items, got "
             "\"</think>\""),
      params(R"({"constraint": {"regex": "a"}, "allowed_sequences": [[7]]})",
             "allowed_sequences must be unset with constraint, got 1 sequence"),
      params(R"({"constraint": {"regex": "a"}, "allowed_token_ids": [7]})",
             "allowed_token_ids must be unset with constraint, got 1 id"),
      params(R"({"constraint": {"regex": "a"}, "forced_bos_token_id": 7})",
             "forced_bos_token_id must be unset with constraint, got 7"),
      params(R"({"constraint": {"regex": "a"}, "forced_eos_token_id": [7]})",
             "forced_eos_token_id must be unset with constraint, got 7"),
  };
}

}  // namespace espalier::testing
