#include "testing.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include "engine/published_weights.hpp"
#include "environment_variable.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/io/pth_writer.hpp"
#include "npu_train/nn/module_state.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::cached_weights;
using npu_train::detail::published_weights;

namespace {

std::string refusal_of(const std::string& name) {
  const auto e = error_of([&] { published_weights(name); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("published weights: torchvision's names, its default, and what is said of others") {
  const auto best = published_weights("torchvision://resnet50");
  CHECK(best.url == "https://download.pytorch.org/models/resnet50-11ad3fa6.pth");
  CHECK(best.sha256 == "11ad3fa6");
  CHECK(published_weights("torchvision://resnet50/DEFAULT").url == best.url);
  CHECK(published_weights("torchvision://resnet50/IMAGENET1K_V1").file == "resnet50-0676ba61.pth");
  CHECK(published_weights("torchvision://vit_b_16/IMAGENET1K_SWAG_LINEAR_V1").sha256 == "4e70ced5");
  CHECK(has(refusal_of("torchvision://vit_b16"), "did you mean torchvision://vit_b_16?"));
  CHECK(has(refusal_of("torchvision://resnet50/V3"), "IMAGENET1K_V1, IMAGENET1K_V2 for resnet50"));
  CHECK(has(refusal_of("timm://vit_tiny"), "timm.create_model('vit_tiny', pretrained=True)"));
  CHECK(has(refusal_of("hf://google/vit-base"), "hf download google/vit-base --local-dir vit-base"));
}

TEST_CASE("published weights: a download appears in the cache with the right checksum, or not at all" *
          only_if(has_program("curl") && has_program("sha256sum"), "there is no program curl or sha256sum")) {
  const TempDir dir;
  std::ofstream(dir / "source") << "abc";
  const npu_train::detail::PublishedWeights abc{"file://" + (dir / "source").string(), "abc.pth", "ba7816bf"};  // the example in FIPS 180-2
  auto wrong = abc;
  wrong.sha256 = "ba7816be";
  const auto cache = dir / "torch/hub";
  CHECK(has(error_of([&] { cached_weights(wrong, cache); }).what(), "should begin with ba7816be"));
  CHECK(std::filesystem::is_empty(cache));
  {
    const EnvironmentVariable offline("NPU_TRAIN_OFFLINE", "1");
    const auto e = error_of([&] { cached_weights(abc, cache); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(has(e.what(), "NPU_TRAIN_OFFLINE"));
    CHECK(has(e.what(), (cache / "abc.pth").string()));
    CHECK(error_of([&] { cached_weights(abc, dir / "new"); }).kind() == ErrorKind::Data);
    CHECK_FALSE(std::filesystem::exists(dir / "new"));
  }
  CHECK(cached_weights(abc, cache) == cache / "abc.pth");
  std::filesystem::remove(dir / "source");
  const EnvironmentVariable offline("NPU_TRAIN_OFFLINE", "1");
  CHECK(cached_weights(abc, cache) == cache / "abc.pth");
  CHECK(std::distance(std::filesystem::directory_iterator(cache), {}) == 1);
}

TEST_CASE("published weights: model.weights takes the file that torch.hub has in its cache") {
  const TempDir dir;
  const auto parts = builtin_parts();
  const auto resnet = part("resnet18", {{"image_size", 32}});
  const auto saved = make_model(resnet, parts, 5);
  std::filesystem::create_directories(dir / "hub/checkpoints");
  save_pth((dir / "hub/checkpoints/resnet18-f37072fd.pth").string(), PthValue::dict(named_state(*saved.module)));
  const EnvironmentVariable home("TORCH_HOME", dir.path().string());
  auto named = resnet;
  named.options.set("weights", ConfigNode("torchvision://resnet18"));
  std::map<std::string, at::Tensor> loaded;
  for (const auto& [name, value] : named_state(*model_from({.model = named}, parts).model.module)) loaded[name] = value;
  for (const auto& [name, value] : named_state(*saved.module)) CHECK_MESSAGE(at::equal(loaded.at(name), value), name);
}
