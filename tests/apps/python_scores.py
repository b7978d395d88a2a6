"""scikit-learn's scores: python_scores.py LOGITS.npy TARGETS.json [several|numbers]. Prints one JSON document, by the names of npu_train."""
import json
import sys

import numpy
from sklearn import metrics

logits = numpy.load(sys.argv[1]).astype(numpy.float64)
with open(sys.argv[2]) as file: labels = numpy.array(json.load(file))
if sys.argv[3:] == ['several']:  # several classes per sample
    decided, probabilities = (logits > 0).astype(int), 1 / (1 + numpy.exp(-logits))
    print(json.dumps({'acc': metrics.accuracy_score(labels.ravel(), decided.ravel()) * 100,
                      'map': metrics.average_precision_score(labels, logits, average='macro'),
                      'f1': metrics.f1_score(labels, decided, average='macro', zero_division=0),
                      'loss': numpy.mean([metrics.log_loss(labels[:, k], probabilities[:, k], labels=[0, 1]) for k in range(labels.shape[1])])}))
    sys.exit()
if sys.argv[3:] == ['numbers']:
    print(json.dumps({'mse': metrics.mean_squared_error(labels, logits), 'mae': metrics.mean_absolute_error(labels, logits),
                      'r2': metrics.r2_score(labels, logits), 'loss': metrics.mean_squared_error(labels, logits)}))
    sys.exit()
predicted, truth = logits.argmax(1), numpy.eye(logits.shape[1])[labels]
out = {}
for average, suffix in (('macro', ''), ('micro', '_micro'), ('weighted', '_weighted')):
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)
    out |= {'precision' + suffix: precision, 'recall' + suffix: recall, 'f1' + suffix: f1}
out['recall_1'] = metrics.recall_score(labels, predicted, labels=[1], average=None)[0]
probabilities = numpy.exp(logits - logits.max(1, keepdims=True))
probabilities /= probabilities.sum(1, keepdims=True)
out['auroc'] = metrics.roc_auc_score(labels, probabilities, multi_class='ovr')
out['map'] = metrics.average_precision_score(truth, probabilities, average='macro')
confidence = probabilities.max(1)
bins = numpy.digitize(confidence, numpy.linspace(0, 1, 16), right=True)
gap = confidence - (predicted == labels)
out['ece'] = sum(abs(gap[bins == k].sum()) for k in set(bins)) / len(labels)
print(json.dumps(out))
