// Serves a trained checkpoint: serve CHECKPOINT IMAGE...
#include <cstdio>

#include <npu_train/engine/predictor.hpp>

int main(int argc, char** argv) try {
  npu_train::check(argc > 2, npu_train::ErrorKind::Usage, "serve", "give a checkpoint and images");
  const auto predictor = npu_train::Predictor::from_checkpoint(argv[1]);
  for (int i = 2; i < argc; ++i)
    for (const auto& answer : predictor.classify(argv[i], 1))
      std::printf("%s: %s (%.1f %%)\n", argv[i], answer.name.c_str(), 100 * answer.probability);
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
