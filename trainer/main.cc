// The one binary.
#include "trainer/bench/commands.h"
#include "trainer/cli/program.h"

int main(int argc, char** argv) {
  return tandem::Main(argc, argv, /*kinds=*/{}, {tandem::bench::AddBenchCommands});
}
