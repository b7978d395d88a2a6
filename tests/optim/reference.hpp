// Reference optimizers, written from the papers in double precision with Eigen.
#pragma once

#include <Eigen/Dense>

#include <cmath>

namespace npu_train::testing {

struct SgdReference {
  double lr, momentum = 0, decay = 0;
  bool nesterov = false;
  Eigen::ArrayXd m{};
  void step(Eigen::ArrayXd& p, const Eigen::ArrayXd& gradient) {
    Eigen::ArrayXd g = gradient + decay * p;
    if (m.size() == 0) m = Eigen::ArrayXd::Zero(p.size());
    m = momentum * m + g;
    p -= lr * (nesterov ? Eigen::ArrayXd(g + momentum * m) : m);
  }
};

struct AdamReference {
  enum Kind { Coupled, Decoupled, Lamb };
  Kind kind;
  double lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  Eigen::ArrayXd m{}, v{};
  int t = 0;
  void step(Eigen::ArrayXd& p, const Eigen::ArrayXd& gradient) {
    Eigen::ArrayXd g = gradient;
    if (m.size() == 0) m = v = Eigen::ArrayXd::Zero(p.size());
    if (kind == Coupled) g += decay * p;
    if (kind == Decoupled) p -= lr * decay * p;
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g.square();
    Eigen::ArrayXd r = (m / (1 - std::pow(beta1, t))) / ((v / (1 - std::pow(beta2, t))).sqrt() + eps);
    double trust = 1;
    if (kind == Lamb) {
      r += decay * p;
      const double weight = std::sqrt(p.square().sum()), update = std::sqrt(r.square().sum());
      if (weight > 0 && update > 0) trust = weight / update;
    }
    p -= lr * trust * r;
  }
};

}  // namespace npu_train::testing
