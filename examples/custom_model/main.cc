// `tandem` with a model of its own: every command of the program knows the kind "two_tower".
#include "trainer/cli/program.h"
#include "two_tower.h"

int main(int argc, char** argv) {
  return tandem::Main(argc, argv, {tandem::tasks::Add<TwoTower>("two_tower")});
}
