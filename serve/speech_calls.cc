#include "serve/speech_calls.h"

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "base/field_error.h"
#include "base/status.h"
#include "http/multipart.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "serve/generation_calls.h"
#include "serve/held_memory.h"
#include "serve/prompt_requests.h"
#include "serve/ready_call.h"
#include "serve/running_calls.h"
#include "serve/speech_answer.h"
#include "serve/speech_form.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kAudio = "file";  // its name in errors
// A client of a stream hears something at least so often.
constexpr std::chrono::seconds kSpeechPingPeriod(10);

// Fails beyond so much audio.
class LimitedAudio : public AudioReader {
 public:
  LimitedAudio(std::unique_ptr<AudioReader> reader, int64_t max_seconds)
      : reader_(std::move(reader)), max_seconds_(max_seconds) {}

  const std::string& name() const override { return reader_->name(); }
  const AudioFormat& format() const override { return reader_->format(); }
  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    ASSIGN_OR_RETURN(const size_t size, reader_->Read(samples));
    num_samples_ += static_cast<int64_t>(size);
    if (num_samples_ <= max_seconds_ * kSpeechRate) return size;
    return InvalidArgument(name(), " must have at most ", max_seconds_,
                           " seconds of audio (--max-audio-seconds), got more");
  }

 private:
  const std::unique_ptr<AudioReader> reader_;
  const int64_t max_seconds_;
  int64_t num_samples_ = 0;
};

// A call while it is transcribed, shared by the handler, which reads `fresh`
// and `ended`, and the thread that transcribes, which may outlive the handler.
struct Transcription {
  Transcription(const asio::any_io_executor& executor, ServerState* server)
      : wakes(executor), on_server_end(server->is_stopping.get_token(), [this] {
          stop.request_stop();
        }) {}

  // Wakes the handler, from any thread.
  static void Wake(const std::shared_ptr<Transcription>& self) {
    asio::post(self->wakes.get_executor(), [self] { self->wakes.cancel(); });
  }

  SpeechCall call;  // constant while it is transcribed
  HeldMemory::Share share;
  std::optional<SpeechMetrics::Entry> metrics;  // until it has run
  std::stop_source stop;
  asio::cancellation_signal signal;  // ends its place in the queue

  std::mutex mutex;
  // Segments that the handler has not sent yet.
  std::vector<TranscriptSegment> fresh ABSL_GUARDED_BY(mutex);

  // On the executor of the handler.
  asio::steady_timer wakes;
  // The body of the answer, or the last event of a stream, or an error.
  std::optional<absl::StatusOr<std::string>> ended;

  // Last: it uses stop.
  const std::stop_callback<std::function<void()>> on_server_end;
};
using SharedTranscription = std::shared_ptr<Transcription>;

// Ends a transcription with its handler, however that ends.
class TranscriptionEnd {
 public:
  explicit TranscriptionEnd(SharedTranscription running)
      : running_(std::move(running)) {}
  TranscriptionEnd(const TranscriptionEnd&) = delete;
  TranscriptionEnd& operator=(const TranscriptionEnd&) = delete;
  ~TranscriptionEnd() {
    running_->stop.request_stop();
    try {
      running_->signal.emit(asio::cancellation_type::terminal);
    } catch (const std::bad_alloc&) {
      // It leaves the queue when its turn comes.
    }
  }

 private:
  const SharedTranscription running_;
};

// Returns the error of a transcription whose options have passed Check: what
// else is invalid is the audio.
absl::Status ErrorOfAudio(const SpeechCall& call, const absl::Status& error) {
  if (!absl::IsInvalidArgument(error)) {
    return call.InWordsOfForm(openai::InWordsOf(openai::Call(), error));
  }
  if (FieldErrorOf(error)) return call.InWordsOfForm(error);
  return openai::WithParam(error, kAudio);
}

// Runs on a thread of ServerState::transcribing.
absl::StatusOr<std::string> Transcribe(ServerState& server,
                                       const SharedTranscription& running) {
  const SpeechCall& call = running->call;
  running->metrics->Begin();
  const OpenAudio open = [&]() -> absl::StatusOr<std::unique_ptr<AudioReader>> {
    ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> reader,
                     AudioReader::OpenBytes(call.audio, std::string(kAudio)));
    return std::make_unique<LimitedAudio>(
        std::move(reader), server.options.speech.max_audio_seconds);
  };
  Transcriber::WindowFunction on_window = nullptr;
  if (call.stream) {
    on_window = [&](std::span<const TranscriptSegment> segments,
                    const TranscribeProgress&) {
      if (segments.empty()) return true;
      {
        const std::lock_guard<std::mutex> lock(running->mutex);
        running->fresh.insert(running->fresh.end(), segments.begin(),
                              segments.end());
      }
      Transcription::Wake(running);
      return true;
    };
  }
  const absl::StatusOr<Transcript> transcript =
      server.model.load()->transcriber->Transcribe(
          open, call.options, on_window, {.stop = running->stop.get_token()});
  if (!transcript.ok()) {
    if (server.is_stopping.stop_requested()) {
      return MakeError(absl::StatusCode::kUnavailable, "the server shuts down");
    }
    return ErrorOfAudio(call, transcript.status());
  }
  running->metrics->Add(*transcript, call.options.temperature.front());
  return call.stream ? WriteSpeechDone(*transcript)
                     : WriteSpeech(*transcript, call);
}

// Sets running->ended.
asio::awaitable<void> RunOnThread(ServerState* server,
                                  SharedTranscription running,
                                  std::string owner) {
  WorkerThread::WorkFor<std::string> work = [server, running] {
    absl::StatusOr<std::string> answer = Transcribe(*server, running);
    running->metrics.reset();
    return answer;
  };
  absl::StatusOr<std::string> answer =
      co_await server->transcribing.Run<std::string>(std::move(work),
                                                     std::move(owner));
  if (!running->ended) running->ended = std::move(answer);
}

// Answers one call.
class SpeechAnswerer {
 public:
  SpeechAnswerer(ServerState* server, RouteCall* call)
      : server_(server), call_(call), exchange_(&call->exchange) {}

  asio::awaitable<void> Answer(SpeechTask task);

 private:
  // Reads the form into running_->call, and checks it.
  // Errors: kInvalidArgument naming the field; as HeldMemory::Take.
  asio::awaitable<absl::Status> Read(SpeechTask task);
  asio::awaitable<absl::Status> Check();
  void Start();
  // Waits for the end, and sends the events of a stream meanwhile. False if the
  // client has gone.
  asio::awaitable<bool> Wait();
  std::string TakeEvents();
  asio::awaitable<bool> Send(std::string_view events);
  // Sends the end of the answer. True if the client has all of it.
  asio::awaitable<bool> Finish();

  ServerState* const server_;
  RouteCall* const call_;
  http::Exchange* const exchange_;
  SharedTranscription running_;
  Clock::time_point deadline_ = Clock::time_point::max();
  SpeechDeltas deltas_;
};

asio::awaitable<absl::Status> SpeechAnswerer::Read(SpeechTask task) {
  const http::Request& request = exchange_->request();
  const absl::StatusOr<std::string> boundary =
      http::BoundaryOf(request.Find("content-type"));
  if (!boundary.ok()) co_return boundary.status();
  int64_t num_known = 0;
  if (!absl::SimpleAtoi(ToAbsl(request.Find("content-length")), &num_known)) {
    num_known = 0;
  }
  // Refused at once if there is no room, but taken as the bytes arrive: a
  // client that announces much and sends nothing holds nothing.
  absl::StatusOr<HeldMemory::Share> share = server_->memory.Take(num_known);
  if (!share.ok()) co_return share.status();
  share->ShrinkTo(0);
  SpeechForm form(*boundary, server_->options.speech.max_audio_bytes,
                  num_known);
  while (true) {
    const std::string piece = co_await exchange_->ReadBody();
    if (piece.empty()) break;
    share = server_->memory.Take(std::ssize(piece));
    if (!share.ok()) co_return share.status();
    running_->share.Merge(*std::move(share));
    const absl::Status read = form.Read(piece);
    if (!read.ok()) co_return read;
  }
  absl::StatusOr<SpeechCall> call = form.Take(
      task, server_->options.requests,
      server_->model.load()->generator.description().limits.max_beams);
  if (!call.ok()) co_return call.status();
  running_->call = *std::move(call);
  const absl::Status served =
      CheckServed(*server_->model, running_->call.model);
  if (!served.ok()) co_return served;
  co_return co_await Check();
}

// Each clip is a window at least, however short: there are as many at most as
// the longest audio has windows.
absl::Status CheckClips(const TranscribeOptions& options,
                        int64_t max_audio_seconds) {
  constexpr int64_t kWindowSeconds = 30;
  const int64_t limit =
      2 * std::max<int64_t>(1, max_audio_seconds / kWindowSeconds);
  if (std::ssize(options.clip_timestamps) <= limit) return absl::OkStatus();
  return InvalidField(OptionName{"clip_timestamps"}, " must have at most ",
                      Limit(limit), " numbers (--max-audio-seconds)",
                      Got(options.clip_timestamps.size()));
}

// Prompts are tokenized for it.
asio::awaitable<absl::Status> SpeechAnswerer::Check() {
  TranscribeOptions& options = running_->call.options;
  if (running_->call.vad_filter) {
    options.voice_activity = server_->options.speech.voice_activity;
    if (options.voice_activity == nullptr) {
      co_return openai::RefuseField(
          "vad_filter",
          "vad_filter must be false: the server has no --vad-model");
    }
  }
  const absl::Status clips =
      CheckClips(options, server_->options.speech.max_audio_seconds);
  if (!clips.ok()) co_return running_->call.InWordsOfForm(clips);
  const size_t num_bytes = options.initial_prompt.size() +
                           options.hotwords.size() + options.prefix.size();
  WorkerThread::WorkFor<bool> check =
      [server = server_, running = running_]() -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(running->call.InWordsOfForm(
        server->model.load()->transcriber->Check(running->call.options)));
    return true;
  };
  const absl::StatusOr<bool> checked = co_await server_->calls.RunIf<bool>(
      num_bytes > kMaxCallBytesOnIoThread, std::move(check));
  co_return checked.status();
}

void SpeechAnswerer::Start() {
  running_->metrics.emplace(&server_->speech);
  // A failed allocation ends it, too.
  const auto on_end = [running = running_](std::exception_ptr error) {
    if (error != nullptr && !running->ended) {
      running->ended = MakeError(absl::StatusCode::kUnavailable,
                                 "not enough memory to transcribe");
    }
    running->wakes.cancel();
  };
  asio::co_spawn(exchange_->executor(),
                 RunOnThread(server_, running_, OwnerOf(call_->caller)),
                 asio::bind_cancellation_slot(running_->signal.slot(), on_end));
}

std::string SpeechAnswerer::TakeEvents() {
  std::vector<TranscriptSegment> segments;
  {
    const std::lock_guard<std::mutex> lock(running_->mutex);
    segments.swap(running_->fresh);
  }
  std::string events;
  for (const TranscriptSegment& segment : segments) {
    events += deltas_.Add(segment);
  }
  return events;
}

asio::awaitable<bool> SpeechAnswerer::Send(std::string_view events) {
  if (!exchange_->begun()) {
    const bool has_begun =
        co_await exchange_->BeginEvents(call_->caller.headers);
    if (!has_begun) co_return false;
  }
  co_return co_await exchange_->SendEvents(events);
}

// The first event begins the answer, so that an error before it has a status
// of HTTP.
asio::awaitable<bool> SpeechAnswerer::Wait() {
  const bool streams = running_->call.stream;
  Clock::time_point ping = Clock::now() + kSpeechPingPeriod;
  while (true) {
    const std::string events = TakeEvents();
    if (!events.empty()) {
      if (!co_await Send(events)) co_return false;
      ping = Clock::now() + kSpeechPingPeriod;
      continue;
    }
    if (running_->ended) co_return true;
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) {
      running_->ended = MakeError(absl::StatusCode::kDeadlineExceeded,
                                  "the deadline has passed");
      co_return true;
    }
    if (streams && now >= ping) {
      if (!co_await Send(openai::kPing)) co_return false;
      ping = Clock::now() + kSpeechPingPeriod;
      continue;
    }
    running_->wakes.expires_at(streams ? std::min(ping, deadline_) : deadline_);
    boost::system::error_code woken;
    co_await running_->wakes.async_wait(
        asio::redirect_error(asio::use_awaitable, woken));
    // A client that went ended the wait as well.
    if (exchange_->client_gone()) co_return false;
  }
}

asio::awaitable<bool> SpeechAnswerer::Finish() {
  absl::StatusOr<std::string>& answer = *running_->ended;
  if (!answer.ok()) {
    const openai::Error error = openai::ErrorOf(answer.status());
    if (!exchange_->begun()) {
      co_await Refuse(*call_, error);
    } else {
      const std::string event =
          Concat("data: ", openai::WriteError(error), "\n\n");
      co_await Send(event);
    }
    co_return false;
  }
  if (running_->call.stream) co_return co_await Send(*answer);
  http::Response response;
  response.headers = std::move(call_->caller.headers);
  response.content_type = ContentTypeOf(running_->call.format);
  response.body = *std::move(answer);
  co_return co_await exchange_->Respond(std::move(response));
}

asio::awaitable<void> SpeechAnswerer::Answer(SpeechTask task) {
  const Clock::time_point begin = Clock::now();
  ServedModel& model = *server_->model;
  if (!model.transcriber.ok()) {
    const absl::Status error = openai::RefuseField(
        "model", Concat("the model \"", model.name, "\" cannot transcribe: ",
                        Message(model.transcriber.status())));
    co_await Refuse(*call_, openai::ErrorOf(error));
    co_return;
  }
  running_ = std::make_shared<Transcription>(exchange_->executor(), server_);
  const absl::Status read = co_await Read(task);
  if (!read.ok()) {
    co_await Refuse(*call_, openai::ErrorOf(read));
    co_return;
  }
  const SpeechCall& call = running_->call;
  if (call.deadline_ms) {
    deadline_ = begin + std::chrono::milliseconds(*call.deadline_ms);
  }
  const std::string& id = call_->caller.request_id;
  const RunningCalls::Entry abortable = server_->running_calls.Add(
      {TraceId(call_->caller, id)}, [running = running_] {
        asio::post(running->wakes.get_executor(), [running] {
          if (!running->ended) {
            running->ended =
                absl::AbortedError("the request was aborted (/abort_requests)");
          }
          running->wakes.cancel();
        });
      });
  MeteredCall metered(&model.meter, call.options.num_beams);
  const TranscriptionEnd end(running_);
  Start();
  if (!co_await Wait()) co_return;
  if (co_await Finish()) metered.SetAnswered();
}

RouteWork AnswerSpeech(ServerState& server, RouteCall& call, SpeechTask task) {
  const GeneratingCall counted(&server);
  SpeechAnswerer answerer(&server, &call);
  co_await answerer.Answer(task);
}

}  // namespace

namespace routes {

RouteWork Transcriptions(ServerState& server, RouteCall& call) {
  return AnswerSpeech(server, call, SpeechTask::kTranscribe);
}

RouteWork Translations(ServerState& server, RouteCall& call) {
  return AnswerSpeech(server, call, SpeechTask::kTranslate);
}

}  // namespace routes
}  // namespace espalier::serve
