#include "model/model_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "base/status.h"
#include "model/ctranslate2/ctranslate2_model.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhatItIs =
    "; a model is a directory with config.json and model.safetensors, or "
    "CTranslate2's model.bin";

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The first of the files that the directory has; or "".
std::string_view FirstOf(const std::string& directory,
                         std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (IsThere(Concat(directory, "/", name))) return name;
  }
  return "";
}

bool HasWeights(const std::string& directory) {
  return !FirstOf(directory,
                  {"model.safetensors", "model.safetensors.index.json"})
              .empty() ||
         IsCTranslate2Directory(directory);
}

// True for OWNER/NAME, unless the directory OWNER exists.
bool MayBeHubName(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || text.find('/', slash + 1) != text.npos) {
    return false;
  }
  const std::string_view owner = std::string_view(text).substr(0, slash);
  const std::string_view name = std::string_view(text).substr(slash + 1);
  const auto is_plain = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '~' &&
           part.find_first_of(" \\:") == std::string_view::npos;
  };
  return is_plain(owner) && is_plain(name) && !IsThere(std::string(owner));
}

absl::Status NoSuchDirectory(const std::string& given) {
  if (!MayBeHubName(given)) {
    return NotFound("no such directory: ", given.empty() ? "\"\"" : given);
  }
  return NotFound("no such directory: ", given,
                  "; if that is the name of a model on the Hugging Face Hub, "
                  "nothing is downloaded here: `hf download ",
                  given, " --local-dir DIR` gets its files, then give DIR");
}

absl::Status IsGguf(std::string_view shown) {
  return InvalidArgument(shown,
                         " is a GGUF file, which is not read; give the "
                         "directory of the model that it was made from",
                         kWhatItIs);
}

absl::Status NoDirectory(const std::string& path) {
  char magic[4] = {};
  std::error_code error;
  // A device or a pipe may never give its first byte.
  if (fs::is_regular_file(path, error)) {
    std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  }
  if (std::string_view(magic, sizeof(magic)) == "GGUF") return IsGguf(path);
  return InvalidArgument(path, " is a file", kWhatItIs);
}

// The name of a GGUF file in the directory; or "".
std::string FindGguf(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".gguf") {
      return entry->path().filename().string();
    }
  }
  return "";
}

// transformers applies an adapter that lies beside a model.
absl::Status CheckNoAdapter(const std::string& directory) {
  const std::string_view file =
      FirstOf(directory, {"adapter_config.json", "adapter_model.safetensors",
                          "adapter_model.bin"});
  if (file.empty()) return absl::OkStatus();
  if (IsThere(directory + "/config.json")) {
    return InvalidArgument(
        directory, " has an adapter, ", file, ", beside the model, and ",
        "adapters are not applied: merge it into the model with PEFT's ",
        "merge_and_unload() and save that, or remove its files to have the ",
        "model without it");
  }
  return InvalidArgument(directory, " is an adapter, ", file, ", without its ",
                         "model: merge it into the model with PEFT's ",
                         "merge_and_unload() and save that");
}

absl::Status NoConfig(const std::string& directory) {
  std::error_code error;
  if (fs::is_directory(directory + "/snapshots", error)) {
    return NotFound(directory, " has no config.json; it has snapshots of a ",
                    "model: give one of the directories in ", directory,
                    "/snapshots");
  }
  const std::string gguf = FindGguf(directory);
  if (!gguf.empty()) return IsGguf(Concat(directory, "/", gguf));
  return NotFound(directory, " has no config.json", kWhatItIs);
}

// Weights in files of another kind alone.
absl::Status CheckWeights(const std::string& directory) {
  if (HasWeights(directory)) return absl::OkStatus();
  const std::string gguf = FindGguf(directory);
  if (!gguf.empty()) return IsGguf(Concat(directory, "/", gguf));
  const std::string_view pickled =
      FirstOf(directory, {"pytorch_model.bin", "pytorch_model.bin.index.json"});
  if (!pickled.empty()) {
    return InvalidArgument(
        directory, " has its weights in ", pickled, ", which is not read; ",
        "transformers converts it: AutoModelForCausalLM.from_pretrained(",
        directory, ").save_pretrained(NEW), or AutoModelForSeq2SeqLM with an ",
        "encoder, writes model.safetensors; give NEW, with the tokenizer's ",
        "files");
  }
  const std::string_view other =
      FirstOf(directory, {"tf_model.h5", "flax_model.msgpack"});
  if (other.empty()) return absl::OkStatus();
  return InvalidArgument(directory, " has its weights in ", other,
                         ", which is not read", kWhatItIs);
}

}  // namespace

absl::Status CheckIsDirectory(const std::string& directory) {
  std::error_code error;
  const fs::file_status found = fs::status(directory, error);
  if (found.type() == fs::file_type::not_found) {
    return NoSuchDirectory(directory);
  }
  if (!fs::status_known(found)) {
    return FailedPrecondition("cannot read ", directory, ": ", error.message());
  }
  if (!fs::is_directory(found)) return NoDirectory(directory);
  return absl::OkStatus();
}

absl::Status CheckModelDirectory(const std::string& directory) {
  RETURN_IF_ERROR(CheckIsDirectory(directory));
  RETURN_IF_ERROR(CheckNoAdapter(directory));
  // A config.json that cannot be read is not missing.
  std::error_code error;
  const fs::file_status config = fs::status(directory + "/config.json", error);
  if (config.type() == fs::file_type::not_found) return NoConfig(directory);
  return CheckWeights(directory);
}

}  // namespace espalier
