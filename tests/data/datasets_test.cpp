#include "testing.hpp"

#include "npu_train/data/datasets.hpp"

#include <ATen/ops/full.h>

#include "npu_train/data/generated.hpp"
#include "pictures.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DatasetPair make(const std::string& name, const std::string& yaml) {
  return builtin_datasets().make({name, parse_yaml(yaml, "test"), {}}, "data");
}

}  // namespace

TEST_CASE("the generated set by name: loaders with its options") {
  const DatasetPair pair = make("generated", "train_size: 64\nval_size: 20\nbatch_size: 16\nnum_workers: 1");
  CHECK(pair.info().num_classes == 10);
  Loader train = train_loader(pair, {.seed = 3});
  CHECK(train.batches_per_epoch() == 4);
  CHECK(train.options().shuffle);
  train.begin_epoch(0);
  CHECK(train.next()->input().sizes() == at::IntArrayRef({16, 3, 32, 32}));
  Loader val = val_loader(pair, {.seed = 3});
  CHECK(!val.options().shuffle);
  CHECK(val.samples_per_epoch() == 20);
  CHECK(make("generated", "train_size: 64\nval_size: 20\nval_batch_size: 500").options.val_batch_size == 500);
  Loader small = val_loader(make("generated", "train_size: 64\nval_size: 20\nval_batch_size: 500"), {});
  CHECK(small.options().batch_size == 20);
}

TEST_CASE("image_size enlarges after the cheap steps") {
  const DatasetPair pair = make("generated", "train_size: 8\nval_size: 8\nbatch_size: 4\nnum_workers: 0\nimage_size: 48");
  Loader loader = train_loader(pair, {.channels_last = true});
  loader.begin_epoch(0);
  CHECK(loader.next()->input().sizes() == at::IntArrayRef({4, 3, 48, 48}));
}

TEST_CASE("drop_last, mixing and padding come from options and runtime") {
  const DatasetPair pair =
      make("generated", "train_size: 20\nval_size: 8\nbatch_size: 8\nnum_workers: 0\ndrop_last: true\nmixup_alpha: 0.3");
  Loader train = train_loader(pair, {});
  CHECK(train.batches_per_epoch() == 2);
  train.begin_epoch(0);
  CHECK(train.next()->target().sizes() == at::IntArrayRef({8, 10}));
  CHECK(train_loader(pair, {.last_batch = LastBatch::Pad}).batches_per_epoch() == 2);
  const DatasetPair whole = make("generated", "train_size: 20\nval_size: 8\nbatch_size: 8\nnum_workers: 0");
  CHECK(train_loader(whole, {.last_batch = LastBatch::Pad}).batches_per_epoch() == 3);
}

TEST_CASE("an image folder by name, with and without validation") {
  const TempDir dir;
  const auto add = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
    std::filesystem::create_directories((dir / name).parent_path());
    write_bytes((dir / name).string(), bytes);
  };
  add("train/ant/a.jpg", to_jpeg(ramp(70, 90)));
  add("train/bee/b.png", to_png(ramp(50, 40)));
  const std::string yaml = "root: '" + dir.path().string() + "'\nimage_size: 32\nbatch_size: 2\nnum_workers: 2";
  const DatasetPair alone = make("image_folder", yaml);
  CHECK(alone.val == nullptr);
  CHECK(error_of([&] { val_loader(alone, {}); }).kind() == ErrorKind::Usage);
  add("val/bee/c.png", to_png(ramp(50, 41)));
  const DatasetPair pair = make("image_folder", yaml);
  Loader train = train_loader(pair, {}), val = val_loader(pair, {});
  train.begin_epoch(0);
  CHECK(train.next()->input().sizes() == at::IntArrayRef({2, 3, 32, 32}));
  val.begin_epoch(0);
  const Batch batch = *val.next();
  CHECK(batch.input().sizes() == at::IntArrayRef({1, 3, 32, 32}));
  CHECK(batch.target()[0].item<int64_t>() == 1);

  // Half a picture: the error of the loader names the file.
  auto cut = to_jpeg(rough(64, 64));
  cut.resize(cut.size() / 2);
  add("train/ant/a.jpg", cut);
  Loader broken = train_loader(make("image_folder", yaml), {});
  broken.begin_epoch(0);
  const Error error = error_of([&] { broken.next(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(std::string(error.what()).find("train/ant/a.jpg") != std::string::npos);
}

TEST_CASE("pictures of unequal size need a transform that fixes it") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "train/ant");
  write_bytes((dir / "train/ant/a.png").string(), to_png(ramp(50, 40)));
  const DatasetPair pair =
      make("image_folder", "root: '" + dir.path().string() + "'\nbatch_size: 1\ntrain_transforms: [{name: resize, size: 20}]");
  const Error error = error_of([&] { train_loader(pair, {}); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(std::string(error.what()).find("center_crop") != std::string::npos);
}

TEST_CASE("unknown names and missing files are told") {
  const Error unknown = error_of([] { make("cifar_10", "{}"); });
  CHECK(unknown.kind() == ErrorKind::Usage);
  CHECK(std::string(unknown.what()).find("cifar10") != std::string::npos);
  CHECK(error_of([] { make("cifar10", "root: /nowhere/at/all"); }).kind() == ErrorKind::Data);
}

TEST_CASE("a data set of one's own takes two functions and a line") {
  class Squares : public Dataset {
   public:
    int64_t size() const override { return 12; }
    Sample get(int64_t index) const override {
      return {{{"input", at::full({4}, static_cast<double>(index))}, {"target", at::full({1}, static_cast<double>(index * index))}}, index};
    }
  };
  struct Options : DataOptions {
    static const ConfigTable<Options>& config_table() {
      static const auto table = data_fields(ConfigTable<Options>("data squares"));
      return table;
    }
  };
  DatasetRegistry registry = builtin_datasets();
  registry.add<Options>("squares", "numbers and their squares", [](const Options& options) {
    DatasetPair pair;
    pair.train = std::make_shared<Squares>();
    pair.options = options;
    return pair;
  });
  const DatasetPair pair = registry.make({"squares", parse_yaml("batch_size: 5\nnum_workers: 2", "t"), {}}, "data");
  Loader loader = train_loader(pair, {.seed = 1});
  loader.begin_epoch(0);
  int64_t samples = 0;
  while (auto batch = loader.next()) {
    samples += batch->size;
    CHECK(batch->target().squeeze(1).equal(batch->input().select(1, 0).square()));
  }
  CHECK(samples == 12);
}

TEST_CASE("real pictures: an epoch of the subset, the same for one and three workers") {
  const auto root = shared_dir() / "data" / "cifar10-subset";
  if (shared_dir().empty() || !std::filesystem::exists(root)) {
    MESSAGE("skipped: no real CIFAR-10 pictures beside the repository (NPU_TRAIN_SHARED)");
    return;
  }
  double sums[2] = {};
  for (int i = 0; i < 2; ++i) {
    const DatasetPair pair =
        make("cifar10", "root: '" + root.string() + "'\nbatch_size: 128\nnum_workers: " + std::string(i == 0 ? "1" : "3"));
    Loader loader = train_loader(pair, {.seed = 7});
    loader.begin_epoch(0);
    int64_t samples = 0;
    while (auto batch = loader.next()) {
      samples += batch->size;
      sums[i] += batch->input().sum().item<double>();
    }
    CHECK(samples == 4660);
  }
  CHECK(sums[0] == sums[1]);
}
