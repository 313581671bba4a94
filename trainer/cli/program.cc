#include "trainer/cli/program.h"

#include "trainer/tasks/kinds/kinds.h"

namespace tandem {

int Main(int argc, char** argv, const std::vector<tasks::Kind>& kinds,
         const std::vector<cli::AddCommands>& commands) {
  return cli::RunCommandLine(argc, argv, tasks::Kinds(kinds), commands);
}

}  // namespace tandem
