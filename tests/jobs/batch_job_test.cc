// A batch's input, and its results read back after any end.
#include "jobs/batch_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/few_cases.h"
#include "tests/jobs/job_folder.h"

namespace espalier::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string LineOf(int i, std::string_view body = R"({"prompt":"a"})") {
  return Concat(R"({"custom_id":"c)", i,
                R"(","method":"POST","url":"/v1/completions","body":)", body,
                "}");
}

class BatchJobTest : public ::testing::Test {
 protected:
  openai::Batch BatchOf(std::string_view input) {
    openai::Batch batch;
    batch.id = "batch_7";
    batch.endpoint = "/v1/completions";
    batch.input_file_id = AddFile(files_.get(), input)->id;
    return batch;
  }
  openai::Batch Check(std::string_view input, BatchLimits limits = {}) {
    openai::Batch batch = BatchOf(input);
    auto check = BatchInputCheck::Open(files_->PathOf(batch.input_file_id),
                                       batch.endpoint, limits);
    EXPECT_OK(check);
    // A line at a time.
    while (true) {
      const absl::StatusOr<bool> is_done = (*check)->Continue(SliceEnd());
      EXPECT_OK(is_done);
      if (!is_done.ok() || *is_done) break;
    }
    batch.num_calls = (*check)->num_calls();
    batch.errors = (*check)->errors();
    return batch;
  }
  std::unique_ptr<BatchJob> Open(const openai::Batch& batch) {
    auto job = std::make_unique<BatchJob>(batch, "", paths_, BatchLimits(),
                                          files_.get());
    while (true) {
      const absl::StatusOr<bool> is_done = job->Recover(SliceEnd());
      EXPECT_OK(is_done);
      if (!is_done.ok() || *is_done) break;
    }
    return job;
  }

  const JobFolder folder_;
  const std::unique_ptr<FileStore> files_ = folder_.OpenFiles();
  const BatchJob::Paths paths_ = {folder_.path() + "/out",
                                  folder_.path() + "/err"};
};

TEST_F(BatchJobTest, GoodInputIsCounted) {
  const openai::Batch batch =
      Check(LineOf(0) + "\n\n" + LineOf(1) + "\r\n  \n" + LineOf(2));
  EXPECT_TRUE(batch.errors.empty());
  EXPECT_EQ(batch.num_calls, 3);
}

TEST_F(BatchJobTest, WhatIsWrongIsNamedWithItsLine) {
  const openai::Batch batch = Check(Concat(
      LineOf(0), "\n{\n", LineOf(0), "\n[]\n",
      R"({"custom_id":"x","method":"GET","url":"/v1/completions","body":{}})",
      "\n", R"({"custom_id":"y","method":"POST","url":"/v1/models","body":{}})",
      "\n", R"({"custom_id":"z","method":"POST","url":"/v1/completions"})",
      "\n", LineOf(9, "[]"), "\n", R"({"custom_id":7})", "\n",
      R"({"custom_id":""})", "\n", R"({"method":"POST"})", "\n",
      R"({"custom_id":"v"})", "\n", R"({"custom_id":"w","method":"POST"})",
      "\n"));
  std::vector<std::string> errors;
  std::vector<std::string> params;
  for (const openai::BatchError& error : batch.errors) {
    errors.push_back(Concat(*error.line, " ", error.code, ": ", error.message));
    params.push_back(error.param);
  }
  EXPECT_THAT(
      errors,
      ElementsAre(HasSubstr("2 invalid_json_line"),
                  HasSubstr("3 duplicate_custom_id: custom_id \"c0\""),
                  HasSubstr("4 invalid_json_line: the line is no JSON object"),
                  HasSubstr("5 invalid_request: method must be \"POST\""),
                  HasSubstr("6 invalid_request: url must be the batch's"),
                  HasSubstr("7 invalid_request: body must be there"),
                  HasSubstr("8 invalid_request: body must be an object"),
                  HasSubstr("9 invalid_request: custom_id must be a string"),
                  HasSubstr("10 invalid_request: custom_id must have 1 to"),
                  HasSubstr("11 invalid_request: custom_id must be there"),
                  HasSubstr("12 invalid_request: method must be there"),
                  HasSubstr("13 invalid_request: url must be there")));
  EXPECT_THAT(params, ElementsAre("", "custom_id", "", "method", "url", "body",
                                  "body", "custom_id", "custom_id", "custom_id",
                                  "method", "url"));
}

TEST_F(BatchJobTest, LimitsOfInputHold) {
  EXPECT_EQ(Check("").errors[0].code, "empty_file");
  EXPECT_EQ(Check("\n \n").errors[0].code, "empty_file");
  const std::string two = LineOf(0) + "\n" + LineOf(1);
  const openai::Batch many = Check(two, {.max_lines = 1});
  EXPECT_THAT(many.errors[0].message, HasSubstr("(--max-batch-lines)"));
  const openai::Batch longer = Check(two, {.max_line_bytes = 20});
  ASSERT_EQ(longer.errors.size(), 2);
  EXPECT_EQ(longer.errors[0].code, "line_too_long");
  // Also if what is kept of the line is blank.
  const openai::Batch padded =
      Check(LineOf(0) + "\n" + std::string(200, ' ') + LineOf(1),
            {.max_line_bytes = 200});
  ASSERT_EQ(padded.errors.size(), 1);
  EXPECT_EQ(padded.errors[0].code, "line_too_long");
  // A file of nothing but errors lists the first of them alone.
  EXPECT_EQ(
      Check(std::string(1000, '\n') + std::string(2000, 'x')).errors.size(), 1);
  std::string bad;
  for (int i = 0; i < 1000; ++i) bad += "{\n";
  EXPECT_EQ(Check(bad).errors.size(), 20);
}

// Wherever the results of a job were cut off, the next one makes those calls
// that have no whole result, and all results are there in the end, once each.
TEST_F(BatchJobTest, ResultsCutAtAnyByteAreCompleted) {
  constexpr int kNumCalls = 4;
  std::string input;
  for (int i = 0; i < kNumCalls; ++i) input += LineOf(i) + "\n";
  const openai::Batch batch = BatchOf(input);
  const auto finish = [&](BatchJob* job) {
    int num_calls = 0;
    while (true) {
      auto call = job->Next(SliceEnd());
      EXPECT_OK(call);
      if (!call.ok() || (!*call && job->is_at_end())) break;
      if (!*call) continue;
      ++num_calls;
      const bool is_bad = (*call)->line % 2 == 1;
      EXPECT_OK(job->Add(
          **call, {.http_status = is_bad ? 400 : 200,
                   .request_id = "r",
                   .body = Concat(R"({"x":"\n)", (*call)->custom_id, "\"}")}));
    }
    return num_calls;
  };
  finish(Open(batch).get());
  const std::string output = ReadWhole(paths_.output);
  const std::string errors = ReadWhole(paths_.errors);
  EXPECT_EQ(std::ranges::count(output, '\n'), 2);
  const size_t step = testing::Cases(1, 7);
  for (size_t size = 0; size <= output.size(); size += step) {
    for (const char* const tail : {"", "\n", "{}\n"}) {
      WriteWhole(paths_.output, output.substr(0, size) + tail);
      WriteWhole(paths_.errors, errors);
      const auto job = Open(batch);
      const auto whole = std::ranges::count(output.substr(0, size), '\n');
      const bool ends_line =
          *tail == '\n' && size < output.size() && output[size] == '\n';
      EXPECT_EQ(finish(job.get()), 2 - whole - (ends_line ? 1 : 0)) << size;
      EXPECT_EQ(job->num_completed(), 2);
      EXPECT_EQ(job->num_failed(), 2);
      EXPECT_EQ(ReadWhole(paths_.output), output) << size;
      EXPECT_EQ(ReadWhole(paths_.errors), errors);
    }
  }
}

}  // namespace
}  // namespace espalier::jobs
