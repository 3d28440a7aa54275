// Multipart forms: the fields do not depend on how the bytes are split.
#include "http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::http {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

struct Field {
  std::string name;
  std::string filename;
  std::string content;

  bool operator==(const Field&) const = default;
};

class Fields : public FormHandler {
 public:
  absl::Status BeginField(std::string_view name,
                          std::string_view filename) override {
    all.push_back({std::string(name), std::string(filename), ""});
    return absl::OkStatus();
  }
  absl::Status AddToField(std::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    all.back().content += bytes;
    return absl::OkStatus();
  }

  std::vector<Field> all;
};

// Returns the fields of `form`, read `piece` bytes at a time.
absl::StatusOr<std::vector<Field>> ReadForm(std::string_view form,
                                            std::string_view boundary,
                                            size_t piece) {
  Fields fields;
  MultipartReader reader(boundary, &fields);
  for (size_t at = 0; at < form.size(); at += piece) {
    RETURN_IF_ERROR(reader.Read(form.substr(at, piece)));
  }
  RETURN_IF_ERROR(reader.End());
  return fields.all;
}

TEST(MultipartTest, FormIsReadAsClientsWriteIt) {
  const std::string form =
      "a preamble\r\n--b1 \r\nContent-Disposition: form-data; "
      "name=\"purpose\"\r\n\r\nbatch\r\n--b1\r\ncontent-disposition:form-data;"
      "name=file ; filename=\"a \\\"b\\\" ; c\"\r\nContent-Type: text/plain"
      "\r\n\r\n{}\n--b1\n\r\n-\r\n--b1\r\nContent-Disposition: form-data; "
      "name=empty\r\n\r\n\r\n--b1--\r\nan epilogue";
  const std::vector<Field> fields = {{"purpose", "", "batch"},
                                     {"file", "a \"b\" ; c", "{}\n--b1\n\r\n-"},
                                     {"empty", "", ""}};
  for (size_t piece = 1; piece <= form.size(); ++piece) {
    const auto read = ReadForm(form, "b1", piece);
    ASSERT_OK(read);
    EXPECT_EQ(*read, fields) << piece;
  }
}

TEST(MultipartTest, WhatIsNoFormIsRefused) {
  const std::string kHead = "--b\r\nContent-Disposition: form-data; name=a\r\n";
  const std::pair<std::string, std::string> kBad[] = {
      {"", "ends before its last boundary"},
      {kHead + "\r\nx", "ends before its last boundary"},
      {kHead + "\r\nx\r\n--b", "ends before its last boundary"},
      {"--bc\r\n", "followed by \"c\\r\""},
      {"--b\r\n\r\nx\r\n--b--", "has no name, got \"\""},
      {"--b\r\nContent-Disposition: form-data\r\n\r\n", "has no name"},
      {"--b\r\nContent-Disposition: file; name=a\r\n\r\n", "has no name"},
      {kHead + "X: " + std::string(9 << 10, 'x'), "must have at most 8192"},
      {"--b" + std::string(9 << 10, ' '), "has no end"},
  };
  for (const auto& [form, message] : kBad) {
    for (const size_t piece : {size_t{1}, size_t{100}, form.size() + 1}) {
      EXPECT_THAT(
          ReadForm(form, "b", piece),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
          << form.substr(0, 100) << " by " << piece;
    }
  }
  std::string many;
  for (int i = 0; i <= MultipartReader::kMaxFields; ++i) {
    many += kHead + "\r\n\r\n";
  }
  EXPECT_THAT(ReadForm(many, "b", 1000),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 64 fields")));
}

TEST(MultipartTest, HeadersOfTheMostBytesAreReadHoweverCut) {
  const std::string head = "\r\nContent-Disposition: form-data; name=a\r\nX: ";
  for (size_t size = MultipartReader::kMaxHeaderBytes - 6;
       size <= MultipartReader::kMaxHeaderBytes + 6; ++size) {
    const std::string form = "--b" + head +
                             std::string(size - head.size(), 'x') +
                             "\r\n\r\ny\r\n--b--";
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{4},
                               size_t{100}, form.size()}) {
      const auto read = ReadForm(form, "b", piece);
      EXPECT_EQ(read.ok(), size <= MultipartReader::kMaxHeaderBytes)
          << size << " by " << piece << ": " << read.status();
      if (read.ok()) {
        EXPECT_EQ((*read)[0].content, "y");
      }
    }
  }
}

TEST(MultipartTest, BoundaryIsTheHeaders) {
  EXPECT_EQ(*BoundaryOf("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*BoundaryOf("Multipart/Form-Data; x=y; Boundary=\"a b\"; z"),
            "a b");
  for (const std::string bad :
       {"", "application/json", "multipart/form-data",
        "multipart/form-data; boundary=", "multipart/mixed; boundary=a"}) {
    EXPECT_THAT(BoundaryOf(bad),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("Content-Type must be multipart")))
        << bad;
  }
  EXPECT_FALSE(
      BoundaryOf("multipart/form-data; boundary=" + std::string(71, 'a')).ok());
}

// Contents of the bytes that delimiters are made of, and cuts anywhere.
RC_GTEST_PROP(MultipartPropertyTest, CutsChangeNothing, ()) {
  const auto bytes = rc::gen::container<std::string>(
      rc::gen::element('\r', '\n', '-', 'b', 'x'));
  std::vector<Field> fields;
  std::string form;
  const int num_fields = *rc::gen::inRange(0, 4);
  for (int i = 0; i < num_fields; ++i) {
    std::string content = *bytes;
    // A content that has the delimiter would be two.
    while (content.find("\r\n--b") != content.npos) content = content.substr(1);
    fields.push_back({Concat("f", i), "", content});
    form += Concat("--b\r\nContent-Disposition: form-data; name=f", i,
                   "\r\n\r\n", content, "\r\n");
  }
  form += "--b--";
  const auto whole = ReadForm(form, "b", form.size());
  RC_ASSERT(whole.ok());
  RC_ASSERT(*whole == fields);
  Fields cut;
  MultipartReader reader("b", &cut);
  for (size_t at = 0; at < form.size();) {
    const size_t piece = *rc::gen::inRange<size_t>(1, 12);
    RC_ASSERT(reader.Read(std::string_view(form).substr(at, piece)).ok());
    at += piece;
  }
  RC_ASSERT(reader.End().ok());
  RC_ASSERT(cut.all == fields);
}

}  // namespace
}  // namespace espalier::http
