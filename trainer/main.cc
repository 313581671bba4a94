// The one binary.
#include "trainer/bench/commands.h"
#include "trainer/cli/command_line.h"

int main(int argc, char** argv) {
  return tandem::cli::RunCommandLine(argc, argv, {tandem::bench::AddBenchCommands});
}
