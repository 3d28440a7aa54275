#include "tests/model/batch_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/model/feeder.h"
#include "tests/model/twin_checks.h"

namespace espalier::testing {

std::vector<TokenId> SourceFor(const Model& model, int length, int seed) {
  const ModelDescription& description = model.description();
  if (!description.encoder) return {};
  return RandomTokens(length, description.vocab_size, 1000 + seed);
}

void ExpectSameBitsInAnyBatch(Model* model, int longest, int seed) {
  constexpr int kNumSequences = 12;
  const int vocab_size = model->description().vocab_size;
  std::vector<std::vector<TokenId>> tokens, sources;
  std::vector<LogitsRows> alone;
  for (int i = 0; i < kNumSequences; ++i) {
    const int length = 5 + (longest - 5) * i / (kNumSequences - 1);
    tokens.push_back(RandomTokens(length, vocab_size, seed + i));
    sources.push_back(SourceFor(*model, 1 + 5 * i % 23, seed + i));
    alone.push_back(FeedAlone(model, tokens[i], 1000, sources[i]));
  }
  std::mt19937 random(seed);
  Feeder feeder(model);
  std::vector<size_t> done(kNumSequences, 0);
  for (int i = 0; i < kNumSequences; ++i) feeder.Add(sources[i]);
  for (int step = 0; step < 60; ++step) {
    std::vector<Feeder::Row> rows;
    for (int i = 0; i < kNumSequences; ++i) {
      const size_t count =
          std::min<size_t>(random() % 5, tokens[i].size() - done[i]);
      if (count == 0) continue;
      const auto begin = tokens[i].begin() + done[i];
      rows.push_back({i,
                      {begin, begin + count},
                      static_cast<int>(random() % (count + 1))});
    }
    std::shuffle(rows.begin(), rows.end(), random);
    const std::vector<LogitsRows> results = feeder.Step(rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      size_t& position = done[rows[r].sequence];
      position += rows[r].tokens.size();
      for (size_t i = 0; i < results[r].size(); ++i) {
        ASSERT_EQ(results[r][i],
                  alone[rows[r].sequence][position - results[r].size() + i]);
      }
    }
  }
}

}  // namespace espalier::testing
