#include "testing.hpp"

#include "npu_train/tools/align/checkpoint_diff.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "npu_train/io/file.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kNaN;
using npu_train::testing::TempDir;
using Kind = ItemComparison::Kind;
namespace fs = std::filesystem;

namespace {

const fs::path kPthFiles = fs::path(NPU_TRAIN_SOURCE_DIR) / "tests/io/fixtures";

NamedTensors small_net(int64_t classes = 10) {
  at::manual_seed(1);
  return {
      {"conv1.weight", at::randn({4, 3, 3, 3})}, {"bn1.weight", at::ones({4})},       {"bn1.bias", at::randn({4})},
      {"bn1.running_mean", at::randn({4})},      {"bn1.running_var", at::rand({4})},  {"bn1.num_batches_tracked", at::ones({}, at::kLong)},
      {"layer1.fc1.weight", at::randn({6, 6})},  {"layer1.fc1.bias", at::randn({6})}, {"token", at::randn({1, 6})},
      {"head.weight", at::randn({classes, 6})},  {"head.bias", at::randn({classes})}};
}

at::Tensor& tensor_of(NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors)
    if (key == name) return tensor;
  FAIL("no tensor " << name);
  return tensors.front().second;
}

NamedTensors renamed(NamedTensors tensors, const std::string& prefix) {
  for (auto& [name, tensor] : tensors) name = prefix + name;
  return tensors;
}

DumpComparison compared(const NamedTensors& a, const NamedTensors& b, const CompareOptions& options = {}) {
  const TempDir dir;
  save_safetensors(dir / "a.safetensors", a);
  save_safetensors(dir / "b.safetensors", b);
  return compare_checkpoints(dir / "a.safetensors", dir / "b.safetensors", options);
}

// Compares small_net with a copy that `change` has changed.
template <class Change>
DumpComparison changed(Change&& change) {
  auto b = small_net();
  change(b);
  return compared(small_net(), b);
}

const CallComparison& layer_in(const DumpComparison& c, const std::string& name) {
  const auto& calls = c.steps.at(0).calls;
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call.layer == name; });
  REQUIRE(found != calls.end());
  return *found;
}

bool some_has(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const auto& text) { return has(text, part); });
}

std::vector<std::string> layer_names(const DumpComparison& c) {
  std::vector<std::string> out;
  for (const auto& call : c.steps.at(0).calls) out.push_back(call.layer);
  return out;
}

}  // namespace

TEST_CASE("checkpoint_diff: the same weights") {
  const auto c = compared(small_net(), small_net());
  CHECK(c.agrees);
  CHECK_FALSE(c.first.found);
  REQUIRE(c.steps.size() == 1);
  const auto& step = c.steps[0];
  CHECK((step.compared == 11 && step.failed == 0 && step.one_sided == 0 && step.skipped == 0));
  CHECK((layer_names(c) == std::vector<std::string>{"conv1", "bn1", "layer1.fc1", "token", "head"}));
  CHECK((step.calls[0].type == "Conv2d" && step.calls[1].type == "BatchNorm" && step.calls[2].type == "Linear"));
  const auto& item = step.calls[0].items.at(0);
  CHECK((item.kind == Kind::Tensor && item.side == "parameters" && item.metrics.identical && item.metrics.elements == 108));
  CHECK((item.item_a.dtype == "torch.float32" && item.item_a.shape == std::vector<int64_t>{4, 3, 3, 3}));
  CHECK(item.item_a.max.value() == tensor_of(*std::make_unique<NamedTensors>(small_net()), "conv1.weight").max().item<double>());
  CHECK(c.bytes == 2 * (4 * (108 + 5 * 0 + 4 * 4 + 36 + 6 + 6 + 60 + 10) + 8));
}

TEST_CASE("checkpoint_diff: the first layer that differs, by tolerance") {
  const auto big = changed([](auto& net) {
    tensor_of(net, "layer1.fc1.weight") += 0.1 * at::randn({6, 6});
    tensor_of(net, "head.bias") += 1;
    tensor_of(net, "conv1.weight") *= 1 + 1e-6;
  });
  CHECK_FALSE(big.agrees);
  CHECK(big.steps[0].failed == 2);
  CHECK((big.first.found && !big.first.within_tolerance && big.first.layer == "layer1.fc1"));
  CHECK((big.first.cause == Divergence::Cause::Weights));
  CHECK(has(big.first.sentence, "2 of 5 layers differ; the first is layer1.fc1"));
  CHECK(has(big.first.likely.at(0), "the same initial weights but a different training"));
  CHECK(big.first.advice.size() == big.first.likely.size());
  CHECK(layer_in(big, "layer1.fc1").parameter_error > 0.01);

  const auto small = changed([](auto& net) { tensor_of(net, "head.weight") *= 1 + 1e-6; });
  CHECK(small.agrees);
  CHECK((small.first.found && small.first.within_tolerance && small.first.layer == "head"));
  CHECK(has(small.first.likely.at(0), "rounding"));

  auto b = small_net();
  tensor_of(b, "head.weight") *= 1 + 1e-6;
  CHECK_FALSE(compared(small_net(), b, {.exact = true}).agrees);
  CHECK_FALSE(compared(small_net(), b, {.atol = 0, .rtol = 1e-8}).agrees);
  tensor_of(b, "head.weight") *= 1.5;
  CHECK(compared(small_net(), b, {.layer_tolerance = {{"head", {1, 1}}}}).agrees);
}

TEST_CASE("checkpoint_diff: likely causes") {
  const auto likely = [](auto&& change) {
    const auto c = changed(change);
    CHECK_FALSE(c.agrees);
    REQUIRE(c.first.found);
    REQUIRE_FALSE(c.first.likely.empty());
    return c.first.likely.front();
  };
  const auto transposed = [](auto& net) { tensor_of(net, "layer1.fc1.weight") = tensor_of(net, "layer1.fc1.weight").t().contiguous(); };
  CHECK(has(likely(transposed), "transposed"));
  CHECK(has(layer_in(changed(transposed), "layer1.fc1").items.at(0).message, "transposed"));
  CHECK(has(likely([](auto& net) {
              tensor_of(net, "conv1.weight") = tensor_of(net, "conv1.weight").permute({2, 3, 1, 0}).contiguous();
            }),
            "transposed"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "layer1.fc1.weight") = tensor_of(net, "layer1.fc1.weight").flip(0).contiguous(); }),
            "permuted"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "bn1.bias").zero_(); }), "zero on one side"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "bn1.running_var") *= 2; }), "only BatchNorm's statistics differ"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "head.weight").fill_(kNaN); }), "non-finite"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "conv1.weight") = at::randn({4, 3, 3, 3}); }), "different initial weights"));
  CHECK(has(likely([](auto& net) { tensor_of(net, "conv1.weight") = at::randn({4, 3, 5, 5}); }), "a different network"));
}

TEST_CASE("checkpoint_diff: NaN on both sides proves nothing, and NaN is not called zero") {
  auto a = small_net();
  tensor_of(a, "layer1.fc1.bias").fill_(NAN);
  const auto both = compared(a, a);
  CHECK_FALSE(both.agrees);
  CHECK(has(both.first.sentence, "layer1.fc1.bias (NaN on both sides, which proves nothing)"));
  CHECK(some_has(both.first.likely, "diverged"));
  auto b = small_net();
  tensor_of(b, "layer1.fc1.bias").zero_();
  const auto one = compared(a, b);
  CHECK(has(one.first.sentence, "not finite in A only"));
  CHECK_FALSE(some_has(one.first.likely, "zero"));
}

TEST_CASE("checkpoint_diff: layers of one side are named or counted") {
  for (const size_t n : {1, 2, 5, 6, 20}) {
    auto more = small_net();
    for (size_t i = 0; i < n; ++i) more.emplace_back("extra" + std::to_string(100 + i) + ".bias", at::ones({static_cast<int64_t>(i) + 20}));
    const auto found = compared(more, small_net());
    const auto begin = "only in A (" + std::to_string(n) + "): ";
    const auto note =
        std::find_if(found.steps[0].notes.begin(), found.steps[0].notes.end(), [&](const auto& t) { return t.starts_with(begin); });
    REQUIRE(note != found.steps[0].notes.end());
    size_t named = 0;
    for (size_t i = 0; i < n; ++i) named += has(*note, "extra" + std::to_string(100 + i));
    CHECK(named == std::min<size_t>(n, 5));
    CHECK(note->ends_with(", and " + std::to_string(n - 5) + " more") == (n > 5));
    CHECK(has(found.first.sentence, "; " + std::to_string(n - 1) + " more layers or weights exist on one side only") == (n > 1));
  }
}

TEST_CASE("checkpoint_diff: another head, a missing bias, another dtype") {
  const auto head = compared(small_net(10), small_net(100));
  CHECK_FALSE(head.agrees);
  CHECK(head.first.layer == "head");
  CHECK(has(head.first.likely.at(0), "10 and 100 classes"));
  const auto& weight = layer_in(head, "head").items.at(0);
  CHECK((weight.kind == Kind::Unmatched && weight.failed && has(weight.message, "[10, 6] and [100, 6]")));

  auto without = small_net();
  std::erase_if(without, [](const auto& entry) { return entry.first == "layer1.fc1.bias"; });
  tensor_of(without, "layer1.fc1.weight") += 0.5;
  const auto bias = compared(small_net(), without);
  CHECK(bias.steps[0].one_sided == 1);
  CHECK(some_has(bias.steps[0].notes, "only in A (1): layer1.fc1.bias"));
  CHECK(has(bias.first.likely.at(0), "a bias on one side only"));

  auto half = small_net();
  for (auto& [name, tensor] : half)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kBFloat16);
  const auto rounded = compared(small_net(), half);
  CHECK(rounded.agrees);
  CHECK(has(rounded.first.likely.at(0), "rounded: torch.float32 and torch.bfloat16"));
}

TEST_CASE("checkpoint_diff: names, prefixes and mappings") {
  CHECK(compared(renamed(small_net(), "module."), renamed(small_net(), "model._orig_mod.")).agrees);
  CHECK(compared(renamed(small_net(), "state_dict.module."), small_net()).steps[0].compared == 11);

  // names of another program are matched by shape and order, and this is reported
  auto other = small_net();
  for (auto& [name, tensor] : other)
    if (name.starts_with("layer1.fc1")) name.replace(0, 10, "blocks.0.mlp");
  const auto fuzzy = compared(small_net(), other);
  CHECK((fuzzy.agrees && fuzzy.steps[0].compared == 11));
  CHECK(some_has(fuzzy.steps[0].notes, "layer1.fc1 with blocks.0.mlp"));
  const auto strict = compared(small_net(), other, {.fuzzy = false});
  CHECK((strict.steps[0].compared == 9 && strict.steps[0].one_sided == 2));
  CHECK(compared(small_net(), other, {.fuzzy = false, .mapping = {{"layer1.fc1", "blocks.0.mlp"}}}).steps[0].compared == 11);
  const auto by_tensor = compared(small_net(), other, {.fuzzy = false, .mapping = {{"layer1.fc1.weight", "blocks.0.mlp.weight"}}});
  CHECK(by_tensor.steps[0].compared == 10);
  CHECK(layer_in(by_tensor, "blocks.0.mlp").items.at(0).a == "layer1.fc1.weight");
  CHECK(layer_in(by_tensor, "blocks.0.mlp").items.at(0).b == "blocks.0.mlp.weight");

  const auto unknown = error_of([&] { compared(small_net(), other, {.mapping = {{"fc9", "mlp"}}}); });
  CHECK((unknown.kind() == ErrorKind::Usage && has(unknown.what(), "fc9, which does not exist in A; mlp, which does not exist in B")));

  const auto e = error_of([&] { compared({{"a.weight", at::ones({2})}}, {{"b.bias", at::ones({3})}}); });
  CHECK((e.kind() == ErrorKind::Data && has(e.what(), "no tensor in common")));
}

TEST_CASE("checkpoint_diff: a part of the layers") {
  const auto net = small_net();
  const auto last = compared(net, net, {.layers = "last"});
  CHECK((last.sampled && last.steps[0].calls.size() == 1 && last.steps[0].calls[0].layer == "head" && last.steps[0].skipped == 4));
  CHECK((layer_names(compared(net, net, {.layers = "bn*"})) == std::vector<std::string>{"bn1"}));
  CHECK(error_of([&] { compared(net, net, {.sample = 0}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("checkpoint_diff: a file in alphabetical order is read in that of numbers") {
  NamedTensors net;
  for (const char* name : {"blocks.0.w", "blocks.1.w", "blocks.10.w", "blocks.2.w", "head.w"}) net.emplace_back(name, at::ones({2}));
  CHECK((layer_names(compared(net, net)) == std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2", "blocks.10", "head"}));
  std::swap(net[0], net[4]);
  CHECK((layer_names(compared(net, net)) == std::vector<std::string>{"head", "blocks.1", "blocks.10", "blocks.2", "blocks.0"}));
}

namespace {

RunState run_state(double scale = 1024) {
  RunState state;
  for (const auto& [name, tensor] : small_net()) state["model"].tensors.emplace(name, tensor);
  for (const char* name : {"conv1.weight", "head.bias"}) {
    state["optimizer"].tensors.emplace(std::string("momentum/") + name, at::ones({3}));
    state["ema"].tensors.emplace(std::string("average/") + name, at::ones({2}));
  }
  state["ema"].tensors.emplace("buffer/bn1.running_mean", at::ones({4}));
  state["optimizer"].values["optimizer"] = std::string("sgd");
  state["scaler"].values["scale"] = scale;
  state["rng"].tensors.emplace("cpu", at::ones({8}, at::kByte));
  return state;
}

void save_run(const fs::path& dir, const RunState& state, int64_t step) {
  CheckpointMeta meta;
  meta.global_step = step;
  meta.model = "small";
  save_checkpoint(dir, state, meta, ConfigNode{{"seed", 1}});
}

}  // namespace

TEST_CASE("checkpoint_diff: checkpoints of ours have an optimizer and an average") {
  const TempDir dir;
  save_run(dir / "run_a" / "checkpoints" / "epoch=000-step=5", run_state(), 5);
  fs::create_directory_symlink("epoch=000-step=5", dir / "run_a" / "checkpoints" / "last");
  auto other = run_state(512);
  other["rng"].tensors["cpu"].zero_();
  save_run(dir / "b", other, 5);
  const auto same = compare_checkpoints(dir / "run_a", dir / "b");
  CHECK((same.agrees && !same.first.found));
  CHECK(same.facts_a.at("model") == "small");
  CHECK(some_has(same.notes, "scaler.scale: 1024 and 512"));
  CHECK((layer_names(same) == std::vector<std::string>{"bn1", "conv1", "head", "layer1.fc1", "token", "ema bn1", "ema conv1", "ema head",
                                                       "optimizer conv1", "optimizer head"}));
  CHECK(layer_in(same, "optimizer conv1").items.at(0).a == "optimizer conv1.weight.momentum");
  CHECK(layer_in(same, "ema bn1").items.at(0).a == "ema bn1.running_mean");

  other["optimizer"].tensors["momentum/head.bias"] *= 2;
  save_run(dir / "c", other, 5);
  const auto momentum = compare_checkpoints(dir / "b", dir / "c");
  CHECK((!momentum.agrees && momentum.first.layer == "optimizer head"));
  CHECK(has(momentum.first.likely.at(0), "different gradients or betas"));

  other["model"].tensors["head.bias"] *= 1.1;
  other.erase("ema");
  save_run(dir / "d", other, 9);
  const auto later = compare_checkpoints(dir / "c", dir / "d");
  CHECK(later.first.layer == "head");
  CHECK(has(later.first.likely.at(0), "different steps: 5 and 9"));
  CHECK(some_has(later.notes, "only A contains the part ema"));

  // only the models are compared with a file of weights alone
  save_safetensors(dir / "w.safetensors", small_net());
  const auto weights = compare_checkpoints(dir / "b", dir / "w.safetensors");
  CHECK((weights.agrees && weights.steps[0].compared == 11));
  CHECK(some_has(weights.notes, "only A contains the part optimizer"));
}

TEST_CASE("checkpoint_diff: files of torch.save") {
  const TempDir dir;
  const auto ramp = [](at::IntArrayRef shape, int64_t n) { return (at::arange(n, at::kFloat) / 4).reshape(shape); };
  save_safetensors(dir / "a.safetensors", {{"module.conv.weight", ramp({2, 3, 2, 2}, 24)},
                                           {"module.conv.bias", ramp({2}, 2)},
                                           {"module.bn.num_batches_tracked", at::ones({}, at::kLong) * 7}});
  const auto same = compare_checkpoints(dir / "a.safetensors", kPthFiles / "state_dict.pth");
  CHECK((same.agrees && same.steps[0].compared == 3 && !same.first.found));
  // the optimizer is recognised in a training script's dict
  save_safetensors(dir / "w.safetensors", {{"w", ramp({3}, 3)}});
  const auto script = compare_checkpoints(kPthFiles / "checkpoint.pth", dir / "w.safetensors");
  CHECK((script.agrees && script.steps[0].compared == 1 && script.steps[0].one_sided == 0));
  CHECK(some_has(script.notes, "only A contains the part optimizer"));
  const auto both = compare_checkpoints(kPthFiles / "checkpoint.pth", kPthFiles / "checkpoint.pth");
  CHECK((layer_names(both) == std::vector<std::string>{"w", "optimizer state.0"}));
}

TEST_CASE("checkpoint_diff: names that share one tensor on one side only are reported") {
  const TempDir dir;
  auto tensors = load_pth(kPthFiles / "views.pth").tensors;  // `transposed` is a view of `base`
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  save_safetensors(dir / "own.safetensors", tensors);
  std::erase_if(tensors, [](const auto& t) { return t.first == "transposed"; });
  save_safetensors(dir / "one.safetensors", tensors);
  const auto views = kPthFiles / "views.pth";
  const auto notes = [](const fs::path& a, const fs::path& b) { return compare_checkpoints(a, b).notes; };
  CHECK(some_has(notes(views, dir / "own.safetensors"), "base, transposed: one tensor in A, separate tensors in B"));
  CHECK(some_has(notes(dir / "own.safetensors", views), "base, transposed: one tensor in B, separate tensors in A"));
  CHECK(some_has(notes(views, dir / "one.safetensors"), "base, transposed: one tensor in A; B has only base"));
  CHECK_FALSE(some_has(notes(views, views), "one tensor"));
  CHECK_FALSE(some_has(notes(dir / "own.safetensors", dir / "one.safetensors"), "one tensor"));
}

TEST_CASE("checkpoint_diff: what only one side has is not all") {
  auto b = small_net();
  CHECK(compared(small_net(), b).complete);
  b.emplace_back("layer1.norm.num_batches_tracked", at::zeros({}, at::kLong));
  const auto counted = compared(small_net(), b);
  CHECK((counted.agrees && !counted.complete));
  std::erase_if(b, [](const auto& t) { return t.first == "token"; });
  for (const bool swapped : {false, true}) {
    const auto lost = swapped ? compared(b, small_net()) : compared(small_net(), b);
    CHECK((!lost.agrees && !lost.complete));
    CHECK(lost.first.layer == "token");
    CHECK(has(lost.first.sentence, std::string("token is in ") + (swapped ? "B" : "A") + " only"));
  }
}

TEST_CASE("checkpoint_diff: one element that moved is no other order") {
  auto b = small_net();
  tensor_of(b, "layer1.fc1.weight").view({-1})[1] += 0.03;
  const auto moved = compared(small_net(), b);
  CHECK_FALSE(has(moved.first.sentence, "a different order"));
  auto turned = small_net();
  auto& w = tensor_of(turned, "layer1.fc1.weight");
  w = w.flatten().flip({0}).reshape(w.sizes()).contiguous();
  CHECK(has(compared(small_net(), turned).first.sentence, "the same values in a different order"));
}

TEST_CASE("checkpoint_diff: a tolerance that matches no layer is reported") {
  const auto notes = compared(small_net(), small_net(), {.layer_tolerance = {{"conv1", {1, 1}}, {"cnv1*", {1, 1}}}}).notes;
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == "--tolerance cnv1* matches no compared layer or call");
}

TEST_CASE("checkpoint_diff: damaged and foreign files are refused") {
  const TempDir dir;
  const auto good = dir / "good.safetensors";
  save_safetensors(good, small_net());
  const auto kind_of = [&](const fs::path& path) { return error_of([&] { compare_checkpoints(good, path); }).kind(); };
  CHECK((kind_of(dir / "none.safetensors") == ErrorKind::Data));
  write_file_atomic(dir / "a.txt", "hello");
  CHECK((kind_of(dir / "a.txt") == ErrorKind::Data));
  write_file_atomic(dir / "cut.safetensors", read_file(good, 1 << 20).substr(0, 900));
  CHECK((kind_of(dir / "cut.safetensors") == ErrorKind::Data));
  fs::create_directory(dir / "folder");
  CHECK((kind_of(dir / "folder") == ErrorKind::Data));
  CHECK((kind_of(kPthFiles / "evil_system.pth") == ErrorKind::Data));
  const std::string text = error_of([&] { compare_checkpoints(good, kPthFiles / "evil_system.pth"); }).what();
  CHECK(text.starts_with("[pth] " + (kPthFiles / "evil_system.pth").string() + ": "));

  save_run(dir / "run", run_state(), 1);
  auto bytes = read_file(dir / "run" / "model.safetensors", 1 << 20);
  bytes.back() ^= 1;
  write_file_atomic(dir / "run" / "model.safetensors", bytes);
  CHECK((kind_of(dir / "run") == ErrorKind::Data));
}
