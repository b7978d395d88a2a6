#include "testing.hpp"

#include "npu_train/data/datasets.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "images.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/generated.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DatasetPair make(const std::string& name, const std::string& yaml) {
  return builtin_datasets().make({name, parse_yaml(yaml, "test"), {}}, "data", builtin_transforms());
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

  // Truncates an image to half: the error of the loader names the file.
  auto cut = to_jpeg(rough(64, 64));
  cut.resize(cut.size() / 2);
  add("train/ant/a.jpg", cut);
  Loader broken = train_loader(make("image_folder", yaml), {});
  broken.begin_epoch(0);
  const Error error = error_of([&] { broken.next(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(std::string(error.what()).find("train/ant/a.jpg") != std::string::npos);
}

TEST_CASE("images of unequal size need a transform that fixes it") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "train/ant");
  write_bytes((dir / "train/ant/a.png").string(), to_png(ramp(50, 40)));
  const DatasetPair pair =
      make("image_folder", "root: '" + dir.path().string() + "'\nbatch_size: 1\ntrain_transforms: [{name: resize, size: 20}]");
  const Error error = error_of([&] { train_loader(pair, {}); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(std::string(error.what()).find("center_crop") != std::string::npos);
}

TEST_CASE("unknown names and missing files are reported") {
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
  const DatasetPair pair = registry.make({"squares", parse_yaml("batch_size: 5\nnum_workers: 2", "t"), {}}, "data", builtin_transforms());
  Loader loader = train_loader(pair, {.seed = 1});
  loader.begin_epoch(0);
  int64_t samples = 0;
  while (auto batch = loader.next()) {
    samples += batch->size;
    CHECK(batch->target().squeeze(1).equal(batch->input().select(1, 0).square()));
  }
  CHECK(samples == 12);
}

TEST_CASE("real images: an epoch of the subset, the same for one and three workers" *
          only_if(!real_images().empty(), "no real CIFAR-10 images next to the repository (NPU_TRAIN_SHARED)")) {
  const auto root = real_images();
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

namespace {

void add_image(const std::filesystem::path& path, bool whole = true) {
  std::filesystem::create_directories(path.parent_path());
  auto bytes = to_png(rough(8, 8));
  if (!whole) bytes.resize(bytes.size() / 2);
  write_bytes(path.string(), bytes);
}

DatasetPair folder(const std::filesystem::path& root, const std::string& more = "") {
  return make("image_folder", "root: " + root.string() + "\nimage_size: 8\nbatch_size: 2\nnum_workers: 0\n" + more);
}

std::vector<std::string> log_of(const std::function<void()>& fn) {
  std::vector<std::string> out;
  {
    const ScopedLogSink sink([&](LogLevel, std::string_view text) { out.emplace_back(text); });
    fn();
  }
  return out;
}

}  // namespace

TEST_CASE("the folder of validation may be called valid or validation, and a missing one is said") {
  for (const char* name : {"val", "valid", "validation"}) {
    const TempDir dir;
    add_image(dir / "train/a/1.png");
    add_image(dir.path() / name / "a/2.png");
    DatasetPair pair;
    CHECK(log_of([&] { pair = folder(dir.path()); }).empty());
    REQUIRE(pair.val != nullptr);
    CHECK(pair.val->size() == 1);
  }
  const TempDir dir;
  add_image(dir / "train/a/1.png");
  add_image(dir / "test/a/2.png");
  const auto said = log_of([&] { CHECK(folder(dir.path()).val == nullptr); });
  REQUIRE(said.size() == 1);
  CHECK_MESSAGE(has(said[0], "has no folder val"), said[0]);
}

TEST_CASE("classes may be folders of the root, from which val_split or a fold holds out images for validation") {
  const TempDir dir;
  for (int i = 0; i < 10; ++i)
    for (const char* name : {"a", "b"}) add_image(dir / (std::string(name) + "/" + std::to_string(i) + ".png"));
  const auto whole = folder(dir.path());
  CHECK(whole.summary() == "20 images, 2 classes");
  const auto split = folder(dir.path(), "val_split: 0.2");
  CHECK(split.summary() == "16 + 4 images, 2 classes");
  CHECK(split.val->info().class_names == std::vector<std::string>{"a", "b"});
  const auto& images = dynamic_cast<const ImageDataset&>(*split.val);
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(images.label(i) == i / 2);
    CHECK(images.image(i).label == images.label(i));
    CHECK(has(images.where(i), i < 2 ? "/a/" : "/b/"));
  }
  CHECK(folder(dir.path(), "fold: 3/5").summary() == "16 + 4 images, 2 classes");
  CHECK(has(error_of([&] { folder(dir.path(), "fold: 6/5"); }).what(), "'6/5'"));
  CHECK(error_of([&] { folder(dir.path(), "val_split: 0.95"); }).kind() == ErrorKind::Usage);

  add_image(dir / "val/a/1.png");  // now the root has the folders of a split, but train is missing
  CHECK(error_of([&] { folder(dir.path()); }).kind() == ErrorKind::Data);
  add_image(dir / "train/a/1.png");
  CHECK(folder(dir.path()).summary() == "1 + 1 images, 1 classes");
  CHECK(has(error_of([&] { folder(dir.path(), "val_split: 0.2"); }).what(), "omit data.val_split"));
}

TEST_CASE("test images are opened when they are asked for, with the classes of training") {
  const TempDir dir;
  for (const char* name : {"train/a/1.png", "train/b/2.png", "test/b/3.png"}) add_image(dir / name);
  const auto pair = folder(dir.path(), "val_split: 0");
  REQUIRE(pair.open_test);
  const auto test = pair.open_test();
  CHECK(test->size() == 1);
  CHECK(test->label(0) == 1);
  add_image(dir / "test/c/4.png");
  CHECK(has(error_of([&] { pair.open_test(); }).what(), "test/c: no class of the training data"));
}

TEST_CASE("a balanced sampler gives all classes the same frequency, and resumes inside an epoch") {
  const TempDir dir;
  for (int i = 0; i < 60; ++i) add_image(dir / ((i < 50 ? "train/a/" : "train/b/") + std::to_string(i) + ".png"));
  add_image(dir / "val/a/1.png");
  const auto pair = folder(dir.path(), "sampler: balanced");
  Loader loader = train_loader(pair, {.seed = 3});
  const auto labels = [](Loader& from) {
    std::vector<int64_t> out;
    while (const auto batch = from.next())
      for (int64_t i = 0; i < batch->size; ++i) out.push_back(batch->target()[i].item<int64_t>());
    return out;
  };
  loader.begin_epoch(0);
  const auto all = labels(loader);
  CHECK(all.size() == 60);
  const auto rare = std::count(all.begin(), all.end(), 1);
  CHECK((rare > 20 && rare < 40));
  loader.begin_epoch(0);
  for (int i = 0; i < 10; ++i) loader.next();
  Loader resumed = train_loader(pair, {.seed = 3});
  resumed.load_state(loader.state());
  resumed.begin_epoch(0, 10);
  CHECK(labels(resumed) == std::vector<int64_t>(all.begin() + 20, all.end()));
  CHECK(error_of([&] { train_loader(folder(dir.path()), {.seed = 3}).load_state(loader.state()); }).kind() == ErrorKind::Checkpoint);
  const auto texts = make("generated_text", "train_size: 8\nval_size: 8\nbatch_size: 2\nsampler: balanced");
  CHECK(has(error_of([&] { train_loader(texts, {}); }).what(), "does not know the class"));
}

TEST_CASE("one line reports the found and the skipped files") {
  const TempDir dir;
  for (const char* name : {"train/a/1.png", "train/a/sub/2.png", "train/b/3.png", "val/a/4.png"}) add_image(dir / name);
  for (const char* name : {"train/a/5.gif", "val/a/6.gif", "val/a/7.txt"}) add_image(dir / name);
  CHECK(folder(dir.path()).summary() == "3 + 1 images, 2 classes, 1 of the images are in subfolders, 3 files skipped (2 .gif, 1 .txt)");
  CHECK(make("generated", "train_size: 64\nval_size: 20").summary() == "64 + 20 images, 10 classes");
}

TEST_CASE("a sample that cannot be read ends the epoch, or is omitted and counted") {
  const TempDir dir;
  for (int i = 0; i < 9; ++i) add_image(dir / ("train/a/" + std::to_string(i) + ".png"), i != 1 && i != 4 && i != 5);
  add_image(dir / "val/a/0.png");
  {
    Loader loader = train_loader(folder(dir.path(), "shuffle: false"), {});
    loader.begin_epoch(0);
    const auto e = error_of([&] { loader.next(); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(has(e.what(), "1.png"));
  }
  std::vector<std::vector<int64_t>> expected = {{0}, {2, 3}, {6, 7}, {8}};  // 4 and 5, both bad, would be a batch
  const auto whole = [&] {
    const TempDir good;
    for (int i = 0; i < 9; ++i) add_image(good / ("train/a/" + std::to_string(i) + ".png"));
    add_image(good / "val/a/0.png");
    Loader loader = train_loader(folder(good.path(), "shuffle: false"), {});
    loader.begin_epoch(0);
    std::map<int64_t, at::Tensor> out;
    while (const auto batch = loader.next())
      for (int64_t i = 0; i < batch->size; ++i) out[batch->ids[static_cast<size_t>(i)]] = batch->input()[i].clone();
    return out;
  }();
  for (const int workers : {0, 3})
    for (const bool pad : {false, true}) {
      CAPTURE(workers);
      CAPTURE(pad);
      LoaderOptions runtime;
      if (pad) runtime.last_batch = LastBatch::Pad;
      auto pair = folder(dir.path(), "shuffle: false\non_bad_sample: skip");
      pair.options.num_workers = std::to_string(workers);
      Loader loader = train_loader(pair, runtime);
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<std::vector<int64_t>> ids;
        const auto said = log_of([&] {
          loader.begin_epoch(epoch);
          while (const auto batch = loader.next()) {
            ids.push_back(batch->ids);
            const auto real = static_cast<int64_t>(batch->ids.size());
            CHECK(batch->size == real);
            CHECK(batch->weight == static_cast<double>(real));
            CHECK(batch->input().size(0) == (pad ? 2 : real));
            CHECK(batch->target().size(0) == (pad ? 2 : real));
            if (pad) CHECK(batch->at("mask").sum().item<double>() == static_cast<double>(real));
            for (int64_t i = 0; i < real && epoch == 0; ++i)  // the same crop of the same image
              CHECK(at::equal(batch->input()[i], whole.at(batch->ids[static_cast<size_t>(i)])));
          }
          CHECK_FALSE(loader.next());
        });
        CHECK(ids == expected);
        CHECK(loader.bad_samples() == 3);
        CHECK(std::count_if(said.begin(), said.end(), [](const auto& line) { return has(line, "omitted: "); }) == 3);
        CHECK(said.back() ==
              "3 of 9 samples could not be read and were omitted from epoch " + std::to_string(epoch) + " (data.on_bad_sample: skip)");
      }
    }
}

TEST_CASE("only samples with data errors are omitted, also in a user's data set") {
  struct Own : Dataset {
    explicit Own(ErrorKind k) : kind(k) {}
    int64_t size() const override { return 4; }
    Sample get(int64_t i) const override {
      if (i == 2) throw Error(kind, "Own", "sample 2 is bad");
      return {{{"input", at::full({3}, i)}, {"target", at::full({}, i)}}, i};
    }
    ErrorKind kind;
  };
  DatasetPair pair;
  pair.options.batch_size = 4;
  pair.options.num_workers = "0";
  pair.options.shuffle = false;
  pair.options.on_bad_sample = "skip";
  pair.train = std::make_shared<Own>(ErrorKind::Data);
  Loader loader = train_loader(pair, {});
  loader.begin_epoch(0);
  const auto batch = loader.next();
  REQUIRE(batch);
  CHECK(batch->ids == std::vector<int64_t>{0, 1, 3});
  CHECK(batch->target()[2].item<int64_t>() == 3);
  pair.train = std::make_shared<Own>(ErrorKind::Usage);
  Loader other = train_loader(pair, {});
  other.begin_epoch(0);
  CHECK(error_of([&] { other.next(); }).kind() == ErrorKind::Usage);
}
