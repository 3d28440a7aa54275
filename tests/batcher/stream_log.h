// Random requests that stream, and the record of a stream that was read: for
// the properties of streams (stream_test.cc).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "batcher/engine.h"
#include "request/generation_params.h"
#include "request/text_begin.h"
#include "tests/batcher/toy_requests.h"
#include "tests/text/test_tokenizer.h"
#include "text/text_stream.h"

namespace espalier::testing {

inline bool IsBeams(const Request& request) {
  return IsBeamSearch(request.params);
}

// The tokens of a request's texts are bytes for the most part, which seldom
// make characters, and symbols.
inline ToyModelOptions ByteModel(int plans_in_flight) {
  ToyModelOptions options = SmallModel(plans_in_flight);
  options.vocab_size = 262;
  options.eos_token_ids = {2};
  options.num_pages = 1000;
  return options;
}

// Few different bytes of some characters, so that sequences, characters and
// stops come about.
inline std::vector<int64_t> FewTokens(std::mt19937& random) {
  std::vector<int64_t> tokens = {2};
  const Tokenizer& tokenizer = EnFrTokenizer();
  for (const char* byte :
       {"<0x61>", "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>", "<0x20>"}) {
    const std::optional<TokenId> token = tokenizer.PieceToId(byte);
    CHECK(token.has_value() && *token < 262) << byte;
    if (random() % 4 > 0) tokens.push_back(*token);
  }
  std::ranges::sort(tokens);
  return tokens;
}

inline int Uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

inline void ConstrainTokens(std::mt19937& random, GenerationParams* params) {
  switch (Uniform(random, 0, 3)) {
    case 0:
      params->allowed_token_ids = FewTokens(random);
      break;
    case 1:
      params->allowed_token_ids = FewTokens(random);
      for (const char* stop : {"a", "\u00e9", "a\u00e9a", "\u20ac ", "  "}) {
        if (random() % 3 == 0) params->stop.push_back(stop);
      }
      params->include_stop = random() % 2 == 0;
      params->ignore_eos = random() % 4 > 0;
      params->max_new_tokens = Uniform(random, 4, 20);
      break;
    case 2:
      params->eos_token_id = std::vector<int64_t>();
      params->min_new_tokens = 0;
      params->max_new_tokens.reset();
      params->allowed_sequences.emplace();
      params->allowed_sequences->push_back({7});
      for (int i = 0; i < 12; ++i) {
        std::vector<int64_t> sequence;
        for (int k = Uniform(random, 1, 5); k > 0; --k) {
          sequence.push_back(Uniform(random, 3, 5));
        }
        params->allowed_sequences->push_back(std::move(sequence));
      }
      break;
    default:
      break;
  }
}

// Any kind of request, validated.
inline Request RandomStreamRequest(std::mt19937& random,
                                   const ModelDescription& model) {
  while (true) {
    Request request = RandomRequest(random, model);
    GenerationParams& params = request.params;
    if (params.early_stopping == EarlyStopping::kTrue) params.patience = 2.0;
    ConstrainTokens(random, &params);
    // Not every mixture has a meaning.
    if (ValidateRequest(model, &request).ok()) return request;
  }
}

inline std::vector<Request> RandomStreamRequests(
    int count, uint32_t seed, const ModelDescription& model) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(RandomStreamRequest(random, model));
  }
  return requests;
}

inline std::string TextFor(const Request& request,
                           const std::vector<TokenId>& tokens) {
  const StopStrings stops = MakeStops(request.params.stop, EnFrTokenizer());
  return TextOf(tokens, TextBegin(EnFrTokenizer(), ModelDescription(), request),
                stops, TextOptionsOf(request.params));
}

// Events received for one sample, or for the stable prefix.
struct SampleLog {
  std::vector<TokenId> tokens;
  std::string text;
  std::optional<FinishReason> finish_reason;
  std::vector<TokenLogProb> logprobs;
};

template <typename Event>
inline void Append(const Event& event, SampleLog* log) {
  EXPECT_TRUE(IsUtf8(event.text)) << "half a character";
  log->tokens.insert(log->tokens.end(), event.tokens.begin(),
                     event.tokens.end());
  log->text += event.text;
}

inline bool StartsWith(const std::vector<TokenId>& tokens,
                       const std::vector<TokenId>& prefix) {
  return std::ranges::mismatch(tokens, prefix).in2 == prefix.end();
}

// The reader of a stream, and all events so far.
struct StreamLog {
  void Take(const StreamEvent& event) {
    ASSERT_FALSE(result.has_value()) << "reported after the result";
    std::visit([&](const auto& e) { Record(e); }, event);
  }

  void Record(const SampleEvent& event) {
    SampleLog& sample = samples[event.sample];
    EXPECT_FALSE(sample.finish_reason.has_value()) << "reported after its end";
    EXPECT_TRUE(!event.tokens.empty() || event.finish_reason.has_value());
    Append(event, &sample);
    sample.finish_reason = event.finish_reason;
    sample.logprobs.insert(sample.logprobs.end(), event.logprobs.begin(),
                           event.logprobs.end());
  }
  void Record(const StablePrefixEvent& event) {
    EXPECT_TRUE(!event.tokens.empty() || !event.text.empty());
    Append(event, &prefix);
  }
  void Record(const BeamsEvent& event) {
    EXPECT_GT(event.num_steps, beams.num_steps);
    beams = event;
    for (const BeamState& beam : beams.beams) {
      EXPECT_TRUE(StartsWith(beam.tokens, prefix.tokens));
    }
  }
  void Record(const Result& last) { result = last; }

  std::map<int, SampleLog> samples;
  SampleLog prefix;
  BeamsEvent beams;
  std::optional<Result> result;
};

inline void ExpectSamplesTellTheResult(const Request& request,
                                       const StreamLog& stream) {
  const GenerationParams& params = request.params;
  EXPECT_EQ(stream.samples.size(), NumSequences(params));
  for (const auto& [sample, log] : stream.samples) {
    EXPECT_TRUE(log.finish_reason.has_value()) << sample;
    EXPECT_EQ(log.text, TextFor(request, log.tokens));
  }
  for (const Hypothesis& hypothesis : stream.result->hypotheses) {
    EXPECT_TRUE(std::ranges::any_of(stream.samples, [&](const auto& sample) {
      return sample.second.tokens == hypothesis.tokens &&
             sample.second.finish_reason == hypothesis.finish_reason &&
             sample.second.logprobs == hypothesis.logprobs;
    }));
  }
  EXPECT_THAT(stream.prefix.tokens, ::testing::IsEmpty());
}

inline void ExpectPrefixBeginsTheResult(const Request& request,
                                        const StreamLog& stream) {
  const std::vector<Hypothesis>& hypotheses = stream.result->hypotheses;
  for (const Hypothesis& hypothesis : hypotheses) {
    EXPECT_TRUE(StartsWith(hypothesis.tokens, stream.prefix.tokens));
    const std::string text = TextFor(request, hypothesis.tokens);
    EXPECT_TRUE(text.starts_with(stream.prefix.text));
    if (hypotheses.size() > 1) continue;
    EXPECT_EQ(stream.prefix.tokens, hypothesis.tokens);
    EXPECT_EQ(stream.prefix.text, text);
  }
  EXPECT_TRUE(stream.samples.empty());
}

inline void ExpectTellsTheResult(const Request& request,
                                 const StreamLog& stream) {
  ASSERT_TRUE(stream.result.has_value());
  if (IsBeams(request)) {
    ExpectPrefixBeginsTheResult(request, stream);
  } else {
    ExpectSamplesTellTheResult(request, stream);
  }
}

// Some requests are left without a possible token.
inline void ExpectIsAsAlone(const Request& request, const StreamLog& stream,
                            const absl::Status& end) {
  const absl::StatusOr<Result> alone =
      RunAlone(ByteModel(1), request, SharedEnFrTokenizer());
  ASSERT_EQ(end, alone.status());
  EXPECT_EQ(stream.result.has_value(), end.ok());
  if (!end.ok()) return;
  ExpectTellsTheResult(request, stream);
  EXPECT_TRUE(SameResult(*stream.result, *alone));
}

}  // namespace espalier::testing
