#include "python/src/speech.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "python/src/answers.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/transcribe_options.h"
#include "speech/transcript_json.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

constexpr char kAudio[] = "audio";
constexpr char kClass[] = "Transcriber";

std::string TextOf(const nb::bytes& bytes) {
  return std::string(bytes.c_str(), bytes.size());
}

// As numpy's: "float32".
std::string NameOf(const nb::dlpack::dtype& type) {
  std::string_view kind = "other";
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Int:
      kind = "int";
      break;
    case nb::dlpack::dtype_code::UInt:
      kind = "uint";
      break;
    case nb::dlpack::dtype_code::Float:
      kind = "float";
      break;
    case nb::dlpack::dtype_code::Bfloat:
      kind = "bfloat";
      break;
    case nb::dlpack::dtype_code::Complex:
      kind = "complex";
      break;
    case nb::dlpack::dtype_code::Bool:
      return "bool";
    default:
      break;
  }
  return Concat(kind, int{type.bits});
}

std::shared_ptr<const Transcriber> LoadTranscriber(
    const std::string& directory, const GeneratorOptions& options,
    int num_sequences, int num_windows) {
  absl::StatusOr<Transcriber> loaded = RunWithoutGil([&] {
    return Transcriber::Load(directory, options, num_sequences, num_windows);
  });
  RaiseIfError(InWordsOfKeywords(loaded.status()));
  return std::make_shared<const Transcriber>(*std::move(loaded));
}

std::shared_ptr<const VoiceActivity> LoadVad(const std::string& path) {
  if (path.empty()) return nullptr;
  auto loaded = RunWithoutGil([&] { return LoadVoiceActivity(path); });
  RaiseIfError(AnnotateOption(loaded.status(), "vad_model"));
  return *std::move(loaded);
}

}  // namespace

AudioSource AudioSource::OfFile(const nb::bytes& given) {
  std::string path = TextOf(given);
  if (path.find('\0') != path.npos) {
    Raise(InvalidField(FieldName{kAudio}, " must be a path without NUL"));
  }
  return {[path = std::move(path)] { return AudioReader::Open(path); }};
}

AudioSource AudioSource::OfContent(const nb::bytes& content) {
  const auto bytes = std::make_shared<const std::string>(TextOf(content));
  return {[bytes] { return AudioReader::OpenBytes(*bytes, kAudio); }};
}

AudioSource AudioSource::OfSamples(nb::handle given) {
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(given, array, /*convert=*/false)) {
    Raise(InvalidField(
        FieldName{kAudio},
        " must be a path, the bytes of a file, or an array of samples",
        Got(nb::cast<std::string>(nb::type_name(given.type())))));
  }
  if (array.ndim() != 1) {
    Raise(InvalidField(FieldName{kAudio}, " must have 1 dimension",
                       Got(array.ndim())));
  }
  if (array.dtype() != nb::dtype<float>()) {
    Raise(InvalidField(FieldName{kAudio},
                       " must be of float32, at 16 kHz and in [-1, 1]",
                       Got(NameOf(array.dtype()))));
  }
  if (array.device_type() != nb::device::cpu::value) {
    Raise(InvalidField(FieldName{kAudio}, " must be on the CPU",
                       Got("DLPack device ", array.device_type())));
  }
  const auto samples = std::make_shared<std::vector<float>>(array.shape(0));
  const float* const first = static_cast<const float*>(array.data());
  for (size_t i = 0; i < samples->size(); ++i) {
    const float sample = first[static_cast<int64_t>(i) * array.stride(0)];
    if (!std::isfinite(sample)) {
      Raise(InvalidField(FieldName{kAudio}, "[", i, "] must be finite",
                         Got(sample)));
    }
    (*samples)[i] = std::clamp(sample, -1.0F, 1.0F);
  }
  return {[samples]() -> absl::StatusOr<std::unique_ptr<AudioReader>> {
    return AudioReader::OpenSamples(samples, kAudio);
  }};
}

SpeechEngine::SpeechEngine(const std::string& directory,
                           const GeneratorOptions& options, int num_sequences,
                           int num_windows, const std::string& vad_model)
    : SpeechEngine{
          LoadVad(vad_model),
          LoadTranscriber(directory, options, num_sequences, num_windows)} {}

SpeechEngine::SpeechEngine(std::shared_ptr<const VoiceActivity> voice_activity,
                           std::shared_ptr<const Transcriber> transcriber)
    : Engine(kClass, std::shared_ptr<Generator>(
                         transcriber, transcriber->generator().get())),
      voice_activity_(std::move(voice_activity)),
      transcriber_(transcriber) {}

SpeechEngine::~SpeechEngine() {
  RunWithoutGil([&] { Close(); });
}

void SpeechEngine::Close() {
  if (is_forked()) return;
  closing_.request_stop();
  Engine::Close();
  for (int count; (count = *num_running_) > 0;) num_running_->wait(count);
}

Transcription::Transcription(const SpeechEngine& engine,
                             const AudioSource& audio, const nb::dict& options,
                             double timeout)
    : num_forks_(NumForks()),
      given_(ReadTranscribeOptions(options)),
      shared_(std::make_shared<Shared>()) {
  std::shared_ptr<Generator> generator = engine.generator();
  TranscribeOptions transcribe = given_.options;
  if (given_.vad_filter) {
    transcribe.voice_activity = engine.voice_activity_;
    if (transcribe.voice_activity == nullptr) {
      Raise(InvalidField(FieldName{"vad_filter"},
                         " needs a Transcriber with vad_model", Got("True")));
    }
  }
  // With the generator it lives.
  const std::shared_ptr<const Transcriber> transcriber =
      engine.transcriber_.lock();
  const absl::Status checked =
      RunWithoutGil([&] { return transcriber->Check(transcribe); });
  RaiseIfError(given_.InWordsOfCaller(checked));
  shared_->queue = ValueOrRaise(ReadyQueue::Create());
  const auto run = [shared = shared_, transcriber, open = audio.open,
                    transcribe = std::move(transcribe),
                    call = CallOf(timeout, shared_->stop.get_token()),
                    closing = engine.closing_.get_token(),
                    closed = engine.ClosedError()] {
    const std::stop_callback on_close(closing,
                                      [&] { shared->stop.request_stop(); });
    absl::StatusOr<Transcript> answer =
        absl::ResourceExhaustedError("there is no memory for a transcript");
    try {
      answer = transcriber->Transcribe(
          open, transcribe,
          [&](std::span<const TranscriptSegment> segments,
              const TranscribeProgress&) {
            if (segments.empty()) return true;
            const std::lock_guard<std::mutex> lock(shared->mutex);
            shared->segments.insert(shared->segments.end(), segments.begin(),
                                    segments.end());
            shared->queue->Push({});
            return true;
          },
          call);
    } catch (const std::bad_alloc&) {  // `answer` says so
    }
    if (absl::IsCancelled(answer.status()) && closing.stop_requested()) {
      answer = closed;
    }
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->answer = std::move(answer);
    shared->queue->Push({});
  };
  const auto num_running = engine.num_running_;
  ++*num_running;
  try {
    // Frees the model before it counts as ended.
    std::thread([work = std::function<void()>(run), num_running]() mutable {
      work();
      work = nullptr;
      --*num_running;
      num_running->notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    --*num_running;
    Raise(absl::ResourceExhaustedError(error.what()));
  }
}

Transcription::~Transcription() {
  if (num_forks_ != NumForks()) {
    // Its thread is in the parent.
    static_cast<void>(new std::shared_ptr<Shared>(std::move(shared_)));
    return;
  }
  Cancel();
}

void Transcription::Cancel() {
  if (num_forks_ != NumForks()) return;
  RunWithoutGil([&] { shared_->stop.request_stop(); });
}

bool Transcription::Wait(double seconds) const {
  RaiseIfForked(num_forks_, kClass);
  return WaitFor(*shared_->queue, seconds);
}

nb::tuple Transcription::Take() {
  RaiseIfForked(num_forks_, kClass);
  shared_->queue->Take();
  std::vector<TranscriptSegment> segments;
  std::optional<absl::StatusOr<Transcript>> answer;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    segments.swap(shared_->segments);
    answer.swap(shared_->answer);
  }
  nb::list lines;
  for (const TranscriptSegment& segment : segments) {
    lines.append(Text(WriteJson(ToJson(segment))));
  }
  if (!answer) return nb::make_tuple(lines, nb::none());
  if (answer->ok()) {
    return nb::make_tuple(lines, Text(WriteJson(ToJson(**answer))));
  }
  return nb::make_tuple(lines,
                        ExceptionOf(given_.InWordsOfCaller(answer->status())));
}

void BindSpeech(nb::module_& module) {
  nb::class_<AudioSource>(module, "AudioSource", "The audio of a call.")
      .def_static("of_file", &AudioSource::OfFile, nb::arg("path"))
      .def_static("of_content", &AudioSource::OfContent, nb::arg("content"))
      .def_static("of_samples", &AudioSource::OfSamples,
                  nb::arg("array").none());
  nb::class_<SpeechEngine, Engine>(
      module, "SpeechEngine",
      "The engine of speech (espalier.Transcriber is its door).")
      .def(
          "__init__",
          [](SpeechEngine* self, const std::string& directory,
             std::string device, std::string dtype, std::string weights,
             int num_threads, std::optional<int64_t> kv_cache_mib,
             std::optional<int64_t> host_cache_mib,
             std::optional<int> page_size, std::optional<int> max_step_tokens,
             std::optional<int> max_beams, double step_timeout,
             int num_sequences, int num_windows, const std::string& vad_model) {
            GeneratorOptions options;
            options.device = std::move(device);
            options.dtype = std::move(dtype);
            options.weights = std::move(weights);
            options.num_threads = num_threads;
            options.page_size = page_size;
            options.max_step_tokens = max_step_tokens;
            options.max_beams = max_beams;
            if (std::isfinite(step_timeout)) {
              options.step_timeout = absl::Seconds(step_timeout);
            }
            new (self) SpeechEngine(
                directory,
                WithMemory(std::move(options), {kv_cache_mib, host_cache_mib}),
                num_sequences, num_windows, vad_model);
          },
          nb::arg("directory"), nb::kw_only(), nb::arg("device"),
          nb::arg("dtype"), nb::arg("weights"), nb::arg("num_threads"),
          nb::arg("kv_cache_mib").none(), nb::arg("host_cache_mib").none(),
          nb::arg("page_size").none(), nb::arg("max_step_tokens").none(),
          nb::arg("max_beams").none(), nb::arg("step_timeout"),
          nb::arg("num_sequences"), nb::arg("num_windows"),
          nb::arg("vad_model"))
      .def("close", &SpeechEngine::Close, nb::call_guard<WithoutGil>());
  nb::class_<Transcription>(module, "Transcription",
                            "A transcription that runs.")
      .def(nb::init<const SpeechEngine&, const AudioSource&, const nb::dict&,
                    double>(),
           nb::arg("engine"), nb::arg("audio"), nb::arg("options"),
           nb::arg("timeout"))
      .def("fileno", &Transcription::fd)
      .def("wait", &Transcription::Wait, nb::arg("seconds"))
      .def("take", &Transcription::Take,
           nb::sig("def take(self) -> "
                   "tuple[list[str], str | BaseException | None]"))
      .def("cancel", &Transcription::Cancel);
}

}  // namespace espalier::python
