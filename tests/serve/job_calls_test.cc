// Files and batches over HTTP: a batch's calls get the responses that a client
// gets with the same API key, if need be from the next server.
#include "serve/job_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/jobs/job_folder.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

constexpr char kForm[] = "multipart/form-data; boundary=b";

class JobCallsTest : public ServerFixture {
 protected:
  ServerOptions Options() {
    ServerOptions options;
    options.jobs.folder = folder_.path();
    options.jobs.batches.pause = absl::Milliseconds(5);
    return options;
  }

  RawResponse PostForm(std::string_view form, std::string_view type = kForm,
                       std::string_view headers = "") {
    return Send(Concat("POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                       "Content-Type: ", type, "\r\nContent-Length: ",
                       form.size(), "\r\n", headers, "\r\n", form));
  }
  RawResponse Upload(std::string_view content, std::string_view headers = "") {
    return PostForm(FormOf(content), kForm, headers);
  }
  static std::string FormOf(std::string_view content,
                            std::string_view purpose = "batch",
                            std::string_view filename = "in.jsonl") {
    return Concat("--b\r\nContent-Disposition: form-data; name=\"purpose\"",
                  "\r\n\r\n", purpose,
                  "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; ",
                  "filename=\"", filename,
                  "\"\r\nContent-Type: application/octet-stream\r\n\r\n",
                  content, "\r\n--b--\r\n");
  }
  RawResponse Delete(std::string_view path, std::string_view headers = "") {
    return Send(Concat("DELETE ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                       headers, "\r\n"));
  }

  static json::object Object(const RawResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body).value().as_object();
  }
  // The field that an error names; empty if it is null.
  static std::string ParamOf(const RawResponse& response) {
    const json::value param =
        ParseJson(response.body).value().at("error").at("param");
    return param.is_null() ? "" : std::string(param.as_string());
  }
  static std::string IdOf(const RawResponse& response) {
    return std::string(Object(response).at("id").as_string());
  }

  std::string CreateBatch(std::string_view input_id,
                          std::string_view headers = "",
                          std::string_view endpoint = "/v1/completions") {
    return IdOf(
        Post("/v1/batches",
             Concat(R"({"input_file_id":")", input_id, R"(","endpoint":")",
                    endpoint, R"(","completion_window":"24h"})"),
             headers));
  }
  json::object AwaitBatch(const std::string& id,
                          std::string_view headers = "") {
    for (int i = 0; i < 2'000; ++i) {
      const json::object batch = Object(Get("/v1/batches/" + id, headers));
      const json::string& status = batch.at("status").as_string();
      if (status == "completed" || status == "failed" ||
          status == "cancelled" || status == "expired") {
        return batch;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << id << " does not end";
    return {};
  }
  // The responses of a file of results, by custom ids.
  std::map<std::string, json::value> ResponsesOf(const json::value& file_id) {
    std::map<std::string, json::value> responses;
    const RawResponse content =
        Get(Concat("/v1/files/", std::string(file_id.as_string()), "/content"));
    EXPECT_EQ(content.status, 200);
    std::string_view rest = content.body;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const json::value line = ParseJson(rest.substr(0, end)).value();
      EXPECT_TRUE(
          responses
              .emplace(line.at("custom_id").as_string(), line.at("response"))
              .second);
      rest.remove_prefix(end + 1);
    }
    return responses;
  }

  // On disk, records included.
  int64_t NumFiles() const {
    const std::filesystem::directory_iterator begin(folder_.path() + "/files");
    return std::distance(begin, std::filesystem::directory_iterator());
  }

  const jobs::JobFolder folder_;
};

std::string LineOf(std::string_view id, std::string_view body,
                   std::string_view url = "/v1/completions") {
  return Concat(R"({"custom_id":")", id, R"(","method":"POST","url":")", url,
                R"(","body":)", body, "}\n");
}

std::string BodyOf(int i) {
  return Concat(R"({"prompt":[)", 4 + i % 50, ",", 5 + i % 7,
                R"(],"max_tokens":)", 1 + i % 5, R"(,"num_beams":)", 1 + i % 3,
                R"(,"temperature":0})");
}

// All but what says when, and which call it was.
json::object WithoutNames(const json::value& answer) {
  json::object rest = answer.as_object();
  rest.erase("id");
  rest.erase("created");
  return rest;
}

TEST_F(JobCallsTest, WithoutAFolderTheOptionIsNamed) {
  Start();
  for (const char* const path :
       {"/v1/files", "/v1/files/file-1", "/v1/files/file-1/content",
        "/v1/batches", "/v1/batches/batch_1"}) {
    const RawResponse response = Get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("--files DIR"));
  }
  EXPECT_THAT(Upload("{}").body, HasSubstr("--files DIR"));
}

TEST_F(JobCallsTest, FilesAreListedReadAndRemoved) {
  Start(Options());
  std::vector<std::string> ids;
  for (const std::string_view content : {"a\nb", "", "c"}) {
    ids.push_back(IdOf(Upload(content)));
  }
  const json::object file = Object(Get("/v1/files/" + ids[0]));
  EXPECT_EQ(file.at("bytes"), 3);
  EXPECT_EQ(file.at("filename"), "in.jsonl");
  EXPECT_EQ(file.at("purpose"), "batch");
  const RawResponse content = Get("/v1/files/" + ids[0] + "/content");
  EXPECT_EQ(content.body, "a\nb");
  const json::object list = Object(Get("/v1/files?limit=2&order=asc"));
  EXPECT_EQ(list.at("data").as_array().size(), 2);
  EXPECT_EQ(list.at("first_id"), json::value(ids[0]));
  EXPECT_EQ(list.at("has_more"), true);
  const json::object rest =
      Object(Get(Concat("/v1/files?order=asc&after=", ids[1])));
  EXPECT_EQ(rest.at("data").as_array().size(), 1);
  EXPECT_EQ(rest.at("has_more"), false);
  EXPECT_EQ(Object(Get("/v1/files")).at("first_id"), json::value(ids[2]));
  EXPECT_EQ(Get("/v1/files?limit=0").status, 400);
  EXPECT_EQ(Get("/v1/files?after=file-1").status, 404);
  EXPECT_EQ(Object(Delete("/v1/files/" + ids[0])).at("deleted"), true);
  for (const std::string& path :
       {"/v1/files/" + ids[0], "/v1/files/" + ids[0] + "/content",
        std::string("/v1/files/..%2f..%2fetc/content"),
        std::string("/v1/files/../x")}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
}

TEST_F(JobCallsTest, BadFormsAreRefused) {
  Start(Options());
  struct BadForm {
    std::string form;
    std::string message;
    std::string param = {};  // empty: null
  };
  const BadForm kBad[] = {
      {FormOf("x", "fine-tune"), "purpose must be \\\"batch\\\"", "purpose"},
      {FormOf("x", "batch", std::string(2000, 'x')), "at most 1024 bytes",
       "file"},
      {FormOf("x", "batch", "\xff"), "must be UTF-8", "file"},
      {"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n--b--",
       "got nothing", "purpose"},
      {"--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n"
       "--b--",
       "file must be there", "file"},
      {"--b\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\""
       "\r\n\r\n1\r\n--b--",
       "expires_after[seconds]", "expires_after[seconds]"},
      {"", "ends before"},
      {"--b", "ends before"},
  };
  for (const auto& [form, message, param] : kBad) {
    const RawResponse response = PostForm(form);
    EXPECT_EQ(response.status, 400) << form;
    EXPECT_THAT(response.body, HasSubstr(message));
    EXPECT_EQ(ParamOf(response), param) << form;
  }
  EXPECT_EQ(PostForm("{}", "application/json").status, 415);
  const RawResponse encoded = Upload("{}", "Content-Encoding: gzip\r\n");
  EXPECT_EQ(encoded.status, 415);
  EXPECT_EQ(encoded.Find("accept-encoding"), "identity");
  EXPECT_TRUE(Object(Get("/v1/files")).at("data").as_array().empty());
}

// Larger than other bodies may be.
TEST_F(JobCallsTest, UploadsAreWrittenAsTheyArrive) {
  ServerOptions options = Options();
  options.http.max_body_bytes = 1'000;
  options.jobs.files.max_file_bytes = 3'000'000;
  Start(options);
  std::string content;
  for (int i = 0; std::ssize(content) < 3'000'000; ++i) {
    content += Concat(i, "\r\n--a");
  }
  content.resize(3'000'000);
  const std::string id = IdOf(Upload(content));
  EXPECT_EQ(Object(Get("/v1/files/" + id)).at("bytes"), 3'000'000);
  EXPECT_EQ(jobs::ReadWhole(Concat(folder_.path(), "/files/", id)), content);
  const RawResponse large = Upload(content + "x");
  EXPECT_EQ(large.status, 400);
  EXPECT_THAT(large.body, HasSubstr("at most 3000000 bytes (--max-file-mib)"));
  EXPECT_EQ(ParamOf(large), "file");
  RawClient told = Connect();
  told.Send(Concat("POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                   "Content-Type: ", kForm,
                   "\r\nContent-Length: 9000000\r\n\r\n"));
  EXPECT_EQ(told.Receive().status, 413);
  // A refused file is removed after its answer.
  for (int i = 0; i < 2'000 && NumFiles() > 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(NumFiles(), 2);
}

// A key's share, or without keys an address's.
TEST_F(JobCallsTest, NoCallerTakesAllFiles) {
  ServerOptions options = Options();
  options.jobs.files.max_files = 10;
  options.api_keys = ApiKeys({"key-of-mine", "key-of-yours"});
  Start(options);
  const std::string mine = "Authorization: Bearer key-of-mine\r\n";
  for (int i = 0; i < 9; ++i) EXPECT_EQ(Upload("a", mine).status, 200) << i;
  const RawResponse refused = Upload("a", mine);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("this caller has 9 of 9 files"));
  const std::string yours = "Authorization: Bearer key-of-yours\r\n";
  const std::string id = IdOf(Upload("a", yours));
  EXPECT_EQ(Delete("/v1/files/" + id, yours).status, 200);
  // Files of keys stay when the server has no keys any more.
  server_.reset();
  options.api_keys = {};
  Start(options);
  EXPECT_EQ(Upload("a").status, 200);
  server_.reset();
  std::filesystem::remove_all(folder_.path());
  Start(options);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(Upload("a").status, 200) << i;
  EXPECT_EQ(Upload("a").status, 400);
  server_.reset();
  options.tenant_prefix_bits = 0;
  Start(options);
  EXPECT_EQ(Upload("a").status, 200);
  EXPECT_EQ(Upload("a").status, 400);
}

// Clients disconnect at any point of their uploads.
TEST_F(JobCallsTest, HalfAnUploadLeavesNothing) {
  Start(Options());
  const std::string form = FormOf(std::string(300'000, 'x'));
  const std::string text = Concat(
      "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: ", kForm,
      "\r\nContent-Length: ", form.size(), "\r\n\r\n", form);
  for (size_t size = 100; size < text.size(); size += 30'000) {
    RawClient client = Connect();
    client.Send(text.substr(0, size));
    if (size > 30'000) {
      for (int i = 0; i < 2'000 && NumFiles() == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(NumFiles(), 1) << size;
    }
    client.Close();
    for (int i = 0; i < 2'000 && NumFiles() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(NumFiles(), 0) << size;
  }
  EXPECT_TRUE(Object(Get("/v1/files")).at("data").as_array().empty());
}

TEST_F(JobCallsTest, BadOrdersAreRefused) {
  Start(Options());
  const std::string id = IdOf(Upload(LineOf("a", BodyOf(0))));
  std::string many;
  for (int i = 0; i < 1025; ++i)
    many += Concat(i > 0 ? "," : "", "\"", i, "\":0");
  const auto order = [&](std::string_view rest) {
    return Concat(R"({"endpoint":"/v1/completions","input_file_id":")", id,
                  "\",", rest, "}");
  };
  struct BadOrder {
    std::string body;
    std::string message;
    std::string param = {};  // empty: null
  };
  const BadOrder kBad[] = {
      {"{}", "input_file_id must be there", "input_file_id"},
      {R"({"input_file_id":7})", "input_file_id must be a string",
       "input_file_id"},
      {R"({"input_file_id":"../x","endpoint":"/v1/completions"})",
       "there is no file", "input_file_id"},
      {R"({"input_file_id":"x","endpoint":"/v1/embeddings"})",
       "endpoint must be one of", "endpoint"},
      {R"({"endpoint":[]})", "endpoint must be a string", "endpoint"},
      {order(R"("completion_window":"0h")"), "completion_window must be 1h to",
       "completion_window"},
      {order(
           Concat(R"("completion_window":")", std::string(100, '0'), "24h\"")),
       "completion_window must be 1h to", "completion_window"},
      {order(R"("completion_window":24)"), "completion_window must be a string",
       "completion_window"},
      {R"({"output_expires_after":{}})", "output_expires_after",
       "output_expires_after"},
      {R"({"metadata":7})", "metadata must be an object", "metadata"},
      {R"({"metadata":{"a":1}})", "metadata.a must be a string", "metadata.a"},
      // Else its record might be too large for the next server to read.
      {Concat(R"({"metadata":{"a":")", std::string(513, 'b'), "\"}}"),
       "metadata.a must have at most 512 characters, got 513", "metadata.a"},
      {Concat(R"({"metadata":{")", std::string(65, 'a'), R"(":"b"}})"),
       "a key of metadata must have at most 64 characters, got 65", "metadata"},
      {Concat(R"({"metadata":{)", many, "}}"),
       "metadata must have no object of more than 1024 members", "metadata"},
      {"[]", "must be an object"},
  };
  for (const auto& [body, message, param] : kBad) {
    const RawResponse response = Post("/v1/batches", body);
    EXPECT_THAT(response.status, ::testing::AnyOf(400, 404)) << body;
    EXPECT_THAT(response.body, HasSubstr(message)) << body;
    EXPECT_EQ(ParamOf(response), param) << body;
  }
  const std::string output(
      AwaitBatch(CreateBatch(id)).at("output_file_id").as_string());
  const RawResponse no_input =
      Post("/v1/batches",
           Concat(R"({"endpoint":"/v1/completions","input_file_id":")", output,
                  "\"}"));
  EXPECT_THAT(no_input.body, HasSubstr("must be of a file of purpose"));
  EXPECT_EQ(ParamOf(no_input), "input_file_id");
  for (const auto& [query, param] : {std::pair("limit=0", "limit"),
                                     {"order=up", "order"},
                                     {"after=x", "after"}}) {
    for (const char* const path : {"/v1/files?", "/v1/batches?"}) {
      EXPECT_EQ(ParamOf(Get(Concat(path, query))), param) << path << query;
    }
  }
  EXPECT_EQ(Get("/v1/batches/batch_1").status, 404);
  EXPECT_EQ(Post("/v1/batches/batch_1/cancel", "").status, 404);
}

// Beside calls of clients, which get the same answers, too.
TEST_F(JobCallsTest, CallsAreAnsweredAsThoseOfClients) {
  constexpr int kNumCalls = 24;
  Start(Options());
  std::string input;
  for (int i = 0; i < kNumCalls; ++i) {
    input += LineOf(Concat(i), BodyOf(i));
  }
  input += LineOf("bad", R"({"prompt":[4],"num_beams":0})");
  input += LineOf("stream", R"({"prompt":[4],"stream":true})");
  const std::string input_id = IdOf(Upload(input));
  const std::string id = CreateBatch(input_id);
  std::vector<json::object> answers;
  for (int i = 0; i < kNumCalls; ++i) {
    answers.push_back(WithoutNames(Object(Post("/v1/completions", BodyOf(i)))));
  }
  const json::object batch = AwaitBatch(id);
  EXPECT_EQ(batch.at("status"), "completed");
  EXPECT_EQ(batch.at("request_counts"),
            ParseJson(R"({"total":26,"completed":24,"failed":2})").value());
  const auto responses = ResponsesOf(batch.at("output_file_id"));
  ASSERT_EQ(responses.size(), kNumCalls);
  for (int i = 0; i < kNumCalls; ++i) {
    const json::value& response = responses.at(Concat(i));
    EXPECT_EQ(response.at("status_code"), 200);
    json::object body = WithoutNames(response.at("body"));
    // Cached tokens depend on the order of the calls.
    body.erase("usage");
    answers[i].erase("usage");
    EXPECT_EQ(WriteJson(body), WriteJson(answers[i])) << i;
  }
  const auto errors = ResponsesOf(batch.at("error_file_id"));
  ASSERT_EQ(errors.size(), 2);
  EXPECT_EQ(errors.at("bad").at("body").at("error").at("param"), "num_beams");
  EXPECT_THAT(WriteJson(errors.at("stream")),
              HasSubstr("stream must be false in a batch"));
  EXPECT_EQ(Object(Get("/v1/batches?limit=1")).at("last_id"), json::value(id));
}

TEST_F(JobCallsTest, BatchThatAServerLeftIsEndedByTheNext) {
  Start(Options());
  model_->Hold(true);
  std::string input;
  for (int i = 0; i < 5; ++i) input += LineOf(Concat(i), BodyOf(i));
  const std::string id = CreateBatch(IdOf(Upload(input)));
  model_->AwaitStep();
  std::thread release([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    model_->Hold(false);
  });
  server_->Drain(absl::Seconds(10));
  release.join();
  server_.reset();
  Start(Options());
  const json::object batch = AwaitBatch(id);
  EXPECT_EQ(batch.at("request_counts").at("completed"), 5);
  EXPECT_EQ(ResponsesOf(batch.at("output_file_id")).size(), 5);
}

// A file that is on its way, up or down, arrives whole.
TEST_F(JobCallsTest, DrainingLetsFilesArrive) {
  ServerOptions options = Options();
  Start(options);
  const std::string content(3'000'000, 'x');
  const std::string stored = IdOf(Upload(content));
  RawClient reader(server_->port(), /*receive_buffer=*/4096);
  reader.Send(GetText(Concat("/v1/files/", stored, "/content")));
  ASSERT_THAT(reader.ReceiveBytes(15), HasSubstr("200"));
  const std::string form = FormOf(content);
  RawClient writer = Connect();
  writer.Send(Concat("POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                     "Content-Type: ", kForm, "\r\nContent-Length: ",
                     form.size(), "\r\n\r\n", form.substr(0, form.size() / 2)));
  for (int i = 0; i < 2'000 && NumFiles() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(NumFiles(), 3);
  std::jthread drain([&] { server_->Drain(absl::Seconds(20)); });
  while (Get("/health").Find("connection") != "close") {
    std::this_thread::yield();
  }
  writer.Send(form.substr(form.size() / 2));
  const std::string added = IdOf(writer.Receive());
  const std::optional<std::string> rest = reader.ReceiveAll();
  ASSERT_TRUE(rest.has_value());
  EXPECT_TRUE(rest->ends_with("\r\n0\r\n\r\n"));
  drain.join();
  server_.reset();
  Start(options);
  EXPECT_EQ(Get(Concat("/v1/files/", added, "/content")).body, content);
}

// A call of a client that comes later runs before those of a batch.
TEST_F(JobCallsTest, BatchesWaitBehindOtherCalls) {
  ServerOptions options = Options();
  options.jobs.batches.max_running_calls = 4;
  Start(options, {.num_threads = 1, .max_running = 1});
  model_->Hold(true);
  std::string input;
  for (int i = 0; i < 4; ++i) {
    input += LineOf(Concat(i), R"({"prompt":[4],"max_tokens":1})");
  }
  const std::string id = CreateBatch(IdOf(Upload(input)));
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_waiting", 3));
  RawClient client = Connect();
  client.Send(PostText("/v1/completions", R"({"prompt":[4],"max_tokens":1})"));
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_waiting", 4));
  // The step that is held, and the next.
  model_->HoldAfter(2);
  EXPECT_EQ(client.Receive().status, 200);
  const json::value counts =
      Object(Get("/v1/batches/" + id)).at("request_counts");
  EXPECT_LE(counts.at("completed").as_int64(), 1);
  model_->Hold(false);
  AwaitBatch(id);
}

TEST_F(JobCallsTest, FilesAndBatchesBelongToTheKey) {
  ServerOptions options = Options();
  options.api_keys = ApiKeys({"key-of-mine", "key-of-yours"});
  Start(options);
  const std::string mine = "Authorization: Bearer key-of-mine\r\n";
  const std::string yours = "Authorization: Bearer key-of-yours\r\n";
  const std::string file = IdOf(Upload(LineOf("a", BodyOf(0)), mine));
  const std::string id = CreateBatch(file, mine);
  EXPECT_EQ(AwaitBatch(id, mine).at("status"), "completed");
  for (const std::string& path :
       {"/v1/files/" + file, "/v1/files/" + file + "/content",
        "/v1/batches/" + id}) {
    EXPECT_EQ(Get(path, yours).status, 404) << path;
    EXPECT_EQ(Get(path).status, 401) << path;
  }
  EXPECT_EQ(Delete("/v1/files/" + file, yours).status, 404);
  EXPECT_TRUE(Object(Get("/v1/files", yours)).at("data").as_array().empty());
  EXPECT_TRUE(Object(Get("/v1/batches", yours)).at("data").as_array().empty());
  // The key works at any position among others.
  server_.reset();
  options.api_keys = ApiKeys({"key-of-another", "key-of-mine"});
  Start(options);
  EXPECT_EQ(Get("/v1/files/" + file, mine).status, 200);
  EXPECT_EQ(Get("/v1/files/" + file, "Authorization: Bearer key-of-another\r\n")
                .status,
            404);
}

}  // namespace
}  // namespace espalier::serve
