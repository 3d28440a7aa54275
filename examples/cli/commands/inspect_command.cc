#include "examples/cli/commands/inspect_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "espalier/backend.h"
#include "espalier/model_defaults.h"
#include "espalier/model_text.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "model/checkpoint.h"
#include "model/cuda_limits.h"
#include "model/model_directory.h"
#include "model/transformer_config.h"
#include "model/transformer_features.h"
#include "model/transformer_tensors.h"
#include "text/chat/chat_template.h"

namespace espalier::cli {
namespace {

std::string FormatBytes(int64_t bytes) {
  constexpr int64_t kKib = 1 << 10;
  constexpr int64_t kMib = 1 << 20;
  constexpr int64_t kGib = 1 << 30;
  const auto in = [&](int64_t unit, const char* name) {
    return absl::StrFormat("%.1f %s", static_cast<double>(bytes) / unit, name);
  };
  if (bytes >= kGib) return in(kGib, "GiB");
  if (bytes >= kMib) return in(kMib, "MiB");
  return in(kKib, "KiB");
}

std::string FormatCount(int64_t count) {
  const auto in = [&](double unit, const char* name) {
    return absl::StrFormat("%.1f %s", static_cast<double>(count) / unit, name);
  };
  if (count >= 1'000'000'000) return in(1e9, "billion");
  if (count >= 1'000'000) return in(1e6, "million");
  return std::to_string(count);
}

std::string JoinFeatures(const std::vector<std::string>& parts) {
  std::string list;
  for (const std::string& part : parts) {
    list += (list.empty() ? "" : "; ") + part;
  }
  return list;
}

// A line of the report.
std::string Line(std::string_view name, const std::string& what) {
  return absl::StrFormat("  %-15s%s\n", std::string(name), what);
}

// Number and type of the weights, and their memory on each device.
struct WeightFigures {
  int64_t num_parameters = 0;
  int64_t stored_bytes = 0;
  int64_t cpu_bytes = 0;
  int64_t cuda_bytes = 0;  // in bf16
  std::string dtypes;      // "bf16", "f32 and bf16"
};

WeightFigures FiguresOf(const TransformerTensors& tensors) {
  WeightFigures figures;
  std::vector<std::string> dtypes;
  for (const TransformerTensor& part : AllTensors(tensors)) {
    const auto bytes = static_cast<int64_t>(part.data.size());
    const int64_t count = part.num_cols() * part.num_rows;
    figures.num_parameters += count;
    figures.stored_bytes +=
        bytes + part.fp8_scales.data.size() + part.int8_scales.size();
    // Type of the dequantized values.
    figures.cpu_bytes += count * NumBytes(part.dtype);
    figures.cuda_bytes += part.is_fp8() ? count + 2 * part.num_rows : 2 * count;
    const std::string name(part.is_fp8()    ? "fp8"
                           : part.is_int8() ? "int8"
                                            : NameOf(part.dtype));
    if (std::ranges::count(dtypes, name) == 0) dtypes.push_back(name);
  }
  figures.dtypes = JoinWithAnd(dtypes);
  return figures;
}

// Bytes of the keys and values of one token.
int64_t KvBytesOfToken(const TransformerConfig& config, int64_t element_bytes) {
  return int64_t{2} * config.num_layers() * config.kv_size() * element_bytes;
}

std::string DescribeShape(const TransformerConfig& config) {
  return Concat(config.num_layers(), " layers, hidden ", config.hidden_size,
                ", feed-forward ", config.layers[0].intermediate_size, ", ",
                config.num_heads, " heads of ", config.head_dim, ", ",
                config.num_kv_heads, " of keys and values");
}

// Returns the tokens that the tokenizer adds to a text: "<s>, then the text".
std::string RawPrompt(const Tokenizer& tokenizer) {
  const auto names = [&](const std::vector<TokenId>& tokens) {
    std::string list;
    for (const TokenId token : tokens) {
      list += (list.empty() ? "" : " ") + tokenizer.Spelling(token);
    }
    return list;
  };
  const std::string before = names(tokenizer.before_text());
  const std::string after = names(tokenizer.after_text());
  return Concat(before.empty() ? "" : before + ", then ", "the text",
                after.empty() ? "" : ", then " + after);
}

// ", default of: default, tool_use"; nothing where there is but one.
std::string NamesOfTemplates(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? ", default of: " : ", ") + Shown(name);
  }
  return list;
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Entries of a tokenizer that no prompt can have.
std::string BeyondModel(const Tokenizer& tokenizer, int model_vocab_size) {
  const int num_beyond = tokenizer.vocab_size() - model_vocab_size;
  if (num_beyond <= 0) return "";
  return Concat("; the model lacks the last ", num_beyond,
                ": prompts with them are refused");
}

// The file that the tokenizer is of. REQUIRES: it was read.
std::string DescribeFile(const std::string& model) {
  const std::string file(Tokenizer::FileOf(model).value().value());
  if (file == "tokenizer.json") return file;
  if (file == "merges.txt") return "vocab.json and merges.txt";
  if (file == "tokenizer_config.json") return "none: bytes, as ByT5's";
  if (file == "sentencepiece.bpe.model" && IsThere(model + "/vocab.json")) {
    return file + " and vocab.json, SentencePiece";
  }
  if (file == "source.spm") {
    return Concat(file, " and ",
                  IsThere(model + "/vocab.json") ? "vocab.json"
                                                 : "shared_vocabulary.json",
                  ", SentencePiece");
  }
  return file + ", SentencePiece";
}

// The report as lines for people, and as a JSON object for programs. An error
// of a part stands in its place.
class Inspection {
 public:
  Inspection(std::string model, int num_beams)
      : model_(std::move(model)), num_beams_(num_beams) {}

  void Run();
  bool runs() const { return runs_; }
  const std::string& report() const { return report_; }
  // Sizes in bytes.
  const json::object& json() const { return json_; }

 private:
  void AddShape();
  void AddWeights();
  void AddText();
  void AddChat();
  void AddDefaults();
  void AddMemory();
  // The largest of some shapes, by the bytes of a token; of no GPU without
  // `cuda`.
  void AddRequests(int64_t cpu, std::optional<int64_t> cuda);
  void AddDevices();
  void AddDevice(const char* name, bool runs, const std::string& text);
  // `part` is that of "errors".
  void AddFault(std::string_view part, const absl::Status& status,
                std::string_view name = "does not run") {
    report_ += Line(name, Message(status));
    AddError(part, status);
    runs_ = false;
  }
  // {"part": "tokenizer", "message": "..."}
  void AddError(std::string_view part, const absl::Status& status) {
    json_["errors"].as_array().push_back(
        json::object{{"part", part}, {"message", Message(status)}});
  }
  void AddParts();

  const std::string model_;  // directory
  const int num_beams_;      // the widest search to be shown
  std::string report_;
  json::object json_;
  bool runs_ = true;
  bool has_tokenizer_ = true;
  TransformerConfig config_;
  WeightFigures weights_;
};

void Inspection::Run() {
  report_ = model_ + "\n";
  json_ = {{"model", model_}, {"runs", false}, {"errors", json::array()}};
  AddParts();
  json_["runs"] = runs_;
}

void Inspection::AddParts() {
  if (const absl::Status directory = CheckModelDirectory(model_);
      !directory.ok()) {
    return AddFault("directory", directory);
  }
  const absl::StatusOr<TransformerConfig> config =
      ReadTransformerConfig(model_);
  if (!config.ok()) return AddFault("config", config.status());
  config_ = *config;
  AddShape();
  AddWeights();
  report_ += Line("vocabulary", Pluralize(config_.vocab_size, "token"));
  report_ += Line("context", Pluralize(config_.max_context, "token"));
  AddText();
  AddChat();
  AddDefaults();
  if (!runs_) return;
  AddMemory();
  AddDevices();
}

void Inspection::AddShape() {
  const std::vector<std::string> features = DescribeFeatures(config_);
  report_ +=
      Line("family", Concat(config_.family, ": ", DescribeShape(config_)));
  report_ += Line("features", JoinFeatures(features));
  json_["family"] = config_.family;
  json_["num_layers"] = config_.num_layers();
  json_["hidden_size"] = config_.hidden_size;
  json_["intermediate_size"] = config_.layers[0].intermediate_size;
  json_["num_heads"] = config_.num_heads;
  json_["num_kv_heads"] = config_.num_kv_heads;
  json_["head_dim"] = config_.head_dim;
  json_["vocab_size"] = config_.vocab_size;
  json_["max_context"] = config_.max_context;
  json_["features"] = json::array(features.begin(), features.end());
}

void Inspection::AddWeights() {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(model_);
  if (!checkpoint.ok()) return AddFault("weights", checkpoint.status());
  if (const CTranslate2File* const file = checkpoint->ctranslate2_file()) {
    report_ += Line("format",
                    Concat("CTranslate2's model.bin, ", file->specification(),
                           " of revision ", file->revision()));
    json_["format"] = "ctranslate2";
  }
  const absl::StatusOr<TransformerTensors> tensors =
      FindTransformerTensors(*checkpoint, config_);
  if (!tensors.ok()) return AddFault("weights", tensors.status());
  weights_ = FiguresOf(*tensors);
  report_ += Line("weights", Concat(FormatCount(weights_.num_parameters),
                                    " parameters in ", weights_.dtypes, ", ",
                                    FormatBytes(weights_.stored_bytes)));
  json_["weights"] = {{"parameters", weights_.num_parameters},
                      {"dtypes", weights_.dtypes},
                      {"stored_bytes", weights_.stored_bytes},
                      {"cpu_bytes", weights_.cpu_bytes},
                      {"cuda_bytes", weights_.cuda_bytes}};
}

void Inspection::AddText() {
  const absl::StatusOr<ModelText> text = ModelText::Load(model_);
  if (!text.ok()) return AddFault("tokenizer", text.status(), "tokenizer");
  has_tokenizer_ = text->tokenizer != nullptr;
  if (!has_tokenizer_) {
    report_ += Line("tokenizer", "none: prompts and results are token ids");
    return;
  }
  const Tokenizer& tokenizer = *text->tokenizer;
  json_["tokenizer"] = {{"file", Tokenizer::FileOf(model_).value().value()},
                        {"vocab_size", tokenizer.vocab_size()}};
  report_ += Line("tokenizer",
                  Concat(DescribeFile(model_), ", ",
                         Pluralize(tokenizer.vocab_size(), "entry", "entries"),
                         BeyondModel(tokenizer, config_.vocab_size)));
  const bool has_templates = IsThere(model_ + "/prompt_template.json");
  if (has_templates) {
    json_["prompt_template"] = text->templates->default_template().name;
  }
  const std::vector<NaturalLanguage>& languages = tokenizer.languages().all();
  if (!languages.empty()) {
    std::string codes;
    json::array list;
    for (const NaturalLanguage& language : languages) {
      codes += Concat(codes.empty() ? "" : ", ", language.code);
      list.emplace_back(language.code);
    }
    json_["languages"] = std::move(list);
    report_ += Line("languages", codes);
  }
  report_ += Line("prompts",
                  has_templates ? "prompt_template.json, default " +
                                      text->templates->default_template().name +
                                      " of: " + text->templates->Describe()
                                : "no templates: " + RawPrompt(tokenizer));
}

// A chat template that is wrong stops chats alone.
void Inspection::AddChat() {
  const absl::StatusOr<std::unique_ptr<ChatTemplate>> chat =
      ChatTemplate::Load(model_, nullptr);
  if (!chat.ok()) {
    report_ +=
        Line("chat template", "cannot be used: " + Message(chat.status()));
    AddError("chat template", chat.status());
  } else if (*chat == nullptr) {
    report_ += Line("chat template", "no");
  } else {
    report_ += Line("chat template",
                    (*chat)->path() + NamesOfTemplates((*chat)->names()));
    json_["chat_template"] = (*chat)->path();
  }
}

// "temperature 0.6, top_p 0.9"
std::string ListOf(const NamedValues& fields) {
  std::string list;
  for (const auto& [name, value] : fields) {
    list += Concat(list.empty() ? "" : ", ", name, " ", Shown(value));
  }
  return list;
}

// Values are the JSON that the file has.
json::object ObjectOf(const NamedValues& fields) {
  json::object object;
  for (const auto& [name, value] : fields) {
    const absl::StatusOr<json::value> parsed = ParseJson(value);
    object[name] = parsed.ok() ? *parsed : json::value(value);
  }
  return object;
}

// Adds the defaults of requests that leave params open.
void Inspection::AddDefaults() {
  absl::StatusOr<GenerationDefaults> defaults =
      LoadModelDefaults("auto", model_);
  if (!defaults.ok()) return AddFault("defaults", defaults.status());
  ModelDescription model;
  model.vocab_size = config_.vocab_size;
  model.max_context = config_.max_context;
  model.eos_token_ids = config_.eos_token_ids;
  if (config_.encoder) {
    model.encoder = EncoderDescription{
        .max_source_tokens = config_.encoder->max_tokens,
        .decoder_prompt = {config_.encoder->decoder_start_token_id},
        .token_without_position = config_.token_without_position};
  }
  const absl::Status checked =
      FitDefaults("auto", model, has_tokenizer_, &*defaults);
  if (!checked.ok()) return AddFault("defaults", checked);
  json_["defaults"] = ObjectOf(defaults->fields);
  json_["unsupported_defaults"] = ObjectOf(defaults->unsupported);
  if (!defaults->fields.empty()) {
    report_ += Line("defaults", Concat(defaults->file_name(), ": ",
                                       ListOf(defaults->fields)));
  }
  if (!defaults->unsupported.empty()) {
    report_ += Line(
        "", "not supported, and ignored: " + ListOf(defaults->unsupported));
  }
}

void Inspection::AddMemory() {
  const bool has_cuda = CheckCudaLimits(config_).ok();
  // "A on the CPU, B on a GPU", or of one that no GPU runs "A on the CPU".
  const auto on_each = [&](int64_t cpu, int64_t cuda, const char* how) {
    return FormatBytes(cpu) + " on the CPU" +
           (has_cuda ? Concat(", ", FormatBytes(cuda), " on a GPU", how) : "");
  };
  report_ +=
      Line("memory", "of weights: " + on_each(weights_.cpu_bytes,
                                              weights_.cuda_bytes, " in bf16"));
  const int64_t cpu = KvBytesOfToken(config_, sizeof(float));
  const int64_t cuda =
      cpu / 2 / config_.head_dim * CudaHeadWidth(config_.head_dim);
  report_ += Line("", "of keys and values, a token: " + on_each(cpu, cuda, ""));
  json_["kv_bytes_per_token"] = {{"cpu", cpu}};
  if (has_cuda) json_["kv_bytes_per_token"].as_object()["cuda"] = cuda;
  // Beams share it, and it takes pages of its own.
  if (config_.encoder) {
    const int64_t num_tokens = config_.encoder->max_tokens;
    report_ +=
        Line("", Concat("of a source of ", num_tokens,
                        " tokens, which beams share: ",
                        on_each(num_tokens * cpu, num_tokens * cuda, "")));
  }
  report_ +=
      Line("", Concat("of one request at most, where its beams share nothing",
                      config_.encoder ? ", with such a source:" : ":"));
  AddRequests(cpu, has_cuda ? std::optional(cuda) : std::nullopt);
}

void Inspection::AddRequests(int64_t cpu, std::optional<int64_t> cuda) {
  const auto add_row = [&](const std::string& context, const std::string& beams,
                           const std::string& on_cpu,
                           const std::string& on_gpu) {
    report_ += absl::StrFormat("    %8s %6s %12s", context, beams, on_cpu);
    if (cuda) report_ += absl::StrFormat(" %12s", on_gpu);
    report_ += "\n";
  };
  add_row("context", "beams", "CPU", "GPU");
  const int64_t num_source_tokens =
      config_.encoder ? config_.encoder->max_tokens : 0;
  std::vector<int> contexts = {std::min(2048, config_.max_context)};
  if (contexts[0] < config_.max_context) {
    contexts.push_back(config_.max_context);
  }
  for (const int context : contexts) {
    for (const int num_beams : {1, num_beams_}) {
      const int64_t tokens = num_source_tokens + int64_t{context} * num_beams;
      add_row(std::to_string(context), std::to_string(num_beams),
              FormatBytes(tokens * cpu),
              FormatBytes(tokens * cuda.value_or(0)));
      if (num_beams_ == 1) break;
    }
  }
}

void Inspection::AddDevices() {
  const int64_t memory =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const int64_t least =
      weights_.cpu_bytes + KvBytesOfToken(config_, 4) * kDefaultPageSize * 2;
  runs_ = false;
  json_["devices"] = json::object();
  if (least > memory) {
    AddDevice("CPU", false,
              Concat("does not run: it needs ", FormatBytes(least),
                     " of memory, this machine has ", FormatBytes(memory)));
  } else {
    AddDevice(
        "CPU", true,
        "runs, in f32; this machine has " + FormatBytes(memory) + " of memory");
  }
  const absl::Status cuda = CheckCudaLimits(config_);
  if (!cuda.ok()) {
    AddDevice("GPU", false, "does not run: " + Message(cuda));
  } else if (HasCudaDevice(0)) {
    AddDevice("GPU", true,
              "runs with --device cuda, if there is memory for the weights and "
              "--kv-cache-mib");
  } else {
    AddDevice("GPU", false,
              IsBuiltWithCuda()
                  ? "does not run here: there is no GPU that it can use"
                  : "does not run in this build, which is for the CPU alone; "
                    "preset cuda builds for GPUs too");
  }
}

void Inspection::AddDevice(const char* name, bool runs,
                           const std::string& text) {
  report_ += Line(name, text);
  const bool is_cpu = name == std::string_view("CPU");
  json_["devices"].as_object()[is_cpu ? "cpu" : "cuda"] = {{"runs", runs},
                                                           {"text", text}};
  runs_ |= runs;
}

}  // namespace

absl::StatusOr<int> Inspect(const InspectOptions& options) {
  if (options.models.size() == 1 && !options.json) {
    RETURN_IF_ERROR(CheckModelDirectory(options.models.front()));
  }
  std::string report;
  size_t num_run = 0;
  for (const std::string& model : options.models) {
    Inspection inspection(model, options.num_beams);
    inspection.Run();
    num_run += inspection.runs();
    if (options.json) {
      report += WriteJson(inspection.json()) + "\n";
    } else {
      report += (report.empty() ? "" : "\n") + inspection.report();
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  output->Write(report);
  RETURN_IF_ERROR(output->Close());
  if (num_run == options.models.size()) return kAllSucceeded;
  return num_run > 0 ? kSomeFailed : kNothingRan;
}

const char kInspectExamples[] =
    R"(Examples:
  espalier inspect models/en-fr
  espalier inspect models/en-fr --num-beams 64
  espalier inspect models/en-fr models/en-fr-draft
  espalier inspect --json models/en-fr

Reads the directory's files as a run does, but computes nothing: what the model
is, its tokenizer and templates, the defaults that its generation_config.json
gives to requests, what it takes of memory, and whether it runs on this machine,
or why not. What is wrong stands in its place. Beams of a request
share the pages of their prompt and of what they have in common, so that a
search takes less than the table's upper bound. --json prints an object with
sizes in bytes, "runs" true or false and "errors", a list of what is wrong
({"part", "message"}); it has no table of requests. Exit code: 0 if it runs
here, 2 if it does not; of several directories 1 if some run and some do not.)";

}  // namespace espalier::cli
