// A folder of a store for a test, and what may be in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobs/file_store.h"
#include "tests/status_matchers.h"

namespace espalier::jobs {

// Removed when it dies.
class JobFolder {
 public:
  JobFolder() {
    // In memory, where that is a folder: syncing takes no time there.
    const bool has_memory = access("/dev/shm", W_OK) == 0;
    const std::filesystem::path base =
        has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (base / "jobs-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern + "/store";
  }
  ~JobFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path(),
                                ignored);
  }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }

  std::unique_ptr<FileStore> OpenFiles(FileLimits limits = {}) const {
    auto files = FileStore::Open(path_, limits);
    EXPECT_OK(files);
    return files.ok() ? *std::move(files) : nullptr;
  }

 private:
  std::string path_;
};

inline std::string ReadWhole(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(out).str();
}

inline void WriteWhole(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Copies of a record that were damaged in many ways.
inline std::vector<std::string> DamagedRecords(const std::string& good) {
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  return {"",
          good.substr(0, good.size() / 2),
          good.substr(0, good.size() - 1),
          good + "}",
          good + std::string(1 << 20, ' '),
          std::string(100, '\0'),
          "[]",
          "null",
          "{\"owner\": \"\"}",
          with("\"owner\": \"", "\"owner\": 7, \"x\": \""),
          with("\"id\": \"", "\"id\": \"x"),
          with("\"id\": \"", "\"id\": [], \"x\": \""),
          with("\"created_at\": ", "\"created_at\": \"\", \"x\": ")};
}

// Its owner is its tenant.
inline absl::StatusOr<openai::StoredFile> AddFile(
    FileStore* files, std::string_view content, std::string_view owner = "",
    std::string_view filename = "in.jsonl") {
  ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload,
                   files->BeginUpload(owner));
  RETURN_IF_ERROR(upload->Append(content));
  return files->Add(owner, filename, "batch", upload.get());
}

}  // namespace espalier::jobs
