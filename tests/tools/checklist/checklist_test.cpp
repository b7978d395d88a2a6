// The checklist of a migration, on the simulated NPU and on a device that does not exist.
#include "testing.hpp"

#include <algorithm>
#include <fstream>

#include "engine/short_run.hpp"
#include "environment_variable.hpp"
#include "npu_train/tools/bench/baseline.hpp"
#include "npu_train/tools/checklist/checklist.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

const ChecklistItem& item_of(const Checklist& list, const std::string& item) {
  for (const auto& i : list.items)
    if (has(i.item, item)) return i;
  FAIL("no item " << item);
  return list.items.front();
}

ItemState state_of(const Checklist& list, const std::string& item) { return item_of(list, item).state; }

}  // namespace

// This case comes first: a process that has run a backward pass accepts no further kind of device.
TEST_CASE("a complete list on the simulated NPU") {
  resolve_device("sim_npu");
  TempDir dir;
  save_json(dir / "cpu.json", to_json(record_baseline(short_run())));
  std::ofstream(dir / "train.py") << "import torch\nx = torch.ones(3).cuda()\n";
  const auto file = (dir / "cpu.json").string();
  const auto list =
      migration_checklist(short_run(), {.device = "sim_npu", .source = dir.path().string(), .reference = file, .baseline = file});
  CHECK((state_of(list, "the machine is set up") == ItemState::NotChecked));  // this machine has no driver and no CANN
  for (const char* item :
       {"environment variables are right", "the device is available", "the device computes", "every operator",
        "times are those of the device", "the model trains on the device", "steps agree with the CPU", "edge cases", "losses and accuracy",
        "page-locked memory", "samples of the reference", "the speed", "resumes bit for bit", "continues on the CPU"}) {
    CAPTURE(item);
    CHECK((state_of(list, item) == ItemState::Done));
  }
  CHECK(list.items.size() == 24);
  CHECK(item_of(list, "edge cases").evidence == "batch of 1, last partial batch, zeros, large values");
  CHECK(item_of(list, "page-locked memory").evidence == "the batches of the loader are pinned");
  CHECK(has(item_of(list, "samples of the reference").evidence,
            "an update has 8 samples (data.batch_size 8, trainer.accumulate_grad_batches 1)"));
  CHECK(has(item_of(list, "continues on the CPU").evidence, "a checkpoint after 3 steps in 32-true has the same weights on the CPU"));
  CHECK((state_of(list, "several devices") == ItemState::NotChecked));  // only one exists
  CHECK(has(item_of(list, "several devices").next, "npu_tool doctor --dist, then train_app CONFIG device=sim_npu --nproc 2"));
  CHECK((state_of(list, "is monitored") == ItemState::NotDone));  // output.dir is empty
  CHECK((state_of(list, "sources") == ItemState::NotDone));
  CHECK((state_of(list, "weights were delivered") == ItemState::ByHand));
  std::vector<std::string> stages;
  for (const auto& i : list.items) {
    if (stages.empty() || stages.back() != i.stage) stages.push_back(i.stage);
    if (i.state == ItemState::Done) {
      CHECK(!i.evidence.empty());
      CHECK(i.next.empty());
    } else {
      CHECK(!i.next.empty());
    }
  }
  CHECK((stages == std::vector<std::string>{"environment", "code", "precision", "performance", "delivery"}));
  CHECK(has(to_text(list), list.summary()));
  CHECK(has(to_html(list), "<h1>Migration to "));
  CHECK(to_json(list).at("items", "json").items("items").size() == list.items.size());
}

TEST_CASE("a device that does not exist fails its items, and leaves the others") {
  const auto list = migration_checklist(short_run(), {.device = "cuda:7", .train = "train_app c.yaml"});
  const auto timeline =
      std::find_if(list.items.begin(), list.items.end(), [](const ChecklistItem& i) { return has(i.item, "timeline shows no gaps"); });
  REQUIRE(timeline != list.items.end());
  CHECK(has(timeline->next, "nsys profile --trace=cuda,nvtx --output=npu_train train_app c.yaml device=cuda:7"));
  CHECK((state_of(list, "the device is available") == ItemState::NotDone));
  CHECK((state_of(list, "the model trains on the device") == ItemState::NotDone));
  for (const char* item : {"edge cases", "page-locked memory", "samples of the reference", "several devices", "continues on the CPU"}) {
    CAPTURE(item);
    CHECK((state_of(list, item) == ItemState::NotDone));
  }
  CHECK((state_of(list, "repeats bit for bit") == ItemState::Done));
  CHECK((state_of(list, "the chip has every operator") == ItemState::Done));
  CHECK((state_of(list, "sources") == ItemState::NotChecked));
  CHECK((state_of(list, "the speed") == ItemState::NotChecked));
  CHECK((state_of(list, "weights were delivered") == ItemState::ByHand));
  CHECK(has(to_html(list), "<p class=\"note bad\">The migration is not complete"));
}

TEST_CASE("a list with items that no one checked is not green, and an NPU without driver and CANN is not set up") {
  const auto on_npu = migration_checklist(short_run(), {.device = "npu"});
  const auto item = std::find_if(on_npu.items.begin(), on_npu.items.end(), [](const ChecklistItem& i) { return has(i.item, "is set up"); });
  REQUIRE(item != on_npu.items.end());
  CHECK((item->state == ItemState::NotDone));
  CHECK(item->evidence == "no driver and CANN found on this machine");
  Checklist list{.device = "npu", .items = {{"code", "a", ItemState::Done, "seen"}, {"code", "b", ItemState::NotChecked, "", "do"}}};
  CHECK(list.summary() == "1 of 2 done, 0 not done, 1 not checked, 0 by hand");
  CHECK(has(to_html(list), "<p class=\"note warn\">No check failed, but the migration is not complete"));
  CHECK(has(to_html(list), "<td>not checked</td>"));
  CHECK(has(to_text(list), "  not checked  b\n               action: do\n"));
  list.items.pop_back();
  CHECK(has(to_html(list), "<p class=\"note good\">The migration is complete: all 1 items are done."));
}

TEST_CASE("what a short run cannot show is not checked, with what would show it; a simulator's speed too") {
  auto config = short_run();
  config.data.options.set("train_size", ConfigNode(int64_t{32}));  // four steps
  auto simulated = record_baseline(config);
  simulated.device = "sim_npu:0";
  TempDir dir;
  const auto file = (dir / "b.json").string();
  save_json(file, to_json(simulated));
  auto other = simulated;
  other.effective_batch = 32;
  save_json(dir / "other.json", to_json(other));
  std::ofstream(dir / "train.py") << "import torch\ntorch.backends.cudnn.benchmark = True\nstart = torch.cuda.Event(enable_timing=True)\n";
  auto with_files = config;
  with_files.output.dir = (dir / "runs").string();
  const EnvironmentVariable wrong("HCCL_CONNECT_TIMEOUT", "3");
  const auto of_others =
      migration_checklist(with_files, {.device = "cpu", .source = dir.path().string(), .reference = (dir / "other.json").string()});
  CHECK((state_of(of_others, "environment variables") == ItemState::NotDone));
  CHECK(has(item_of(of_others, "environment variables").evidence, "HCCL_CONNECT_TIMEOUT: '3' is not an integer of 120 to 7200"));
  CHECK((state_of(of_others, "times are those") == ItemState::NotDone));
  CHECK(has(item_of(of_others, "times are those").evidence, "2, first train.py:2 torch.backends.cudnn.benchmark"));
  CHECK((state_of(of_others, "samples of the reference") == ItemState::NotDone));
  CHECK(has(item_of(of_others, "samples of the reference").evidence, "an update has 8 samples"));
  CHECK(has(item_of(of_others, "samples of the reference").evidence, "the reference has 32"));
  CHECK((state_of(of_others, "is monitored") == ItemState::Done));
  CHECK_FALSE(std::filesystem::exists(dir / "runs"));
  config.trainer.benchmark = "true";
  const auto list = migration_checklist(config, {.device = "cpu", .reference = file, .baseline = file});
  CHECK((state_of(list, "times are those") == ItemState::NotDone));
  CHECK(item_of(list, "times are those").evidence == "trainer.benchmark=true is a setting of GPUs");
  CHECK((state_of(list, "repeats bit for bit") == ItemState::Done));
  const auto& resumes = item_of(list, "resumes bit for bit");
  CHECK((resumes.state == ItemState::NotChecked));
  CHECK(resumes.evidence == "not judged, since the run ends after 4 steps, but 6 are needed");
  CHECK(resumes.next == "use --steps 2, or a longer run");
  const auto& speed = item_of(list, "the speed");
  CHECK((speed.state == ItemState::NotChecked));
  CHECK(has(speed.evidence, "does not represent a chip"));
  CHECK((state_of(migration_checklist(config, {.device = "cpu", .steps = 2}), "resumes bit for bit") == ItemState::Done));
}

TEST_CASE("steps that make no sense are refused") {
  CHECK(error_of([] { migration_checklist(short_run(), {.device = "cpu", .steps = 0}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { migration_checklist(short_run(), {.device = "cpu", .soc = "H100"}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { migration_checklist(short_run(), {.device = "cpu", .source = "/nowhere"}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { migration_checklist(short_run(), {.device = "cpu", .reference = "/nowhere.json"}); }).kind() == ErrorKind::Data);
}
