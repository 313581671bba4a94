// fuzz_write_seeds FOLDER: writes FOLDER/TARGET/N for every target, as the start of a corpus.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_write_seeds FOLDER\n");
    return 2;
  }
  for (const tandem::fuzz::Target& target : tandem::fuzz::AllTargets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::string& seed : target.seeds())
      std::ofstream(folder / std::to_string(number++), std::ios::binary) << seed;
  }
  return 0;
}
