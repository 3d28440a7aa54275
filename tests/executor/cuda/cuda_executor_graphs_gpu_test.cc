// Steps with few graphs, with none and without memory for them: the answers are
// those of steps that have all, to the bit, for the same kernels run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <vector>

#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/cuda/failing_graphs.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaExecutorGraphsTest : public CudaExecutorTest {
 protected:
  void TearDown() override { FailGraphInstantiations(0); }

  // Returns requests that lead to steps of many shapes.
  static std::vector<Request> Requests() {
    std::vector<Request> requests = AnyRequests(Cases(30, 4), 11);
    for (Request& request : RequestsOfAllStrategies(Cases(8, 2), 12)) {
      requests.push_back(std::move(request));
    }
    return requests;
  }

  static OnDevice LoadWith(int max_graphs) {
    return Load(Float32(), *device_, {.max_graphs = max_graphs});
  }
};

TEST_F(CudaExecutorGraphsTest, ABoundOfGraphsChangesNoAnswer) {
  const std::vector<Request> requests = Requests();
  const OnDevice all = LoadWith(1000);
  ASSERT_NE(all.steps, nullptr);
  const DriveOptions drive = {.num_in_flight = 2};
  const Answers expected = Drive(*all.steps, requests, drive);
  const int num_shapes = all.steps->figures().num_graphs;
  ASSERT_GT(num_shapes, Cases(2, 0));
  for (const int max_graphs : {0, 1, 2}) {
    SCOPED_TRACE(Concat("up to ", max_graphs, " graphs"));
    const OnDevice few = LoadWith(max_graphs);
    ASSERT_NE(few.steps, nullptr);
    ExpectEqual(expected, Drive(*few.steps, requests, drive));
    PrintFigures(*few.steps);
    const CudaExecutorFigures figures = few.steps->figures();
    EXPECT_LE(figures.num_graphs, max_graphs);
    if (max_graphs == 0) {
      EXPECT_EQ(figures.num_graph_launches, 0);
      EXPECT_EQ(figures.num_without_graph,
                all.steps->figures().num_graph_launches);
    } else {
      EXPECT_EQ(figures.num_without_graph, 0);
      EXPECT_GE(figures.num_captures, num_shapes);
    }
  }
}

TEST_F(CudaExecutorGraphsTest, StepsWithoutMemoryForAGraphRunEagerly) {
  const std::vector<Request> requests = Requests();
  const DriveOptions drive = {.num_in_flight = 2};
  const OnDevice device = LoadWith(1000);
  ASSERT_NE(device.steps, nullptr);
  FailGraphInstantiations(INT_MAX);
  const Answers eager = Drive(*device.steps, requests, drive);
  CudaExecutorFigures figures = device.steps->figures();
  EXPECT_EQ(figures.num_graphs, 0);
  EXPECT_EQ(figures.num_graph_launches, 0);
  EXPECT_GT(figures.num_without_graph, 0);
  // Once memory is free again, graphs are created again, after a while.
  FailGraphInstantiations(0);
  for (int i = 0; i < 256 && figures.num_graphs == 0; ++i) {
    ExpectEqual(eager, Drive(*device.steps, requests, drive));
    figures = device.steps->figures();
  }
  EXPECT_GT(figures.num_graph_launches, 0);
  ExpectEqual(eager, Drive(*device.steps, requests, drive));
}

// Memory runs out when there are graphs already: they make room.
TEST_F(CudaExecutorGraphsTest, GraphsMakeRoomForOthers) {
  const std::vector<Request> requests = Requests();
  const DriveOptions drive = {.num_in_flight = 2};
  const OnDevice device = LoadWith(1000);
  ASSERT_NE(device.steps, nullptr);
  const std::vector<Request> first(requests.begin(), requests.begin() + 3);
  const Answers expected = Drive(*device.steps, first, drive);
  const int num_graphs = device.steps->figures().num_graphs;
  ASSERT_GT(num_graphs, 0);
  FailGraphInstantiations(num_graphs);
  const Answers others = Drive(*device.steps, requests, drive);
  for (const auto& answer : others) EXPECT_OK(answer.status());
  EXPECT_EQ(device.steps->figures().num_without_graph, 0);
  ExpectEqual(expected, Drive(*device.steps, first, drive));
}

}  // namespace
}  // namespace espalier::testing
