#include "openai/live_beams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::EnFrTokenizer;

// A search that was made up: each step continues beams that lived, or ends
// them.
class RandomSearch {
 public:
  RandomSearch(const Tokenizer& tokenizer, int seed)
      : vocab_size_(tokenizer.vocab_size()), random_(seed) {}

  BeamsEvent Step() {
    BeamsEvent event;
    event.num_steps = ++num_steps_;
    const int num_live = 1 + Below(6);
    const int num_tokens = Below(8) == 0 ? 3 : 1;  // drafts give several
    for (int i = 0; i < num_live; ++i) {
      event.beams.push_back({Continued(num_tokens)});
    }
    for (int i = Below(3); i > 0; --i) {
      const auto reason =
          Below(2) == 0 ? FinishReason::kEos : FinishReason::kStop;
      ended_.push_back({Continued(1 + Below(num_tokens)), 0, 0, reason});
    }
    if (ended_.size() > 4) ended_.erase(ended_.begin() + Below(5));
    live_ = event.beams;
    event.beams.insert(event.beams.end(), ended_.begin(), ended_.end());
    return event;
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  std::vector<TokenId> Continued(int num_tokens) {
    std::vector<TokenId> tokens;
    if (!live_.empty()) tokens = live_[Below(std::ssize(live_))].tokens;
    for (int i = 0; i < num_tokens; ++i) {
      // Often of the first, which are control symbols and bytes, and some
      // outside the vocabulary.
      const int end = Below(2) == 0 ? 270 : vocab_size_ + 5;
      tokens.push_back(Below(std::min(end, vocab_size_ + 5)));
    }
    return tokens;
  }

  const int vocab_size_;
  std::mt19937 random_;
  int64_t num_steps_ = 0;
  std::vector<BeamState> live_;
  std::vector<BeamState> ended_;
};

std::string WholeText(const BeamState& beam, const Tokenizer& tokenizer,
                      const StopStrings& stops, const TextOptions& options) {
  TextStream stream(tokenizer, stops, options);
  std::string text;
  for (const TokenId token : beam.tokens) text += stream.Feed(token).text;
  return beam.finish_reason ? text + stream.Finish().text : text;
}

json::object Written(LiveBeams& beams, const BeamsEvent& event) {
  std::string out;
  beams.Append(0, event, &out);
  const auto value = ParseJson(out);
  CHECK(value.ok()) << out;
  return value->get_object();
}

void TextsAreThoseOfAllTokens(const Tokenizer& tokenizer) {
  GenerationParams params;
  params.stop = {"the", "."};
  params.min_new_tokens = 2;
  const auto stops = StopStrings::Create(params.stop);
  ASSERT_OK(stops);
  for (int seed = 0; seed < 50; ++seed) {
    params.include_stop = seed % 2 == 0;
    LiveBeams beams({.tokens = {}, .params = params}, &tokenizer);
    RandomSearch search(tokenizer, seed);
    for (int step = 0; step < 40; ++step) {
      const BeamsEvent event = search.Step();
      const json::object written = Written(beams, event);
      const json::array& states = written.at("beams").get_array();
      ASSERT_EQ(states.size(), event.beams.size());
      for (size_t i = 0; i < states.size(); ++i) {
        ASSERT_EQ(states[i].at("text").get_string(),
                  WholeText(event.beams[i], tokenizer, *stops,
                            {.include_stop = params.include_stop,
                             .min_new_tokens = 2}))
            << "seed " << seed << ", step " << step << ", beam " << i;
      }
    }
  }
}

TEST(LiveBeamsTest, TextsAreThoseOfAllTokens) {
  TextsAreThoseOfAllTokens(EnFrTokenizer());
  for (const char* const name : {"bart", "marian", "marian_bytes", "t5"}) {
    const auto tokenizer =
        Tokenizer::LoadDirectory(SourcePath("tests/data/text_models/") + name);
    ASSERT_OK(tokenizer);
    SCOPED_TRACE(name);
    TextsAreThoseOfAllTokens(**tokenizer);
  }
}

}  // namespace
}  // namespace espalier::openai
