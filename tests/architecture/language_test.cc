// The language check (language.sh) on this tree, and on broken ones, so that the check itself is
// known to go red.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace tandem {
namespace {

namespace fs = std::filesystem;

// What the script prints for a tree.
std::string Violations(const std::string& root) {
  const std::string command =
      std::string(TANDEM_SOURCE_DIR) + "/tests/architecture/language.sh " + root + " 2>&1";
  std::string output;
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 4096> bytes;
  while (const size_t n = std::fread(bytes.data(), 1, bytes.size(), pipe))
    output.append(bytes.data(), n);
  const bool found = pclose(pipe) != 0;
  EXPECT_EQ(found, !output.empty()) << output;
  return output;
}

TEST(LanguageTest, ThisTreeKeepsTheRules) { EXPECT_EQ(Violations(TANDEM_SOURCE_DIR), ""); }

class MadeUpPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("language_" + std::to_string(getpid()));
    Write("ps/a.h", "// A row. See ps/page.md.\nint a;  // the number of rows\n");
    Write("ps/page.md", "A page.\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(MadeUpPagesTest, PlainCommentsPass) {
  Write("ps/b.h",
        "// Counts rows. The count is exact.\n// What follows a first line may begin with any "
        "word.\n");
  EXPECT_EQ(Violations(root_), "");
}

TEST_F(MadeUpPagesTest, BannedOpeningsAreNamedByFileAndLine) {
  Write("ps/b.h", "int b;  // Of a row\n\n  // What is counted\nint c;\n");
  EXPECT_EQ(Violations(root_),
            "ps/b.h:1: a comment begins with a banned word: Of a row\n"
            "ps/b.h:3: a comment begins with a banned word: What is counted\n");
}

TEST_F(MadeUpPagesTest, DocumentsThatAreNotThereAreNamed) {
  Write("ps/b.cc", "// Sums in order (gone.md).\n");
  EXPECT_EQ(Violations(root_), "ps/b.cc:1: names gone.md, which does not exist\n");
}

TEST_F(MadeUpPagesTest, LongReadmesAreRefused) {
  std::string lines;
  for (int i = 0; i < 61; ++i) lines += "line\n";
  Write("ps/README.md", lines);
  EXPECT_EQ(Violations(root_), "./ps/README.md: 61 lines; allowed: 60\n");
}

TEST_F(MadeUpPagesTest, WideLinesAreRefusedButRawStringsAreNot) {
  const std::string wide(101, 'x');
  Write("ps/b.h", "const char* a = R\"(\n" + wide + "\n)\";\nint " + wide + ";\n");
  EXPECT_EQ(Violations(root_), "ps/b.h:4: 106 columns; allowed: 100\n");
}

}  // namespace
}  // namespace tandem
