// Images in tar archives: the data set webdataset, its stream for training and its images for validation. tests/apps/webdataset_test.py
// compares them with the package webdataset.
#include "testing.hpp"

#include "npu_train/data/image_stream.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "data/shard_names.hpp"
#include "data/shard_samples.hpp"
#include "draining.hpp"
#include "images.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/shapes_only.hpp"
#include "tar_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

/// Archives whose samples have the classes 0, 1, 2, ... in the order of the archives.
struct Archives {
  explicit Archives(const std::vector<int64_t>& counts) {
    for (size_t i = 0; i < counts.size(); ++i) {
      std::vector<TarEntry> entries;
      for (int64_t k = 0; k < counts[i]; ++k, ++samples) add(entries, "folder/" + std::to_string(samples), samples);
      write(str_cat("train-", i, ".tar"), tar_of(entries));
    }
    train = str_cat("['train-{0..", counts.size() - 1, "}.tar']");
  }
  static std::string png_of(int64_t number) {
    auto image = rough(10, 12);
    for (int64_t c = 0; c < 3; ++c) image.mutable_plane(c)[0] = static_cast<uint8_t>(number);
    const auto bytes = to_png(image);
    return {bytes.begin(), bytes.end()};
  }
  static void add(std::vector<TarEntry>& entries, const std::string& key, int64_t number) {
    entries.push_back({.name = key + ".png", .content = png_of(number)});
    entries.push_back({.name = key + ".cls", .content = std::to_string(number)});
  }
  void write(const std::string& name, const std::string& content) const { std::ofstream(dir / name, std::ios::binary) << content; }
  /// `more`: keys in YAML, which replace those below.
  DatasetPair open(const std::string& more = "") const {
    auto node = parse_yaml("root: " + dir.path().string() + "\ntrain: " + train +
                               "\nnum_classes: 1000\nbatch_size: 4\nnum_workers: 0\nshuffle_buffer: 7\n"
                               "train_transforms: [{name: random_resized_crop, size: 8}, horizontal_flip, normalize]\n"
                               "val_transforms: [{name: center_crop, size: 8}, normalize]\n",
                           "test");
    const auto given = more.empty() ? ConfigNode::map() : parse_yaml(more, "test");
    for (const auto& member : given.members()) node.set(member.key, member.value);
    return builtin_datasets().make({"webdataset", node, {}}, "data", builtin_transforms());
  }
  Loader loader(const std::string& more = "", LoaderOptions runtime = {}) const {
    runtime.seed = 42;
    return train_loader(open(more), std::move(runtime));
  }
  Error refuses(const std::string& more) const {
    return error_of([&] { open(more); });
  }

  TempDir dir;
  std::string train;
  int64_t samples = 0;
};

std::vector<int64_t> classes_of(const Batch& batch) {
  const auto target = batch.target().contiguous();
  return {target.const_data_ptr<int64_t>(), target.const_data_ptr<int64_t>() + target.numel()};
}

std::vector<int64_t> rest_of(Loader& loader) {
  std::vector<int64_t> out;
  while (const auto batch = loader.next())
    for (const auto number : classes_of(*batch)) out.push_back(number);
  return out;
}

std::vector<int64_t> classes_of_epoch(Loader& loader, int64_t epoch) {
  loader.begin_epoch(epoch);
  return rest_of(loader);
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

/// Returns the loaders of all ranks.
std::vector<Loader> rank_loaders(const Archives& archives, int64_t world_size, const std::string& more = "") {
  std::vector<Loader> out;
  for (int64_t rank = 0; rank < world_size; ++rank) out.push_back(archives.loader(more, {.rank = rank, .world_size = world_size}));
  return out;
}

/// Reads the samples of an archive with these members. Returns their classes, or errors.
std::vector<std::string> read_all(const std::vector<TarEntry>& entries, const std::string& more = "") {
  const Archives archives({1});
  archives.write("train-0.tar", tar_of(entries));
  const auto pair = archives.open("shuffle: false\n" + more);
  auto& images = dynamic_cast<ImageStream&>(*pair.train_stream);
  images.begin_epoch(0);
  std::vector<std::string> out;
  while (const auto image = images.next_image()) {
    try {
      out.push_back(std::to_string(image->read().label));
    } catch (const Error& error) {
      out.push_back(error.kind() == ErrorKind::Data && has(error.what(), image->where) ? error.what() : "another error");
    }
  }
  return out;
}

}  // namespace

TEST_CASE("webdataset: an epoch has each sample once, in an order of the seed and the epoch, for any number of workers") {
  const Archives archives({10, 3, 0, 14, 8});
  auto loader = archives.loader();
  CHECK_FALSE(loader.batches_per_epoch().has_value());
  const auto first = classes_of_epoch(loader, 0), second = classes_of_epoch(loader, 1);
  CHECK(sorted(first) == first_numbers(35));
  CHECK(sorted(second) == first_numbers(35));
  CHECK(first != second);
  CHECK(first != sorted(first));
  const auto expected = epoch_of(loader, 1);
  CHECK(expected.size() == 9);
  for (const char* workers : {"0", "1", "4"}) {
    auto other = archives.loader(str_cat("num_workers: ", workers));
    CHECK(epoch_of(other, 1) == expected);
  }
  LoaderOptions runtime;
  runtime.seed = 43;
  auto of_other_seed = train_loader(archives.open(), runtime);
  CHECK(classes_of_epoch(of_other_seed, 1) != second);
  auto in_order = archives.loader("shuffle: false");
  CHECK(classes_of_epoch(in_order, 1) == first_numbers(35));
  auto without_buffer = archives.loader("shuffle_buffer: 1");  // the archives are still shuffled
  std::vector<std::vector<int64_t>> by_archive;
  for (int64_t epoch = 0; epoch < 4; ++epoch) by_archive.push_back(classes_of_epoch(without_buffer, epoch));
  CHECK(std::count(by_archive.begin(), by_archive.end(), first_numbers(35)) < 4);
  const auto ten = first_numbers(10);
  for (const auto& order : by_archive) CHECK(std::search(order.begin(), order.end(), ten.begin(), ten.end()) != order.end());
}

TEST_CASE("webdataset: a run that resumes inside an epoch has the same batches to the bit, and its state has no images") {
  const Archives archives({10, 3, 14, 8});
  for (const char* more : {"", "num_workers: 2", "shuffle: false", "shuffle_buffer: 100"}) {
    CAPTURE(more);
    auto whole = archives.loader(more);
    const auto expected = epoch_of(whole, 3);
    REQUIRE(expected.size() == 9);
    for (const int64_t done : {1, 4, 8, 9}) {
      CAPTURE(done);
      whole.begin_epoch(3);
      for (int64_t i = 0; i < done; ++i) whole.next();
      const auto state = whole.state();
      for (const auto& [key, tensor] : state.tensors) CHECK(tensor.numel() <= 100);
      auto resumed = archives.loader(more);
      resumed.load_state(state);
      CHECK(epoch_of(resumed, 3, done) == Drained(expected.begin() + done, expected.end()));
      // With a state of another position of this epoch, the loader reads on from there.
      auto later = archives.loader(more);
      later.load_state(state);
      CHECK(epoch_of(later, 3, 9).empty());
      auto without_state = archives.loader(more);
      CHECK(epoch_of(without_state, 3, done) == Drained(expected.begin() + done, expected.end()));
    }
  }
}

TEST_CASE("webdataset: ranks read whole archives, each sample once, also of unequal ones, and resume") {
  const Archives archives({10, 5, 14, 8, 9});
  for (const int64_t world_size : {2, 3, 5}) {
    CAPTURE(world_size);
    auto ranks = rank_loaders(archives, world_size);
    std::vector<std::vector<Batch>> expected(ranks.size());
    std::vector<int64_t> all;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].begin_epoch(1);
      while (auto batch = ranks[rank].next()) {
        CHECK(batch->index == static_cast<int64_t>(expected[rank].size() * ranks.size() + rank));
        for (const auto number : classes_of(*batch)) all.push_back(number);
        expected[rank].push_back(std::move(*batch));
      }
    }
    CHECK(sorted(all) == first_numbers(46));
    for (const size_t rounds : {1, 2, 4}) {  // after four rounds, rank 0 may have had its last batch
      CAPTURE(rounds);
      ranks[0].begin_epoch(1);
      for (size_t i = 0; i < rounds; ++i) ranks[0].next();
      const auto state = ranks[0].state();  // a checkpoint has this state
      const auto position = static_cast<int64_t>(rounds) * world_size;
      auto resumed = rank_loaders(archives, world_size);
      for (size_t rank = 0; rank < resumed.size(); ++rank) {
        CAPTURE(rank);
        resumed[rank].load_state(state);
        resumed[rank].begin_epoch(1, position);
        for (size_t i = rounds; i < expected[rank].size(); ++i) {
          const auto batch = resumed[rank].next();
          REQUIRE(batch.has_value());
          CHECK(batch->ids == expected[rank][i].ids);
          CHECK(digest(batch->input()) == digest(expected[rank][i].input()));
          CHECK(digest(batch->target()) == digest(expected[rank][i].target()));
        }
        CHECK_FALSE(resumed[rank].next().has_value());
      }
      auto alone = archives.loader();
      alone.load_state(state);
      const auto error = error_of([&] { alone.begin_epoch(1, position); });
      CHECK(error.kind() == ErrorKind::Checkpoint);
      CHECK(has(error.what(), "resume with " + std::to_string(world_size) + " ranks"));
      CHECK(sorted(classes_of_epoch(alone, 2)) == first_numbers(46));  // the next epoch
    }
  }
  CHECK(has(error_of([&] { rank_loaders(archives, 6); }).what(), "5 archives for 6 ranks"));
}

TEST_CASE("webdataset: a state of other files or options, or a damaged one, is refused") {
  const Archives archives({10, 9}), other({10, 8, 1});
  auto loader = archives.loader();
  loader.begin_epoch(0);
  loader.next();
  const auto state = loader.state();
  const auto refused = [&](Loader into, const State& from) {
    into.load_state(from);
    const auto error = error_of([&] { into.begin_epoch(0, 1); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    return std::string(error.what());
  };
  CHECK(has(refused(other.loader(), state), "the state belongs to 2 archives"));
  for (const char* other_order : {"shuffle_buffer: 8", "shuffle: false"})
    CHECK(has(refused(archives.loader(other_order), state), "data.shuffle_buffer must be unchanged"));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, int64_t>>{{"shard", 3}, {"shard", -1}, {"offset", -1}, {"given", -1}}) {
    auto damaged = state;
    damaged.values["stream/" + key] = value;
    CHECK(has(refused(archives.loader(), damaged), "the state is damaged"));
  }
  auto other_data = state;
  std::erase_if(other_data.values, [](const auto& item) { return item.first.starts_with("stream/"); });
  CHECK(has(refused(archives.loader(), other_data), "an epoch of other data"));
  auto moved = state;
  moved.tensors["stream/buffer_offsets"] = moved.tensors["stream/buffer_offsets"].add(512);
  CHECK_FALSE(refused(archives.loader(), moved).empty());
  auto shorter = state;
  shorter.tensors["stream/buffer_offsets"] = shorter.tensors["stream/buffer_offsets"].slice(0, 1);
  CHECK(has(refused(archives.loader(), shorter), "the state is damaged"));
}

TEST_CASE("webdataset: transforms on the device, padding and dropping of the last batch") {
  const Archives archives({10, 9});
  auto host = archives.loader(), device = archives.loader("augment_on: device"),
       padded = archives.loader("", {.last_batch = LastBatch::Pad});
  host.begin_epoch(0);
  device.begin_epoch(0);
  padded.begin_epoch(0);
  int64_t batches = 0;
  while (const auto expected = host.next()) {
    ++batches;
    const auto batch = device.next();
    REQUIRE(batch.has_value());
    CHECK((batch->input().scalar_type() == at::kByte));
    CHECK(digest(batch->finished().input()) == digest(expected->input()));
    const auto full = padded.next();
    REQUIRE(full.has_value());
    CHECK(full->input().size(0) == 4);
    CHECK(full->size == expected->size);
  }
  CHECK(batches == 5);
  auto dropping = archives.loader("drop_last: true");
  CHECK(classes_of_epoch(dropping, 0).size() == 16);
}

TEST_CASE("webdataset: a sample that cannot be read is an error that names it, or is omitted and counted") {
  const Archives archives({6});
  std::vector<TarEntry> entries;
  for (int64_t i = 0; i < 9; ++i) Archives::add(entries, std::to_string(i), i);
  entries[4].content = "not an image";
  archives.write("train-0.tar", tar_of(entries));
  auto strict = archives.loader("shuffle: false");
  strict.begin_epoch(0);
  const Error error = error_of([&] { strict.next(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), (archives.dir / "train-0.tar").string() + ", sample 2"));
  for (const char* workers : {"0", "2"}) {
    auto lenient = archives.loader(str_cat("shuffle: false\non_bad_sample: skip\nnum_workers: ", workers));
    CHECK(classes_of_epoch(lenient, 0) == std::vector<int64_t>{0, 1, 3, 4, 5, 6, 7, 8});
    CHECK(lenient.bad_samples() == 1);
  }
  // A broken archive is always an error, because the samples after the damage are not known.
  const auto whole = tar_of(entries);
  for (const size_t length : {whole.size() - 1024, whole.size() - 2048, size_t{700}}) {
    archives.write("train-0.tar", whole.substr(0, length));
    auto broken = archives.loader("shuffle: false\non_bad_sample: skip");
    broken.begin_epoch(0);
    const Error why = error_of([&] { rest_of(broken); });
    CHECK(why.kind() == ErrorKind::Data);
    CHECK(has(why.what(), (archives.dir / "train-0.tar").string() + ", offset "));
  }
}

TEST_CASE("webdataset: behind a broken archive the stream continues with the next one") {
  const Archives archives({3, 2, 3, 1});
  for (const char* name : {"train-0.tar", "train-2.tar"}) {
    const auto content = read_file(archives.dir / name, 1 << 20);
    archives.write(name, content.substr(0, content.size() - 1024));
  }
  const auto pair = archives.open("shuffle: false");
  auto& images = dynamic_cast<ImageStream&>(*pair.train_stream);
  images.begin_epoch(0);
  std::vector<std::string> found;
  for (bool more = true; more;) {
    try {
      const auto image = images.next_image();
      more = image.has_value();
      if (more) found.push_back(std::to_string(image->read().label));
    } catch (const Error&) {
      found.push_back("broken");
    }
  }
  CHECK(found == std::vector<std::string>{"0", "1", "broken", "3", "4", "5", "6", "broken", "8"});
}

TEST_CASE("webdataset: which members form a sample, and which of them are its image and its class") {
  const auto png = Archives::png_of(1);
  const auto image = [&](const std::string& name) { return TarEntry{.name = name, .content = png}; };
  const auto text = [](const std::string& name, const std::string& content) { return TarEntry{.name = name, .content = content}; };
  using Found = std::vector<std::string>;
  CHECK(read_all({image("a.PNG"), text("a.cls", " 7\n"), text("a.txt", "x"), image("b.png"), text("b.cls", "8")}) == Found{"7", "8"});
  // The key ends at the first dot of the name without its folders.
  CHECK(read_all({image("v1.0/a.png"), text("v1.0/a.cls", "1"), image("v1.1/a.png"), text("v1.1/a.cls", "2")}) == Found{"1", "2"});
  CHECK(read_all({image("a.seg.png"), image("a.png"), text("a.cls", "3")}) == Found{"3"});
  CHECK(read_all({text("README", "x"), text("__meta__/a.json", "{}"), text(".hidden.cls", "9"), text("._a.jpg", "9"), image("a.png"),
                  TarEntry{.name = "folder/", .type = '5'}, text("a.cls", "4"), text("notes", "x")}) == Found{"4"});
  // The same key again, after another one, is another sample.
  CHECK(read_all({image("a.png"), text("a.cls", "1"), image("b.png"), text("b.cls", "2"), image("a.png"), text("a.cls", "3")}).size() == 3);
  CHECK(read_all({image("a.png"), text("a.json", R"({"label": 5, "x": [1]})")}, "label: json") == Found{"5"});
  CHECK(read_all({image("a.png"), text("a.json", R"({"kind": "dog"})")},
                 "label: json\nlabel_key: kind\nnum_classes: 2\nclass_names: [cat, dog]") == Found{"1"});
  CHECK(read_all({image("a.png"), text("a.txt", "dog\n")}, "label: txt\nnum_classes: 0\nclass_names: [cat, dog]") == Found{"1"});
  CHECK(read_all({image("a.left.png"), image("a.right.png"), text("a.cls", "2")}, "image: [left.png]") == Found{"2"});

  const auto refused = [&](const std::vector<TarEntry>& entries, const std::string& part, const std::string& more = "") {
    const auto found = read_all(entries, more);
    REQUIRE(found.size() == 1);
    CAPTURE(found[0]);
    CHECK(has(found[0], part));
  };
  refused({image("a.png")}, "has 0 parts of cls");
  refused({text("a.cls", "1")}, "has 0 parts of jpg, jpeg, png, webp, bmp");
  refused({image("a.png"), image("a.jpg"), text("a.cls", "1")}, "has 2 parts");
  refused({image("a.png"), image("a.png"), text("a.cls", "1")}, "has 2 parts");
  for (const char* label : {"", "x", "-1", "1000", "1 2", "1.0"}) refused({image("a.png"), text("a.cls", label)}, "allowed: 0 to 999");
  refused({image("a.png"), text("a.cls", "wolf")}, "the names in data.class_names", "num_classes: 0\nclass_names: [cat, dog]");
  refused({image("a.png"), text("a.cls", "cat")}, "which data.class_names has twice", "num_classes: 0\nclass_names: [cat, dog, cat]");
  refused({image("a.png"), text("a.json", "{")}, "sample a", "label: json");
  refused({image("a.png"), text("a.json", "[1]")}, "it must be an object", "label: json");
  refused({image("a.png"), text("a.json", R"({"label": 1.5})")}, "label", "label: json");
  refused({image("a.png"), text("a.cls", std::string(2 << 20, '1'))}, "allowed: at most 1048576");
}

TEST_CASE("webdataset: images for validation and test, and what a configuration gets wrong") {
  const Archives archives({5, 4});
  const auto pair = archives.open("val: [train-1.tar]\ntest: ['train-{0,1}.tar']");
  CHECK(pair.summary() == "a stream + 4 images, 1,000 classes, 2 archives for training");
  auto val = val_loader(pair, {});
  CHECK(classes_of_epoch(val, 0) == std::vector<int64_t>{5, 6, 7, 8});
  CHECK(pair.val->where(1) == (archives.dir / "train-1.tar").string() + ", sample folder/6");
  CHECK(pair.open_test()->size() == 9);
  fs::create_directory(archives.dir / "more");
  fs::copy(archives.dir / "train-1.tar", archives.dir / "more/b.tar");
  fs::copy(archives.dir / "train-0.tar", archives.dir / "more/a.tar");
  archives.write("more/notes.txt", "x");
  auto of_folder = val_loader(archives.open("val: [more]"), {});
  CHECK(classes_of_epoch(of_folder, 0) == first_numbers(9));

  CHECK(has(archives.refuses("val: [missing.tar]").what(), "missing.tar: No such file or directory"));
  CHECK(has(archives.refuses("test: [missing.tar]").what(), "data.test: "));
  CHECK(has(archives.refuses("val: ['http://host/a.tar']").what(), "only local files"));
  CHECK(has(archives.refuses("val: ['train-*.tar']").what(), "in place of a pattern"));
  CHECK(has(archives.refuses("val: [/dev/null]").what(), "/dev/null: is not a regular file"));
  for (const char* part : {"image: [jpg, PNG]", "image: ['']", "image: [.png]", "label: .cls", "label: CLS", "label: ''"})
    CHECK(has(archives.refuses(part).what(), "matches no part of a sample"));
  CHECK(has(archives.refuses("image: []").what(), "names no part"));
  CHECK(has(archives.refuses("val: [train-0.tar, ./train-0.tar]").what(), "is listed twice"));
  CHECK(has(archives.refuses("val: ['train-{0.tar']").what(), "a brace without its partner"));
  archives.write("empty.tar", tar_end());
  CHECK(has(archives.refuses("val: [empty.tar]").what(), "no sample"));
  fs::create_directory(archives.dir / "none");
  CHECK(has(archives.refuses("val: [none]").what(), "contains no .tar files"));
  CHECK(has(archives.refuses("class_names: [a, b]").what(), "data.class_names has 2 names"));
  CHECK(has(error_of([&] { archives.loader("sampler: balanced"); }).what(), "a stream has no sampler"));
}

TEST_CASE("webdataset: tools that need only shapes open no archive") {
  const auto registry = shapes_only(builtin_datasets(), 10);
  const auto yaml = parse_yaml("train: ['none-{0..9}.tar']\nnum_classes: 12\nnum_workers: 0\nbatch_size: 2\nimage_size: 32", "test");
  const auto pair = registry.make({"webdataset", yaml, {}}, "data", builtin_transforms());
  CHECK(pair.info().num_classes == 12);
  auto loader = train_loader(pair, {});
  loader.begin_epoch(0);
  CHECK(loader.next()->input().sizes() == at::IntArrayRef({2, 3, 32, 32}));
}

TEST_CASE("braces expand as in a shell") {
  const auto expanded = [](const std::string& pattern) { return npu_train::detail::expand_braces(pattern, "data.train"); };
  using Names = std::vector<std::string>;
  CHECK(expanded("a.tar") == Names{"a.tar"});
  CHECK(expanded("a{0..2}.tar") == Names{"a0.tar", "a1.tar", "a2.tar"});
  CHECK(expanded("{8..11}") == Names{"8", "9", "10", "11"});
  CHECK(expanded("{08..11}") == Names{"08", "09", "10", "11"});
  CHECK(expanded("{0..010}").size() == 11);
  CHECK(expanded("{0..010}").front() == "000");
  CHECK(expanded("{a,b}{1..2}") == Names{"a1", "a2", "b1", "b2"});
  CHECK(expanded("x{a,b{1..2},}y") == Names{"xay", "xb1y", "xb2y", "xy"});
  CHECK(expanded("train-{000000..000147}.tar").back() == "train-000147.tar");
  for (const char* bad : {"a{", "a}", "a{0..2", "a{}b", "a{x}b", "{1..}", "{2..1}", "{-1..2}", "{1..3..2}", "{a..c}", "{0..9999999}",
                          "{0..999}{0..999}{0..9}"}) {
    CAPTURE(bad);
    const auto error = error_of([&] { expanded(bad); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK(has(error.what(), "data.train"));
    CHECK(has(error.what(), bad));
  }
}
