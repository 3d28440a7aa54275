#include "beam/drafts/path_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Chooses the paths of two beams that fit in `num_tokens` drafted tokens.
PathRows ChooseOf(const std::vector<BeamPath>& paths, int num_tokens) {
  return ChoosePathRows(paths, 2, [&](const PathRows& rows) {
    return rows.num_drafted(2) <= num_tokens;
  });
}

using Tokens = std::vector<TokenId>;

const std::vector<BeamPath>& Paths() {
  static const auto* const paths = new std::vector<BeamPath>{
      {1, {{5, 6, 7}, -3}},
      {0, {{4}, -1}},
      {0, {{8, 9}, -2}},
      {1, {{5, 6, 8}, -4}},
  };
  return *paths;
}

TEST(PathRowsTest, EveryBeamHasARowAndEveryPathOne) {
  const PathRows all = ChooseOf(Paths(), 100);
  EXPECT_THAT(all.ranks, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(all.drafts, ElementsAre(Tokens{8, 9}, Tokens{4}, Tokens{5, 6, 7},
                                      Tokens{5, 6, 8}));
  EXPECT_THAT(all.num_tokens(), ElementsAre(3, 2, 4, 4));
  EXPECT_EQ(all.num_drafted(2), 11);

  const PathRows one = ChooseOf({{1, {{5}, -1}}}, 100);
  EXPECT_THAT(one.ranks, ElementsAre(0, 1));
  EXPECT_THAT(one.drafts, ElementsAre(Tokens{}, Tokens{5}));
}

// Paths() are 4 and 8 at the first step and at the second 9, of beam 0; of beam
// 1 they are 5, then 6, then 7 and 8.
TEST(PathRowsTest, TheLastStepIsLeftOutBeforeWhatWasPrunedOnTheWay) {
  // The third step is two rows or none: two beams seldom go on in one.
  for (const int room : {6, 7, 8, 9, 10}) {
    EXPECT_THAT(ChooseOf(Paths(), room).drafts,
                ElementsAre(Tokens{8, 9}, Tokens{4}, Tokens{5, 6}))
        << room;
  }
  for (const int room : {4, 5}) {
    EXPECT_THAT(ChooseOf(Paths(), room).drafts,
                ElementsAre(Tokens{8}, Tokens{4}, Tokens{5}))
        << room;
  }
}

TEST(PathRowsTest, OfTheLastStepTheLikeliestStay) {
  // Beam 0 has the paths 5 8, 5 9 and 6; beam 1 has 7 4 and 2.
  const std::vector<BeamPath> paths = {
      {0, {{5, 8}, -3}}, {0, {{5, 9}, -1}}, {1, {{7, 4}, -2}},
      {0, {{6}, -1.5}},  {1, {{2}, -0.5}},
  };
  EXPECT_THAT(ChooseOf(paths, 11).drafts,
              ElementsAre(Tokens{5, 9}, Tokens{5, 8}, Tokens{6}, Tokens{7, 4},
                          Tokens{2}));
  EXPECT_THAT(ChooseOf(paths, 8).drafts,
              ElementsAre(Tokens{5, 9}, Tokens{6}, Tokens{7, 4}, Tokens{2}));
  for (const int room : {6, 7}) {
    EXPECT_THAT(ChooseOf(paths, room).drafts,
                ElementsAre(Tokens{5}, Tokens{6}, Tokens{7}, Tokens{2}))
        << room;
  }
  // Also of the first: those that go on are the likeliest.
  EXPECT_THAT(ChooseOf(paths, 4).drafts,
              ElementsAre(Tokens{5}, Tokens{7}, Tokens{2}));
  EXPECT_THAT(ChooseOf(paths, 2).drafts, ElementsAre(Tokens{5}, Tokens{7}));
  EXPECT_TRUE(ChooseOf(paths, 1).empty());
  EXPECT_TRUE(ChooseOf(paths, 0).empty());
  EXPECT_TRUE(ChooseOf({}, 2).empty());
}

// If all paths of some length fit, longer requests include them.
TEST(PathRowsTest, LongerPathsTakeNothingFromShorterOnes) {
  std::mt19937 random(2);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % limit);
  };
  for (int i = 0; i < 300; ++i) {
    const int num_beams = 1 + below(4);
    std::vector<BeamPath> paths;
    for (int path = 1 + below(20); path > 0; --path) {
      std::vector<TokenId> tokens(1 + below(5));
      for (TokenId& token : tokens) token = below(3);
      paths.push_back({below(num_beams),
                       {std::move(tokens), -static_cast<float>(below(9))}});
    }
    const int room = below(40);
    const auto choose = [&](const std::vector<BeamPath>& some) {
      return ChoosePathRows(some, num_beams, [&](const PathRows& rows) {
        return rows.num_drafted(num_beams) <= room;
      });
    };
    const PathRows chosen = choose(paths);
    for (int length = 1; length < 5; ++length) {
      std::vector<BeamPath> cut = paths;
      for (BeamPath& path : cut) {
        if (std::ssize(path.path.tokens) > length) {
          path.path.tokens.resize(length);
        }
      }
      const PathRows all =
          ChoosePathRows(cut, num_beams, [](const PathRows&) { return true; });
      if (all.num_drafted(num_beams) > room) continue;
      for (const BeamPath& path : cut) {
        bool is_fed = false;
        for (size_t row = 0; row < chosen.ranks.size(); ++row) {
          const Tokens& draft = chosen.drafts[row];
          const Tokens& tokens = path.path.tokens;
          is_fed |= chosen.ranks[row] == path.rank &&
                    draft.size() >= tokens.size() &&
                    std::equal(tokens.begin(), tokens.end(), draft.begin());
        }
        EXPECT_TRUE(is_fed) << i << ", " << length;
      }
    }
  }
}

// The obvious way: all counts at all lengths, from the most on.
TEST(PathRowsTest, ChoosesWhatTryingAllWouldInFewTries) {
  std::mt19937 random(1);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % limit);
  };
  for (int i = 0; i < 300; ++i) {
    const int num_beams = 1 + below(8);
    std::vector<BeamPath> paths;
    for (int path = below(40); path > 0; --path) {
      std::vector<TokenId> tokens(1 + below(12));
      for (TokenId& token : tokens) token = below(2);
      paths.push_back({below(num_beams),
                       {std::move(tokens), -static_cast<float>(below(9))}});
    }
    const int room = below(60);
    int num_tries = 0;
    const PathRows chosen =
        ChoosePathRows(paths, num_beams, [&](const PathRows& rows) {
          ++num_tries;
          return rows.num_drafted(num_beams) <= room;
        });
    EXPECT_LE(num_tries, 5 + 7);
    // Room for one token more only where that is not enough for a row more.
    const PathRows all =
        ChoosePathRows(paths, num_beams, [](const auto&) { return true; });
    const int num_all = all.empty() ? 0 : all.num_drafted(num_beams);
    if (num_all <= room) {
      EXPECT_EQ(chosen.drafts, all.drafts);
    }
    const int num_chosen = chosen.empty() ? 0 : chosen.num_drafted(num_beams);
    EXPECT_LE(num_chosen, room);
    for (int more = num_chosen + 1; more <= num_all; ++more) {
      const PathRows rows =
          ChoosePathRows(paths, num_beams, [&](const PathRows& some) {
            return some.num_drafted(num_beams) <= more;
          });
      const int count = rows.empty() ? 0 : rows.num_drafted(num_beams);
      if (count > num_chosen) {
        EXPECT_GT(count, room);
        break;
      }
    }
  }
}

TEST(PathRowsTest, APathThatAnotherBeginsWithHasNoRow) {
  EXPECT_THAT(
      ChooseOf({{0, {{4, 5}, 0}}, {0, {{4}, 0}}, {0, {{4, 5}, 0}}}, 100).drafts,
      ElementsAre(Tokens{4, 5}, Tokens{}));
}

TEST(PathRowsTest, NoPathGoesThroughAnEnd) {
  const std::vector<TokenId> ending = {5, 9};
  const std::vector<BeamPath> cut = CutAtEnds(Paths(), ending);
  EXPECT_THAT(cut[0].path.tokens, IsEmpty());
  EXPECT_THAT(cut[1].path.tokens, ElementsAre(4));
  EXPECT_THAT(cut[2].path.tokens, ElementsAre(8));
}

}  // namespace
}  // namespace espalier
