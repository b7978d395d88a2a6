#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "npu_train/train/checkpoint_store.hpp"

#include <cmath>
#include <fstream>
#include <set>

#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunState state_of(int64_t step) {
  RunState s;
  s["loop"].values["global_step"] = step;
  return s;
}

std::string save(CheckpointStore& store, int64_t step, double score, const std::string& monitor = "val/acc1") {
  CheckpointMeta meta;
  meta.epoch = step / 10;
  meta.global_step = step;
  meta.batches_seen = step;
  meta.score = score;
  meta.monitor = monitor;
  return store.save(state_of(step), meta, ConfigNode::map());
}

CheckpointMeta at_step(int64_t step) {
  CheckpointMeta meta;
  meta.global_step = step;
  return meta;
}

std::set<int64_t> kept(const CheckpointStore& store) {
  std::set<int64_t> out;
  for (const auto& item : fs::directory_iterator(store.dir()))
    if (!item.is_symlink()) out.insert(read_checkpoint_meta(item.path().string()).global_step);
  return out;
}

int64_t step_of(const std::string& path) { return read_checkpoint_meta(path).global_step; }

}  // namespace

TEST_CASE("the best ones and the newest are kept") {
  TempDir dir;
  CheckpointStore store((dir / "checkpoints").string(), {.monitor = "val/acc1", .save_top_k = 2});
  for (const auto& [step, score] : {std::pair{10, 50.0}, {20, 70.0}, {30, 60.0}, {40, 65.0}, {50, 10.0}}) save(store, step, score);
  CHECK(kept(store) == std::set<int64_t>{20, 40, 50});
  CHECK(step_of(store.best()) == 20);
  CHECK(step_of(store.last()) == 50);
}

TEST_CASE("lower is better for losses; a score that is not known never becomes best") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.monitor = "val/loss", .save_top_k = 1});
  save(store, 10, 0.5, "val/loss");
  save(store, 20, 0.7, "val/loss");
  save(store, 30, std::nan(""), "val/loss");
  CHECK(step_of(store.best()) == 10);
  CHECK(kept(store) == std::set<int64_t>{10, 30});
}

TEST_CASE("a check before the commit that fails leaves the folder as it was") {
  TempDir dir;
  CheckpointStore store((dir / "checkpoints").string(), {.monitor = "val/acc1"});
  save(store, 10, 50);
  store.set_before_commit([] { throw Error(ErrorKind::Checkpoint, "run folder", "was taken over", ""); });
  CHECK(has(error_of([&] { save(store, 20, 60); }).what(), "was taken over"));
  store.save_later(state_of(30), at_step(30), ConfigNode::map());
  CHECK(has(error_of([&] { store.finish(); }).what(), "was taken over"));
  CHECK(has(error_of([&] { store.save_diverged(state_of(40), at_step(40), ConfigNode::map()); }).what(), "was taken over"));
  CHECK(kept(store) == std::set<int64_t>{10});
  CHECK(step_of(store.last()) == 10);
  CHECK(store.remove_leftovers() == 0);
  CHECK(!fs::exists(dir / "diverged"));
}

TEST_CASE("-1 keeps all") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  for (int step = 1; step <= 5; ++step) save(store, step, step);
  CHECK(kept(store).size() == 5);
}

TEST_CASE("auto ignores damaged checkpoints and takes the newest complete one") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  CHECK(store.resolve("auto") == "");
  CHECK(store.resolve("last") == "");
  save(store, 10, 1);
  const auto second = save(store, 20, 2);
  const auto third = save(store, 30, 3);
  std::ofstream(fs::path(third) / "state.json") << "{}";
  fs::create_directory(dir / "c/epoch=009-step=99");  // without a manifest, as another tool leaves it when it is killed
  CHECK(store.resolve("auto") == second);
  fs::remove(fs::path(second) / "manifest.json");
  CHECK(step_of(store.resolve("auto")) == 10);
}

TEST_CASE("auto is the one that was written last, also after the run went back to an older one") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  for (const int step : {10, 20, 30}) save(store, step, 50.0);
  const auto after = save(store, 15, 40.0);  // the run went back to step 10, and continued from there
  CHECK(store.last() == after);
  CHECK(store.resolve("auto") == after);
  CHECK(store.newest_valid() == after);
  fs::remove(fs::path(after) / "state.json");
  CHECK(step_of(store.resolve("auto")) == 30);  // `after` is damaged, so the newest of the others is chosen
}

TEST_CASE("auto is the one that was written last, also when the process died before it moved the links") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  const auto first = save(store, 10, 50.0);
  const auto second = save(store, 20, 60.0);
  fs::remove(dir / "c/last");
  fs::create_directory_symlink(fs::path(first).filename(), dir / "c/last");
  CHECK(store.resolve("auto") == second);
  fs::remove(dir / "c/last");
  CHECK(store.resolve("auto") == second);
}

namespace {

std::string text_in(const fs::path& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

void replace_in(const fs::path& path, const std::string& old, const std::string& by) {
  auto text = text_in(path);
  REQUIRE(text.find(old) != std::string::npos);
  std::ofstream(path, std::ios::trunc) << text.replace(text.find(old), old.size(), by);
}

}  // namespace

TEST_CASE("auto passes over a checkpoint whose order of saving was changed, or that lacks a file in its list") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  const auto first = save(store, 10, 1);
  const auto second = save(store, 20, 2);
  const auto third = save(store, 30, 3);
  replace_in(fs::path(first) / "manifest.json", "\"serial\": 1", "\"serial\": 9");  // this damaged serial would make it the newest
  CHECK(store.resolve("auto") == third);
  replace_in(fs::path(third) / "manifest.json", "\"name\": \"state.json\"", "\"name\": \"other.json\"");
  CHECK(store.resolve("auto") == second);
  CHECK(read_checkpoint_meta(save(store, 40, 4)).serial == 3);  // the known serials go up to 2
}

TEST_CASE("the largest serial of a manifest without a checksum is counted on from") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  const auto first = save(store, 10, 1);
  const auto manifest = fs::path(first) / "manifest.json";
  auto text = text_in(manifest);
  text = text.substr(0, text.find(",\n  \"manifest_checksum\"")) + "\n}\n";
  std::ofstream(manifest, std::ios::trunc) << text;
  replace_in(manifest, "\"format\": 2", "\"format\": 1");
  replace_in(manifest, "\"serial\": 1", "\"serial\": 9007199254740992");
  const auto second = save(store, 20, 2);
  CHECK(store.resolve("auto") == second);
  replace_in(manifest, "9007199254740992", "9223372036854775807");
  CHECK(store.resolve("auto") == second);
  CHECK(step_of(save(store, 30, 3)) == 30);
}

TEST_CASE("a checkpoint that cannot be read is named once, however often others are saved") {
  TempDir dir;
  int said = 0;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text.find("passing over") != std::string_view::npos; });
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  fs::create_directories(dir / "c/epoch=000-step=1");
  for (int step = 2; step < 6; ++step) save(store, step, step);
  CHECK(said == 1);
}

TEST_CASE("what killed processes left is removed, and nothing else") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
  const auto first = save(store, 10, 1);
  CHECK(store.remove_leftovers() == 0);
  fs::create_directory(dir / "c/.epoch=000-step=20.tmp-abcdef-1-0");
  fs::create_directory_symlink("epoch=000-step=20", dir / "c/.last.tmp-abcdef-1-1");
  fs::create_directory_symlink("epoch=000-step=20", dir / "c/.best.4711");  // older versions used such a name
  std::ofstream(dir / "c/.last.bak") << "x";
  std::ofstream(dir / "c/notes.txt") << "x";
  CHECK(store.remove_leftovers() == 3);
  CHECK(fs::exists(dir / "c/.last.bak"));
  CHECK(fs::exists(dir / "c/notes.txt"));
  CHECK(store.resolve("auto") == first);
  CHECK(store.last() == first);
}

TEST_CASE("a diverged state is saved in a folder of its own, and changes no link") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {});
  save(store, 10, 1);
  store.save_diverged(state_of(20), {}, ConfigNode::map());
  CHECK(fs::exists(dir / "diverged/manifest.json"));
  CHECK(step_of(store.last()) == 10);
}

TEST_CASE("a link that leads outside is not followed") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {});
  save(store, 10, 1);
  fs::remove(dir / "c/last");
  fs::create_directory_symlink("../elsewhere", dir / "c/last");
  CHECK(store.last() == "");
}

TEST_CASE("a checkpoint is found by its folder, the folder above, and the run's") {
  TempDir dir;
  CheckpointStore store((dir / "run/checkpoints").string(), {});
  const auto path = fs::canonical(save(store, 10, 1)).string();
  for (const auto& given : {path, (dir / "run/checkpoints").string(), (dir / "run").string()}) CHECK(find_checkpoint(given) == path);
  CHECK(error_of([&] { find_checkpoint((dir / "none").string()); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { find_checkpoint(dir.path().string()); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("the checkpoint that a path means comes with the reason") {
  TempDir dir;
  CheckpointStore store((dir / "checkpoints").string(), {.monitor = "val/acc1", .save_top_k = 1});
  const auto first = save(store, 10, 70.0);
  CHECK(choose_checkpoint(dir.path().string()).why == "the last of this run; it is also the best by val/acc1");
  save(store, 20, 50.0);
  const auto found = choose_checkpoint(dir.path().string());
  CHECK(step_of(found.path) == 20);
  CHECK(found.why == "the last of this run; the best by val/acc1 is " + fs::path(first).filename().string());
  CHECK(choose_checkpoint((dir / "checkpoints").string()).why == found.why);
  CHECK(choose_checkpoint(first).why == "given by its path");
  fs::remove(dir / "checkpoints/last");
  CHECK(choose_checkpoint(dir.path().string()).why == "the best of this run by val/acc1, which has no last one");
  CHECK(step_of(choose_checkpoint(dir.path().string()).path) == 10);
}

TEST_CASE("a save while training continues has the state of its call") {
  TempDir dir;
  CheckpointStore store((dir / "c").string(), {.monitor = "val/acc1"});
  at::Tensor weight = at::ones({1000, 100}).contiguous();
  for (int64_t step = 1; step <= 3; ++step) {
    auto state = state_of(step);
    state["model"].tensors["w"] = weight;
    state["model"].tensors["strided"] = at::ones({2, 8, 4, 4}).mul(step).contiguous(at::MemoryFormat::ChannelsLast);
    store.save_later(state, at_step(step), ConfigNode::map());
    weight.add_(1);  // as the next step would do
    const auto path = store.finish();
    const auto read = load_checkpoint(path);
    CHECK(at::equal(read.at("model").tensors.at("w"), at::full({1000, 100}, static_cast<double>(step))));
    CHECK(at::equal(read.at("model").tensors.at("strided"), at::full({2, 8, 4, 4}, static_cast<double>(step))));
    CHECK(store.last() == path);
    CHECK(store.finish().empty());  // reported only once
  }
  // Saves another model: nothing of the previous copy may remain.
  auto other = state_of(9);
  other["model"].tensors["w"] = at::zeros({3}, at::kLong);
  store.save_later(other, at_step(9), ConfigNode::map());
  const auto read = load_checkpoint(store.finish());
  CHECK(read.at("model").tensors.size() == 1U);
  CHECK((read.at("model").tensors.at("w").scalar_type() == at::kLong));
}

TEST_CASE("the newest checkpoint is looked for when the save under way is done; so does another save and the end") {
  TempDir dir;
  {
    CheckpointStore store((dir / "c").string(), {.save_top_k = -1});
    auto state = state_of(1);
    state["model"].tensors["w"] = at::ones({4'000'000});
    store.save_later(state, at_step(1), ConfigNode::map());
    CHECK(step_of(store.newest_valid()) == 1);
    CHECK_FALSE(store.finish().empty());
    store.save_later(state_of(2), at_step(2), ConfigNode::map());
    save(store, 3, 1.0);
    CHECK(step_of(store.last()) == 3);
    CHECK(step_of(store.finish()) == 2);
    store.save_later(state, at_step(4), ConfigNode::map());
  }
  CHECK(read_checkpoint_meta((dir / "c" / "last").string()).global_step == 4);
}

TEST_CASE("a save that fails while training continues is reported by finish, or in the log") {
  TempDir dir;
  std::ofstream(dir / "file") << "in the way";
  const auto in_the_way = (dir / "file" / "c").string();
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  {
    CheckpointStore store(in_the_way, {});
    store.save_later(state_of(1), {}, ConfigNode::map());
    CHECK_THROWS_AS(store.finish(), Error);
    CHECK(store.finish().empty());
    store.save_later(state_of(1), {}, ConfigNode::map());
  }
  CHECK(said.find("a checkpoint could not be written") != std::string::npos);
}
