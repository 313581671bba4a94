// Parses the command line and hands over to a subcommand (commands.h). Thread rule: main().
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tandem::cli {

// Adds commands to `app`. Each one's callback sets `code`, the process's exit code. What callbacks use outlives this call.
using AddCommands = void (*)(CLI::App& app, int* code);

// What `tandem` does with these arguments, with `more` commands than its own; returns its exit code. Changes the process: how freed
// memory is kept.
int RunCommandLine(int argc, char** argv, const std::vector<AddCommands>& more);

// Adds `--set PATH=VALUE` to a command.
void AddSetFlag(CLI::App& command, std::vector<std::string>& sets);

}  // namespace tandem::cli
