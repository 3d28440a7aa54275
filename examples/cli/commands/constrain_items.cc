#include "examples/cli/commands/constrain_items.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "constrain/item_catalogue.h"
#include "espalier/model_text.h"
#include "examples/cli/commands/check_lines.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/load_model_text.h"
#include "model/transformer_config.h"
#include "request/read_items.h"

namespace espalier::cli {
namespace {

// Ids of items without a model.
constexpr int kMostTokens = 1 << 24;

class ItemsRun {
 public:
  ItemsRun(const ConstrainOptions& options,
           std::shared_ptr<const ItemCatalogue> items, double read_ms,
           const Tokenizer* tokenizer, Output& output)
      : options_(options),
        items_(std::move(items)),
        read_ms_(read_ms),
        tokenizer_(tokenizer),
        output_(output) {}

  absl::Status Describe() {
    std::mt19937_64 random(options_.seed);
    std::vector<std::vector<TokenId>> samples;
    for (int i = 0; i < options_.num_samples; ++i) {
      samples.push_back(Sample(&random));
    }
    if (options_.json) return DescribeInJson(samples);
    std::ostringstream out;
    out.precision(3);
    out << "items     " << Pluralize(items_->num_items(), "item")
        << ", the longest of " << Pluralize(items_->max_length(), "token")
        << "; " << items_->num_nodes() << " nodes, " << items_->num_bytes()
        << " bytes, read in " << read_ms_ << " ms\n";
    for (const std::vector<TokenId>& sample : samples) {
      ASSIGN_OR_RETURN(const std::string shown, Shown(sample));
      out << "sample    " << shown << '\n';
    }
    output_.Write(out.str());
    output_.Flush();
    return absl::OkStatus();
  }

  absl::Status Check(const std::string& argument) {
    const absl::StatusOr<std::vector<TokenId>> read = ReadArgument(argument);
    if (!read.ok()) {
      return Annotate(read.status(), ShownInQuotes(argument));
    }
    return CheckTokens(*read);
  }

  // Checks a line of a file, JSON.
  absl::Status CheckLine(const std::string& line) {
    ASSIGN_OR_RETURN(const std::vector<TokenId> item,
                     ReadItem(line, tokenizer_, vocab_size()));
    return CheckTokens(item);
  }

  int64_t num_outside() const { return num_outside_; }

 private:
  int vocab_size() const {
    return tokenizer_ != nullptr ? tokenizer_->vocab_size() : kMostTokens;
  }

  absl::Status CheckTokens(const std::vector<TokenId>& tokens) {
    ItemCatalogue::Node node = ItemCatalogue::kRoot;
    int num_matched = 0;
    for (; num_matched < std::ssize(tokens); ++num_matched) {
      const ItemCatalogue::Node child =
          items_->Child(node, tokens[num_matched]);
      if (child == ItemCatalogue::kNone) break;
      node = child;
    }
    const bool is_cut = num_matched == std::ssize(tokens);
    const bool is_item = is_cut && items_->is_end(node);
    if (!is_item) ++num_outside_;
    if (options_.json) {
      output_.Write(WriteJson(json::object{
                        {"tokens", json::array(tokens.begin(), tokens.end())},
                        {"is_item", is_item},
                        {"num_matched_tokens", num_matched}}) +
                    "\n");
      output_.Flush();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::string shown, Shown(tokens));
    std::string line = Concat(is_item ? "yes       " : "no        ", shown);
    if (!is_item && is_cut) line += ": begins one, and is none";
    if (!is_cut) {
      line += Concat(": leaves them at token ", num_matched, ", ",
                     tokens[num_matched]);
    }
    output_.Write(line + "\n");
    output_.Flush();
    return absl::OkStatus();
  }

  // Returns an item: a path of random tokens to an end.
  std::vector<TokenId> Sample(std::mt19937_64* random) const {
    std::vector<TokenId> tokens;
    ItemCatalogue::Node node = ItemCatalogue::kRoot;
    while (items_->has_children(node) &&
           !(items_->is_end(node) && (*random)() % 2 == 0)) {
      const ItemCatalogue::Range children = items_->Children(node);
      node = children.begin +
             static_cast<ItemCatalogue::Node>((*random)() % children.size());
      tokens.push_back(items_->token(node));
    }
    return tokens;
  }

  absl::StatusOr<std::vector<TokenId>> ReadArgument(
      const std::string& argument) const {
    if (argument.starts_with('[') || tokenizer_ == nullptr) {
      return ReadItem(argument, tokenizer_, vocab_size());
    }
    return tokenizer_->EncodeOutput(argument);
  }

  // Returns the ids, and with a tokenizer the text, of an item.
  absl::StatusOr<std::string> Shown(const std::vector<TokenId>& tokens) const {
    std::string shown = WriteJson(json::array(tokens.begin(), tokens.end()));
    if (tokenizer_ == nullptr) return shown;
    ASSIGN_OR_RETURN(const std::string text, tokenizer_->Decode(tokens));
    return Concat(shown, " ", ShownInQuotes(text));
  }

  absl::Status DescribeInJson(
      const std::vector<std::vector<TokenId>>& samples) {
    json::array of_samples;
    for (const std::vector<TokenId>& sample : samples) {
      of_samples.push_back(json::array(sample.begin(), sample.end()));
    }
    output_.Write(
        WriteJson(json::object{
            {"items", json::object{{"num_items", items_->num_items()},
                                   {"max_length", items_->max_length()},
                                   {"num_nodes", items_->num_nodes()},
                                   {"num_bytes", items_->num_bytes()},
                                   {"read_ms", read_ms_},
                                   {"samples", std::move(of_samples)}}}}) +
        "\n");
    output_.Flush();
    return absl::OkStatus();
  }

  const ConstrainOptions& options_;
  const std::shared_ptr<const ItemCatalogue> items_;
  const double read_ms_;
  const Tokenizer* const tokenizer_;  // or null
  Output& output_;
  int64_t num_outside_ = 0;
};

}  // namespace

absl::StatusOr<int> ConstrainToItems(const ConstrainOptions& options,
                                     LineReader* reader) {
  ModelText text;
  if (!options.model.empty()) {
    ASSIGN_OR_RETURN(text,
                     LoadModelText(options.model, options.names.Of("model")));
  }
  const Tokenizer* const tokenizer = text.tokenizer.get();
  const int vocab_size =
      tokenizer != nullptr ? tokenizer->vocab_size() : kMostTokens;
  std::vector<TokenId> end_ids;
  if (tokenizer != nullptr) {
    // A directory of a tokenizer alone has no config.
    const auto config = ReadTransformerConfig(options.model);
    if (config.ok()) {
      end_ids = config->eos_token_ids;
    } else if (!absl::IsNotFound(config.status())) {
      return Annotate(config.status(), options.names.Of("model"));
    }
  }
  const Stopwatch stopwatch;
  absl::StatusOr<std::shared_ptr<const ItemCatalogue>> items =
      LoadItems(options.items, tokenizer, vocab_size, end_ids);
  if (!items.ok()) return Annotate(items.status(), "--items");
  const double read_ms = absl::ToDoubleMilliseconds(stopwatch.Elapsed());
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  ItemsRun run(options, *std::move(items), read_ms, tokenizer, *output);
  RETURN_IF_ERROR(run.Describe());
  int64_t num_outside = 0;
  if (reader != nullptr) {
    ASSIGN_OR_RETURN(num_outside, CheckLines(*reader, options.json, *output,
                                             [&](const std::string& line) {
                                               return run.CheckLine(line);
                                             }));
  } else {
    for (const std::string& argument : options.texts) {
      RETURN_IF_ERROR(run.Check(argument));
    }
  }
  RETURN_IF_ERROR(output->Close());
  num_outside += run.num_outside();
  return num_outside > 0 ? kSomeFailed : kAllSucceeded;
}

}  // namespace espalier::cli
