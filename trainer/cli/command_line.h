// Parses the command line and hands over to a subcommand (commands.h).
#pragma once

namespace tandem::cli {

// What `tandem` does with these arguments; returns its exit code. Changes the process: how freed memory is kept. Thread rule: main().
int RunCommandLine(int argc, char** argv);

}  // namespace tandem::cli
