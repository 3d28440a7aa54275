// From samples to features: 30 s of audio, the window of Whisper, on one
// thread.
//
//   speech_benchmark
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "speech/log_mel.h"
#include "speech/resampler.h"

namespace espalier {
namespace {

constexpr int kSeconds = 30;

std::vector<float> Noise(int size) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> noise(size);
  for (float& value : noise) value = values(random);
  return noise;
}

void BM_LogMel(benchmark::State& state) {
  const LogMel log_mel(static_cast<int>(state.range(0)));
  const std::vector<float> samples = Noise(kSeconds * 16000);
  for (auto _ : state) {
    benchmark::DoNotOptimize(LogMelFeatures(log_mel, samples));
  }
}
BENCHMARK(BM_LogMel)->ArgName("bands")->Arg(80)->Arg(128)->Unit(
    benchmark::kMillisecond);

void BM_Resample(benchmark::State& state) {
  const int rate = static_cast<int>(state.range(0));
  const std::vector<float> samples = Noise(kSeconds * rate);
  for (auto _ : state) {
    Resampler resampler(rate, 16000);
    std::vector<float> out;
    resampler.Push(samples, out);
    resampler.Finish(out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(BM_Resample)
    ->ArgName("hz")
    ->Arg(8000)
    ->Arg(44100)
    ->Arg(48000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier
