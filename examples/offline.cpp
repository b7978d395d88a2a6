// Serves an offline model that Ascend's compiler has written: offline MODEL.om IMAGE...
#include <cstdio>

#include <npu_train/engine/predictor.hpp>

int main(int argc, char** argv) try {
  npu_train::check(argc > 2, npu_train::ErrorKind::Usage, "offline", "give an offline model and images");
  npu_train::OfflinePredictor predictor(npu_train::OfflineModel(argv[1]), npu_train::ImagePreparation::of_imagenet(224));
  const auto logits = predictor.logits({argv + 2, argv + argc});
  for (int i = 2; i < argc; ++i)
    for (const auto& answer : npu_train::top_answers(logits[i - 2], {}, 1))
      std::printf("%s: class %s (%.1f %%)\n", argv[i], answer.name.c_str(), 100 * answer.probability);
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
