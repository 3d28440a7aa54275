// A directory of its own for a test's files, gone with everything in it when
// this dies.
//
//   const ScratchDirectory scratch;
//   const std::string path = scratch.Write("config.json", "{}");
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace espalier::testing {

class ScratchDirectory {
 public:
  // mkdtemp puts six letters of its own in place of the last six.
  ScratchDirectory()
      : path_(::testing::TempDir() + "/espalier_" + std::string(6, 'X')) {
    CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  // Writes the file `name`, over the one that is there; the path to it.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string file = path(name);
    // A new file: cutting an old one short waits for the disk on some systems.
    std::filesystem::remove(file);
    std::ofstream out(file, std::ios::binary);
    out << bytes;
    CHECK(out.flush().good()) << file;
    return file;
  }

 private:
  std::string path_;
};

}  // namespace espalier::testing
