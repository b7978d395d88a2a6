/* A program in C that trains, stops, resumes and predicts: c_program FOLDER. Prints the values that c_interface_test.py checks. */
#include <ATen/dlpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu_train.h"

enum { kSamples = 64, kPixels = 3 * 32 * 32 };

static const char kConfig[] =
    "seed: 3\n"
    "device: cpu\n"
    "precision: 32-true\n"
    "model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8, num_classes: 2}\n"
    "data: {batch_size: 16, num_workers: 2}\n"
    "optimizer: {name: adamw, lr: 0.01}\n"
    "trainer: {max_epochs: 3, threads: 1}\n";

struct owner {
  DLManagedTensor tensor;
  int64_t shape[4];
};

static int tensors_alive = 0;

static void release(DLManagedTensor* tensor) {
  __atomic_sub_fetch(&tensors_alive, 1, __ATOMIC_SEQ_CST);
  free(tensor->dl_tensor.data);
  free(tensor->manager_ctx);
}

/* Returns a tensor with memory of its own; `bits`: 32 for fp32, 64 for integers. */
static DLManagedTensor* new_tensor(int ndim, const int64_t* shape, int bits) {
  struct owner* owner = calloc(1, sizeof *owner);
  int64_t count = 1;
  DLTensor* t = &owner->tensor.dl_tensor;
  for (int i = 0; i < ndim; ++i) {
    owner->shape[i] = shape[i];
    count *= shape[i];
  }
  t->data = calloc((size_t)count, (size_t)bits / 8);
  t->device.device_type = kDLCPU;
  t->ndim = ndim;
  t->shape = owner->shape;
  t->dtype.code = bits == 64 ? kDLInt : kDLFloat;
  t->dtype.bits = (uint8_t)bits;
  t->dtype.lanes = 1;
  owner->tensor.manager_ctx = owner;
  owner->tensor.deleter = release;
  __atomic_add_fetch(&tensors_alive, 1, __ATOMIC_SEQ_CST);
  return &owner->tensor;
}

/* Fills sample i: bright or dark, class i % 2. */
static void fill(float* pixels, int64_t index) {
  for (int k = 0; k < kPixels; ++k) pixels[k] = (index % 2 != 0 ? 1.0F : -1.0F) + (float)((index * 31 + k) % 7) / 10.0F;
}

static int get(void* user, int64_t index, DLManagedTensor** input, DLManagedTensor** target) {
  static const int64_t shape[] = {3, 32, 32};
  if (user != NULL && index == *(const int64_t*)user) return 1;
  *input = new_tensor(3, shape, 32);
  *target = new_tensor(0, NULL, 64);
  fill((*input)->dl_tensor.data, index);
  *(int64_t*)(*target)->dl_tensor.data = index % 2;
  return 0;
}

static DLManagedTensor* all_inputs(void) {
  static const int64_t shape[] = {kSamples, 3, 32, 32};
  DLManagedTensor* out = new_tensor(4, shape, 32);
  for (int64_t i = 0; i < kSamples; ++i) fill((float*)out->dl_tensor.data + i * kPixels, i);
  return out;
}

/* Returns all samples, with a stride of the last dimension that libtorch does not support. */
static DLManagedTensor* with_stride(int64_t stride) {
  static int64_t strides[4] = {kPixels, 32 * 32, 32, 0};
  DLManagedTensor* out = all_inputs();
  strides[3] = stride;
  out->dl_tensor.strides = strides;
  return out;
}

static DLManagedTensor* all_targets(void) {
  static const int64_t shape[] = {kSamples};
  DLManagedTensor* out = new_tensor(1, shape, 64);
  for (int64_t i = 0; i < kSamples; ++i) ((int64_t*)out->dl_tensor.data)[i] = i % 2;
  return out;
}

static void must(npu_train_error* error) {
  if (error == NULL) return;
  printf("unexpected error %d: %s\n", npu_train_error_code(error), npu_train_error_message(error));
  exit(1);
}

static void fails(const char* what, npu_train_error* error) {
  printf("%s: %d %s\n", what, npu_train_error_code(error), npu_train_error_message(error));
  npu_train_error_free(error);
}

static int steps_until_stop = -1;
static npu_train_trainer* in_use = NULL;
static int on_event(const char* event, void* user) {
  if (++*(int*)user == 1) fails("in an event", npu_train_trainer_fit(in_use, NULL));
  return strstr(event, "\"step\"") != NULL && steps_until_stop > 0 && --steps_until_stop == 0;
}

static npu_train_trainer* new_trainer(const char* folder, const char* name) {
  char dir[4096], called[256];
  const char* overrides[2] = {dir, called};
  npu_train_trainer* out = NULL;
  snprintf(dir, sizeof dir, "output.dir=%s", folder);
  snprintf(called, sizeof called, "output.name=%s", name);
  must(npu_train_trainer_new(kConfig, overrides, 2, &out));
  return out;
}

static void say(const char* what, char* text) {
  printf("%s: %s\n", what, text);
  npu_train_text_free(text);
}

static void train(const char* folder) {
  static const npu_train_dataset data = {kSamples, 2, get, NULL};
  int events = 0;
  char* text = NULL;
  npu_train_trainer* trainer = new_trainer(folder, "whole");
  must(npu_train_trainer_set_tensors(trainer, all_inputs(), all_targets(), all_inputs(), all_targets()));
  must(npu_train_trainer_fit(trainer, &text));
  say("whole", text);
  npu_train_trainer_free(trainer);

  trainer = new_trainer(folder, "parts");
  must(npu_train_trainer_set_data(trainer, &data, &data));
  must(npu_train_trainer_on_event(trainer, on_event, &events));
  steps_until_stop = 5;
  in_use = trainer;
  must(npu_train_trainer_fit(trainer, &text));
  say("stopped", text);
  npu_train_trainer_free(trainer);

  DLManagedTensor *logits = NULL, *again = NULL;
  npu_train_predictor* predictor = NULL;
  trainer = new_trainer(folder, "parts");
  must(npu_train_trainer_set_data(trainer, &data, &data));
  must(npu_train_trainer_on_event(trainer, on_event, &events));
  must(npu_train_trainer_resume(trainer, "auto", &text));
  say("resumed", text);
  must(npu_train_trainer_fit(trainer, NULL));
  must(npu_train_trainer_validate(trainer, &text));
  say("validated", text);
  must(npu_train_trainer_log(trainer, "own/value", 0.5, -1));
  must(npu_train_trainer_save(trainer, &text));
  must(npu_train_trainer_predict(trainer, all_inputs(), &logits));
  must(npu_train_predictor_new(text, "cpu", &predictor));
  npu_train_text_free(text);
  must(npu_train_predictor_predict(predictor, all_inputs(), &again));
  printf("predictions: %lld %lld %s\n", (long long)logits->dl_tensor.shape[0], (long long)logits->dl_tensor.shape[1],
         memcmp(logits->dl_tensor.data, again->dl_tensor.data, sizeof(float) * kSamples * 2) == 0 ? "equal" : "different");
  logits->deleter(logits);
  again->deleter(again);
  npu_train_predictor_free(predictor);
  npu_train_trainer_free(trainer);
  printf("events: %d\ntensors: %d\n", events, tensors_alive);
}

static void misuse(const char* folder) {
  npu_train_trainer* trainer = NULL;
  const char* overrides[1] = {"trainer.max_epoch=3"};
  const int64_t broken = 9;
  const npu_train_dataset data = {kSamples, 2, get, (void*)&broken};
  npu_train_predictor* predictor = NULL;
  DLManagedTensor* output = NULL;
  fails("no config", npu_train_trainer_new(NULL, NULL, 0, &trainer));
  fails("bad yaml", npu_train_trainer_new("a: [", NULL, 0, &trainer));
  fails("bad key", npu_train_trainer_new(kConfig, overrides, 1, &trainer));
  fails("no place", npu_train_trainer_new(kConfig, NULL, 0, NULL));
  fails("no trainer", npu_train_trainer_fit(NULL, NULL));
  fails("no checkpoint", npu_train_predictor_new("/none", "cpu", &predictor));
  trainer = new_trainer(folder, "misuse");
  fails("no targets", npu_train_trainer_set_tensors(trainer, all_inputs(), NULL, NULL, NULL));
  fails("half of val", npu_train_trainer_set_tensors(trainer, all_inputs(), all_targets(), all_inputs(), NULL));
  must(npu_train_trainer_set_data(trainer, &data, NULL));
  fails("broken sample", npu_train_trainer_fit(trainer, NULL));
  fails("data twice", npu_train_trainer_set_data(trainer, &data, NULL));
  fails("flipped", npu_train_trainer_predict(trainer, with_stride(-1), &output));
  fails("endless", npu_train_trainer_predict(trainer, with_stride(INT64_MAX), &output));
  fails("no input", npu_train_trainer_predict(trainer, NULL, &output));
  fails("other shape", npu_train_trainer_predict(trainer, all_targets(), &output));
  npu_train_trainer_free(trainer);
  npu_train_trainer_free(NULL);
  npu_train_predictor_free(NULL);
  npu_train_error_free(NULL);
  printf("tensors: %d\n", tensors_alive);
}

int main(int argc, char** argv) {
  if (argc != 3 || npu_train_abi() != NPU_TRAIN_ABI) return 2;
  printf("version: %s, libtorch %s\n", npu_train_version(), npu_train_torch_version());
  if (strcmp(argv[1], "train") == 0) train(argv[2]);
  if (strcmp(argv[1], "misuse") == 0) misuse(argv[2]);
  return 0;
}
