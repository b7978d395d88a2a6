#include "reductions.hpp"

#include <numeric>

namespace npu_train::detail {

void Reductions::describe(BenchRow& row, const Samples& steps) const {
  if (all.empty()) return;
  double communication = 0, hidden = 0, exposed = 0, parameters = 0;
  for (const auto& times : all) {
    communication += times.communication();
    hidden += times.communication(times.backward);
    exposed += times.end - times.backward;
    parameters += times.parameters;
  }
  const auto count = static_cast<double>(all.size());
  const double waited = exposed + parameters;
  const auto add = [&](const char* key, double value) { row.numbers.emplace_back(key, value); };
  add("sent_bytes", static_cast<double>(all.back().bytes() + all.back().parameter_bytes));
  if (const auto between = all.back().between_bytes(); between > 0) add("between_bytes", static_cast<double>(between));
  add("communication_ms", 1e3 * communication / count);
  if (parameters > 0) add("parameters_ms", 1e3 * parameters / count);
  add("exposed_ms", 1e3 * waited / count);
  const double seconds = std::accumulate(steps.seconds.begin(), steps.seconds.end(), 0.0) / static_cast<double>(steps.size());
  if (seconds > 0) add("share_exposed", waited / count / seconds);
  if (communication > 0) add("share_hidden", hidden / communication);
}

}  // namespace npu_train::detail
