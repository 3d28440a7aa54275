// Translation sentence by sentence, as users of generate and batch meet it: the
// answer to a text is the answers to its sentences, joined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/batch_runs.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::vector<std::string> kSentences = {"It rains.",
                                             "Where is the station?",
                                             "I am tired!",
                                             "She is waiting for the bus.",
                                             "Mr. Smith has a dog.",
                                             "We eat at 6.30 today."};

std::string Line(const std::string& text, const json::object& params) {
  return WriteJson(
             json::object{{"prompt", text}, {"params", json::value(params)}}) +
         "\n";
}

std::vector<json::value> Answers(const std::string& model,
                                 const std::string& lines) {
  const ProgramRun run =
      RunEspalier({"batch", "-m", ModelDirectory(model)}, lines);
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  return ParseLines(run.out);
}

// Texts and usage are those of the sentences.
void ExpectJoined(const json::value& whole,
                  const std::vector<json::value>& parts,
                  const std::vector<std::string>& separators) {
  const json::array& found = whole.at("hypotheses").as_array();
  int64_t num_prompt_tokens = 0;
  std::vector<std::string> expected(found.size());
  for (size_t k = 0; k < parts.size(); ++k) {
    const json::array& own = parts[k].at("hypotheses").as_array();
    ASSERT_EQ(own.size(), found.size());
    num_prompt_tokens += parts[k].at("usage").at("prompt_tokens").as_int64();
    for (size_t i = 0; i < own.size(); ++i) {
      expected[i] += separators[k];
      expected[i] += own[i].at("text").as_string();
    }
  }
  EXPECT_EQ(whole.at("usage").at("prompt_tokens").as_int64(),
            num_prompt_tokens);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].at("text").as_string(), expected[i]);
  }
}

TEST(SplitSentencesTest, AnAnswerIsThatOfItsSentencesJoined) {
  const std::vector<json::object> kinds = {
      {},
      {{"num_beams", 3}, {"num_return_sequences", 2}},
      {{"do_sample", true}, {"seed", 7}},
      {{"do_sample", true}, {"best_of", 4}, {"seed", 8}}};
  std::mt19937 random(5);
  for (const json::object& params : kinds) {
    std::string lines, text;
    std::vector<std::string> separators;
    for (int k = 0; k < 4; ++k) {
      const char* const kSeparators[] = {" ", "\n", "\n\n"};
      separators.push_back(k == 0 ? "" : kSeparators[random() % 3]);
      const std::string& sentence = kSentences[random() % kSentences.size()];
      text += separators.back() + sentence;
      lines += Line(sentence, params);
    }
    lines += Line(text, params);
    std::vector<json::value> answers = Answers("en-fr", lines);
    ASSERT_THAT(answers, SizeIs(5));
    const json::value whole = answers.back();
    answers.pop_back();
    SCOPED_TRACE(lines);
    ExpectJoined(whole, answers, separators);
  }
}

TEST(SplitSentencesTest, EighteenSentencesGiveEighteen) {
  for (const char* const model : {"en-fr", "en-fr-marian"}) {
    std::string text;
    for (int k = 0; k < 18; ++k) text += std::string(k > 0, ' ') + "It rains.";
    const std::vector<json::value> answers =
        Answers(model, Line("It rains.", {}) + Line(text, {}));
    ASSERT_THAT(answers, SizeIs(2));
    const auto text_of = [&](size_t i) {
      return std::string(
          answers[i].at("hypotheses").at(0).at("text").as_string());
    };
    std::string expected;
    for (int k = 0; k < 18; ++k)
      expected += std::string(k > 0, ' ') + text_of(0);
    EXPECT_EQ(text_of(1), expected) << model;
  }
}

TEST(SplitSentencesTest, StreamsTellTheSameInOrder) {
  const std::string text = "It rains. Where is the station? I am tired.";
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{},
        std::vector<std::string>{"--num-beams", "4", "-n", "2"}}) {
    std::vector<std::string> args = {"generate", "-m", ModelDirectory("en-fr")};
    args.insert(args.end(), options.begin(), options.end());
    args.push_back(text);
    const std::vector<std::string> plain = SplitLines(RunEspalier(args).out);
    args.push_back("--stream");
    std::vector<std::string> streamed = SplitLines(RunEspalier(args).out);
    ASSERT_EQ(streamed.size(), plain.size() + 1);
    constexpr size_t kScoreWidth = 12;  // "   -0.1529  "
    const std::string best = plain[1].substr(kScoreWidth);
    EXPECT_TRUE(best.starts_with(streamed[1].substr(2))) << streamed[1] << "\n"
                                                         << best;
    EXPECT_GT(streamed[1].size(), best.size() / 2);
    streamed.erase(streamed.begin() + 1);
    EXPECT_EQ(streamed, plain);
  }
}

TEST(SplitSentencesTest, IsOffWhereTheRequestSaysSoOrIsOfOneOutput) {
  const std::string text = "It rains. I am tired.";
  const auto usage_of = [](const json::value& answer) {
    return answer.at("usage").at("prompt_tokens").as_int64();
  };
  const std::vector<json::value> answers =
      Answers("en-fr",
              R"({"prompt": "It rains. I am tired."})"
              "\n"
              R"({"prompt": "It rains. I am tired.", "split_sentences": false})"
              "\n" +
                  Line(text, {{"logprobs", 1}}));
  ASSERT_THAT(answers, SizeIs(3));
  // Each sentence has its template.
  EXPECT_EQ(usage_of(answers[0]), usage_of(answers[1]) + 3);
  EXPECT_EQ(usage_of(answers[2]), usage_of(answers[1]));
}

TEST(SplitSentencesTest, IsRefusedByNameWhereItCannotBe) {
  const ProgramRun run = RunBatch(
      R"({"prompt_tokens": [1, 4], "split_sentences": true})"
      "\n"
      R"({"prompt": "I", "split_sentences": true, "params": {"logprobs": 1}})"
      "\n"
      R"({"prompt": "I go.", "split_sentences": 1})"
      "\n");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("split_sentences needs prompt, got true"));
  EXPECT_THAT(run.out, HasSubstr("split_sentences must be false with logprobs, "
                                 "got true"));
  EXPECT_THAT(run.out, HasSubstr("split_sentences must be true or false"));
  const ProgramRun flag =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"),
                   "--split-sentences", "--logprobs", "1", "It rains."});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_THAT(flag.err, HasSubstr("--split-sentences must be false with "
                                  "--logprobs, got true"));
}

TEST(SplitSentencesTest, AFieldThatKeepsTextsWholeIsNotedOnce) {
  const std::string line =
      Line("It rains. I am tired.", {{"logprobs", 1}, {"max_new_tokens", 3}});
  EXPECT_EQ(RunBatch(line + line).err,
            "espalier: note: a text of several sentences is translated as one "
            "because of logprobs, and may lose some; split it, or leave out "
            "logprobs (said of the first text alone)\n");
}

TEST(SplitSentencesTest, ARefusedRequestHasNoSuchNote) {
  const auto line = [](json::object params) {
    params["max_new_tokens"] = 3;
    return Line("It rains. I am tired.", params);
  };
  const ProgramRun run = RunBatch(line({{"logprobs", 99}}) +
                                  line({{"logprobs", 1}, {"top_p", 2}}));
  EXPECT_THAT(run.out, HasSubstr("logprobs must be at most 64, got 99"));
  EXPECT_THAT(run.err, Not(HasSubstr("note:")));
  EXPECT_THAT(RunBatch(line({{"logprobs", 99}}) + line({{"logprobs", 1}})).err,
              HasSubstr("note: a text of several sentences"));
}

TEST(SplitSentencesTest, ErrorsNameTheSentence) {
  const std::string long_sentence(60'000, 'a');
  const ProgramRun run = RunBatch(Line("It rains. B" + long_sentence, {}));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("; of sentence 2 of 2"));
}

}  // namespace
}  // namespace espalier::testing
