// Batches: that each call has one result, whatever ends them in between.
#include "jobs/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/fault_injection.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/few_cases.h"
#include "tests/jobs/job_folder.h"

namespace espalier::jobs {
namespace {

namespace asio = boost::asio;
using ::espalier::testing::StatusIs;
using openai::BatchStatus;
using ::testing::HasSubstr;

constexpr int kNumCalls = 5;

std::string CallLine(std::string_view custom_id, std::string_view prompt) {
  return Concat(R"({"custom_id":")", custom_id,
                R"(","method":"POST","url":"/v1/completions","body":)",
                R"({"prompt":")", prompt, "\"}}\n");
}

std::string InputOf(int num_calls) {
  std::string input;
  for (int i = 0; i < num_calls; ++i)
    input += CallLine(Concat("c", i), Concat(i));
  return input;
}

// Calls that count, and end as a test says.
class FakeCalls {
 public:
  RunCall run() {
    return [this](RunningCall call) { return Run(std::move(call)); };
  }

  std::atomic<bool> are_held = false;  // none ends before it is cancelled
  std::atomic<int> num_refused = 0;    // the next ones, by 429
  std::atomic<int> num_running = 0;
  std::atomic<int> most_running = 0;
  std::atomic<int> num_begun = 0;
  std::atomic<int> num_made = 0;
  // On the thread of the batches.
  std::vector<std::string> owners;  // one per call that began
  std::function<void()> on_call = [] {};
  std::function<void()> on_turn = [] {};  // after each wait of a call

 private:
  struct Counted {
    explicit Counted(FakeCalls* all) : calls(all) {
      const int count = ++calls->num_running;
      calls->most_running = std::max(calls->most_running.load(), count);
    }
    ~Counted() { --calls->num_running; }
    FakeCalls* const calls;
  };

  asio::awaitable<openai::BatchOutcome> Run(RunningCall call) {
    const Counted counted(this);
    ++num_begun;
    owners.push_back(call.owner);
    on_call();
    asio::steady_timer timer(co_await asio::this_coro::executor);
    do {
      timer.expires_after(std::chrono::milliseconds(are_held ? 1 : 0));
      co_await timer.async_wait(asio::use_awaitable);
      on_turn();
    } while (are_held);
    openai::BatchOutcome outcome = {
        .http_status = 200, .request_id = "r", .body = std::move(call.body)};
    if (num_refused > 0) {
      --num_refused;
      outcome.http_status = 429;
    } else if (outcome.body.find("\"3\"") != outcome.body.npos) {
      outcome.http_status = 400;
    }
    ++num_made;
    co_return outcome;
  }
};

// A FileStore and the Batches of one folder.
class Served {
 public:
  Served(const std::string& folder, RunCall run, BatchOptions options = {},
         FileLimits limits = {}, const WarnOfRecord& warn = nullptr) {
    if (options.pause == BatchOptions().pause) {
      options.pause = absl::Milliseconds(2);
    }
    options.slice = slice;
    files = FileStore::Open(folder, limits).value();
    auto opened = Batches::Open(folder, options, files.get(), warn);
    EXPECT_OK(opened);
    batches = *std::move(opened);
    EXPECT_OK(batches->Start(std::move(run)));
  }

  // Returns the id, or "" if the disk fails.
  std::string Create(int num_calls, int64_t window_seconds = 3600,
                     std::string_view owner = "") {
    return CreateOf(InputOf(num_calls), window_seconds, owner);
  }
  std::string CreateOf(std::string_view input, int64_t window_seconds = 3600,
                       std::string_view owner = "") {
    const auto file = AddFile(files.get(), input, owner);
    if (!file.ok()) return "";
    const auto batch = batches->Create(owner,
                                       {.endpoint = "/v1/completions",
                                        .input_file_id = file->id,
                                        .completion_window = "1h",
                                        .window_seconds = window_seconds},
                                       /*tenant=*/owner);
    return batch.ok() ? batch->id : "";
  }
  // Waits until it has ended.
  openai::Batch Await(const std::string& id, std::string_view owner = "") {
    for (int i = 0; i < 5'000; ++i) {
      const auto batch = batches->Find(owner, id);
      EXPECT_OK(batch);
      if (!batch.ok() || openai::IsFinal(batch->status)) return *batch;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << id << " does not end";
    return {};
  }
  // The results of a file, by their custom ids; each is there once.
  std::map<std::string, json::object> ResultsOf(const std::string& file_id,
                                                std::string_view owner = "") {
    std::map<std::string, json::object> results;
    if (file_id.empty()) return results;
    std::string text = ReadWhole(files->PathOf(file_id));
    const auto file = files->Find(owner, file_id);
    EXPECT_OK(file);
    EXPECT_EQ(file.ok() ? file->num_bytes : 0, std::ssize(text));
    EXPECT_TRUE(text.ends_with('\n'));
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const auto result = ParseJson(text.substr(0, end));
      EXPECT_OK(result);
      const std::string custom_id(result->at("custom_id").as_string());
      EXPECT_TRUE(results.emplace(custom_id, result->as_object()).second);
      text.erase(0, end + 1);
    }
    return results;
  }
  // That a batch of InputOf(num_calls) is complete: call 3 has failed.
  void ExpectComplete(const openai::Batch& batch, int num_calls,
                      std::string_view owner = "") {
    EXPECT_EQ(openai::NameOf(batch.status), "completed");
    const int num_failed = num_calls > 3 ? 1 : 0;
    EXPECT_EQ(batch.num_calls, num_calls);
    EXPECT_EQ(batch.num_completed, num_calls - num_failed);
    EXPECT_EQ(batch.num_failed, num_failed);
    const auto output = ResultsOf(batch.output_file_id, owner);
    const auto errors = ResultsOf(batch.error_file_id, owner);
    EXPECT_EQ(std::ssize(output), num_calls - num_failed);
    EXPECT_EQ(std::ssize(errors), num_failed);
    for (int i = 0; i < num_calls; ++i) {
      const bool fails = i == 3;
      const auto& results = fails ? errors : output;
      const auto found = results.find(Concat("c", i));
      ASSERT_NE(found, results.end()) << i;
      const json::value& response = found->second.at("response");
      EXPECT_EQ(response.at("status_code").as_int64(), fails ? 400 : 200);
      EXPECT_EQ(response.at("body").at("prompt"), json::value(Concat(i)));
    }
  }

  static inline absl::Duration slice;
  std::unique_ptr<FileStore> files;
  std::unique_ptr<Batches> batches;
};

// With slices that a file fits into, and with some for each line.
class BatchesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Served::slice = GetParam() ? absl::Hours(1) : absl::ZeroDuration();
  }

  const JobFolder folder_;
  FakeCalls calls_;
};

TEST_P(BatchesTest, EachCallHasOneResult) {
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 3});
  const openai::Batch batch = served.Await(served.Create(20));
  served.ExpectComplete(batch, 20);
  EXPECT_EQ(calls_.num_made, 20);
  EXPECT_LE(calls_.most_running, 3);
  EXPECT_FALSE(std::filesystem::exists(
      Concat(folder_.path(), "/batches/", batch.id, ".output")));
  EXPECT_OK(served.files->Remove("", batch.input_file_id));
}

INSTANTIATE_TEST_SUITE_P(, BatchesTest, ::testing::Bool(),
                         [](const auto& slices) {
                           return slices.param ? "WholeFiles" : "LineByLine";
                         });

TEST_P(BatchesTest, CallsThatThereWasNoRoomForAreMadeAgain) {
  calls_.num_refused = 7;
  Served served(folder_.path(), calls_.run());
  served.ExpectComplete(served.Await(served.Create(kNumCalls)), kNumCalls);
  EXPECT_EQ(calls_.num_made, kNumCalls + 7);
}

TEST_P(BatchesTest, CallsWhoseHandlerThrowsAreMadeAgain) {
  int num_throws = 2;
  calls_.on_call = [&] {
    if (num_throws-- > 0) throw std::runtime_error("broken");
  };
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 1});
  served.ExpectComplete(served.Await(served.Create(kNumCalls)), kNumCalls);
  EXPECT_EQ(calls_.num_begun, kNumCalls + 2);
}

TEST_P(BatchesTest, ACallWhoseHandlerAlwaysThrowsIsAnError) {
  calls_.on_call = [] { throw std::runtime_error("broken"); };
  Served served(folder_.path(), calls_.run());
  const openai::Batch batch = served.Await(served.Create(2));
  EXPECT_EQ(openai::NameOf(batch.status), "completed");
  EXPECT_EQ(batch.num_completed, 0);
  EXPECT_EQ(batch.num_failed, 2);
  EXPECT_EQ(calls_.num_begun, 2 * 3);
  for (const auto& [custom_id, result] :
       served.ResultsOf(batch.error_file_id)) {
    EXPECT_EQ(result.at("error").at("code"), "server_error") << custom_id;
  }
}

TEST_P(BatchesTest, BatchesRunSideBySideAndBelongToTheirOwners) {
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 2});
  std::vector<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(served.Create(kNumCalls, 3600, i % 2 == 0 ? "me" : "you"));
  }
  for (int i = 0; i < 20; ++i) {
    const std::string owner = i % 2 == 0 ? "me" : "you";
    const std::string other = i % 2 == 0 ? "you" : "me";
    const openai::Batch batch = served.Await(ids[i], owner);
    served.ExpectComplete(batch, kNumCalls, owner);
    EXPECT_FALSE(served.batches->Find(other, ids[i]).ok());
    EXPECT_FALSE(served.batches->Cancel(other, ids[i]).ok());
    EXPECT_OK(served.files->Find(owner, batch.output_file_id));
    EXPECT_FALSE(served.files->Find(other, batch.output_file_id).ok());
  }
  EXPECT_EQ(served.batches->List("me").size(), 10);
}

TEST_P(BatchesTest, ManyBatchesOfOneOwnerHoldUpNoneOfAnother) {
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 2});
  calls_.are_held = true;
  std::vector<std::string> mine;
  for (int i = 0; i < 20; ++i) mine.push_back(served.Create(40, 3600, "me"));
  const std::string other = served.Create(kNumCalls, 3600, "you");
  calls_.are_held = false;
  served.ExpectComplete(served.Await(other, "you"), kNumCalls, "you");
  int num_open = 0;
  for (const std::string& id : mine) {
    const auto batch = served.batches->Find("me", id);
    num_open += openai::IsFinal(batch->status) ? 0 : 1;
  }
  EXPECT_GT(num_open, 10);
}

// Nor batches of it that were begun before others came.
TEST_P(BatchesTest, BatchesThatAreBegunMakeWayForOthers) {
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 1});
  calls_.are_held = true;
  const auto create = [&](const std::string& owner) {
    const std::string id = served.Create(kNumCalls, 3600, owner);
    while (served.batches->Find(owner, id)->status !=
           BatchStatus::kInProgress) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return id;
  };
  for (int i = 0; i < 16; ++i) create("me");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::map<std::string, std::string> others;
  for (int i = 0; i < 15; ++i) {
    const std::string owner = Concat("tenant", i);
    others[owner] = create(owner);
  }
  calls_.are_held = false;
  for (const auto& [owner, id] : others) {
    served.ExpectComplete(served.Await(id, owner), kNumCalls, owner);
  }
  served.batches->Stop();
  const auto is_me = [](const std::string& owner) { return owner == "me"; };
  // Three turns of each.
  EXPECT_LT(
      std::count_if(calls_.owners.begin(), calls_.owners.begin() + 48, is_me),
      8);
}

TEST_P(BatchesTest, BadInputFailsTheBatch) {
  Served served(folder_.path(), calls_.run());
  const auto file = AddFile(served.files.get(), "{}\n");
  const openai::BatchOrder order = {.endpoint = "/v1/completions",
                                    .input_file_id = file->id,
                                    .window_seconds = 3600};
  const openai::Batch batch =
      served.Await(served.batches->Create("", order)->id);
  EXPECT_EQ(openai::NameOf(batch.status), "failed");
  ASSERT_EQ(batch.errors.size(), 1);
  EXPECT_EQ(batch.errors[0].line, 1);
  EXPECT_EQ(calls_.num_made, 0);
  EXPECT_OK(served.files->Remove("", file->id));
  EXPECT_THAT(served.batches->Create("", order),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(file->id)));
}

// Input that takes long to check holds up neither calls that run, nor the end.
TEST(BatchSlicesTest, CallsRunWhileInputIsChecked) {
  Served::slice = absl::ZeroDuration();
  const JobFolder folder;
  FakeCalls calls;
  calls.are_held = true;
  std::string large;
  std::atomic<const Batches*> checking = nullptr;
  std::atomic<int> num_turns = 0;  // while it is checked
  calls.on_turn = [&] {
    const Batches* const batches = checking;
    if (batches == nullptr ||
        batches->Find("", large)->status != BatchStatus::kValidating) {
      return;
    }
    ++num_turns;
    // The test has time to stop them before all is checked.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  Served served(folder.path(), calls.run(), {.max_running_calls = 2});
  served.Create(2);
  while (calls.num_running < 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  large = served.Create(20'000);
  checking = served.batches.get();
  while (num_turns == 0 &&
         served.batches->Find("", large)->status == BatchStatus::kValidating) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  served.batches->Stop();
  EXPECT_GT(num_turns, 0);
  EXPECT_EQ(served.batches->Find("", large)->status, BatchStatus::kValidating);
}

TEST_P(BatchesTest, CancelledBatchKeepsTheResultsItHas) {
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 1});
  calls_.on_call = [&] {
    if (calls_.num_made == 2) calls_.are_held = true;
  };
  const std::string id = served.Create(kNumCalls);
  for (int i = 0; i < 5'000 && !calls_.are_held; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(
      served.files->Remove("", served.batches->Find("", id)->input_file_id),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  const auto cancelling = served.batches->Cancel("", id);
  ASSERT_OK(cancelling);
  EXPECT_EQ(openai::NameOf(cancelling->status), "cancelling");
  const openai::Batch batch = served.Await(id);
  EXPECT_EQ(openai::NameOf(batch.status), "cancelled");
  EXPECT_EQ(served.ResultsOf(batch.output_file_id).size(), 2);
  EXPECT_TRUE(batch.error_file_id.empty());
  EXPECT_EQ(calls_.num_running, 0);
  EXPECT_THAT(served.batches->Cancel("", id),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is cancelled already")));
}

TEST_P(BatchesTest, CallsThatAreLateAreErrors) {
  Served served(folder_.path(), calls_.run());
  const openai::Batch batch = served.Await(served.Create(kNumCalls, 0));
  EXPECT_EQ(openai::NameOf(batch.status), "expired");
  const auto errors = served.ResultsOf(batch.error_file_id);
  ASSERT_EQ(errors.size(), kNumCalls);
  EXPECT_EQ(errors.at("c0").at("error").at("code"), "batch_expired");
  EXPECT_TRUE(errors.at("c0").at("response").is_null());
  EXPECT_TRUE(batch.output_file_id.empty());
}

TEST_P(BatchesTest, LateBatchHoldsUpNoOther) {
  calls_.are_held = true;
  Served served(folder_.path(), calls_.run(),
                {.max_running_calls = 2, .pause = absl::Hours(1)});
  const std::string late = served.Create(kNumCalls, /*window_seconds=*/1);
  EXPECT_EQ(openai::NameOf(served.Await(late).status), "expired");
  EXPECT_LE(calls_.num_begun, 2);
  calls_.are_held = false;
  served.ExpectComplete(served.Await(served.Create(kNumCalls)), kNumCalls);
}

TEST_P(BatchesTest, ResultsWithoutRoomFailTheBatchAndStay) {
  const int64_t size = std::ssize(InputOf(kNumCalls));
  Served served(folder_.path(), calls_.run(), {.max_running_calls = 1},
                {.max_total_bytes = size + 300});
  const openai::Batch batch = served.Await(served.Create(kNumCalls));
  EXPECT_EQ(openai::NameOf(batch.status), "failed");
  ASSERT_EQ(batch.errors.size(), 1);
  EXPECT_EQ(batch.errors[0].code, "no_room");
  EXPECT_EQ(std::ssize(served.ResultsOf(batch.output_file_id)),
            batch.num_completed);
  EXPECT_GT(batch.num_completed, 0);
}

TEST_P(BatchesTest, TheOldestThatHaveEndedAreForgotten) {
  Served served(folder_.path(), calls_.run(), {.max_batches = 2});
  const std::string first = served.Create(1);
  served.Await(first);
  served.Await(served.Create(1));
  calls_.are_held = true;
  EXPECT_NE(served.Create(1), "");
  EXPECT_FALSE(served.batches->Find("", first).ok());
  EXPECT_NE(served.Create(1), "");
  EXPECT_EQ(served.Create(1), "");
  EXPECT_EQ(served.batches->List("").size(), 2);
}

// A tenant that makes many forgets its own, and another finds room.
TEST_P(BatchesTest, NoTenantTakesAllRoom) {
  calls_.are_held = true;
  Served served(folder_.path(), calls_.run(), {.max_batches = 10});
  const std::string theirs = served.Create(1, 3600, "you");
  ASSERT_NE(theirs, "");
  for (int i = 0; i < 8; ++i) EXPECT_NE(served.Create(1, 3600, "me"), "") << i;
  EXPECT_EQ(served.Create(1, 3600, "me"), "");
  EXPECT_NE(served.Create(1, 3600, "you"), "");
  calls_.are_held = false;
  for (const openai::Batch& batch : served.batches->List("me")) {
    served.Await(batch.id, "me");
  }
  served.Await(theirs, "you");
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(served.Create(1, 3600, "me"), "") << i;
    served.Await(served.batches->List("me").back().id, "me");
  }
  EXPECT_OK(served.batches->Find("you", theirs));
}

// Nor do many tenants that each made a batch and never come back.
TEST_P(BatchesTest, NewTenantsFindRoomAfterMany) {
  Served served(folder_.path(), calls_.run(), {.max_batches = 10});
  const std::string first = served.Create(1, 3600, "me");
  const std::string second = served.Create(1, 3600, "me");
  served.Await(first, "me");
  served.Await(second, "me");
  for (int i = 0; i < 30; ++i) {
    const std::string tenant = Concat("tenant", i);
    const std::string id = served.Create(1, 3600, tenant);
    ASSERT_NE(id, "") << i;
    served.Await(id, tenant);
  }
  EXPECT_TRUE(served.batches->List("tenant19").empty());
  EXPECT_EQ(served.batches->List("tenant20").size(), 1);
}

// The tenant with the most is the one that others take room from, and one that
// has its share takes none.
TEST_P(BatchesTest, RoomComesFromTheTenantWithTheMost) {
  Served served(folder_.path(), calls_.run(), {.max_batches = 20});
  const std::string only = served.Create(1, 3600, "you");
  served.Await(only, "you");
  std::vector<std::string> mine;
  for (int i = 0; i < 17; ++i) {
    mine.push_back(served.Create(1, 3600, "me"));
    served.Await(mine.back(), "me");
  }
  calls_.are_held = true;
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(served.Create(1, 3600, "they"), "") << i;
  }
  EXPECT_EQ(served.Create(1, 3600, "they"), "");
  EXPECT_OK(served.batches->Find("you", only));
  EXPECT_EQ(served.batches->List("me").size(), 11);
  EXPECT_FALSE(served.batches->Find("me", mine[5]).ok());
  EXPECT_OK(served.batches->Find("me", mine[6]));
}

// A line that was good when it was checked, and is no call now, fails the batch
// with the results that it has, also if it is late.
TEST_P(BatchesTest, LineThatIsNoCallAnyMoreFailsTheBatch) {
  constexpr std::string_view kExpiresAt = "\"expires_at\": ";
  for (const bool is_late : {false, true}) {
    const JobFolder folder;
    FakeCalls calls;
    calls.on_call = [&] { calls.are_held = calls.num_made == 2; };
    std::string id;
    {
      Served served(folder.path(), calls.run(), {.max_running_calls = 1});
      id = served.CreateOf(InputOf(3) +
                           CallLine("long", std::string(5'000, 'x')) +
                           CallLine("last", ""));
      for (int i = 0; i < 5'000 && !calls.are_held; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSERT_TRUE(calls.are_held);
    }
    if (is_late) {
      const std::string path = Concat(folder.path(), "/batches/", id, ".json");
      std::string record = ReadWhole(path);
      const size_t at = record.find(kExpiresAt) + kExpiresAt.size();
      record.replace(at, record.find(',', at) - at, "1");
      WriteWhole(path, record);
    }
    FakeCalls next_calls;
    Served served(
        folder.path(), next_calls.run(),
        {.limits = {.max_line_bytes = 2'000}, .max_running_calls = 1});
    const openai::Batch batch = served.Await(id);
    EXPECT_EQ(openai::NameOf(batch.status), "failed");
    ASSERT_EQ(batch.errors.size(), 1);
    EXPECT_EQ(batch.errors[0].code, "line_too_long");
    EXPECT_EQ(batch.errors[0].line, 4);
    EXPECT_THAT(batch.errors[0].message, HasSubstr("at most 2000 bytes"));
    EXPECT_GE(batch.num_completed, 2);
    EXPECT_EQ(std::ssize(served.ResultsOf(batch.output_file_id)),
              batch.num_completed);
    EXPECT_OK(served.files->Remove("", batch.input_file_id));
  }
}

// An input that is gone, as after a part of the folder was restored, ends its
// batch with the results that it has.
TEST_P(BatchesTest, InputThatIsGoneFailsTheBatch) {
  calls_.on_call = [&] { calls_.are_held = calls_.num_made == 2; };
  std::string id;
  std::string input;
  {
    Served served(folder_.path(), calls_.run(), {.max_running_calls = 1});
    id = served.Create(kNumCalls);
    for (int i = 0; i < 5'000 && !calls_.are_held; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(calls_.are_held);
    input = served.files->PathOf(served.batches->Find("", id)->input_file_id);
  }
  std::filesystem::remove(input);
  calls_.are_held = false;
  Served served(folder_.path(), calls_.run());
  const openai::Batch batch = served.Await(id);
  EXPECT_EQ(openai::NameOf(batch.status), "failed");
  ASSERT_EQ(batch.errors.size(), 1);
  EXPECT_EQ(batch.errors[0].code, "input_gone");
  EXPECT_EQ(batch.num_completed, 2);
  EXPECT_EQ(served.ResultsOf(batch.output_file_id).size(), 2);
}

// Also one that was not checked yet, and one that was cancelled.
TEST_P(BatchesTest, InputThatIsGoneHoldsUpNoEnd) {
  for (const std::string_view status : {"validating", "cancelling"}) {
    const JobFolder folder;
    FakeCalls calls;
    calls.are_held = true;
    std::string id;
    {
      Served served(folder.path(), calls.run());
      id = served.Create(kNumCalls);
      while (calls.num_running == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::filesystem::remove(
          served.files->PathOf(served.batches->Find("", id)->input_file_id));
    }
    const std::string path = Concat(folder.path(), "/batches/", id, ".json");
    std::string record = ReadWhole(path);
    constexpr std::string_view kBefore = "\"in_progress\"";
    record.replace(record.find(kBefore), kBefore.size(),
                   Concat("\"", status, "\""));
    WriteWhole(path, record);
    Served served(folder.path(), calls.run());
    const openai::Batch batch = served.Await(id);
    const bool fails = status == "validating";
    EXPECT_EQ(openai::NameOf(batch.status), fails ? "failed" : "cancelled");
    EXPECT_EQ(batch.errors.size(), fails ? 1 : 0);
  }
}

TEST_P(BatchesTest, DiskThatFailsIsWarnedOfOnce) {
  std::vector<std::string> warnings;
  std::string id;
  calls_.on_call = [&] {
    if (calls_.num_made == 0) {
      std::filesystem::remove_all(folder_.path() + "/batches");
    }
  };
  {
    Served served(folder_.path(), calls_.run(), {.max_running_calls = 1}, {},
                  [&](const std::string& line) { warnings.push_back(line); });
    id = served.Create(kNumCalls);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(openai::IsFinal(served.batches->Find("", id)->status));
  }
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0],
              HasSubstr(id + " waits, and is tried again: cannot"));
}

// A copy of the folder, made as each call begins, is the state after a crash at
// that time.
TEST_P(BatchesTest, EveryMomentOfABatchIsGoneOnFrom) {
  std::vector<std::unique_ptr<JobFolder>> copies;
  calls_.on_call = [&] {
    copies.push_back(std::make_unique<JobFolder>());
    std::filesystem::copy(folder_.path(), copies.back()->path(),
                          std::filesystem::copy_options::recursive);
  };
  std::string id;
  {
    Served served(folder_.path(), calls_.run(), {.max_running_calls = 2});
    id = served.Create(kNumCalls);
    served.Await(id);
  }
  ASSERT_EQ(std::ssize(copies), kNumCalls);
  for (const auto& copy : copies) {
    FakeCalls calls;
    Served served(copy->path(), calls.run());
    served.ExpectComplete(served.Await(id), kNumCalls);
  }
}

TEST_P(BatchesTest, RecordThatCannotBeReadIsSetAside) {
  std::string damaged;
  std::string whole;
  calls_.are_held = true;
  {
    Served served(folder_.path(), calls_.run());
    damaged = served.Create(kNumCalls);
    whole = served.Create(kNumCalls);
    while (served.batches->Find("", damaged)->status !=
           BatchStatus::kInProgress) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  calls_.are_held = false;
  const std::string path =
      Concat(folder_.path(), "/batches/", damaged, ".json");
  const std::string good = ReadWhole(path);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  std::vector<std::string> records = DamagedRecords(good);
  records.push_back(with("\"in_progress\"", "\"in_regress\""));
  records.push_back(with("/v1/completions", "/v1/embeddings"));
  records.push_back(with("\"input_file_id\": \"", "\"input_file_id\": \"../"));
  records.push_back(with("\"ends_as\": null", "\"ends_as\": \"well\""));
  for (const std::string& record : records) {
    WriteWhole(path, record);
    const auto files = FileStore::Open(folder_.path(), {}).value();
    std::vector<std::string> warnings;
    const auto batches = Batches::Open(
        folder_.path(), {}, files.get(),
        [&](const std::string& line) { warnings.push_back(line); });
    ASSERT_OK(batches) << record;
    ASSERT_EQ(warnings.size(), 1) << record;
    EXPECT_THAT(warnings[0], HasSubstr(path));
    EXPECT_EQ((*batches)->List("").size(), 1);
  }
  {
    Served served(folder_.path(), calls_.run());
    served.ExpectComplete(served.Await(whole), kNumCalls);
    EXPECT_FALSE(served.batches->Find("", damaged).ok());
  }
  WriteWhole(path, good);
  Served served(folder_.path(), calls_.run());
  served.ExpectComplete(served.Await(damaged), kNumCalls);
}

TEST_P(BatchesTest, RecordThatWasCutOffIsRemoved) {
  const std::string next =
      folder_.path() + "/batches/batch_" + std::string(32, '7') + ".json.next";
  { const Served served(folder_.path(), calls_.run()); }
  WriteWhole(next, "{\"own");
  const Served served(folder_.path(), calls_.run());
  EXPECT_FALSE(std::filesystem::exists(next));
}

// At each operation of the disk in turn it fails once, in the midst of a write.
// The batch is complete in the end, by the same server or by the next.
TEST_P(BatchesTest, DiskMayFailAtAnyOperation) {
  bool has_struck = true;
  for (int num_good = 0; has_struck; num_good += testing::Cases(1, 9)) {
    for (const bool restarts : {false, true}) {
      const JobFolder folder;
      FakeCalls calls;
      auto served = std::make_unique<Served>(folder.path(), calls.run());
      std::string id;
      {
        const InjectedFault fault(FaultPoint::kWriteFile, num_good);
        id = served->Create(kNumCalls);
        if (!id.empty() && restarts) {
          for (int i = 0; i < 50 && !fault.has_struck(); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          served.reset();
        } else if (!id.empty()) {
          served->Await(id);
        }
        has_struck = fault.has_struck();
      }
      if (id.empty()) continue;
      if (restarts) {
        served = std::make_unique<Served>(folder.path(), calls.run());
      }
      served->ExpectComplete(served->Await(id), kNumCalls);
      EXPECT_LT(num_good, 200);
    }
  }
}

// Stopped after a random while, again and again.
TEST_P(BatchesTest, ServersThatStopAtAnyTimeCompleteABatchTogether) {
  constexpr int kMany = 60;
  std::string id;
  for (int round = 0;; ++round) {
    Served served(folder_.path(), calls_.run(), {.max_running_calls = 4});
    if (id.empty()) id = served.Create(kMany);
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    const openai::Batch batch = *served.batches->Find("", id);
    if (!openai::IsFinal(batch.status)) continue;
    served.ExpectComplete(batch, kMany);
    break;
  }
}

}  // namespace
}  // namespace espalier::jobs
