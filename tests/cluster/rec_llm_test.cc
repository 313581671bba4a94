// The jobs of examples/rec_llm on a small made-up log with titles: the bits do not depend on the
// layout, and `recommend` lists what `eval` ranks.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr int kUsers = 60, kItems = 40, kLength = 9;

// A line per item: its id, a code that nobody reads, a title of a few words.
std::string TitleLines() {
  const char* const colours[] = {"RED", "BLUE", "GREEN", "WHITE", "PINK"};
  const char* const things[] = {"MUG", "CUP", "TIN", "LAMP", "BAG", "PEN", "BELL", "CLOCK"};
  std::ostringstream lines;
  for (int item = 1; item <= kItems; ++item) {
    lines << item << "\tC" << item << '\t' << colours[item % 5] << ' ' << things[(item - 1) / 5]
          << '\n';
  }
  return lines.str();
}

class RecLlmTest : public testing::Test {
 protected:
  Arguments With(const std::string& example, const Arguments& more) const {
    Arguments all{std::string(TANDEM_EXAMPLES) + "/rec_llm/" + example + ".textproto"};
    for (const std::string& set :
         {"data.path=" + log_, "data.items_path=" + titles_, std::string("train.batch_size=12"),
          std::string("train.max_epochs=100"), std::string("train.max_steps=30"),
          std::string("train.eval_every_epochs=100"), std::string("train.log_every_steps=1"),
          std::string("checkpoint.every_steps=15")})
      all.insert(all.end(), {"--set", set});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Trains an example and returns its params_hash.
  std::string Train(const std::string& example, const std::string& out, Arguments more) {
    more.insert(more.end(), {"--out", job_.Path(out)});
    Arguments all = With(example, more);
    all.insert(all.begin(), "launch");
    const support::Ended ended = job_.Run(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return job_.Summary(out, "params_hash");
  }
  support::Ended Recommend(const std::string& out, Arguments more) {
    more.insert(more.begin(), {"recommend", "--checkpoint", job_.Path(out) + "/checkpoints"});
    return job_.Run(more);
  }

  SmallJob job_;
  const std::string log_ = job_.Write("purchases.txt", LogText(kUsers, kItems, kLength));
  const std::string titles_ = job_.Write("titles.tsv", TitleLines());
};

TEST_F(RecLlmTest, BitsOfEveryExampleAreTheSameInEveryLayoutAndAfterAStop) {
  for (const std::string example : {"retail", "movies", "id_only"}) {
    SCOPED_TRACE(example);
    const std::string local = Train(example, example + "-local", {"--local", "--trainers", "2"});
    ASSERT_NE(local, "");
    for (const std::string servers : {"1", "2", "3"}) {
      EXPECT_EQ(Train(example, example + "-" + servers, {"--ps", servers, "--trainers", "2"}),
                local);
    }
    const std::string half = example + "-half";
    Train(example, half, {"--ps", "2", "--trainers", "2", "--set", "train.max_steps=15"});
    EXPECT_EQ(Train(example, half, {"--ps", "2", "--trainers", "2", "--resume"}), local);

    Train(example, example + "-one", {"--local"});
    const std::vector<double> two = job_.Losses(example + "-local"),
                              one = job_.Losses(example + "-one");
    ASSERT_EQ(one.size(), 30u);
    ASSERT_EQ(two.size(), 30u);
    for (size_t step = 0; step < one.size(); ++step)
      EXPECT_NEAR(one[step], two[step], 1e-5 * one[step]) << step;
  }
}

// The items of the dump's users, without the test target.
std::map<std::string, std::vector<std::string>> Histories(const std::string& log) {
  std::map<std::string, std::vector<std::string>> histories;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string user, item;
    fields >> user;
    while (fields >> item) histories[user].push_back(item);
    histories[user].pop_back();
  }
  return histories;
}

TEST_F(RecLlmTest, RecommendListsWhatEvalRanksAndNamesIt) {
  Train("retail", "run", {"--local"});
  const std::string dump = job_.Path("dump.tsv");
  Arguments eval = With("retail", {"--checkpoint", job_.Path("run/checkpoints"), "--dump", dump});
  eval.insert(eval.begin(), "eval");
  ASSERT_EQ(job_.Run(eval).exit_code, 0);

  const auto histories = Histories(job_.Read("purchases.txt"));
  std::ostringstream users;
  for (const auto& [user, items] : histories) {
    users << user;
    for (const std::string& item : items) users << ' ' << item;
    users << '\n';
  }
  const support::Ended listed =
      Recommend("run", {"--users", job_.Write("users.txt", users.str()), "--top", "20", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  std::map<std::string, std::string> ids_of;  // "1,2,3" by user
  std::istringstream lines(listed.out);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find("\"user\":\"") + 8;
    std::string& ids = ids_of[line.substr(begin, line.find('"', begin) - begin)];
    for (size_t at = line.find("\"id\":\""); at != std::string::npos;
         at = line.find("\"id\":\"", at + 1))
      ids += (ids.empty() ? "" : ",") + line.substr(at + 6, line.find('"', at + 6) - at - 6);
  }
  int compared = 0;
  std::ifstream dumped(dump);
  for (std::string user, target, rank, top; dumped >> user >> target >> rank >> top;) {
    const std::vector<std::string>& seen = histories.at(user);
    // `eval` ranks a target also if the user has had it before.
    if (std::set<std::string>(seen.begin(), seen.end()).contains(target)) continue;
    EXPECT_EQ(ids_of[user], top) << "user " << user;
    ++compared;
  }
  EXPECT_GT(compared, kUsers / 2);

  const support::Ended one = Recommend("run", {"--history", "7,99999,21", "--top", "3"});
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_NE(one.err.find("99999"), std::string::npos) << "the unknown item is said";
  EXPECT_EQ(one.out.find("GREEN CUP"), std::string::npos) << "item 7 was in the history";
  EXPECT_NE(one.out.find("title"), std::string::npos);
}

TEST_F(RecLlmTest, TitlesOfItemsThatNoLogHasAreAHistoryToo) {
  Train("retail", "run", {"--local"});
  const std::string titles = job_.Write("shown.txt", "A RED MUG\n\nRED TIN, large\n");
  const support::Ended listed =
      Recommend("run", {"--history-titles", titles, "--top", "40", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_NE(listed.out.find("\"rank\":40,"), std::string::npos) << "the whole catalogue";
  EXPECT_EQ(listed.out.find("A RED MUG"), std::string::npos) << "what was shown is left out";
  Train("movies", "mapped", {"--local"});
  EXPECT_EQ(Recommend("mapped", {"--history-titles", titles}).exit_code, 0);

  Train("id_only", "ids", {"--local"});
  const support::Ended refused = Recommend("ids", {"--history-titles", titles});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_NE(refused.err.find("knows items only by their rows"), std::string::npos) << refused.err;
}

TEST_F(RecLlmTest, ExportWritesAVectorForEachItemBesideItsIdAndTitle) {
  Train("retail", "run", {"--local"});
  const Arguments arguments{"export", job_.Path("run/checkpoints"), "--out", job_.Path("exported")};
  const support::Ended ended = job_.Run(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string vectors = job_.Read("exported/items.safetensors");
  EXPECT_NE(vectors.find("\"vectors\":{\"dtype\":\"F32\",\"shape\":[40,64]"), std::string::npos)
      << vectors.substr(8, 200);
  EXPECT_EQ(job_.Read("exported/items.tsv").rfind("1\tBLUE MUG\n2\tGREEN MUG\n", 0), 0u);
  EXPECT_NE(job_.Read("exported/dense.safetensors").find("tower.up.weight"), std::string::npos);
  EXPECT_EQ(job_.Read("exported/dense.safetensors").find("weight#m"), std::string::npos)
      << "no optimizer state";
  EXPECT_EQ(job_.Run(arguments).exit_code, 2) << "the folder is not empty any more";
}

TEST_F(RecLlmTest, RecommendRefusesWhatItCannotRank) {
  Train("id_only", "run", {"--local", "--set", "train.max_steps=15"});
  EXPECT_EQ(Recommend("run", {"--history", "99999,88888"}).exit_code, 3);
  EXPECT_EQ(Recommend("run", {"--history", "7,9", "--top", "0"}).exit_code, 2);
  EXPECT_EQ(Recommend("run", {}).exit_code, 2) << "neither --history nor --users";
  EXPECT_EQ(Recommend("run", {"--users", job_.Path("none.txt")}).exit_code, 3);
  SmallJob text(SmallJobKind::LANGUAGE);
  ASSERT_NE(text.HashOf("text", {"--local"}), "");
  const support::Ended other =
      text.Run({"recommend", "--checkpoint", text.Path("text/checkpoints"), "--history", "1,2"});
  EXPECT_EQ(other.exit_code, 4) << other.err;
  EXPECT_NE(other.err.find("holds no recommender, but a gpt"), std::string::npos) << other.err;
}

TEST_F(RecLlmTest, ATitleFileThatIsWrongIsRefusedWithItsPlace) {
  for (const auto& [content, words] :
       {std::pair("1\tA\n2\tB\n1\tC\n", ":3: item 1 already has line 1"),
        {"1\tA\n41\tB\n", ":2: item id 41 is above the catalogue's largest id 40"},
        {"1\tA\n2\tcaf\xe9\n", ":2: the title at column 3 is not UTF-8"}}) {
    Arguments all = With("retail", {"--set", "data.items_path=" + job_.Write("bad.tsv", content),
                                    "--out", job_.Path("out"), "--local"});
    all.insert(all.begin(), "launch");
    const support::Ended ended = job_.Run(all);
    EXPECT_EQ(ended.exit_code, 3) << ended.err;
    EXPECT_NE(ended.err.find(words), std::string::npos) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(job_.Path("out")));
  }
  Arguments all =
      With("retail", {"--set", "data.items_path=" + job_.Write("few.tsv", "1\tA\n"), "--set",
                      "train.max_steps=1", "--out", job_.Path("out"), "--local"});
  all.insert(all.begin(), "launch");
  const support::Ended few = job_.Run(all);
  EXPECT_EQ(few.exit_code, 0) << few.err;
  EXPECT_NE(few.out.find("39 items that have no title"), std::string::npos) << few.out;
}

}  // namespace
}  // namespace tandem::cluster
