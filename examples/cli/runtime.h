// Runtime: a model directory, loaded and ready: the model, its tokenizer and
// prompt templates if it has them, and an engine on a context of its own.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "batcher/engine.h"
#include "exec_request/model_executor.h"
#include "exec_request/request_json.h"
#include "model/llama_model.h"
#include "text/prompt_template.h"
#include "text/tokenizer.h"

namespace espalier::cli {

struct RuntimeOptions {
  std::string model;  // directory
  // Which prompt template: by name, or by languages; empty is the default.
  std::string template_name;
  std::string from;
  std::string to;
  int page_size = 16;       // tokens
  int kv_cache_mib = 1024;  // address space; touched only as needed
  int num_threads = 0;      // 0: one for each CPU it may use
  int max_running = 256;    // requests
  int max_step_tokens = 128;
};

// What one request came to.
struct Answer {
  absl::StatusOr<Result> result;
  std::vector<std::string> texts;  // [hypotheses]; empty without a tokenizer
};

class Runtime {
 public:
  // Errors: naming the file, option or field that is wrong.
  static absl::StatusOr<std::unique_ptr<Runtime>> Load(
      const RuntimeOptions& options);

  // Runs one request; text goes through the prompt template.
  boost::asio::awaitable<Answer> Run(RequestBody body);

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  boost::asio::io_context& context() { return context_; }
  Engine& engine() { return *engine_; }

 private:
  explicit Runtime(int num_threads) : threads_(num_threads) {}

  absl::Status LoadText(const RuntimeOptions& options);
  absl::StatusOr<Request> MakeRequest(RequestBody body) const;
  absl::Status Decode(Answer* answer) const;

  ThreadPool threads_;
  boost::asio::io_context context_{1};
  std::string directory_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<PromptTemplate> template_;
  std::unique_ptr<LlamaModel> model_;
  std::unique_ptr<ModelExecutor> steps_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace espalier::cli
