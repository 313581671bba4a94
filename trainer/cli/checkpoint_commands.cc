#include "trainer/cli/checkpoint_commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "trainer/cli/command_line.h"
#include "trainer/cli/commands.h"

namespace tandem::cli {

namespace {

void AddCheckpointFlag(CLI::App& command, std::string& checkpoint) {
  command
      .add_option("--checkpoint", checkpoint,
                  "a run's OUT/checkpoints (the best) or one step's folder in it")
      ->type_name("DIR")
      ->required();
}

void AddEval(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<EvalOptions>();
  auto* command = app.add_subcommand("eval",
                                     "evaluate a checkpoint: a recommender on the test split, a "
                                     "text's model on the validation part");
  AddJobFlags(*command, options->job_path, options->sets);
  AddCheckpointFlag(*command, options->checkpoint);
  command
      ->add_option("--dump", options->dump,
                   "write one line per user: user, target, rank, the 20 best items; of a text one "
                   "per window: number, symbols, mean loss")
      ->type_name("FILE");
  command->callback([options, &kinds, code] { *code = Eval(*options, kinds); });
}

void AddGenerate(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<GenerateOptions>();
  auto* command = app.add_subcommand("generate", "let a saved language model go on with a text");
  AddCheckpointFlag(*command, options->checkpoint);
  command->add_option("--prompt", options->prompt,
                      "what the text begins with; default: a line end, or the first symbol of a "
                      "model that knows none");
  command->add_option("--length", options->length, "symbols to write")->capture_default_str();
  command
      ->add_option("--temperature", options->temperature,
                   "below 1: surer; 0: always the likeliest symbol")
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "draw from the k likeliest symbols; 0: from all")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->top_p,
                   "draw from the likeliest symbols that together have this probability")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "the same seed gives the same text")
      ->capture_default_str();
  command->callback([options, &kinds, code] { *code = Generate(*options, kinds); });
}

void AddRecommend(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<RecommendOptions>();
  auto* command =
      app.add_subcommand("recommend", "list the items that a saved recommender would show next");
  AddCheckpointFlag(*command, options->checkpoint);
  auto* from = command->add_option_group("histories", "Whose next items:");
  from->add_option("--history", options->history,
                   "the items of one user, oldest first, ids as in the log: 3228,1246")
      ->type_name("IDS");
  from->add_option("--users", options->users, "a file of lines: user item item ...")
      ->type_name("FILE");
  from->add_option(
          "--history-titles", options->history_titles,
          "a file with a title per line, oldest first, of items that the log may lack; for "
          "models that read titles")
      ->type_name("FILE");
  from->require_option(1);
  command->add_option("--top", options->top, "items to list")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object per user");
  command->callback([options, &kinds, code] { *code = Recommend(*options, kinds); });
}

void AddExport(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<ExportOptions>();
  auto* command = app.add_subcommand(
      "export",
      "write a recommender's item vectors, ids, titles and dense parameters for other programs");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "a run's OUT/checkpoints (the best) or one step's folder in it")
      ->type_name("DIR")
      ->required();
  command->add_option("--out", options->out, "a new folder")->type_name("DIR")->required();
  command->callback([options, &kinds, code] { *code = Export(*options, kinds); });
}

void AddInspect(CLI::App& app, int* code) {
  const auto options = std::make_shared<InspectOptions>();
  auto* command =
      app.add_subcommand("inspect", "check every byte of a checkpoint and list what it holds");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "a run's OUT/checkpoints (all are checked) or one step's folder in it")
      ->type_name("DIR")
      ->required();
  command->callback([options, code] { *code = Inspect(*options); });
}

}  // namespace

void AddCheckpointCommands(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  AddEval(app, kinds, code);
  AddGenerate(app, kinds, code);
  AddRecommend(app, kinds, code);
  AddExport(app, kinds, code);
  AddInspect(app, code);
}

}  // namespace tandem::cli
