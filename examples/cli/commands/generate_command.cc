#include "examples/cli/commands/generate_command.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "examples/cli/input/text_source.h"
#include "examples/cli/output/draw_note.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/figures.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/runtime.h"
#include "examples/cli/runtime/text_run.h"
#include "request/idle_fields.h"
#include "request/resolve_defaults.h"
#include "request/speculation_params.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {
namespace {

absl::StatusOr<std::unique_ptr<Runtime>> LoadWithText(
    const RuntimeOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, Runtime::Load(options));
  if (runtime->tokenizer() != nullptr) return runtime;
  return FailedPrecondition(options.names.Of("model"), ": ", options.model,
                            " has no ", Tokenizer::FileNames(),
                            ": put the model's tokenizer there, or use ",
                            "espalier batch with prompt_tokens");
}

// Texts that are arguments leave stdin alone.
absl::Status CheckFilesOfTexts(const GenerateOptions& options) {
  const bool is_stdin = options.texts.empty() || options.texts[0] == "-";
  const std::string file =
      options.file.empty() && is_stdin ? "-" : options.file;
  RETURN_IF_ERROR(CheckFiles(options.common,
                             options.common.runtime.names.Of("file"),
                             InputPath(file)));
  return CheckFiles(options.common, "stdout", OutputPath("-"));
}

// A catalogue has no effect beside another field that restricts tokens.
absl::Status CheckItems(const GeneratorOptions& options,
                        const GenerationParams& params,
                        const OptionNames& names) {
  if (options.items.empty()) return absl::OkStatus();
  if (params.constraint && params.constraint->items) return absl::OkStatus();
  for (const auto& [field, is_given] :
       {std::pair("constraint", params.constraint.has_value()),
        std::pair("allowed_sequences", params.allowed_sequences.has_value()),
        std::pair("allowed_token_ids", params.allowed_token_ids.has_value())}) {
    if (!is_given) continue;
    return InvalidArgument("--items must be left out with ", names.Of(field),
                           ", which names no catalogue");
  }
  return absl::OkStatus();
}

// Several catalogues restrict nothing unless one is named.
void PrintNoteOnItems(const GeneratorOptions& options,
                      const GenerationParams& params) {
  if (options.items.size() < 2 || params.constraint) return;
  PrintToStderr(Concat("espalier: note: none of the ", options.items.size(),
                       " catalogues of --items is named, so texts are not "
                       "restricted to items; --constraint '{\"items\": \"",
                       options.items.front().name, "\"}' names one\n"));
}

// A catalogue that is the only one is for all texts.
void TakeItems(const GeneratorOptions& options, GenerationParams* params,
               std::vector<std::string_view>* given) {
  if (options.items.size() != 1 || params->constraint) return;
  params->constraint = ConstraintParams{.items = options.items.front().name};
  given->push_back("constraint");
}

absl::Status CheckChat(const RuntimeOptions& options) {
  if (!options.chat) {
    if (options.system.empty()) return absl::OkStatus();
    return InvalidArgument("--system needs --chat");
  }
  if (options.parse_special) {
    return InvalidArgument("--chat and --parse-special exclude each other: ",
                           "what a user says in a chat stays text");
  }
  const bool has_template = !options.template_name.empty() ||
                            !options.from.empty() || !options.to.empty();
  if (!has_template) return absl::OkStatus();
  return InvalidArgument("--chat and --template, --from or --to exclude each ",
                         "other");
}

void PrintNoteOnDraws(const GenerationParams& params,
                      std::span<const std::string_view> given,
                      const NamedValues& taken,
                      const GenerationDefaults& defaults,
                      const OptionNames& names) {
  const DrawNote note =
      NoteOnDraws(params, given, taken, defaults, names.Of("num_beams"),
                  names.Of("num_return_sequences"), names.Of("do_sample"));
  if (note.kind == DrawNoteKind::kNone) return;
  PrintToStderr(Concat("espalier: note: ", note.text, "\n"));
}

// Returns the warning about a draft model that drafts for no text; empty if it
// does, or if there is none.
std::string IdleDraftModelWarning(const RuntimeOptions& options,
                                  const GenerationParams& params) {
  if (options.generator.draft_model.empty()) return "";
  constexpr std::string_view kIdle = "--draft-model has no effect";
  const std::optional<SpeculationParams>& speculate = params.speculate;
  if (speculate && speculate->method != SpeculationMethod::kDraft) {
    return Concat(kIdle, " with --speculate ", NameOf(speculate->method));
  }
  if (CanSpeculate(params)) return "";
  return Concat(kIdle, ": beams that are drawn, or in groups, have no drafts");
}

// `params` have the defaults.
void PrintIdleWarnings(const RuntimeOptions& options,
                       const GenerationParams& params,
                       std::span<const std::string_view> given) {
  std::vector<std::string> warnings = IdleFieldWarnings(
      params, given,
      [&](std::string_view field) { return options.names.Of(field); });
  warnings.push_back(IdleDraftModelWarning(options, params));
  for (const std::string& warning : warnings) {
    if (warning.empty()) continue;
    PrintToStderr(Concat("espalier: warning: ", warning, "\n"));
  }
}

void PrintFigures(Runtime& runtime, int64_t num_requests,
                  absl::Duration wall_time) {
  PrintToStderr("\n" + FormatFigures(runtime.Stats(), num_requests, wall_time) +
                runtime.backend().FormatFigures());
}

void PrintInterrupted(const Outcome& outcome) {
  PrintToStderr(
      Concat("espalier: interrupted: ", Pluralize(outcome.num_read, "text"),
             " read, ", outcome.num_answered, " answered\n"));
}

// A text that was cut off looks like one that ended.
void PrintCutOff(Runtime& runtime, const Outcome& outcome) {
  const int64_t num_cut_off =
      runtime.Stats().num_finished_by(FinishReason::kDeadline);
  if (num_cut_off == 0) return;
  PrintToStderr(Concat("espalier: ", num_cut_off, " of ",
                       Pluralize(outcome.num_read, "text"),
                       " ended at the deadline, --deadline-ms\n"));
}

int ExitCodeFor(const Outcome& outcome) {
  if (outcome.num_failed == 0) return kAllSucceeded;
  return outcome.num_failed < outcome.num_read ? kSomeFailed : kNothingRan;
}

}  // namespace

absl::StatusOr<int> Generate(const GenerateOptions& options) {
  const OptionNames& names = options.common.runtime.names;
  ASSIGN_OR_RETURN(GenerationParams params, ReadParams(options.params, names));
  std::vector<std::string_view> given = GivenParams(options.params);
  RETURN_IF_ERROR(CheckItems(options.common.runtime.generator, params, names));
  TakeItems(options.common.runtime.generator, &params, &given);
  RETURN_IF_ERROR(CheckChat(options.common.runtime));
  RETURN_IF_ERROR(CheckFilesOfTexts(options));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<TextSource> source,
      TextSource::Open(options.texts, options.file, names.Of("file")));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   LoadWithText(options.common.runtime));
  const absl::StatusOr<ResolvedParams> resolved =
      runtime->CheckParams(params, given);
  RETURN_IF_ERROR(names.InOptions(resolved.status()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  RETURN_IF_ERROR(runtime->OpenTrace());
  RETURN_IF_ERROR(runtime->OpenStats());
  PrintNoteOnDraws(params, given, resolved->defaults, runtime->defaults(),
                   names);
  const std::string note = runtime->NoteOnSpeculation(params, given);
  if (!note.empty()) PrintNote(note);
  PrintNoteOnItems(options.common.runtime.generator, params);
  PrintIdleWarnings(options.common.runtime, resolved->params, given);
  const Stopwatch watch;
  ASSIGN_OR_RETURN(
      const RunOutcome run,
      RunTexts({*runtime, *source, params, given,
                options.common.runtime.split_sentences, names, *output},
               options.stream));
  const absl::Duration wall_time = watch.Elapsed();
  const absl::Status written = output->Close();
  if (run.signal != 0) PrintInterrupted(run.texts);
  PrintCutOff(*runtime, run.texts);
  if (options.common.figures) {
    PrintFigures(*runtime, run.texts.num_answered, wall_time);
  }
  const absl::Status stats = runtime->CloseStats();
  if (run.signal == 0 || !output->interrupted()) RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(runtime->CloseTrace());
  RETURN_IF_ERROR(stats);
  if (run.signal != 0) return ExitCodeOf(run.signal);
  RETURN_IF_ERROR(run.read);
  if (run.texts.num_read > 0) return ExitCodeFor(run.texts);
  return InvalidArgument("no text in ", source->name());
}

const char kGenerateExamples[] =
    R"(Examples:
  espalier generate -m models/en-fr --num-beams 5 -n 3 "Where is the station?"
  espalier generate -m models/en-fr --from fr --to en "Il pleut."
  espalier generate -m models/en-fr --num-beams 4 --file letter.txt
  espalier generate -m models/en-fr --do-sample -n 3 --top-p 0.9 --seed 1 \
    "Can you help me, please?"
  espalier generate -m models/en-fr --logprobs 3 --stop , "Yes, it rains."
  espalier generate -m models/en-fr --stop , --stop " et" "Yes, it rains."
  espalier generate -m models/en-fr --stream "It rains."
  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl \
    "It rains."
  espalier generate -m models/en-fr --device cuda --num-beams 8 --figures \
    "It rains."

Each text gives its hypotheses, best first, with their scores: the
log-probability divided by length^length_penalty, or with one beam the mean.
Further lines of a hypothesis are indented to stand under its first. Without
--from and --to the model's default template is taken; that of models/en-fr is
English to French. Option values that begin with [ or { are read as JSON.

With --chat each text is one message of a user: the model's chat template
(chat_template.jinja, or chat_template in tokenizer_config.json) makes a prompt
of it, with --system before it and the beginning of the answer after it. Names
of special tokens in the text or in --system stay text, but for marks that a
tokenizer.model has as user-defined symbols, such as <en>: any text finds them.

Where an option is left out the model's generation_config.json decides, if it
has that field, then the default above: -m DIR --help lists what it has, as
espalier inspect DIR does, and --generation-config none leaves it out of
account.

With --stream one sample's text, or what all beams agree on so far, grows on a
line of its own. Several samples come piece by piece, each on a line after its
sample's number: [0] Il. The list of hypotheses follows, with these numbers.

Where --deadline-ms has cut texts off stderr says how many; --figures says, too,
how many --max-new-tokens has.

A terminal is shown control characters as \u001b; a file or a pipe gets them as
they are.

--device cuda needs an NVIDIA GPU and a program built by preset cuda. In bf16
scores differ a little from the CPU's, so that near ties may fall the other
way; --dtype f32 keeps them within rounding.

Exit code: 0 if every text succeeded, 1 if some failed, 2 if none succeeded,
whatever was wrong: an option's name or value, the model, the texts; or if not
all could be read, or the output or the trace not be written. Ctrl-C, SIGTERM
and SIGHUP print what has finished; then the program ends by that signal, which
a shell shows as 130, 143 or 129.)";

}  // namespace espalier::cli
