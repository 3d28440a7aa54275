#include "examples/cli/options/option_hints.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/field_error.h"
#include "examples/cli/options/option_names.h"
#include "request/other_names.h"
#include "request/param_fields.h"

namespace espalier::cli {
namespace {

constexpr std::string_view kNoOptionForTexts =
    "texts are arguments without an option";
constexpr std::string_view kContext =
    "the context is the model's; --kv-cache-mib is its memory";
constexpr std::string_view kOneGpu =
    "a model runs on one GPU, such as --device cuda:1";
constexpr std::string_view kAProgramEach =
    "a program runs on one GPU: start one for each, with --device cuda:N";
constexpr std::string_view kWholeModel =
    "a GPU has the whole model: --device cuda";
constexpr std::string_view kTls = "TLS is for a proxy in front of it";
constexpr std::string_view kAllText =
    "there is none: an answer has its text as the model writes it";
constexpr std::string_view kDefaults =
    "its fields are options, such as --temperature 0.7";
constexpr std::string_view kNoAdapters =
    "there are no adapters: merge them into the weights";
constexpr std::string_view kTokenizer =
    "a tokenizer is a file of the model's directory";

// OtherOption, as constants.
struct OtherProgram {
  std::string_view name;
  std::string_view option;
  std::string_view hint = "";
};
constexpr OtherProgram kOtherOptions[] = {
    // openai/whisper and faster-whisper.
    {"--vad-filter", "--vad-model"},
    {"--vad-parameters", "--vad-threshold"},
    {"--vad", "--vad-model"},
    {"--batch", "--vad-model", "did you mean --batch-size?"},
    {"--fp16", "--clip-timestamps",
     "leave it out: the CPU computes in float32; --weights int8 is faster"},
    {"--compute-type", "--weights"},
    {"--prompt", "--file", kNoOptionForTexts},
    {"-p", "--file", kNoOptionForTexts},
    {"-p", "--port"},
    {"--n-samples", "--samples"},
    {"--num-samples", "--samples"},
    {"--system-prompt", "--system"},
    {"--instructions", "--system"},
    {"--src-lang", "--from"},
    {"--source-lang", "--from"},
    {"--tgt-lang", "--to"},
    {"--target-lang", "--to"},
    {"--interactive", "--file", "without texts each line of stdin is one"},
    {"-cnv", "--chat", "did you mean --chat? Each text is a chat of its own"},
    {"--verbose", "--figures"},
    {"--verbose", "--log-requests"},
    {"--torch-dtype", "--dtype"},
    {"--load-in-8bit", "--weights", "did you mean --weights int8?"},
    {"--load-in-4bit", "--weights", "did you mean --weights int4?"},
    {"--model-dir", "--model"},
    {"--model-path", "--model"},
    {"--input-file", "--input"},
    {"--output-file", "--output"},
    {"-t", "--threads"},
    {"--gpu", "--device", "did you mean --device cuda?"},
    {"--cpu", "--device", "did you mean --device cpu?"},
    {"-hf", "--model", "a model is a directory, -m DIR: nothing is downloaded"},
    {"-ngl", "--device", kWholeModel},
    {"--n-gpu-layers", "--device", kWholeModel},
    {"-np", "--max-running"},
    {"--parallel", "--max-running"},
    {"--max-concurrent-requests", "--max-running"},
    {"--cors-allow-origins", "--allowed-origin"},
    {"--ctx-size", "--kv-cache-mib", kContext},
    {"-c", "--kv-cache-mib", kContext},
    // vLLM's and SGLang's servers.
    {"--max-model-len", "--kv-cache-mib", kContext},
    {"--context-length", "--kv-cache-mib", kContext},
    {"--batch-size", "--max-running"},
    {"--max-num-seqs", "--max-running"},
    {"--max-running-requests", "--max-running"},
    {"--max-num-batched-tokens", "--max-step-tokens"},
    {"--chunked-prefill-size", "--max-step-tokens"},
    {"--block-size", "--page-size"},
    {"--gpu-memory-utilization", "--kv-cache-mib",
     "--kv-cache-mib is the memory of keys and values, beside the weights"},
    {"--mem-fraction-static", "--kv-cache-mib",
     "--kv-cache-mib is the memory of keys and values, beside the weights"},
    {"--swap-space", "--host-cache-mib",
     "--host-cache-mib counts MiB, --swap-space GiB: for 4 give "
     "--host-cache-mib 4096"},
    {"--enable-prefix-caching", "--prefix-cache",
     "prefixes are shared unless --prefix-cache off says not to"},
    {"--no-enable-prefix-caching", "--prefix-cache",
     "did you mean --prefix-cache off?"},
    {"--tensor-parallel-size", "--device", kOneGpu},
    {"-tp", "--device", kOneGpu},
    {"--tp-size", "--device", kOneGpu},
    {"--pipeline-parallel-size", "--device", kOneGpu},
    {"-pp", "--device", kOneGpu},
    {"--data-parallel-size", "--device", kAProgramEach},
    {"-dp", "--device", kAProgramEach},
    {"--quantization", "--weights"},
    {"-q", "--weights"},
    {"--kv-cache-dtype", "--dtype",
     "keys and values are of the type that --dtype says"},
    {"--chat-template", "--model",
     "a chat template is a file of the model's directory, chat_template.jinja, "
     "or chat_template in its tokenizer_config.json"},
    {"--enforce-eager", "--device",
     "leave it out: steps replay CUDA graphs where they can, with the same "
     "results"},
    {"--trust-remote-code", "--model",
     "leave it out: no Python of a model's directory is run"},
    {"--disable-log-requests", "--log-requests",
     "leave it out: requests are logged only with --log-requests"},
    {"--speculative-model", "--draft-model"},
    {"--alias", "--served-model-name"},
    {"--lora", "--model", kNoAdapters},
    {"--lora-modules", "--model", kNoAdapters},
    {"--enable-lora", "--model", kNoAdapters},
    {"--override-generation-config", "--temperature", kDefaults},
    {"--max-logprobs", "--port",
     "leave it out: a request may ask for 64 at most"},
    {"--ssl-keyfile", "--port", kTls},
    {"--ssl-certfile", "--port", kTls},
    {"--reasoning-parser", "--port", kAllText},
    {"--enable-auto-tool-choice", "--tool-call-parser",
     "leave it out: calls of tools are read where a chat has tools, in the "
     "format of --tool-call-parser"},
    {"--tokenizer", "--model", kTokenizer},
    {"--tokenizer-path", "--model", kTokenizer},
    {"--api-key", "--api-key-file",
     "a key is in --api-key-file FILE, or in the variable ESPALIER_API_KEY"},
};

// Hints at fields of a server's calls, for options of generate.
struct OfCalls {
  std::string_view option;
  std::string_view hint;
};
constexpr std::string_view kTemplateOfCall =
    "each completion has its own, \"template\": \"NAME\"; espalier inspect DIR "
    "lists the names";
constexpr OfCalls kOfCalls[] = {
    {"--from", kTemplateOfCall},
    {"--to", kTemplateOfCall},
    {"--template", kTemplateOfCall},
    {"--chat", "a chat is a call of /v1/chat/completions"},
    {"--system", "a chat has its own, a message of \"role\": \"system\""},
    {"--stream", "each call has its own, \"stream\": true"},
    {"--stats", "GET /metrics has them"},
    {"--trace", "did you mean --trace-requests?"},
};

// Arguments that a command cannot do without.
struct Needed {
  std::string_view command;
  std::string_view name;  // as the library has it
  std::string_view what;
};
constexpr Needed kNeeded[] = {
    {"inspect", "--model", "a model is needed: espalier inspect DIR"},
    {"trace", "file",
     "a file that --trace has written is needed: espalier trace FILE"},
    {"transcribe", "file",
     "a file of audio is needed: espalier transcribe -m DIR FILE"},
};

// A field of another program's requests as an option.
OtherOption AsOption(const OtherName& other) {
  const std::string name = Flag(other.theirs);
  if (other.ours == "prompt") {
    return {name, "--file", std::string(kNoOptionForTexts)};
  }
  if (FindParamField(other.ours) == nullptr) return {name, ""};
  const std::string option = Flag(other.ours);
  return {name, option,
          TextInWordsOf({.field = [&](std::string_view) { return option; }},
                        MessageParts(Prose(other.hint)))};
}

std::vector<OtherOption> AllOptions() {
  std::vector<OtherOption> all;
  for (const auto& [name, option, hint] : kOtherOptions) {
    all.push_back({std::string(name), std::string(option), std::string(hint)});
  }
  for (const OtherName& other : OtherNames()) all.push_back(AsOption(other));
  return all;
}

}  // namespace

std::span<const OtherOption> OtherOptions() {
  static const auto* const all = new std::vector<OtherOption>(AllOptions());
  return *all;
}

std::string_view HintOfCalls(std::string_view option) {
  const auto* const found =
      std::ranges::find(kOfCalls, option, &OfCalls::option);
  return found == std::end(kOfCalls) ? std::string_view() : found->hint;
}

std::string_view NeededArgument(std::string_view command,
                                std::string_view name) {
  for (const Needed& needed : kNeeded) {
    if (needed.command == command && needed.name == name) return needed.what;
  }
  return "";
}

}  // namespace espalier::cli
