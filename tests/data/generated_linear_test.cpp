// The generated shapes cannot be told apart by their pixels alone. This takes the time of a training, so it is a test of its own.
#include "testing.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/seed.hpp"
#include "npu_train/data/generated.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int kInputs = 3072, kClasses = 10;

struct Set {
  std::vector<float> x;
  std::vector<int64_t> y;
};

Set to_floats(const MemoryImages& images) {
  Set out;
  out.y = images.labels();
  for (int64_t i = 0; i < images.size() * kInputs; ++i) out.x.push_back((static_cast<float>(images.pixels(0)[i]) / 255.0f - 0.5f) / 0.3f);
  return out;
}

/// A softmax regression on the pixels, trained by gradient descent with momentum over mini-batches, until the training loss no longer
/// falls.
class LinearClassifier {
 public:
  void train(const Set& set, int epochs, double rate) {
    const auto n = static_cast<int64_t>(set.y.size());
    std::vector<float> gradient(kClasses * kInputs), velocity(kClasses * kInputs);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const auto step = static_cast<float>(rate * (1.0 - static_cast<double>(epoch) / epochs));
      for (int64_t start = 0; start + kBatch <= n; start += kBatch) {
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        for (int64_t i = start; i < start + kBatch; ++i) add_gradient(set, i, gradient);
        for (size_t k = 0; k < gradient.size(); ++k) {
          velocity[k] = 0.9f * velocity[k] + gradient[k] / kBatch;
          weights_[k] -= step * velocity[k];
        }
      }
    }
  }

  double accuracy(const Set& set) const {
    int right = 0;
    for (size_t i = 0; i < set.y.size(); ++i) {
      float scores[kClasses];
      score(set.x.data() + i * kInputs, scores);
      right += std::max_element(scores, scores + kClasses) - scores == set.y[i] ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(set.y.size());
  }

 private:
  static constexpr int kBatch = 64;

  void score(const float* x, float* scores) const {
    for (int c = 0; c < kClasses; ++c) {
      float lanes[8] = {};
      for (int k = 0; k < kInputs; k += 8) {
        for (int j = 0; j < 8; ++j) lanes[j] += weights_[c * kInputs + k + j] * x[k + j];
      }
      scores[c] = std::accumulate(lanes, lanes + 8, 0.0f);
    }
  }
  void add_gradient(const Set& set, int64_t i, std::vector<float>& gradient) const {
    const float* x = set.x.data() + i * kInputs;
    float p[kClasses], sum = 0;
    score(x, p);
    const float top = *std::max_element(p, p + kClasses);
    for (float& value : p) sum += value = std::exp(value - top);
    for (int c = 0; c < kClasses; ++c) {
      const float error = p[c] / sum - (set.y[i] == c ? 1.0f : 0.0f);
      for (int k = 0; k < kInputs; ++k) gradient[c * kInputs + k] += error * x[k];
    }
  }

  std::vector<float> weights_ = std::vector<float>(kClasses * kInputs);
};

}  // namespace

TEST_CASE("a linear classifier on the pixels stays under 60 %, and learns nothing from shuffled labels") {
  Set train = to_floats(generate_shapes(2048, 1));
  const Set test = to_floats(generate_shapes(1000, derive_seed(1, "validation")));
  LinearClassifier linear;
  linear.train(train, 12, 2e-4);
  const double seen = linear.accuracy(train), fresh = linear.accuracy(test);
  MESSAGE("linear: " << seen << " on its training images, " << fresh << " on others");
  CHECK(seen > 0.3);  // shows that it was trained at all
  CHECK(fresh < 0.6);

  Philox rng(3);
  for (size_t i = train.y.size() - 1; i > 0; --i) std::swap(train.y[i], train.y[rng.below(static_cast<uint32_t>(i + 1))]);
  LinearClassifier fooled;
  fooled.train(train, 6, 2e-4);
  const double chance = fooled.accuracy(test);
  MESSAGE("shuffled labels: " << chance);
  CHECK(std::abs(chance - 0.1) < 0.04);
}
