// Parses the command line and calls a subcommand (commands.h).
// Thread rule: main().
#pragma once

#include <string>
#include <vector>

#include "trainer/tasks/kinds/kinds.h"

namespace CLI {
class App;
}

namespace tandem::cli {

// Adds commands to `app`. The callback of each command sets `code`, the process's exit code.
// Objects that callbacks use outlive this call; `kinds` does.
using AddCommands = void (*)(CLI::App& app, const tasks::Kinds& kinds, int* code);

// Runs `tandem` with these arguments and the commands of `more` beside its own. Returns the exit
// code. Changes how the process keeps freed memory.
int RunCommandLine(int argc, char** argv, const tasks::Kinds& kinds,
                   const std::vector<AddCommands>& more);

// Adds the job file to a command, and AddSetFlag.
void AddJobFlags(CLI::App& command, std::string& job_path, std::vector<std::string>& sets);
// Adds `--set PATH=VALUE` to a command.
void AddSetFlag(CLI::App& command, std::vector<std::string>& sets);

}  // namespace tandem::cli
