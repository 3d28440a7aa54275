// Forms, of which the first line is the Content-Type: how the bytes are cut
// changes nothing, and the fields written as another form are the same.
#include "http/multipart.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

struct FormField {
  std::string name;
  std::string filename;
  std::string content;

  bool operator==(const FormField&) const = default;
};

class FormFields : public http::FormHandler {
 public:
  absl::Status BeginField(std::string_view name,
                          std::string_view filename) override {
    CHECK(!name.empty());
    all.push_back({std::string(name), std::string(filename), ""});
    return absl::OkStatus();
  }
  absl::Status AddToField(std::string_view bytes) override {
    CHECK(!all.empty() && !bytes.empty());
    all.back().content += bytes;
    return absl::OkStatus();
  }

  std::vector<FormField> all;
};

// Reads `form`, which comes `piece` bytes at a time, up to the first error.
absl::Status ReadFields(std::string_view form, const std::string& boundary,
                        size_t piece, std::vector<FormField>* fields) {
  FormFields handler;
  http::MultipartReader reader(boundary, &handler);
  absl::Status status;
  while (!form.empty() && status.ok()) {
    status = reader.Read(form.substr(0, piece));
    form.remove_prefix(std::min(piece, form.size()));
  }
  if (status.ok()) status = reader.End();
  *fields = std::move(handler.all);
  return status;
}

std::string QuotedParameter(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Writes the fields with a boundary that none of them has.
std::string WriteForm(const std::vector<FormField>& fields,
                      std::string* boundary) {
  std::string form;
  *boundary = "b";
  for (const FormField& field : fields) {
    while (field.content.find("\r\n--" + *boundary) != std::string::npos) {
      *boundary += "b";
    }
  }
  for (const FormField& field : fields) {
    form += Concat("--", *boundary, "\r\nContent-Disposition: form-data; name=",
                   QuotedParameter(field.name),
                   "; filename=", QuotedParameter(field.filename), "\r\n\r\n",
                   field.content, "\r\n");
  }
  return form + Concat("--", *boundary, "--");
}

FUZZ_TARGET(multipart, input) {
  const size_t piece = 2 + TakeChoice(&input) % 64;
  const std::string_view type = input.substr(0, input.find('\n'));
  input.remove_prefix(std::min(type.size() + 1, input.size()));
  const absl::StatusOr<std::string> boundary = http::BoundaryOf(type);
  if (!boundary.ok()) return CheckBadInput(boundary.status());
  std::vector<FormField> whole, cut, again;
  const absl::Status status =
      ReadFields(input, *boundary, input.size(), &whole);
  if (!status.ok()) CheckBadInput(status);
  for (const size_t size : {size_t{1}, piece}) {
    const absl::Status other = ReadFields(input, *boundary, size, &cut);
    CHECK(other == status) << other.ToString() << " is not "
                           << status.ToString();
    CHECK(!status.ok() || cut == whole);
  }
  if (!status.ok()) return;
  std::string new_boundary;
  const std::string form = WriteForm(whole, &new_boundary);
  // A boundary of more bytes is refused in headers alone.
  CHECK(ReadFields(form, new_boundary, form.size(), &again).ok());
  CHECK(again == whole);
}

}  // namespace

}  // namespace espalier::fuzz
