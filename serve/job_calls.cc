#include "serve/job_calls.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "http/multipart.h"
#include "openai/error.h"
#include "openai/stored_objects.h"

namespace espalier::serve {
namespace {

constexpr std::string_view kPurpose = "batch";
constexpr size_t kMaxFilenameBytes = 1024;
constexpr int64_t kMaxFilesListed = 10'000;
constexpr int64_t kMaxBatchesListed = 100;
constexpr int64_t kBatchesListed = 20;
constexpr size_t kPieceBytes = 64 << 10;

absl::Status NoContent() {
  return MakeError(absl::StatusCode::kUnavailable,
                   "the content of the file cannot be read");
}

// The form of POST /v1/files: a "purpose", and a "file".
class UploadForm : public http::FormHandler {
 public:
  UploadForm(std::string_view boundary, std::string tenant,
             jobs::FileStore* files)
      : tenant_(std::move(tenant)), files_(files), reader_(boundary, this) {}

  // Errors: kInvalidArgument naming what is wrong; as jobs::Upload::Append.
  absl::Status Read(std::string_view bytes) { return reader_.Read(bytes); }
  // Errors: kInvalidArgument naming the field that is missing or wrong.
  absl::StatusOr<openai::StoredFile> Add(std::string_view owner);

  absl::Status BeginField(std::string_view name,
                          std::string_view filename) override;
  absl::Status AddToField(std::string_view bytes) override;

 private:
  const std::string tenant_;
  jobs::FileStore* const files_;
  http::MultipartReader reader_;
  bool is_in_file_ = false;
  std::string filename_;
  std::optional<std::string> purpose_;
  std::unique_ptr<jobs::Upload> upload_;
};

absl::Status UploadForm::BeginField(std::string_view name,
                                    std::string_view filename) {
  is_in_file_ = name == "file";
  if (name == "purpose" && !purpose_) {
    purpose_.emplace();
    return absl::OkStatus();
  }
  if (!is_in_file_ || upload_ != nullptr) {
    return openai::RefuseField(IsUtf8(name) ? name : "",
                               Concat("a file takes one purpose and one ",
                                      "file, got ", BytesInQuotes(name)));
  }
  if (filename.size() > kMaxFilenameBytes || !IsUtf8(filename)) {
    return openai::RefuseField(
        "file",
        Concat("the name of a file must be UTF-8 of at most ",
               kMaxFilenameBytes, " bytes, got ", BytesInQuotes(filename)));
  }
  filename_ = filename;
  ASSIGN_OR_RETURN(upload_, files_->BeginUpload(tenant_));
  return absl::OkStatus();
}

absl::Status UploadForm::AddToField(std::string_view bytes) {
  if (is_in_file_) return upload_->Append(bytes);
  constexpr size_t kMost = 64;
  purpose_->append(bytes.substr(0, kMost - std::min(kMost, purpose_->size())));
  return absl::OkStatus();
}

absl::StatusOr<openai::StoredFile> UploadForm::Add(std::string_view owner) {
  RETURN_IF_ERROR(reader_.End());
  if (purpose_ != kPurpose) {
    return openai::RefuseField(
        "purpose", Concat("purpose must be \"batch\", got ",
                          purpose_ ? BytesInQuotes(*purpose_) : "nothing"));
  }
  if (upload_ == nullptr) {
    return openai::RefuseField("file", "file must be there, got nothing");
  }
  return files_->Add(owner, filename_, kPurpose, upload_.get());
}

// A form that is destroyed where it is used, and a file that was not added with
// it, also if its call is cancelled.
struct FiledForm {
  FiledForm(std::shared_ptr<UploadForm> form_of, WorkerThread* filing_of)
      : form(std::move(form_of)), filing(filing_of) {}
  FiledForm(const FiledForm&) = delete;
  FiledForm& operator=(const FiledForm&) = delete;
  ~FiledForm() { filing->Destroy(std::move(form), 0); }

  std::shared_ptr<UploadForm> form;
  WorkerThread* const filing;
};

template <typename Object>
absl::StatusOr<std::string> WriteOr(const absl::StatusOr<Object>& object) {
  if (!object.ok()) return object.status();
  return WriteJson(openai::ToJson(*object));
}

template <typename Object>
std::vector<json::object> ToObjects(const std::vector<Object>& objects) {
  std::vector<json::object> written;
  for (const Object& object : objects) written.push_back(ToJson(object));
  return written;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobCalls>> JobCalls::Open(
    const JobOptions& options) {
  auto calls = std::make_unique<JobCalls>();
  ASSIGN_OR_RETURN(
      calls->files_,
      jobs::FileStore::Open(options.folder, options.files, options.warn));
  ASSIGN_OR_RETURN(calls->batches_,
                   jobs::Batches::Open(options.folder, options.batches,
                                       calls->files_.get(), options.warn));
  RETURN_IF_ERROR(calls->filing_.Start());
  return calls;
}

void JobCalls::Stop() {
  batches_->Stop();
  filing_.Stop();
}

boost::asio::awaitable<absl::StatusOr<std::string>> JobCalls::Do(Answer answer,
                                                                 JobCall call) {
  WorkerThread::WorkFor<std::string> work =
      [this, answer, call = std::move(call)] { return (this->*answer)(call); };
  co_return co_await filing_.Run<std::string>(std::move(work));
}

boost::asio::awaitable<absl::StatusOr<std::string>> JobCalls::AddFile(
    std::string owner, std::string tenant, http::Exchange& exchange) {
  const absl::StatusOr<std::string> boundary =
      http::BoundaryOf(exchange.request().Find("content-type"));
  if (!boundary.ok()) co_return boundary.status();
  const FiledForm form{
      std::make_shared<UploadForm>(*boundary, std::move(tenant), files_.get()),
      &filing_};
  while (true) {
    std::string piece = co_await exchange.ReadBody();
    const bool is_end = piece.empty();
    WorkerThread::WorkFor<std::string> work =
        [form = form.form, piece = std::move(piece),
         owner]() -> absl::StatusOr<std::string> {
      if (piece.empty()) return WriteOr(form->Add(owner));
      RETURN_IF_ERROR(form->Read(piece));
      return "";
    };
    absl::StatusOr<std::string> done =
        co_await filing_.Run<std::string>(std::move(work));
    if (is_end || !done.ok()) co_return done;
  }
}

boost::asio::awaitable<absl::StatusOr<JobCalls::Content>> JobCalls::OpenFile(
    JobCall call) {
  WorkerThread::WorkFor<Content> work =
      [this, call = std::move(call)]() -> absl::StatusOr<Content> {
    ASSIGN_OR_RETURN(const openai::StoredFile file,
                     files_->Find(call.owner, call.id));
    auto content = std::make_shared<std::ifstream>(files_->PathOf(file.id),
                                                   std::ios::binary);
    if (!content->is_open()) return NoContent();
    return content;
  };
  co_return co_await filing_.Run<Content>(std::move(work));
}

boost::asio::awaitable<absl::StatusOr<std::string>> JobCalls::ReadPiece(
    Content content) {
  WorkerThread::WorkFor<std::string> work =
      [content]() -> absl::StatusOr<std::string> {
    std::string piece(kPieceBytes, '\0');
    content->read(piece.data(), static_cast<std::streamsize>(kPieceBytes));
    if (content->bad()) return NoContent();
    piece.resize(static_cast<size_t>(content->gcount()));
    return piece;
  };
  co_return co_await filing_.Run<std::string>(std::move(work));
}

absl::StatusOr<std::string> JobCalls::ListFiles(const JobCall& call) {
  ASSIGN_OR_RETURN(
      const openai::ListQuery query,
      openai::ReadListQuery(call.query, kMaxFilesListed, kMaxFilesListed));
  std::vector<openai::StoredFile> files = files_->List(call.owner);
  std::erase_if(files, [&](const openai::StoredFile& file) {
    return !query.purpose.empty() && file.purpose != query.purpose;
  });
  return openai::WriteList(ToObjects(files), query);
}

absl::StatusOr<std::string> JobCalls::File(const JobCall& call) {
  return WriteOr(files_->Find(call.owner, call.id));
}

absl::StatusOr<std::string> JobCalls::RemoveFile(const JobCall& call) {
  RETURN_IF_ERROR(files_->Remove(call.owner, call.id));
  return WriteJson({{"id", call.id}, {"object", "file"}, {"deleted", true}});
}

absl::StatusOr<std::string> JobCalls::CreateBatch(const JobCall& call) {
  ASSIGN_OR_RETURN(const openai::BatchOrder order,
                   openai::ReadBatchOrder(call.body));
  return WriteOr(batches_->Create(call.owner, order, call.tenant));
}

absl::StatusOr<std::string> JobCalls::ListBatches(const JobCall& call) {
  ASSIGN_OR_RETURN(
      const openai::ListQuery query,
      openai::ReadListQuery(call.query, kMaxBatchesListed, kBatchesListed));
  return openai::WriteList(ToObjects(batches_->List(call.owner)), query);
}

absl::StatusOr<std::string> JobCalls::Batch(const JobCall& call) {
  return WriteOr(batches_->Find(call.owner, call.id));
}

absl::StatusOr<std::string> JobCalls::CancelBatch(const JobCall& call) {
  return WriteOr(batches_->Cancel(call.owner, call.id));
}

}  // namespace espalier::serve
