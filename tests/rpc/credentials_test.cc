#include "rpc/credentials.h"

#include <gtest/gtest.h>
#include <ostream>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace tandem::rpc {
namespace {

constexpr char kText[] = "correct horse battery staple";

template <class T>
concept Printable = requires(std::ostream& out, const T& value) {
  out << value;
};
static_assert(Printable<std::string> && !Printable<Secret> && !Printable<Credentials>);

Credentials Of(const std::string& text) { return Credentials(*Secret::FromText(text, "a test")); }
std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(CredentialsTest, TheTokenIsTheTestVectorOfTheProtoFiles) {
  EXPECT_EQ(Of(kText).shown(),
            "Bearer ba5a2c2b540608fb45cf46eacedc9242f64fc634c06c5966a94730871d830561");
  EXPECT_EQ(Of(kText).proof(), "a35a1b8b53e59e79007e518eae509edc1130629a1963224110da7862647a6b28");
}

TEST(CredentialsTest, OnlyTheTokenOfTheSameSecretIsAccepted) {
  const Credentials own = Of(kText), other = Of("another horse's battery");
  EXPECT_TRUE(own.Check(Of(kText).shown()).ok());
  const std::string shown = own.shown();
  std::string changed = shown;
  changed.back() ^= 1;
  std::set<std::string> texts;
  for (const std::string& wrong :
       {std::string(), other.shown(), shown.substr(0, 70), shown + "0", shown.substr(7), changed,
        std::string(shown.size(), '\0'), std::string(kText)}) {
    const absl::Status refused = own.Check(wrong);
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << wrong;
    texts.insert(Message(refused));
  }
  EXPECT_EQ(texts.size(), 1u) << "a refusal tells what was wrong";
  EXPECT_EQ(texts.begin()->find(shown.substr(7)), std::string::npos);
}

TEST(CredentialsTest, AMastersProofIsNotWhatCallersHaveToldIt) {
  const Credentials own = Of(kText);
  EXPECT_TRUE(own.CheckProof(Of(kText).proof()).ok());
  for (const std::string& wrong :
       {std::string(), own.shown(), own.shown().substr(7), Of("another horse's battery").proof()}) {
    EXPECT_TRUE(absl::IsUnauthenticated(own.CheckProof(wrong))) << wrong;
  }
  EXPECT_TRUE(Credentials().CheckProof("").ok());
}

TEST(CredentialsTest, AJobWithoutASecretLetsEverybodyIn) {
  const Credentials none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.shown(), "");
  EXPECT_TRUE(none.Check("").ok());
  EXPECT_TRUE(none.Check("whatever").ok());
  EXPECT_TRUE(none.CheckProof("whatever").ok());
  EXPECT_FALSE(Of(kText).empty());
}

TEST(SecretTest, IsReadFromAFileWithoutItsLineEnd) {
  const support::TempFolder folder;
  for (const char* end : {"", "\n", "\r\n"}) {
    const std::string file = folder.Write("secret", std::string(kText) + end);
    chmod(file.c_str(), 0640);
    const auto secret = Secret::Read(file);
    ASSERT_TRUE(secret.ok()) << secret.status();
    EXPECT_EQ(Credentials(*secret).shown(), Of(kText).shown());
  }
}

TEST(SecretTest, AFileThatEveryUserMayReadOrWriteIsRefused) {
  const support::TempFolder folder;
  const std::string file = folder.Write("secret", kText);
  for (const mode_t mode : {0644, 0602, 0666}) {
    chmod(file.c_str(), mode);
    const absl::Status refused = Secret::Read(file).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_NE(Message(refused).find(file), std::string::npos) << refused;
    EXPECT_NE(Message(refused).find("chmod 600"), std::string::npos) << refused;
  }
}

TEST(SecretTest, MissingShortAndLongSecretsAreRefusedAndNotQuoted) {
  const support::TempFolder folder;
  EXPECT_NE(Message(Secret::Read(folder / "none").status()).find("none: No such file"),
            std::string::npos);
  EXPECT_TRUE(absl::IsInvalidArgument(Secret::Read(folder.path()).status()));
  const std::string file = folder.Write("secret", "fifteen letters\n");
  chmod(file.c_str(), 0600);
  const absl::Status refused = Secret::Read(file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(Message(refused).find("fewer than 16 bytes"), std::string::npos) << refused;
  EXPECT_EQ(Message(refused).find("fifteen"), std::string::npos) << refused;
  for (const size_t size : {1024, 1025, 5000}) {
    folder.Write("secret", std::string(size, 's') + "\n");
    EXPECT_EQ(Secret::Read(file).ok(), size == 1024) << size;
  }
}

TEST(SecretTest, GoesThroughAPipeToStandardInput) {
  const auto secret = Secret::Draw();
  ASSERT_TRUE(secret.ok()) << secret.status();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(secret->Write(ends[1]).ok());
  close(ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  close(ends[0]);
  const auto read_back = Secret::Read("-");
  char byte;
  EXPECT_EQ(read(STDIN_FILENO, &byte, 1), 0) << "standard input still has something";
  struct stat left;
  EXPECT_TRUE(fstat(STDIN_FILENO, &left) == 0 && !S_ISFIFO(left.st_mode))
      << "the secret's pipe is still there";
  dup2(before, STDIN_FILENO);
  close(before);
  ASSERT_TRUE(read_back.ok()) << read_back.status();
  EXPECT_EQ(Credentials(*read_back).shown(), Credentials(*secret).shown());
}

TEST(SecretTest, EveryDrawIsAnother) {
  EXPECT_NE(Credentials(*Secret::Draw()).shown(), Credentials(*Secret::Draw()).shown());
}

}  // namespace
}  // namespace tandem::rpc
