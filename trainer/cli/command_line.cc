#include "trainer/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"
#include "proto/wire.pb.h"
#include "rpc/address.h"
#include "rpc/process.h"
#include "trainer/cli/checkpoint_commands.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/process_limits.h"
#include "trainer/cli/process/scheduler.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/version.h"
#include "trainer/job/nearest_name.h"
#include "trainer/parallel/pipeline/schedule.h"

namespace tandem::cli {

namespace {

using report::LogFormat;

// The flags that say what a run is and where it goes.
void AddLayoutFlags(CLI::App& command, RunOptions& options) {
  AddJobFlags(command, options.job_path, options.sets);
  command.add_option("--ps", options.num_ps, "parameter servers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--trainers", options.num_trainers, "trainers; default: dp x tp x pp")
      ->check(CLI::Range(1, 1024));
  command.add_option("--dp", options.dp, "data-parallel replicas (parallel.dp)");
  command.add_option("--tp", options.tp, "ranks among which layers are cut (parallel.tp)");
  command.add_option("--pp", options.pp, "stages into which the layers are cut (parallel.pp)");
  command.add_option("--zero", options.zero,
                     "ZeRO stage: what replicas cut instead of copying (parallel.zero)");
  command.add_option("--workers", options.num_workers, "processes that host remote modules")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--out", options.out, "folder for what the run leaves")->capture_default_str();
  const std::map<std::string, report::LogFormat> formats{{"text", report::LogFormat::TEXT},
                                                         {"json", report::LogFormat::JSON}};
  command.add_option("--log-format", options.log_format, "text or json")
      ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case).description(""))
      ->type_name("text|json");
}

void AddLocalFlag(CLI::App& command, RunOptions& options) {
  command.add_flag("--local", options.local,
                   "everything in one process; replicas are threads; the same bits");
}

void AddRunFlags(CLI::App& command, RunOptions& options) {
  AddLayoutFlags(command, options);
  command
      .add_option("--secret-file", options.secret_file,
                  "holds the job's secret, the same for all roles; -: standard input; default: the "
                  "variable TANDEM_SECRET; launch draws one")
      ->type_name("FILE");
  command.add_flag("--resume{newest}", options.resume,
                   "go on with the run in --out from its newest checkpoint; =FOLDER: from this "
                   "one; =auto: if there is one, and a run that has "
                   "completed ends at once");
  command.add_flag(
      "--data-changed", options.data_changed,
      "with --resume: go on although the data is not what the checkpoint was trained on");
  command.add_flag("--overwrite", options.overwrite,
                   "replace a run in --out, which is refused otherwise");
}

// Converts the result of an address check for CLI11.
std::string Words(const absl::Status& status) { return std::string(status.message()); }

CLI::Option* AddMasterFlag(CLI::App& command, std::string& master, const char* about) {
  return command.add_option("--master", master, about)
      ->check([](const std::string& text) { return Words(rpc::CheckTarget(text)); })
      ->type_name("HOST:PORT");
}

CLI::Option* AddAddressFlag(CLI::App& command, const char* flag, std::string& address,
                            const std::string& about) {
  return command.add_option(flag, address, about)
      ->check([](const std::string& text) { return Words(rpc::ParseAddress(text).status()); })
      ->type_name("HOST:PORT");
}

void AddRoleFlags(CLI::App& command, Role role, RoleOptions& options) {
  AddRunFlags(command, options);
  auto* master = AddMasterFlag(command, options.master, "the master's address");
  auto* listen =
      AddAddressFlag(command, "--listen", options.listen, "where to listen; port 0 picks one");
  command
      .add_option("--join-timeout", options.join_timeout,
                  role == MASTER ? "how long to wait for all members; default: "
                                   "runtime.timeout_seconds of the job"
                                 : "how long to wait for the master, and for the names of others "
                                   "to get addresses; default: 30")
      ->check(CLI::Range(0.1, 86400.0))
      ->type_name("SECONDS");
  command
      .add_option("--index", options.index,
                  "the rank wanted; default: JOB_COMPLETION_INDEX, for a trainer also torchrun's "
                  "RANK, else the master decides")
      ->check(CLI::Range(0, 1023));
  if (role == MASTER) {
    listen->description("where to listen; default: --master");
  } else {
    if (role != TRAINER) master->required();
    AddAddressFlag(command, "--advertise", options.advertise,
                   "where others reach this role; default: --listen, and where that stands for all "
                   "addresses, this machine's full name or its address towards the master")
        ->check([](const std::string& text) { return Words(rpc::CheckTarget(text)); });
    if (role == TRAINER) {
      master->description("the master's address; default: torchrun's MASTER_ADDR and MASTER_PORT");
      listen->description(
          "where to listen for trainers of other hosts; port 0 picks one; default: a port of the "
          "address that reaches the master");
      AddAddressFlag(command, "--health", options.health,
                     "where to answer gRPC's health checks; default: nowhere");
    } else {
      listen->default_val("127.0.0.1:0");
    }
    // Hidden flag, set by `launch` for the trainers that it starts.
    command.add_option("--out-lock", options.out_lock, "")->group("");
  }
}

template <class Command>
int WithinLimits(Command command) {
  const absl::Status limits = CheckLimits();
  return limits.ok() ? command() : ReportError(limits);
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

const CLI::App* Find(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : CommandsOf(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string NoCommand(const CLI::App& app, const std::string& path, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  const std::string nearest = Nearest(name, names);
  return absl::StrCat("no command \"", path, name, "\"",
                      nearest.empty() ? absl::StrCat("; there are ", absl::StrJoin(names, ", "))
                                      : absl::StrCat("; did you mean \"", path, nearest, "\"?"));
}

// Reads `help bench step` as `bench step --help`, and no words as `--help`.
std::vector<const char*> WordsOf(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  const bool asks = argc > 1 && std::string(argv[1]) == "help";
  if (asks) words.erase(words.begin() + 1);
  if (asks || argc < 2) words.push_back("--help");
  return words;
}

// Returns the error for a command line whose first words are not a command; "" if they are.
std::string Mistyped(const CLI::App& app, const std::vector<const char*>& words) {
  const CLI::App* within = &app;
  std::string path;
  for (size_t i = 1; i < words.size() && !CommandsOf(*within).empty(); ++i) {
    const std::string word = words[i];
    if (word.empty() || word[0] == '-') return "";
    const CLI::App* command = Find(*within, word);
    if (command == nullptr) return NoCommand(*within, path, word);
    within = command;
    absl::StrAppend(&path, word, " ");
  }
  return "";
}

// Arguments travel between processes and into checkpoints, both of which require UTF-8.
bool ArgumentsAreUtf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (IsUtf8(argv[i])) continue;
    std::fprintf(stderr,
                 "error: argument %d is not UTF-8: %s; rename the file, or give another name\n", i,
                 Printable(argv[i]).c_str());
    return false;
  }
  return true;
}

// Each adder keeps its commands' options alive in their callbacks.

void AddLaunch(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand(
      "launch", "run a whole job on this machine: one master, servers, trainers");
  AddRunFlags(*command, *options);
  AddLocalFlag(*command, *options);
  AddMasterFlag(*command, options->master, "the master's address; default: a free port");
  command->callback(
      [options, &kinds, code] { *code = WithinLimits([&] { return Launch(*options, kinds); }); });
}

void AddRoles(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  struct Role {
    const char *name, *about;
    tandem::Role role;
    int (*run)(const RoleOptions&, const tasks::Kinds&);
  };
  for (const Role& role :
       {Role{"master", "run a job's master", MASTER, RunMaster},
        Role{"ps", "run one parameter server of a job", PS, RunPs},
        Role{"trainer", "run one trainer of a job", TRAINER, RunTrainer},
        Role{"worker", "run one worker of a job, which hosts remote modules", WORKER, RunWorker}}) {
    // Each command has its own options, because their defaults differ.
    const auto options = std::make_shared<RoleOptions>();
    auto* command = app.add_subcommand(role.name, role.about);
    AddRoleFlags(*command, role.role, *options);
    command->callback([options, &kinds, code, role] {
      if (const absl::Status asked = AskScheduler(role.name, options->index, options->master);
          !asked.ok()) {
        *code = ReportError(asked);
        return;
      }
      *code = WithinLimits([&] { return role.run(*options, kinds); });
    });
  }
}

void AddSchedule(CLI::App& app, int* code) {
  const auto options = std::make_shared<ScheduleCommandOptions>();
  auto* command = app.add_subcommand(
      "schedule", "print in which order the ranks of a pipeline work, once it is proved to end");
  command->add_option("--pp", options->pp, "ranks")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--microbatches", options->microbatches, "of each step and replica")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  std::vector<std::string> names;
  for (const parallel::ScheduleKind kind : parallel::kScheduleKinds)
    names.push_back(parallel::NameOf(kind));
  command->add_option("--schedule", options->schedule, "the order")
      ->check(CLI::IsMember(names))
      ->type_name(absl::StrJoin(names, "|"))
      ->capture_default_str();
  command
      ->add_option("--virtual-stages", options->virtual_stages,
                   "chunks of the model on each rank, for INTERLEAVED")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  for (const auto& [flag, slots, what] :
       {std::tuple("--forward", &options->forward, "slots of a forward pass"),
        {"--backward-input", &options->backward_input, "slots of the half for the input"},
        {"--backward-weight", &options->backward_weight, "slots of the half for the weights"}}) {
    command->add_option(flag, *slots, what)->check(CLI::Range(1, 100))->capture_default_str();
  }
  command->callback([options, code] { *code = Schedule(*options); });
}

void AddReport(CLI::App& app, int* code) {
  const auto options = std::make_shared<ReportOptions>();
  auto* command = app.add_subcommand(
      "report", "make a run's page again, or one page that lays several runs over each other");
  command->add_option("folders", options->folders, "folders that --out of launch named")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--out", options->out,
                   "the page, HTML; default: report.html in the folder of a single run, else in "
                   "the working folder")
      ->type_name("FILE");
  command->callback([options, code] { *code = Report(*options); });
}

void AddSweep(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<SweepOptions>();
  options->run.out = "out/sweep";
  auto* command = app.add_subcommand(
      "sweep",
      "run a job for every combination of values and seeds, one after another; goes on where it "
      "was broken off");
  AddLayoutFlags(*command, options->run);
  AddLocalFlag(*command, options->run);
  command
      ->add_option("--grid", options->grid,
                   "values of a field of the job, as in train.batch_size=64,128; several: every "
                   "combination")
      ->type_name("PATH=A,B")
      ->allow_extra_args(false);
  command->add_option("--seeds", options->seeds, "1..5 runs every combination with each seed")
      ->type_name("FIRST..LAST");
  command->callback(
      [options, &kinds, code] { *code = WithinLimits([&] { return Sweep(*options, kinds); }); });
}

void AddSynthesize(CLI::App& app, int* code) {
  const auto options = std::make_shared<SynthesizeOptions>();
  auto* command = app.add_subcommand(
      "synthesize",
      "write an interaction log with planted structure and print what can be reached on it");
  command->add_option("--out", options->out, "the log, SEQUENCES format")->required();
  command->add_option("--seed", options->seed, "")->capture_default_str();
  command->add_option("--users", options->users, "")->capture_default_str();
  command->add_option("--items", options->items, "")->capture_default_str();
  command->add_option("--min-length", options->min_length, "items of a user, at least")
      ->capture_default_str();
  command->add_option("--max-length", options->max_length, "items of a user, at most")
      ->capture_default_str();
  command->callback([options, code] { *code = Synthesize(*options); });
}

}  // namespace

void AddJobFlags(CLI::App& command, std::string& job_path, std::vector<std::string>& sets) {
  command.add_option("job", job_path, "job file, protobuf text format (proto/job.proto)")
      ->required();
  AddSetFlag(command, sets);
}

void AddSetFlag(CLI::App& command, std::vector<std::string>& sets) {
  command
      .add_option("--set", sets,
                  "set a field of the job: path=value, e.g. data.path=log.txt, tables[item].dim=8")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
}

int RunCommandLine(int argc, char** argv, const tasks::Kinds& kinds,
                   const std::vector<AddCommands>& more) {
  PrepareLimits();
  TakeSignals();
  rpc::PrepareProcess();
  if (!ArgumentsAreUtf8(argc, argv)) return 2;
  CLI::App app{
      "Tandem trains models with sparse embeddings on parameter servers and dense layers under "
      "collectives.",
      "tandem"};
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "print this help");
  int code = 0;
  AddLaunch(app, kinds, &code);
  AddRoles(app, kinds, &code);
  AddCheckpointCommands(app, kinds, &code);
  for (const AddCommands add : more) add(app, kinds, &code);

  AddReport(app, &code);
  AddSchedule(app, &code);
  AddSweep(app, kinds, &code);
  AddSynthesize(app, &code);
  app.add_subcommand("help", "explain a command: help bench step");
  app.set_version_flag("--version", VersionText,
                       "print version, commit and what this machine computes with");

  const std::vector<const char*> words = WordsOf(argc, argv);
  const std::string mistyped = Mistyped(app, words);
  if (!mistyped.empty()) return ReportError(absl::InvalidArgumentError(mistyped));
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    std::fputs(WrapHelp(app.help(), HelpColumns()).c_str(), stdout);
  } catch (const CLI::ParseError& error) {
    std::ostringstream output, errors;
    const int parsed = app.exit(error, output, errors);
    std::fputs(output.str().c_str(), stdout);
    code = parsed == 0 ? 0 : 2;  // a wrong command line is a configuration error
    if (code != 0) PrintFailure(PrintableLines(errors.str()));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (code == 0)
      code = ReportError(absl::ResourceExhaustedError(
          "cannot write standard output: what was printed there is not whole"));
  }
  return code;
}

}  // namespace tandem::cli
