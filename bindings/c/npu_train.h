/* The C interface of npu_train, for programs in other languages: configurations are text, results are JSON, tensors are DLPack.
 *
 *   npu_train_trainer* trainer = NULL;
 *   npu_train_error* error = npu_train_trainer_new("model: {name: resnet18}\ndata: {name: generated}\n", NULL, 0, &trainer);
 *   if (error == NULL) error = npu_train_trainer_fit(trainer, NULL);
 *   if (error != NULL) fprintf(stderr, "%s\n", npu_train_error_message(error));
 *   npu_train_error_free(error);
 *   npu_train_trainer_free(trainer);
 *
 * Errors. Functions that can fail return NULL, or an error that the caller frees. No exception leaves the library.
 * Texts are UTF-8 and end with 0. A `char**` result may be NULL if it is not wanted; otherwise the caller frees it with
 *   npu_train_text_free(). On an error, results are not set.
 * Tensors. A `DLManagedTensor*` argument (DLPack, https://dmlc.github.io/dlpack, the form without a version) passes to the library, also on
 *   an error, and is released by its deleter when it is no longer used: its memory is not copied. A result passes to the caller.
 * Threads. Only one call on a trainer may run at a time. A second call meanwhile, from another thread or from an event function, is an
 *   error, except npu_train_trainer_request_stop() and, in an event function, _log() and _config(). A trainer must not be freed while a
 *   call runs. Functions of the program may be called from threads of the library, those of data sets from several at a time; none may
 *   throw or jump.
 */
#ifndef NPU_TRAIN_H
#define NPU_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with incompatible changes; the library's file name contains it. */
#define NPU_TRAIN_ABI 1

struct DLManagedTensor;
typedef struct npu_train_error npu_train_error;
typedef struct npu_train_trainer npu_train_trainer;
typedef struct npu_train_predictor npu_train_predictor;

/* Kinds of errors, by who can fix them. The values are the exit codes of the programs. */
enum npu_train_code {
  NPU_TRAIN_INTERNAL = 1,     /* defect of the library */
  NPU_TRAIN_USAGE = 2,        /* invalid call or configuration */
  NPU_TRAIN_DATA = 3,         /* unusable file or sample */
  NPU_TRAIN_DEVICE = 4,       /* missing or unsuitable device */
  NPU_TRAIN_DIVERGED = 5,     /* a loss that is not finite */
  NPU_TRAIN_CHECKPOINT = 6,   /* failure of a checkpoint or of its disk */
  NPU_TRAIN_CHECK_FAILED = 7, /* a requested check failed */
  NPU_TRAIN_OUT_OF_MEMORY = 8,
  NPU_TRAIN_PEER = 9 /* another process of a distributed run failed */
};

/* Return NPU_TRAIN_ABI of the loaded library, its version, and the version of libtorch with which it was built. */
int npu_train_abi(void);
const char* npu_train_version(void);
const char* npu_train_torch_version(void);

int npu_train_error_code(const npu_train_error* error);
/* "[where] what was given, what is allowed; hint: what to do"; valid until the error is freed. */
const char* npu_train_error_message(const npu_train_error* error);
void npu_train_error_free(npu_train_error* error);
void npu_train_text_free(char* text);

/* Sets the function that gets all messages; NULL, the initial value, silences them. `level`: 0 debug, 1 information, 2 warning, 3 error. */
typedef void (*npu_train_log_function)(int level, const char* message, void* user);
void npu_train_set_log(npu_train_log_function function, void* user);

/* Creates a trainer. `config`: YAML, with the keys of docs/configuration.md. `overrides`: `count` texts such as "trainer.max_epochs=3". */
npu_train_error* npu_train_trainer_new(const char* config, const char* const* overrides, size_t count, npu_train_trainer** trainer);
void npu_train_trainer_free(npu_train_trainer* trainer);

/* The next two functions set data of the program in place of the configured data; section `data` then needs no name. Data are set once,
 * before the first training, validation, prediction, save or resume. */

/* Sets the samples inputs[i], targets[i]. `val_inputs` and `val_targets` may be NULL. */
npu_train_error* npu_train_trainer_set_tensors(npu_train_trainer* trainer, struct DLManagedTensor* inputs, struct DLManagedTensor* targets,
                                               struct DLManagedTensor* val_inputs, struct DLManagedTensor* val_targets);

/* Gets sample `index`, without a batch dimension. Returns 0; other values end the run with an error that names the sample. */
typedef int (*npu_train_get_function)(void* user, int64_t index, struct DLManagedTensor** input, struct DLManagedTensor** target);
/* `num_classes`: 0 if the targets are not classes. */
typedef struct npu_train_dataset {
  int64_t size;
  int64_t num_classes;
  npu_train_get_function get;
  void* user;
} npu_train_dataset;
/* Sets data sets. `val` may be NULL. The object to which `user` points must outlive the trainer. */
npu_train_error* npu_train_trainer_set_data(npu_train_trainer* trainer, const npu_train_dataset* train, const npu_train_dataset* val);

/* Receives events of fit() as JSON: {"event": "step" | "validation" | "epoch" | "checkpoint", ...}. Returns 0 to continue; other values end
 * fit() after the current step, with a checkpoint. Call it before fit(). */
typedef int (*npu_train_event_function)(const char* event, void* user);
npu_train_error* npu_train_trainer_on_event(npu_train_trainer* trainer, npu_train_event_function function, void* user);

/* Trains. `result`: {"reason", "global_step", "skipped_steps", "run_dir", "last_checkpoint", "best_checkpoint", "final_val", "history"}. */
npu_train_error* npu_train_trainer_fit(npu_train_trainer* trainer, char** result);
/* Ends fit() after the current step, with a checkpoint. May be called from any thread. */
void npu_train_trainer_request_stop(npu_train_trainer* trainer);
/* Continues from a checkpoint: "auto", "last", "best" or a path. `path`: path of the checkpoint, "" if "auto" found none. */
npu_train_error* npu_train_trainer_resume(npu_train_trainer* trainer, const char* which, char** path);
/* Writes a checkpoint. */
npu_train_error* npu_train_trainer_save(npu_train_trainer* trainer, char** path);
/* Validates. `metrics`: {"loss": 0.3, ...} over the validation data. */
npu_train_error* npu_train_trainer_validate(npu_train_trainer* trainer, char** metrics);
/* Computes the first output for `input` [N, ...], fp32 on the host. */
npu_train_error* npu_train_trainer_predict(npu_train_trainer* trainer, struct DLManagedTensor* input, struct DLManagedTensor** output);
/* Logs a number of the program, as a column of metrics.csv and in TensorBoard. `step`: the number of steps to which it belongs, such as the
 * global_step of an event; -1: the steps taken so far. */
npu_train_error* npu_train_trainer_log(npu_train_trainer* trainer, const char* name, double value, int64_t step);
/* Gets the configuration with all defaults, as YAML. */
npu_train_error* npu_train_trainer_config(npu_train_trainer* trainer, char** yaml);

/* Opens the model of a checkpoint, its checkpoints/ folder or a run's folder, for inference. `device`: "auto", "cpu", ... */
npu_train_error* npu_train_predictor_new(const char* checkpoint, const char* device, npu_train_predictor** predictor);
void npu_train_predictor_free(npu_train_predictor* predictor);
/* Computes the first output for a prepared input [N, ...], fp32 on the host. */
npu_train_error* npu_train_predictor_predict(npu_train_predictor* predictor, struct DLManagedTensor* input, struct DLManagedTensor** output);
/* Reads an image file. `answers`: [{"class": 3, "name": "cat", "probability": 0.9}, ...], the `top` most probable classes. */
npu_train_error* npu_train_predictor_classify(npu_train_predictor* predictor, const char* image, int64_t top, char** answers);

#ifdef __cplusplus
}
#endif

#endif
