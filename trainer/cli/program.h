// The program of a main(): all commands of `tandem`, over the project's kinds of model and the
// kinds that the program adds. `launch` starts this very program for every role, so each role knows
// all kinds:
//   int main(int argc, char** argv) {
//     return tandem::Main(argc, argv, {tandem::tasks::Add<TwoTower>("two_tower")});
//   }
// Thread rule: main().
#pragma once

#include <vector>

#include "trainer/cli/command_line.h"
#include "trainer/tasks/kind.h"

namespace tandem {

// Runs the command that the arguments name and returns the process's exit code.
// REQUIRES: no two kinds have one name.
int Main(int argc, char** argv, const std::vector<tasks::Kind>& kinds = {},
         const std::vector<cli::AddCommands>& commands = {});

}  // namespace tandem
