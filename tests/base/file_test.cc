#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::IsEmpty;

// Both ways to read `path` come to the same error.
template <typename Message>
void ExpectError(const std::string& path, absl::StatusCode code,
                 const Message& message) {
  EXPECT_THAT(ReadFile(path, 100), StatusIs(code, message));
  EXPECT_THAT(MappedFile::Open(path), StatusIs(code, message));
}

TEST(FileTest, BothWaysGiveTheBytesAsTheyAre) {
  const ScratchDirectory scratch;
  const std::string bytes("\0a\r\n\xFF", 5);
  const std::string path = scratch.Write("f", bytes);
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(path, 100));
  EXPECT_EQ(text, bytes);
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(path));
  EXPECT_TRUE(std::ranges::equal(file.bytes(),
                                 std::as_bytes(std::span<const char>(bytes))));
}

TEST(FileTest, AnEmptyFileHasNoBytes) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("f", "");
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(path, 0));
  EXPECT_THAT(text, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(path));
  EXPECT_THAT(file.bytes(), IsEmpty());
}

TEST(FileTest, AMissingFileIsNotFound) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/none";
  ExpectError(path, absl::StatusCode::kNotFound, "no such file: " + path);
}

TEST(FileTest, WhatIsNoRegularFileIsNotRead) {
  const ScratchDirectory scratch;
  const std::string pipe = scratch.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {scratch.path(), pipe}) {
    ExpectError(path, absl::StatusCode::kInvalidArgument,
                path + " is not a regular file");
  }
}

TEST(FileTest, TheLimitIsTheLargestSizeThatIsRead) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("f", "12345");
  EXPECT_OK(ReadFile(path, 5));
  EXPECT_THAT(ReadFile(path, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       path + " has 5 bytes, at most 4 are read"));
}

TEST(FileTest, AGitLfsPointerIsNamedAsOne) {
  const ScratchDirectory scratch;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\n"
      "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2"
      "393\nsize 12345\n";
  const std::string path = scratch.Write("f", pointer);
  const std::string message =
      path +
      " is a git-lfs pointer, not the file itself: run git lfs pull where it "
      "was cloned";
  EXPECT_THAT(ReadFile(path, 1000),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
  EXPECT_THAT(MappedFile::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
  // A text about one, which is longer, is a text.
  const std::string text = pointer + std::string(1024, ' ');
  const std::string other = scratch.Write("g", text);
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadFile(other, 2000));
  EXPECT_EQ(read, text);
  EXPECT_OK(MappedFile::Open(other));
}

TEST(FileTest, AFileThatCannotBeOpenedIsNamedWithTheReason) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("f", "12345");
  ExpectError(path + "/below", absl::StatusCode::kFailedPrecondition,
              path + "/below: Not a directory");
}

TEST(FileTest, AFileThatMayNotBeReadIsNamedWithTheReason) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("f", "12345");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectError(path, absl::StatusCode::kFailedPrecondition,
              path + ": Permission denied");
}

// Returns the size of file pages in this process's memory.
int64_t ResidentFileKib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != "RssFile:") {
  }
  status >> kib;
  return kib;
}

TEST(FileTest, PagesThatAreDroppedLeaveMemoryAndAreReadAnew) {
  const ScratchDirectory scratch;
  std::string text(8 << 20, 'x');
  for (size_t i = 0; i < text.size(); i += 1000) text[i] = 'y';
  ASSERT_OK_AND_ASSIGN(const MappedFile file,
                       MappedFile::Open(scratch.Write("f", text)));
  const auto read = [&] {
    return std::ranges::equal(file.bytes(), std::as_bytes(std::span(text)));
  };
  EXPECT_TRUE(read());
  const int64_t before = ResidentFileKib();
  // Neither end is that of a page.
  MappedFile::DropPages(file.bytes().subspan(7, text.size() - 20));
  EXPECT_LT(ResidentFileKib(), before - (6 << 10));
  EXPECT_TRUE(read());
  MappedFile::DropPages(file.bytes().first(100));
  EXPECT_TRUE(read());
}

TEST(FileTest, AMappedFileMoves) {
  const ScratchDirectory scratch;
  ASSERT_OK_AND_ASSIGN(MappedFile one,
                       MappedFile::Open(scratch.Write("1", "one")));
  ASSERT_OK_AND_ASSIGN(MappedFile three,
                       MappedFile::Open(scratch.Write("3", "three")));
  one = std::move(three);
  const MappedFile last = std::move(one);
  EXPECT_EQ(last.bytes().size(), 5);
  EXPECT_EQ(last.bytes()[0], std::byte{'t'});
}

}  // namespace
}  // namespace espalier
