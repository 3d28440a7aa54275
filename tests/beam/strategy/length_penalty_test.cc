#include "beam/strategy/length_penalty.h"

#include <gtest/gtest.h>

#include <cmath>

namespace espalier {
namespace {

LengthPenalty Penalty(LengthPenaltyForm form, double exponent) {
  GenerationParams params;
  params.length_penalty_form = form;
  params.length_penalty = exponent;
  return LengthPenalty(params);
}

float Power(float cum_log_prob, int length, double exponent) {
  return Penalty(LengthPenaltyForm::kPower, exponent)
      .Score(cum_log_prob, length);
}

float Wu(float cum_log_prob, int length, double exponent) {
  return Penalty(LengthPenaltyForm::kWu, exponent).Score(cum_log_prob, length);
}

TEST(LengthPenaltyTest, PowerDividesByAPowerOfTheLength) {
  EXPECT_FLOAT_EQ(Power(-6, 4, 1.0), -1.5f);
  EXPECT_FLOAT_EQ(Power(-6, 4, 0.0), -6.0f);
  EXPECT_FLOAT_EQ(Power(-6, 4, 2.0), -0.375f);
  EXPECT_FLOAT_EQ(Power(-6, 4, -1.0), -24.0f);
  EXPECT_FLOAT_EQ(Power(-6, 4, 0.5), -3.0f);
  EXPECT_FLOAT_EQ(Power(-6, 1, 1.7), -6.0f);
}

// 3^0.6 is 1.93318204 as a double and 1.93318200 as a float32. The reference
// divides by the latter; by the former this would be -1.28612053.
TEST(LengthPenaltyTest, RoundsThePowerBeforeItDivides) {
  EXPECT_EQ(Power(-2.4863052f, 3, 0.6), -1.28612065f);
}

// lp(Y) = (5 + |Y|)^a / (5 + 1)^a, equation 14 of the paper.
TEST(LengthPenaltyTest, WuDividesAsInThePaper) {
  for (const double alpha : {0.0, 0.2, 0.6, 1.0}) {
    for (const int length : {1, 2, 7, 40}) {
      const double lp = std::pow(5.0 + length, alpha) / std::pow(6.0, alpha);
      EXPECT_FLOAT_EQ(Wu(-3, length, alpha), static_cast<float>(-3 / lp));
    }
  }
  EXPECT_EQ(Wu(-3, 1, 0.6), -3.0f);
  EXPECT_FLOAT_EQ(Wu(-3, 7, 1.0), -1.5f);
}

TEST(LengthPenaltyTest, FavoursLengthByTheSignOfTheExponent) {
  for (const auto form : {LengthPenaltyForm::kPower, LengthPenaltyForm::kWu}) {
    EXPECT_TRUE(Penalty(form, 0.1).favours_length());
    EXPECT_FALSE(Penalty(form, 0.0).favours_length());
    EXPECT_FALSE(Penalty(form, -1.0).favours_length());
    EXPECT_GT(Penalty(form, 0.1).Score(-1, 9), Penalty(form, 0.1).Score(-1, 8));
  }
}

}  // namespace
}  // namespace espalier
