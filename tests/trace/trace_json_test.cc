#include "trace/trace_json.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "request/constraint_params.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DescribeRequestTest, StochasticBeamsAreBeamsAndSaySoAndWhatTheyDrawBy) {
  Request request{{1, 4}, {}};
  request.params.stochastic = true;
  request.params.temperature = 0.5;
  request.params.top_k = 9;
  const TraceRequest event = DescribeRequest({7}, request);
  EXPECT_EQ(event.strategy, "beams");
  EXPECT_EQ(event.params.at("stochastic"), true);
  EXPECT_EQ(event.params.at("temperature"), 0.5);
  EXPECT_EQ(event.params.at("top_k"), 9);
  EXPECT_EQ(event.caller_id, std::nullopt);
}

TEST(DescribeRequestTest, AConstraintIsShownAsTheRequestHasIt) {
  const auto described = [](ConstraintParams constraint) {
    Request request{{1, 4}, {}};
    request.params.constraint = std::move(constraint);
    return DescribeRequest({7}, request).params.at("constraint");
  };
  const std::string schema = R"({"type": "integer"})";
  EXPECT_EQ(described({.json_schema = schema}),
            (json::value{{"json_schema", {{"type", "integer"}}}}));
  EXPECT_EQ(described({.json_schema = schema, .has_spaces = false}),
            (json::value{{"json_schema", {{"type", "integer"}}},
                         {"whitespace", "none"}}));
  EXPECT_EQ(described({.json_schema = schema,
                       .whitespace = " ?",
                       .disable_additional_properties = true}),
            (json::value{{"json_schema", {{"type", "integer"}}},
                         {"whitespace", " ?"},
                         {"disable_additional_properties", true}}));
  // A reader of the event would refuse it as JSON.
  std::string deep = "{}";
  for (int i = 1; i < kMaxJsonDepth; ++i) deep = R"({"not": )" + deep + "}";
  EXPECT_EQ(described({.json_schema = deep}),
            (json::value{{"json_schema", deep}}));
}

TEST(DescribeRequestTest, ARequestIsKnownByItsCallersId) {
  const Request request = {
      .prompt_tokens = {1, 4}, .params = {}, .caller_id = "line 7"};
  EXPECT_EQ(DescribeRequest({7}, request).caller_id, "line 7");
}

TEST(DescribeRequestTest, WhatADecoderGoesOnFromIsOneOfItsParams) {
  Request request{{1, 4}, {}};
  EXPECT_FALSE(
      DescribeRequest({7}, request).params.contains("decoder_prompt_tokens"));
  request.params.decoder_prompt_tokens = {31, 7};
  EXPECT_EQ(DescribeRequest({7}, request).params.at("decoder_prompt_tokens"),
            (json::array{31, 7}));
}

// One of each kind, with everything set, and with nothing.
std::vector<TraceEvent> AllKinds() {
  return {
      TraceRequest{.request = {7},
                   .caller_id = "line </b> 7",
                   .strategy = "beams",
                   .params = {{"num_beams", 4},
                              {"length_penalty", -0.5},
                              {"early_stopping", "never"},
                              {"eos_token_id", json::array{2, 9}}},
                   .prompt_tokens = {1, 4, 337},
                   .prompt = "\"It\" </script> rains.\n\t\u2028"},
      TraceRequest{},
      TraceCandidate{.request = {7},
                     .step = 3,
                     .node = 12,
                     .parent = 5,
                     .parent_slot = 1,
                     .slot = 2,
                     .token = 279,
                     .text = "▁Il",
                     .log_prob = -0.37952831f,
                     .cum_log_prob = -1e-30f,
                     .score = -3.4028235e38f,
                     .fate = CandidateFate::kFinished,
                     .why = "eos"},
      TraceCandidate{.fate = CandidateFate::kPruned},
      TracePages{.request = {int64_t{1} << 60},
                 .step = 4,
                 .shared = {{0}, {3}},
                 .slots = {{.slot = 0, .node = 2, .pages = {{9}, {1}}},
                           {.slot = 3, .node = kTraceRoot, .pages = {}}},
                 .drafts = {{{9}, {2}}, {}},
                 .num_held = 17,
                 .num_pages = 4096},
      TracePages{},
      TracePages{.request = {7},
                 .cached = {{3}, {0}},
                 .copied = {{.from = {4}, .to = {5}, .num_tokens = 2}}},
      TraceLegal{.request = {7},
                 .rows = {{.node = kTraceRoot,
                           .state = 2147483647,
                           .room = 12,
                           .num_legal = 128256,
                           .legal_log_mass = -0.25f},
                          {.node = 4}}},
      TraceLegal{},
      TracePreempted{
          .request = {7}, .step = 5, .num_pages = 3, .nodes = {9, 4}},
      TraceResumed{.request = {7},
                   .step = 5,
                   .num_cached_tokens = 12,
                   .num_fed_tokens = 4,
                   .num_loaded_tokens = 5},
      TraceEnd{.request = {7},
               .hypotheses = {{.node = 11,
                               .score = -0.25f,
                               .finish_reason = "length"}}},
      TraceEnd{.error = absl::CancelledError("the caller went away")},
  };
}

TEST(TraceJsonTest, WhatIsWrittenReadsBackTheSame) {
  for (const TraceEvent& event : AllKinds()) {
    const std::string line = WriteTraceLine(event);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    const absl::StatusOr<TraceEvent> read = ParseTraceLine(line);
    ASSERT_OK(read) << line;
    EXPECT_EQ(*read, event) << line;
  }
}

// Older traces have no cached or copied pages, and no pruned beams.
TEST(TraceJsonTest, OlderTracesCanBeRead) {
  const auto pages = ParseTraceLine(
      R"({"event": "pages", "request": 1, "step": 1, "shared": [0],
          "slots": [], "num_held": 1, "num_pages": 2})");
  ASSERT_OK(pages);
  EXPECT_TRUE(std::get<TracePages>(*pages).cached.empty());
  EXPECT_TRUE(std::get<TracePages>(*pages).copied.empty());
  std::string line = WriteTraceLine(
      TraceCandidate{.fate = CandidateFate::kPruned, .why = "below the beams"});
  const std::string word = "\"pruned\"";
  ASSERT_NE(line.find(word), std::string::npos) << line;
  line.replace(line.find(word), word.size(), "\"cut\"");
  const auto candidate = ParseTraceLine(line);
  ASSERT_OK(candidate);
  EXPECT_EQ(std::get<TraceCandidate>(*candidate).fate, CandidateFate::kPruned);
}

TEST(TraceJsonTest, TextsThatAreNotUtf8StayReadable) {
  const TraceEvent event = TraceCandidate{.text = "a\xE2\x82z\xFFé"};
  const absl::StatusOr<TraceEvent> read = ParseTraceLine(WriteTraceLine(event));
  ASSERT_OK(read);
  EXPECT_EQ(std::get<TraceCandidate>(*read).text, "a��z�é");
}

TEST(TraceJsonTest, MalformedLinesNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not JSON"},
      {"[]", "an event must be a JSON object, got []"},
      {"{}", "event is missing"},
      {R"({"event": 3})", "event must be a string, got 3"},
      {R"({"event": ""})", "event must not be empty"},
      {R"({"event": "fork"})", "unknown event fork"},
      {R"({"event": "end", "request": 1})", "hypotheses is missing"},
      {R"({"event": "end", "request": "1", "hypotheses": []})",
       "request must be an integer, got \"1\""},
      {R"({"event": "end", "request": 1, "hypotheses": [], "x": 0})",
       "unknown field x"},
      {R"({"event": "end", "request": 1,
           "hypotheses": [{"node": 0, "score": null}]})",
       "hypotheses[0].score must be a number, got null"},
      {R"({"event": "end", "request": 1, "hypotheses": [4]})",
       "hypotheses[0] must be an object, got 4"},
      {R"({"event": "end", "request": 1, "hypotheses": [],
           "error": {"code": "OOPS", "message": ""}})",
       "error.code is no code: OOPS"},
      {R"({"event": "pages", "request": 1, "step": 1, "shared": [0, true],
           "slots": [], "num_held": 0, "num_pages": 0})",
       "shared[1] must be an integer, got true"},
      {R"({"event": "pages", "request": 1, "step": 9999999999, "shared": [],
           "slots": [], "num_held": 0, "num_pages": 0})",
       "step must be in [-2147483648, 2147483647], got 9999999999"},
      {R"({"event": "legal", "request": 1})", "rows is missing"},
      {R"({"event": "legal", "request": 1, "rows": [7]})",
       "rows[0] must be an object, got 7"},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 1, "room": 2, "num_legal": 3},
           {"node": 1, "state": 1.5, "room": 2, "num_legal": 3}]})",
       "rows[1].state must be an integer, got 1.5"},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 2147483648, "room": 2, "num_legal": 3}]})",
       "rows[0].state must be in [-2147483648, 2147483647], got 2147483648"},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 1, "num_legal": 3}]})",
       "rows[0].room is missing"},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 1, "room": 2, "num_legal": 3,
            "legal_log_mass": "0"}]})",
       "rows[0].legal_log_mass must be a number, got \"0\""},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 1, "room": 2, "num_legal": 3, "slot": 0}]})",
       "unknown field rows[0].slot"},
      {R"({"event": "legal", "request": 1, "rows": [
           {"node": 0, "state": 1, "room": 2, "num_legal": 3,
            "legal_log_mass": -1e300}]})",
       "rows[0].legal_log_mass must be in the range of a 32-bit float, got -1"},
      {R"({"event": "candidate", "request": 1, "step": 1, "node": 0,
           "parent": -1, "parent_slot": 0, "token": 1, "text": "",
           "log_prob": 1e39, "cum_log_prob": 0, "what": "kept", "why": ""})",
       "log_prob must be in the range of a 32-bit float, got 1"},
      {R"({"event": "candidate", "request": 1, "step": 1, "node": 0,
           "parent": -1, "parent_slot": 0, "token": 1, "text": "",
           "log_prob": 0, "cum_log_prob": 0, "what": "lost", "why": ""})",
       "what must be \"kept\", \"pruned\" or \"finished\", got \"lost\""},
  };
  for (const auto& [line, message] : cases) {
    EXPECT_THAT(
        ParseTraceLine(line),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << line;
  }
}

TEST(TraceJsonTest, AWrittenFileHoldsTheEventsInOrder) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("trace.jsonl");
  auto writer = TraceWriter::Open(path);
  ASSERT_OK(writer);
  for (const TraceEvent& event : AllKinds()) (*writer)->On(event);
  ASSERT_OK((*writer)->Close());
  (*writer)->On(AllKinds()[0]);  // dropped

  std::ifstream file(path);
  std::vector<TraceEvent> read;
  for (std::string line; std::getline(file, line);) {
    read.push_back(ParseTraceLine(line).value());
  }
  EXPECT_EQ(read, AllKinds());
}

TEST(TraceJsonTest, AnOlderFileIsCutByTheFirstEvent) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("trace.jsonl", "older\n");
  const auto text = [&] {
    std::ifstream file(path);
    std::string all;
    std::getline(file, all, '\0');
    return all;
  };
  auto unused = TraceWriter::Open(path);
  ASSERT_OK(unused);
  ASSERT_OK((*unused)->Close());
  EXPECT_EQ(text(), "older\n");
  auto writer = TraceWriter::Open(path);
  ASSERT_OK(writer);
  EXPECT_EQ(text(), "older\n");
  (*writer)->On(AllKinds()[0]);
  ASSERT_OK((*writer)->Close());
  EXPECT_EQ(text(), WriteTraceLine(AllKinds()[0]) + "\n");
}

// To open a pipe waits for a reader.
TEST(TraceJsonTest, APipeNeedsAReader) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(TraceWriter::Open(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       Concat("cannot write ", path,
                              ": it is a pipe that nothing reads")));
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  auto writer = TraceWriter::Open(path);
  ASSERT_OK(writer);
  (*writer)->On(AllKinds()[0]);
  ASSERT_OK((*writer)->Close());
  std::string text(10'000, ' ');
  text.resize(read(reader, text.data(), text.size()));
  EXPECT_EQ(text, WriteTraceLine(AllKinds()[0]) + "\n");
  close(reader);
}

TEST(TraceJsonTest, AFileThatCannotBeWrittenIsReportedOnce) {
  EXPECT_THAT(TraceWriter::Open("/nowhere/trace.jsonl"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/nowhere/trace.jsonl")));
  auto full = TraceWriter::Open("/dev/full");
  if (!full.ok()) GTEST_SKIP() << "no /dev/full here";
  for (int i = 0; i < 10000; ++i) (*full)->On(AllKinds()[0]);
  EXPECT_THAT((*full)->Close(),
              StatusIs(absl::StatusCode::kInternal,
                       "cannot write /dev/full to its end: No space left on "
                       "device"));
}

}  // namespace
}  // namespace espalier
