// The commands that read a checkpoint: eval, generate, recommend, export, inspect.
// Thread rule: the main thread.
#pragma once

#include "trainer/tasks/kinds/kinds.h"

namespace CLI {
class App;
}

namespace tandem::cli {

// Adds the commands to `app`. A command sets `code` to the process's exit code.
// REQUIRES: kinds and code outlive `app`.
void AddCheckpointCommands(CLI::App& app, const tasks::Kinds& kinds, int* code);

}  // namespace tandem::cli
